"""The code that both drivers of MegEngine share.

When the module imports MegEngine's packages, it does not import the libraries that a local run
never uses. With the entries of messages.json, the module turns MegEngine's own messages into clear
errors.

An entry of messages.json whose `when` is `not of shapes` says that an option causes the error. lar
uses such an entry only if the shapes of the inputs cannot cause the error. An entry of
messages.json whose `when` is `lost` explains the last message of an engine that has crashed or
hangs.
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

# MegEngine's packages need these libraries only to look for another MegEngine, and to open remote
# files. Importing them would take half of the start-up time.
UNUSED_LIBRARIES: Mapping[str, Mapping[str, Any]] = {
    "megfile": dict.fromkeys(("smart_copy", "smart_getmd5", "smart_getsize", "smart_open"), open),
    "pkg_resources": {"working_set": ()},
    "requests": {},
}


@contextlib.contextmanager
def lean_import() -> Iterator[None]:
    """Put empty modules in place of the unused libraries, within the `with` block."""
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
        # Imported modules never become garbage, so the collector need not look at them.
        gc.freeze()
        if collecting:
            gc.enable()


def import_package(name: str) -> Any:
    """Import one of MegEngine's packages without the libraries that a local run never uses.

    Raises:
        EngineMissing: the package is not installed, or does not load on this machine.
    """
    with importing("MegEngine"), lean_import():
        module = importlib.import_module(name)
    # MegEngine's library sets subnormal numbers to zero in this process; NumPy would warn of that.
    warnings.filterwarnings("ignore", "The value of the smallest subnormal")
    return module


MEANINGS = Meanings(__file__)


def resized_inputs(
    infos: Iterable[TensorInfo], fed_shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorInfo, tuple[int, ...]]]:
    """Return the inputs whose fed shape differs from the shape in the model file.

    With each input, the function returns the shape that is fed.
    """
    fed = [(info, fed_shapes[info.name]) for info in infos if info.name in fed_shapes]
    return [(info, shape) for info, shape in fed if shape != info.shape]


def shape_error(model: str, resized: Sequence[tuple[TensorInfo, tuple[int, ...]]]) -> UsageError:
    """Return the error for a model that MegEngine cannot compute with the fed shapes."""
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
    problem = f"MegEngine cannot run the model with {fed}; the model is for {own}"
    return UsageError(problem, hint, subject=model)


def explain_megengine(
    message: str,
    model: str,
    *,
    loading: bool,
    settings: Collection[str] = (),
    resized: Sequence[tuple[TensorInfo, tuple[int, ...]]] = (),
) -> LarError | None:
    """Return a clear error for a message of the engine, None if the message is unknown.

    `resized` has the inputs whose fed shape differs from the shape in the model file.
    """
    # Messages about shapes have these words in their text, or in the name of a function.
    is_of_shape = bool(resized and re.search("shape|layout", message))
    said = (message.strip().splitlines() or [""])[0]
    phases = (*phases_of(loading=loading), "" if is_of_shape else "not of shapes")
    error = MEANINGS.explain(message, model, said, phases=phases, settings=settings)
    return error or (shape_error(model, resized) if is_of_shape else None)


def explain_log(log: bytes) -> LarError | None:
    """Return a clear error for the log of a crashed or hanging engine, None for an unknown log."""
    return MEANINGS.explain(log.decode(errors="replace"), "", phases=("lost",))


def info_of(name: str, dtype: Any, shape: Iterable[int]) -> TensorInfo:
    """Describe an input of a model.

    MegEngine also accepts inputs with other sizes than the traced model has.
    """
    return TensorInfo(name=name, dtype=np.dtype(dtype).name, shape=tuple(shape), resizable=True)


class MegEngineDriver(Driver):
    """A driver of MegEngine.

    `package` is MegEngine's imported Python package, from which lar reads the engine's version.
    """

    name: Literal["lite", "graph"]
    package: Any
    fed_shapes: Mapping[str, tuple[int, ...]] = {}

    def note_shapes(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> bool:
        """Store the shapes of the inputs; return whether they differ from the previous shapes."""
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


# How long the computing thread polls for its next task before it sleeps
# (`SCQueueSynchronizer::max_spin`, src/core/impl/utils/thread.cpp of MegEngine). If the calling
# thread does not get a CPU at once, the computing thread polls in each iteration.
SPIN_SECONDS = 5e-3
SPIN_VARIABLE = "MGB_WORKER_MAX_SPIN"  # how many times it polls


def find_spin_seconds(settings: Mapping[str, Any]) -> float:
    """Return the maximum CPU time, in seconds, that a thread uses while it waits for work."""
    sleeps = NO_SPINNING.of(settings) or os.environ.get(SPIN_VARIABLE) == "0"
    return 0.0 if CPU_DEFAULT.of(settings) or sleeps else SPIN_SECONDS


def stop_spinning(_: MegEngineDriver, __: bool) -> None:
    # The engine reads this variable when its first thread waits; it has no function to set it.
    os.environ[SPIN_VARIABLE] = "0"
