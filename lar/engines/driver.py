"""The interface between the timed loop and an engine: the driver, its profiler and its recorder.

The module also turns an engine's own error messages into clear errors.
"""

from __future__ import annotations

import abc
import contextlib
import json
import re
import time
from _thread import get_native_id
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from lar.engines.formats import BROKEN
from lar.engines.option_rows import OptionRow
from lar.errors import CheckFailed, LarError, UsageError
from lar.measurement.noise import Meter, open_meter
from lar.options import table
from lar.options.values import pairs_in
from lar.records.run import EngineFacts, RunContext, RunSpec, TensorInfo

if TYPE_CHECKING:
    import numpy as np

    from lar.records import profile as records

T = TypeVar("T")
Recording = contextlib.AbstractContextManager[None]

HOST_THREAD = 1


class Misfit(Exception):
    """Raised if an engine cannot compute a model with the shapes of the inputs."""


@dataclass(frozen=True, kw_only=True)
class EngineTrace:
    """What an engine reports about all iterations of a profiled run.

    Times are on the recorder's clock. In `threads`, the host's thread has the number 1, and the
    engine's threads are numbered from 2 on. `thread_count` is the number of threads on which the
    engine computes. `dropped` names the facts that the engine cannot report. `dispatch_only` means
    that the engine reports no times of the device's own work. If `times` is "mean", each execution
    of an operator has the mean duration of all executions of this operator. `notes` are messages
    for the user. `engine_raw` is the engine's own profile of the last iteration. `raw_file` is the
    path of the engine's own profile of all iterations.
    """

    operators: tuple[records.ProfiledOperator, ...] = ()
    executions: Sequence[records.Execution] = ()
    spans: Sequence[records.Span] = ()
    allocations: tuple[records.Allocation, ...] = ()
    memory_plan: records.MemoryPlan | None = None
    threads: dict[int, str] = field(default_factory=dict)
    thread_count: int | None = None
    alignments: tuple[records.Alignment, ...] = ()
    dropped: tuple[str, ...] = ()
    dispatch_only: bool = False
    times: records.Times = "each"
    notes: tuple[str, ...] = ()
    engine_raw: bytes = b""
    raw_file: str = ""


class LateOutputs(Mapping[str, Any]):
    """The outputs by name; each output is fetched from the engine only when it is read."""

    def __init__(self, names: Sequence[str], fetch: Callable[[str], Any]) -> None:
        self._names, self._fetch = names, fetch

    def __getitem__(self, name: str) -> Any:
        return self._fetch(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class EngineProfiler(Protocol):
    """The part of a driver that collects the engine's own profile in a profiled run."""

    def take(self, step: records.Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Store the engine's report of the iteration that has just ended.

        The iteration's dispatch began at `forward_ns` and returned at `dispatched_ns`. The
        iteration's computation ended at `waited_ns`, before its outputs were copied.
        """

    def finish(self) -> EngineTrace:
        """Return the reports of all iterations, after the last iteration has ended."""


class Silent:
    """The recorder of a run without a profile; its methods record nothing."""

    # The time of day at which the recording began.
    unix_ns: int = 0

    # The begin of the recording, from which recorded times count, by `time.perf_counter_ns`.
    t0_ns: int = 0

    def attach(self, driver: Driver) -> None:
        """From now on, record the iterations that this driver runs."""

    def phase(self, name: str) -> Recording:
        """Record the time of the `with` block as a phase of the run."""
        return contextlib.nullcontext()

    def warming_up(self) -> Recording:
        """Record the iterations in the `with` block as iterations of the warm-up."""
        return contextlib.nullcontext()

    def each_feed(self, feeds: Iterator[T]) -> Iterator[T]:
        """Yield the inputs of each iteration.

        The time of reading the inputs is recorded as a part of the iteration.
        """
        return feeds

    def call(self, name: str) -> Recording:
        """Record the `with` block as one call of the engine's API."""
        return contextlib.nullcontext()

    def copy(self, name: str, size_bytes: int, tensor: str) -> Recording:
        """Record a call that copies a tensor within the host's memory."""
        return contextlib.nullcontext()

    def noting_begin(self, driver: Driver, copy: Callable[[], object]) -> Callable[[], object]:
        """Return a function that records the present time and then calls `copy`.

        The recorded time is the time at which the copying of the outputs began.
        """
        return copy

    def write(self, batch: int | None) -> list[str]:
        """Write the profile files that the spec asks for; return messages for the user."""
        return []


SILENT = Silent()


class Driver(abc.ABC):
    """A driver: one model, loaded by one engine, ready to be timed.

    The methods are called in this order: load, inputs and feed; then rearm (not timed), start and
    wait for each iteration; then outputs and close. The timed region begins before `start` is
    called and ends after `wait` has returned. `feed` may replace `start` and `wait` by functions of
    the engine, so that no other code runs in the timed region. If `start` or `wait` fails, the
    method raises an exception or returns a number other than 0. After `start` or `wait` has
    returned a number other than 0, `failure` returns the reason.
    """

    # The driver's name in the engine's table.
    name: str = ""

    # The number of this copy among those that run at once, from 0; `first` is the first copy.
    runner: int = 0

    # Returns the time in seconds; it never goes back.
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    # Waits for the given seconds on the clock, or slightly longer, without computing.
    sleep: Callable[[float], object] = staticmethod(time.sleep)

    # Waits for at most the given seconds on the clock; other threads may compute meanwhile.
    spin: Callable[[float], object] = staticmethod(lambda _: time.sleep(0))

    # Dispatches one iteration; returns when the host is free again.
    start: Callable[[], object]

    # Returns when the iteration that `start` dispatched has ended.
    wait: Callable[[], object]

    # Makes the engine ready for the next start, outside the timed region.
    rearm: Callable[[], object] | None = None

    # Keeps the results of an iteration that has ended, outside the timed region.
    after_iteration: Callable[[], object] | None = None

    # In a profiled run, records when an iteration began, was dispatched and had ended.
    record: Callable[[float, float, float], object] | None = None

    # Returns the seconds of the last wait in which the engine wrote its own profile.
    own_seconds: Callable[[], float] | None = None

    # Returns when the copy of the outputs began, if it is part of the iteration and profiled.
    copied_at: Callable[[], float] | None = None

    # Collects the engine's own profile; the hook of a profile option sets it.
    profiler: EngineProfiler | None = None

    # Records the phases and calls of a profiled run outside its iterations.
    recorder: Silent = SILENT

    # The engine's names for its functions that load, feed, forward, wait and give outputs.
    calls: Mapping[str, str] = {}

    # Whether the thread that calls `start` computes, alone or with others. If it only waits, lar
    # cannot find out which threads belong to which copy of a model.
    computes_in_caller: bool = True

    # Returns the device's own time of the last iteration, if the engine measures it.
    device_seconds: Callable[[], float] | None = None

    def __init__(
        self,
        spec: RunSpec,
        rows: Mapping[str, OptionRow[Any, Any]],
        context: RunContext | None = None,
    ) -> None:
        """Set up the driver without loading the model."""
        self.spec = spec
        self.context = context or RunContext()
        self.rows = rows
        # Messages of the hooks for the user; the run prints them as warnings.
        self.notes: list[str] = []
        self.uncached_operators = 0  # operators that ran and are not in the given cache
        self._fired: set[str] = set()
        self.first: Driver = self
        # The number of the next iteration, for its dump; the warm-up counts. It is None if an
        # earlier process has dumped the iteration.
        self.run_number: int | None = 0
        # Whether the first runner must begin alone, as it prepares data that all runners use.
        self.begins_alone = False
        self.set_up()

    def set_up(self) -> None:
        """Import the engine, and make the objects that the options' hooks change."""
        return

    @property
    def model_file(self) -> str:
        """The path of the model file to load.

        The returned file is the model file of the spec, or a model that was unpacked from the
        spec's file.
        """
        return self.context.model_file or self.spec.model

    @property
    def properties(self) -> Mapping[str, str]:
        """The engine's properties that the user set by `--engine-option`, by name."""
        return pairs_in(str(self.spec.settings.get(table.ENGINE_OPTION.key, "")).splitlines())

    def fire_hooks(self, stage: str) -> None:
        """Call the hooks of a stage for all options that are set, in the order of `rows`.

        The hooks of each stage are called only once. The stage `before_run` begins when the first
        inputs are fed.
        """
        if stage in self._fired:
            return
        self._fired.add(stage)
        shared = set()
        for key, row in self.rows.items():
            hook = getattr(row, stage)
            if hook is not None and key in self.spec.settings and hook not in shared:
                shared.add(hook)
                hook(self, self.spec.settings[key])

    @abc.abstractmethod
    def facts(self) -> EngineFacts:
        """Return facts about the run, such as the device and the number of threads that it uses."""

    def usual_facts(self, version: str, **libraries: str) -> EngineFacts:
        """Return the facts for an engine that takes NumPy arrays and uses the spec's device."""
        import numpy as np

        return EngineFacts(
            name=self.spec.engine,
            version=version,
            driver=self.name,
            device=self.spec.device,
            libraries={"numpy": np.__version__, **libraries},
            threads=self.thread_count(),
        )

    @abc.abstractmethod
    def load(self) -> None:
        """Load the model of the spec."""

    @abc.abstractmethod
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Return the model's inputs, which must be known before the first iteration."""

    @abc.abstractmethod
    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Convert and upload the inputs for the next iterations.

        `feed` may be called again, with arrays of the same shapes or of other shapes.
        """

    @abc.abstractmethod
    def outputs(self) -> Mapping[str, np.ndarray[Any, Any] | str]:
        """Return the last iteration's outputs by name; an output is fetched only when it is read.

        The value of an output that is not an array is a text: the engine's name for the output's
        type.
        """

    def failure(self) -> Exception:
        """Return the reason for a failure, which `start` or `wait` reported by a nonzero number."""
        return RuntimeError("the engine reported no reason")

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        """Return a clear error that replaces an engine's own error.

        The result is None if lar does not know the engine's error.
        """
        fits = not isinstance(error, Misfit)
        return None if fits else UsageError(str(error), subject=self.spec.model)

    def copy_outputs(self) -> None:
        """Copy the outputs of the last iteration to the host.

        The time to copy the outputs belongs to the iteration.
        """
        outputs = self.outputs()
        for name in outputs:
            outputs[name]

    def meter(self) -> Meter | None:
        """Return a meter, which reads the machine's noise and CPU times between iterations.

        If several copies of the model run at once, the meter reads only the thread that calls this
        method. The result is None if this thread only waits while other threads compute the model.
        """
        if self.spec.runners == 1:
            return open_meter()
        return open_meter(str(get_native_id())) if self.computes_in_caller else None

    def default_threads(self) -> int | None:
        """Return the number of threads that a copy of the model uses if no option sets this number.

        The result is None if the number is unknown.
        """
        return None

    def thread_count(self) -> int | None:
        """Return the number of CPU threads that compute a copy of the model, None if unknown."""
        settings = self.spec.settings
        if not self.spec.device.startswith("cpu"):
            return None
        if table.CPU_DEFAULT.of(settings):
            return 1
        asked = table.MULTITHREAD.of(settings) or table.MULTITHREAD_DEFAULT.of(settings)
        return asked or self.default_threads()

    def close(self) -> None:  # noqa: B027 - most drivers hold nothing that the process's end does not free
        """Release the model."""


# The meanings of an engine's own messages, from `messages.json` beside the engine's modules


ERRORS = {"usage": UsageError, "engine": LarError, "check": CheckFailed}


class Meaning(NamedTuple):
    """What an engine's messages with a certain pattern mean for the user: a problem and a hint.

    The texts of problem and hint may contain these fields in braces: the groups of the pattern,
    `model`, `said` (the important line of the message) and `broken` (a hint for a damaged file).
    `flag` is the option that caused the error. `options` names options in `lar.options.table`. A
    meaning with `options` is used only if the user gave one of the `options`, which is then
    reported as the cause. If no option is the cause, the error names the model file, unless `about`
    is empty. `when` is the phase in which the meaning is used. The phase is `loading`, `running`, a
    phase that only this engine has, or empty for both loading and running. `note` is a comment for
    readers of messages.json.
    """

    pattern: str
    problem: str
    hint: str = ""
    kind: Literal["usage", "engine", "check"] = "usage"
    flag: str = ""
    options: str = ""
    about: Literal["file", ""] = "file"
    when: str = ""
    note: str = ""

    def explain(
        self, message: str, model: str, settings: Collection[str], facts: Mapping[str, str]
    ) -> LarError | None:
        """Return the error that explains a message, None if the message does not match."""
        found = re.search(self.pattern, message)
        named = getattr(table, self.options) if self.options else ()
        options = named if isinstance(named, tuple) else (named,)
        flags = [option.flag for option in options if option.key in settings]
        if not found or bool(flags) != bool(options):
            return None
        known = {**facts, **found.groupdict(), "model": model, "broken": BROKEN}
        texts = (text.format(*found.groups(), **known) for text in (self.problem, self.hint))
        flag = (*flags, self.flag)[0]
        subject = model if self.about and not flag else ""
        return ERRORS[self.kind](*texts, flag=flag, subject=subject)


class Meanings:
    """The meanings in the `messages.json` beside a module.

    The first meaning whose pattern matches a message is used.
    """

    def __init__(self, module: str) -> None:
        self.file = Path(module).with_name("messages.json")

    @cached_property
    def rows(self) -> list[Meaning]:
        """The meanings of the engine's messages.

        The file with the meanings is read at the first message, since few runs need the file.
        """
        return [Meaning(**row) for row in json.loads(self.file.read_text())]

    def explain(
        self,
        message: str,
        model: str,
        said: str = "",
        *,
        phases: Collection[str] = ("", "loading"),
        settings: Collection[str] = (),
        **facts: str,
    ) -> LarError | None:
        """Return the clear error that explains a message, or None if no meaning matches.

        A meaning is used only if its phase is among `phases`. `said` is the important line of the
        message. `facts` are the values of further fields that the texts of a meaning contain.
        """
        facts["said"] = said or last_line(message)
        known = (
            it.explain(message, model, settings, facts) for it in self.rows if it.when in phases
        )
        return next(filter(None, known), None)


def phases_of(*, loading: bool) -> tuple[str, str]:
    """Return the values of `Meaning.when` that apply while a model is loaded, or while it runs."""
    return ("", "loading" if loading else "running")


def last_line(message: str) -> str:
    """Return the last line of a message, cut to at most 160 characters.

    The earlier lines of the message often only name places in the engine's source.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["nothing"]
    return re.sub(r"^\w+: ", "", lines[-1])[:160]
