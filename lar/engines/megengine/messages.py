"""Clear errors for MegEngine's own messages, for both drivers; messages.json says what they mean.

The messages `not of shapes` blame an option, unless the shapes that are fed are to blame. The
messages `lost` are the last ones of an engine that has crashed or hangs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lar.engines.meanings import Meanings, phases_of
from lar.errors import LarError, UsageError

if TYPE_CHECKING:
    from lar.records.run import TensorInfo

MEANINGS = Meanings(__file__)


def resized_inputs(
    infos: Iterable[TensorInfo], fed_shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorInfo, tuple[int, ...]]]:
    """Return the inputs that are fed with another shape than their file's, with that shape."""
    fed = [(info, fed_shapes[info.name]) for info in infos if info.name in fed_shapes]
    return [(info, shape) for info, shape in fed if shape != info.shape]


def shape_error(model: str, resized: Sequence[tuple[TensorInfo, tuple[int, ...]]]) -> UsageError:
    """Return the error of a model that cannot be computed with the shapes that are fed."""
    from lar.inputs.images import image_size  # imports NumPy
    from lar.inputs.model_inputs import hint_to_generate
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
    # The engine's checks of shapes have these words in their text or in the name of a function.
    is_of_shape = bool(resized and re.search("shape|layout", message))
    said = (message.strip().splitlines() or [""])[0]
    phases = (*phases_of(loading=loading), "" if is_of_shape else "not of shapes")
    error = MEANINGS.explain(message, model, said, phases=phases, settings=settings)
    return error or (shape_error(model, resized) if is_of_shape else None)


def explain_log(log: bytes) -> LarError | None:
    """Return the error of an engine that has printed this and is lost, None if it is not."""
    return MEANINGS.explain(log.decode(errors="replace"), "", phases=("lost",))
