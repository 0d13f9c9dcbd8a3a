"""Clear errors for MegEngine's own messages, for both drivers; messages.json says what they mean.

Of the meanings `always`, the first that fits counts. Those `not of shapes` come after them; they
blame an option, and only where the shapes that are fed are not to blame. The `last words` are what
the engine prints when it is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from lar.engines.formats import BROKEN
from lar.errors import CheckFailed, LarError, UsageError
from lar.options import table

if TYPE_CHECKING:
    from lar.records.run import TensorInfo

KINDS = {"usage": UsageError, "engine": LarError, "check": CheckFailed}


class Meaning(msgspec.Struct, frozen=True):
    """What a message of the engine's means to the user: what is wrong, and what to do.

    Both texts may hold groups of the pattern, the name of the `model` and what the engine `said`,
    in a line. `options` names one or several of the table of options: one of them must be given,
    and is named as the flag. `about` is whether the error is about the model file, perhaps only
    while that is loaded.
    """

    pattern: str
    problem: str
    hint: str
    options: str = ""
    kind: Literal["usage", "engine", "check"] = "usage"
    about: Literal["", "file", "loading"] = ""

    def explain(
        self, message: str, model: str, *, loading: bool, settings: Collection[str]
    ) -> LarError | None:
        """Return the error for a message, None for another one."""
        named = getattr(table, self.options) if self.options else ()
        options = named if isinstance(named, tuple) else (named,)
        flags = [option.flag for option in options if option.key in settings]
        found = re.search(self.pattern, message)
        is_for_it = bool(flags) == bool(options) and (loading or self.about != "loading")
        if not (found and is_for_it):
            return None
        said = (message.strip().splitlines() or ["nothing"])[0]
        facts = {**found.groupdict(), "model": model, "said": said, "broken": BROKEN}
        texts = (text.format(*found.groups(), **facts) for text in (self.problem, self.hint))
        subject = model if self.about else ""
        return KINDS[self.kind](*texts, flag=(*flags, "")[0], subject=subject)


MEANINGS = msgspec.json.decode(
    Path(__file__).with_name("messages.json").read_bytes(), type=dict[str, list[Meaning]]
)


def resized_inputs(
    infos: Iterable[TensorInfo], fed_shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorInfo, tuple[int, ...]]]:
    """Return the inputs that are fed with another shape than their file's, with that shape."""
    fed = [(info, fed_shapes[info.name]) for info in infos if info.name in fed_shapes]
    return [(info, shape) for info, shape in fed if shape != info.shape]


def shape_error(model: str, resized: Sequence[tuple[TensorInfo, tuple[int, ...]]]) -> UsageError:
    """Return the error of a model that cannot be computed with the shapes that are fed."""
    from lar.inputs.axes import hint_to_generate
    from lar.inputs.image_settings import image_size  # imports NumPy
    from lar.records.run import format_shape

    fed = ", ".join(f"{info.name} of shape {format_shape(shape)}" for info, shape in resized)
    own = ", ".join(format_shape(info.shape) for info, _ in resized)
    (info, shape), *_ = resized
    hint = f"feed it that shape: {hint_to_generate(info)}"
    if len(shape) == 4 and image_size(shape) != image_size(info.shape):
        height, width = image_size(info.shape)
        hint += f", --resize {height}x{width} makes an image fit"
    return UsageError(
        f"MegEngine cannot compute it with {fed}; it was dumped for {own}", hint, subject=model
    )


def explain_megengine(
    message: str,
    model: str,
    *,
    loading: bool,
    settings: Collection[str] = (),
    resized: Sequence[tuple[TensorInfo, tuple[int, ...]]] = (),
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one.

    `resized` are the inputs fed with other shapes than those of the model file.
    """
    # The engine's checks of shapes say so, or stand in functions that are called so.
    is_of_shape = bool(resized and re.search("shape|layout", message))
    meanings = MEANINGS["always"] + ([] if is_of_shape else MEANINGS["not of shapes"])
    for meaning in meanings:
        if error := meaning.explain(message, model, loading=loading, settings=settings):
            return error
    return shape_error(model, resized) if is_of_shape else None


def explain_log(log: bytes) -> LarError | None:
    """Return the error of an engine that has printed this and is lost, None where it is not."""
    text = log.decode(errors="replace")
    errors = (it.explain(text, "", loading=True, settings=()) for it in MEANINGS["last words"])
    return next(filter(None, errors), None)
