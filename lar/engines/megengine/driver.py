"""What both drivers of MegEngine have in common.

They import MegEngine's packages without what a local run never uses.

Clear errors for MegEngine's own messages, for both drivers; messages.json says what they mean.

The messages `not of shapes` blame an option, unless the shapes that are fed are to blame. The
messages `lost` are the last ones of an engine that has crashed or hangs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import sys
import types
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lar.engines.driver import Driver, Meanings, phases_of
from lar.engines.engine import importing
from lar.engines.megengine.symbols import read_libraries
from lar.errors import LarError, UsageError
from lar.options.table import CPU_DEFAULT, NO_SPINNING
from lar.records.run import EngineFacts, TensorInfo

# The packages import these only to look for another MegEngine and to open and download remote
# files; they would cost half of the start-up.
UNUSED_LIBRARIES: Mapping[str, Mapping[str, Any]] = {
    "megfile": dict.fromkeys(("smart_copy", "smart_getmd5", "smart_getsize", "smart_open"), open),
    "pkg_resources": {"working_set": ()},
    "requests": {},
}


@contextlib.contextmanager
def lean_import() -> Iterator[None]:
    """While this is open, empty modules stand in for the libraries that are not used."""
    stand_ins = [name for name in UNUSED_LIBRARIES if name not in sys.modules]
    for name in stand_ins:
        module = types.ModuleType(name)
        vars(module).update(UNUSED_LIBRARIES[name])
        sys.modules[name] = module
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
        # What was imported never becomes garbage: the collector need not look at it.
        gc.freeze()
        if collecting:
            gc.enable()


def import_package(name: str) -> Any:
    """Import one of MegEngine's packages without the libraries that a local run never uses.

    Raises:
        EngineMissing: it is not installed, or does not load on this machine.
    """
    with importing("MegEngine"), lean_import():
        module = importlib.import_module(name)
    # Its library makes subnormal numbers zero in this process, which NumPy would warn of.
    warnings.filterwarnings("ignore", "The value of the smallest subnormal")
    return module


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


def info_of(name: str, dtype: Any, shape: Iterable[int]) -> TensorInfo:
    """Describe an input; MegEngine takes other sizes than the traced ones."""
    return TensorInfo(name=name, dtype=np.dtype(dtype).name, shape=tuple(shape), resizable=True)


class MegEngineDriver(Driver):
    """A driver of MegEngine; `package` is what it has imported, with its version."""

    name: Literal["lite", "graph"]
    package: Any
    fed_shapes: Mapping[str, tuple[int, ...]] = {}

    def note_shapes(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> bool:
        """Note the shapes of what is fed; return whether they are others than before."""
        before, self.fed_shapes = self.fed_shapes, {name: it.shape for name, it in arrays.items()}
        return before != self.fed_shapes

    def default_threads(self) -> int | None:
        return 1

    def facts(self) -> EngineFacts:
        facts = self.usual_facts(self.package.__version__, **read_libraries())
        return replace(facts, spin_seconds=find_spin_seconds(self.spec.settings))

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        return explain_megengine(
            str(error),
            self.spec.model,
            loading=loading,
            settings=self.spec.settings,
            resized=resized_inputs(self.inputs(), self.fed_shapes),
        )


# The thread that computes asks for its next task again and again for so long, and sleeps after that
# (`SCQueueSynchronizer::max_spin`, src/core/impl/utils/thread.cpp of MegEngine). A caller that is
# not given a CPU at once makes it do so in each iteration.
SPIN_SECONDS = 5e-3
SPIN_VARIABLE = "MGB_WORKER_MAX_SPIN"  # how often it asks


def find_spin_seconds(settings: Mapping[str, Any]) -> float:
    """Return how much CPU time a thread spends at most while it waits for work."""
    sleeps = NO_SPINNING.of(settings) or os.environ.get(SPIN_VARIABLE) == "0"
    return 0.0 if CPU_DEFAULT.of(settings) or sleeps else SPIN_SECONDS


def stop_spinning(_: MegEngineDriver, __: bool) -> None:
    # The engine reads it when the first thread waits. It heeds no call.
    os.environ[SPIN_VARIABLE] = "0"
