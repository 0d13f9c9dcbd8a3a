"""What both drivers of MegEngine have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lar.engines.driver import Driver
from lar.engines.megengine.messages import explain_megengine, resized_inputs
from lar.engines.megengine.symbols import read_libraries
from lar.errors import LarError
from lar.options.table import CPU_DEFAULT, NO_SPINNING
from lar.records.run import EngineFacts, TensorInfo


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
