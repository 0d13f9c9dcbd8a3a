"""What every engine driver is: the seam between the timed loop and an engine."""

from __future__ import annotations

import abc
import time
from _thread import get_native_id
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lar.engines.profiler import SILENT, EngineProfiler, Silent
from lar.engines.table import OptionRow
from lar.errors import LarError
from lar.measurement.noise import Meter, ThreadMeter
from lar.records.run import EngineFacts, RunContext, RunSpec, TensorInfo

if TYPE_CHECKING:
    import numpy as np


class Driver(abc.ABC):
    """One model, loaded by one engine, ready to be timed.

    The order of calls is load, inputs, feed, then for each iteration rearm (untimed), start and
    wait, then outputs, close. `start` and `wait` are called between two clock reads: they are
    set by `feed` to the engine's own functions, so that nothing else stands in the timed region.
    They raise, or return a number other than 0, when they fail (`failure` then gives the reason).
    """

    name: str = ""
    """The driver's name in the engine's table."""

    runner: int
    """Which of the copies that run at once this is, from 0; `first` is the first of them."""

    clock: Callable[[], float] = staticmethod(time.perf_counter)
    """Seconds, monotonic."""

    start: Callable[[], object]
    """Dispatches one iteration; returns when the host is free again."""

    wait: Callable[[], object]
    """Returns when the iteration that was started has ended."""

    rearm: Callable[[], object] | None = None
    """Makes the engine ready for the next start, outside the timed region."""

    after_iteration: Callable[[], object] | None = None
    """Keeps what an iteration gave when it has ended, outside the timed region."""

    record: Callable[[float, float, float], object] | None = None
    """In a profiled run, records an iteration: when it began, was dispatched and had ended."""

    own_seconds: Callable[[], float] | None = None
    """How long the last wait was the engine's work on its own profile."""

    copied_at: Callable[[], float] | None = None
    """When the copy of the outputs began, where that is part of the iteration and profiled."""

    profiler: EngineProfiler | None = None
    """Takes the engine's own profile; the option's hook sets it."""

    recorder: Silent = SILENT
    """Records what a profiled run does outside its iterations."""

    calls: Mapping[str, str] = {}
    """What the engine calls its functions that load, feed, forward, wait and give outputs."""

    device_seconds: Callable[[], float] | None = None
    """The device's own time of the last iteration, where the engine measures it."""

    def __init__(
        self,
        spec: RunSpec,
        rows: Mapping[str, OptionRow[Any, Any]],
        context: RunContext | None = None,
    ) -> None:
        """Import the engine; loads nothing yet."""
        self.spec = spec
        self.context = context or RunContext()
        self.rows = rows
        # What a hook has to tell the user besides; the run prints it as a warning.
        self.notes: list[str] = []
        self._fired: set[str] = set()
        self.runner = 0
        self.first: Driver = self
        # The number of the next run, the warm-up's being the first, for what is dumped of it;
        # None: an earlier process has dumped it.
        self.run_number: int | None = 0
        # Whether the first run prepares what all runners use, so that they must not begin together.
        self.begins_alone = False

    @property
    def model_file(self) -> str:
        """The file to load: that of the spec, but for a model that was packed with testcases."""
        return self.context.model_file or self.spec.model

    def fire_hooks(self, stage: str) -> None:
        """Call the hooks of one stage for the options that are set, in the table's order.

        Each stage comes once, before_run when the first inputs are fed.
        """
        if stage in self._fired:
            return
        self._fired.add(stage)
        for key, row in self.rows.items():
            hook = getattr(row, stage)
            if hook is not None and key in self.spec.settings:
                hook(self, self.spec.settings[key])

    @abc.abstractmethod
    def facts(self) -> EngineFacts:
        """Return what really runs: version, driver, device."""

    @abc.abstractmethod
    def load(self) -> None:
        """Load the model of the spec."""

    @abc.abstractmethod
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Return the model's inputs; known before the first run."""

    @abc.abstractmethod
    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Convert and upload the inputs, and make the next iteration possible.

        It may be called again, with other arrays of the same or of other shapes.
        """

    @abc.abstractmethod
    def outputs(self) -> Mapping[str, np.ndarray[Any, Any] | str]:
        """Return the outputs of the last iteration, by name, each fetched when asked for.

        For one that is no array of numbers, the engine's name of its type.
        """

    def failure(self) -> Exception:
        """Return why `start` or `wait` returned a number other than 0."""
        return RuntimeError("the engine reported no reason")

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        """Return a clear error for an engine's own message, None for an unknown one."""
        return None

    def copy_outputs(self) -> None:
        """Copy the outputs of the last iteration to the host, as part of the iteration."""
        outputs = self.outputs()
        for name in outputs:
            outputs[name]

    def meter(self) -> Meter | None:
        """Return what reads the noise and the threads' CPU time between iterations.

        Beside other runners, it is the calling thread's alone.
        """
        return ThreadMeter.open([str(get_native_id())] if self.spec.runners > 1 else None)

    def close(self) -> None:  # noqa: B027 - most drivers hold nothing that the process's end does not free
        """Release the model."""
