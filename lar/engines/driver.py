"""The seam between the timed loop and an engine: a driver, its profiler, and what is recorded; and
what an engine's own messages mean."""

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
    """An engine cannot compute a model with the shapes that are fed; it says which, and why."""


@dataclass(frozen=True, kw_only=True)
class EngineTrace:
    """An engine's own report of all iterations.

    Times are those of the recorder's clock. Threads are numbered from 2, the host's being 1;
    `thread_count` is how many the engine computes on. `dropped` names what it cannot report, and
    `dispatch_only` says that it reports no times of the device that operators ran on. With `times`
    "mean" each execution of an operator lasts as long as its mean. `notes` are for the user.
    `engine_raw` is the engine's own profile of the last iteration; `raw_file` is the file in
    which it has written that of all.
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
    """Outputs by name, each fetched when it is asked for."""

    def __init__(self, names: Sequence[str], fetch: Callable[[str], Any]) -> None:
        self._names, self._fetch = names, fetch

    def __getitem__(self, name: str) -> Any:
        return self._fetch(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class EngineProfiler(Protocol):
    """Takes an engine's own profile; a driver has one in a profiled run."""

    def take(self, step: records.Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Keep what the engine has reported of an iteration that has just ended.

        Its dispatch began at `forward_ns` and returned at `dispatched_ns`; it had been computed at
        `waited_ns`, before its outputs were copied.
        """

    def finish(self) -> EngineTrace:
        """Return all that was kept, when the last iteration has ended."""


class Silent:
    """Records nothing, in a run that is not profiled."""

    # The time of day at which the recording began.
    unix_ns: int = 0

    # The zero of all times that are recorded, on the clock of `time.perf_counter_ns`.
    t0_ns: int = 0

    def attach(self, driver: Driver) -> None:
        """Have a driver's iterations recorded."""

    def phase(self, name: str) -> Recording:
        """Record what is done inside as a phase."""
        return contextlib.nullcontext()

    def warming_up(self) -> Recording:
        """Record the iterations inside as those of the warm-up."""
        return contextlib.nullcontext()

    def each_feed(self, feeds: Iterator[T]) -> Iterator[T]:
        """Yield what is fed; the reading of each is the beginning of the next iteration."""
        return feeds

    def call(self, name: str) -> Recording:
        """Record what is done inside as one call of the engine's API."""
        return contextlib.nullcontext()

    def copy(self, name: str, size_bytes: int, tensor: str) -> Recording:
        """Record a call that copies a tensor within the host's memory."""
        return contextlib.nullcontext()

    def noting_begin(self, driver: Driver, copy: Callable[[], object]) -> Callable[[], object]:
        """Return a copy of the outputs that notes when it began."""
        return copy

    def write(self, batch: int | None) -> list[str]:
        """Write the files that the spec asks for; return what the user should know of them."""
        return []


SILENT = Silent()


class Driver(abc.ABC):
    """One model, loaded by one engine, ready to be timed.

    The order of calls is load, inputs, feed, then for each iteration rearm (untimed), start and
    wait, then outputs, close. `start` and `wait` are called between two clock reads: they are
    set by `feed` to the engine's own functions, so that nothing else stands in the timed region.
    They raise, or return a number other than 0, when they fail (`failure` then gives the reason).
    """

    # The driver's name in the engine's table.
    name: str = ""

    # The number of this copy among those that run at once, from 0; `first` is the first copy.
    runner: int = 0

    # Seconds, monotonic.
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    # Lets that many seconds pass on the clock, or a few more, without computing.
    sleep: Callable[[float], object] = staticmethod(time.sleep)

    # Lets some time pass, at most that many seconds on the clock; others may compute meanwhile.
    spin: Callable[[float], object] = staticmethod(lambda _: time.sleep(0))

    # Dispatches one iteration; returns when the host is free again.
    start: Callable[[], object]

    # Returns when the iteration that was started has ended.
    wait: Callable[[], object]

    # Makes the engine ready for the next start, outside the timed region.
    rearm: Callable[[], object] | None = None

    # Keeps what an iteration gave when it has ended, outside the timed region.
    after_iteration: Callable[[], object] | None = None

    # In a profiled run, records an iteration: when it began, was dispatched and had ended.
    record: Callable[[float, float, float], object] | None = None

    # Returns the part of the last wait that the engine spent on its own profile.
    own_seconds: Callable[[], float] | None = None

    # Returns when the copy of the outputs began, if it is part of the iteration and profiled.
    copied_at: Callable[[], float] | None = None

    # Takes the engine's own profile; the option's hook sets it.
    profiler: EngineProfiler | None = None

    # Records what a profiled run does outside its iterations.
    recorder: Silent = SILENT

    # The engine's names for its functions that load, feed, forward, wait and give outputs.
    calls: Mapping[str, str] = {}

    # Whether the thread that calls `start` computes, beside others or not. Where it only waits,
    # the threads of several copies of a model cannot be told apart.
    computes_in_caller: bool = True

    # The device's own time of the last iteration, where the engine measures it.
    device_seconds: Callable[[], float] | None = None

    def __init__(
        self,
        spec: RunSpec,
        rows: Mapping[str, OptionRow[Any, Any]],
        context: RunContext | None = None,
    ) -> None:
        """Set up the driver; loads no model yet."""
        self.spec = spec
        self.context = context or RunContext()
        self.rows = rows
        # Further messages of the hooks for the user; the run prints them as warnings.
        self.notes: list[str] = []
        self.uncached_operators = 0  # those that ran and are not in the cache given
        self._fired: set[str] = set()
        self.first: Driver = self
        # The number of the next run, for its dump; the warm-up's run is the first. None: an
        # earlier process has dumped it.
        self.run_number: int | None = 0
        # Whether the first run prepares what all runners use, so that they must not begin together.
        self.begins_alone = False
        self.set_up()

    def set_up(self) -> None:
        """Import the engine, and make what the hooks of the options change."""
        return

    @property
    def model_file(self) -> str:
        """The file to load: that of the spec, but for a model that was packed with testcases."""
        return self.context.model_file or self.spec.model

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the engine that `--engine-option` sets, by name."""
        text = str(self.spec.settings.get(table.ENGINE_OPTION.key, ""))
        return pairs_in(text.splitlines())

    def fire_hooks(self, stage: str) -> None:
        """Call the hooks of one stage for the options that are set, in the table's order.

        Each stage comes once, before_run when the first inputs are fed.
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
        """Return what really runs: version, driver, device."""

    def usual_facts(self, version: str, **libraries: str) -> EngineFacts:
        """Return the facts of an engine that takes arrays of NumPy, and runs as the spec says."""
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
        """Return the model's inputs; known before the first run."""

    @abc.abstractmethod
    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Convert and upload the inputs, and make the next iteration possible.

        It may be called again, with other arrays of the same or of other shapes.
        """

    @abc.abstractmethod
    def outputs(self) -> Mapping[str, np.ndarray[Any, Any] | str]:
        """Return the outputs of the last iteration, by name, each fetched when asked for.

        For an output that is not an array of numbers, the value is the engine's name of its type.
        """

    def failure(self) -> Exception:
        """Return the reason why `start` or `wait` returned a number other than 0."""
        return RuntimeError("the engine reported no reason")

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        """Return a clear error for an engine's own message, None for an unknown one."""
        fits = not isinstance(error, Misfit)
        return None if fits else UsageError(str(error), subject=self.spec.model)

    def copy_outputs(self) -> None:
        """Copy the outputs of the last iteration to the host, as part of the iteration."""
        outputs = self.outputs()
        for name in outputs:
            outputs[name]

    def meter(self) -> Meter | None:
        """Return a meter that reads the noise and the threads' CPU time between iterations.

        Beside other runners it reads the calling thread alone; None if that thread only waits.
        """
        if self.spec.runners == 1:
            return open_meter()
        return open_meter(str(get_native_id())) if self.computes_in_caller else None

    def default_threads(self) -> int | None:
        """Return how many threads compute a copy of the model if no option says so, None if not
        known."""
        return None

    def thread_count(self) -> int | None:
        """Return how many threads of the CPU compute a copy of the model, None if not known."""
        settings = self.spec.settings
        if not self.spec.device.startswith("cpu"):
            return None
        if table.CPU_DEFAULT.of(settings):
            return 1
        asked = table.MULTITHREAD.of(settings) or table.MULTITHREAD_DEFAULT.of(settings)
        return asked or self.default_threads()

    def close(self) -> None:  # noqa: B027 - most drivers hold nothing that the process's end does not free
        """Release the model."""


# What an engine's own messages mean to the user: `messages.json` beside the engine's modules


ERRORS = {"usage": UsageError, "engine": LarError, "check": CheckFailed}


class Meaning(NamedTuple):
    """What is wrong where a message has a pattern, and what to do.

    Both texts may hold the groups of the pattern, the name of the `model`, what the engine `said`
    in a line, and `broken`, advice about a damaged file. `flag` is the option that is to blame;
    `options` names options of the table: one of them must be given, and the error names it as the
    flag. Without a flag the model file is to blame, unless the message is not `about` it. `when` is
    the phase in which the message means that: empty for `loading` and `running`, or another of the
    engine's. `note` is for those who read the file.
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
        """Return the error behind a message, None for another one."""
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
    """The meanings in the file beside a module; the first that fits a message counts."""

    def __init__(self, module: str) -> None:
        self.file = Path(module).with_name("messages.json")

    @cached_property
    def rows(self) -> list[Meaning]:
        """All of them; few runs need one."""
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
        """Return the clear error behind a message in some phases, None for an unknown one; `said`
        is its important part, in one line, and `facts` fill the texts."""
        facts["said"] = said or last_line(message)
        known = (
            it.explain(message, model, settings, facts) for it in self.rows if it.when in phases
        )
        return next(filter(None, known), None)


def phases_of(*, loading: bool) -> tuple[str, str]:
    """Return the phases of a driver that loads a model, or runs it."""
    return ("", "loading" if loading else "running")


def last_line(message: str) -> str:
    """Return what the last line of a message says, at most 160 characters: those before it often
    say where in its own source the engine found it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["nothing"]
    return re.sub(r"^\w+: ", "", lines[-1])[:160]
