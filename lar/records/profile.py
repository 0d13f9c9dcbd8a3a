"""A profile as every report sees it: steps, executions of operators, spans, memory.

All times are nanoseconds after `Clock.t0_ns` of the worker's clock, as integers, so that sums are
exact. What an engine does not report is None, never 0. The records are structs instead of
dataclasses because a profile holds tens of thousands of them; their names in the file are those of
the schema in `lar.profiles.trace_file`.

Thousands of iterations have very many executions and spans, so these are also columns of integers:
an execution takes 57 bytes there, a span 24, and as a record either takes some 250. A record is
made when it is asked for.
"""

from __future__ import annotations

import typing
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import islice, zip_longest
from operator import add, le
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypedDict, TypeVar, overload

import msgspec

from lar.records.record import Record
from lar.records.run import MachineFacts
from lar.records.summary import Difference

Category = Literal[
    "phase", "runtime", "kernel", "memcpy", "memset", "relayout", "user_annotation", "osrt"
]

Times = Literal["each", "mean"]
"""The times of operators: of each execution, or the means of all iterations."""

Interval = tuple[int, int]  # begin and end

# Copies of a model that run at once have threads of their own, whose numbers are so far apart.
THREADS_OF_A_COPY = 1000

# What is counted: bytes, operations, elements. A file with a negative count is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

# How long something took; a record that lasts longer than nanoseconds can count is damaged.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=4e9)]


class TensorFact(msgspec.Struct, frozen=True):
    """A tensor that an operator reads or writes."""

    shape: tuple[Count, ...] = ()
    dtype: str = ""
    layout: str = ""


class ThreadUse(msgspec.Struct, frozen=True):
    """How an operator used the threads of an engine, summed over its timed executions.

    The first three are the calling thread's times: for its own share of the work, for handing out
    shares, and for waiting until the others had done theirs. `tasks` counts the shares that each
    other thread has done.
    """

    executions: Count = 0
    computing_ns: Count = 0
    handing_out_ns: Count = 0
    waiting_ns: Count = 0
    tasks: tuple[Count, ...] = ()

    @property
    def waiting_share(self) -> float | None:
        """The part of the calling thread's time in which it waited for others: 0 is balanced."""
        total = self.computing_ns + self.handing_out_ns + self.waiting_ns
        return self.waiting_ns / total if total else None

    def with_that_of(self, other: ThreadUse) -> ThreadUse:
        """Return the sums of both; the threads of each copy's pool count as the same."""
        *own, own_tasks = msgspec.structs.astuple(self)
        *others, other_tasks = msgspec.structs.astuple(other)
        tasks = map(sum, zip_longest(own_tasks, other_tasks, fillvalue=0))
        sums = *map(add, own, others), tuple(tasks)
        return ThreadUse(*sums)


class ProfiledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of the graph that was executed.

    `flops` counts a multiply-accumulate as two; `size_bytes` is what it reads and writes. `source`
    says whether the engine reported these two or they were derived from shapes. `module` is the
    path of the layer it belongs to, where names show it. `algorithm` is what the engine has chosen
    or, where it reports the type alone, the kind of its kernel. `threads` is there where an engine
    reports it.

    `reads` and `writes` are the tensors of the graph that it takes and gives, in order, by keys
    that are unique there: names, or names with numbers; empty if not known. `weights` are those of
    `reads` that are not computed from the inputs. `names` has the model file's names of some of
    them, if they are others.
    """

    id: str
    type: str
    name: str
    module: str = ""
    inputs: tuple[TensorFact, ...] = msgspec.field(default=(), name="in")
    outputs: tuple[TensorFact, ...] = msgspec.field(default=(), name="out")
    parameters: dict[str, Any] = msgspec.field(default_factory=dict, name="params")
    flops: Count | None = None
    size_bytes: Count | None = msgspec.field(default=None, name="bytes")
    algorithm: str | None = msgspec.field(default=None, name="algo")
    workspace_bytes: Count | None = msgspec.field(default=None, name="workspace")
    provider: str = ""
    source: Literal["measured", "derived", "none"] = msgspec.field(default="none", name="src")
    threads: ThreadUse | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    names: dict[str, str] = msgspec.field(default_factory=dict)


class Lasting:
    """Anything that begins and ends."""

    __slots__ = ()
    start_ns: int
    end_ns: int

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.end_ns

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class Step(Lasting, msgspec.Struct, frozen=True, gc=False):
    """One iteration of one copy of the model, with the loading of its item and the copy of its
    input where it has its own.

    Timed iterations are numbered from 0, as a run prints them. The numbers of warm-up iterations
    lie below 0: that of the first is -1, of the second -2.
    """

    number: int
    start_ns: int
    end_ns: int
    warmup: bool = False
    copy: int = 0

    @property
    def title(self) -> str:
        """What the run calls it: `iteration 0`, and `warm-up 0`."""
        return f"warm-up {-1 - self.number}" if self.number < 0 else f"iteration {self.number}"

    @property
    def trace_name(self) -> str:
        """Its name in traces."""
        return f"Warmup#{-1 - self.number}" if self.number < 0 else f"ProfilerStep#{self.number}"


class Execution(Lasting, msgspec.Struct, frozen=True, gc=False):
    """One execution of an operator; `operator` counts in `Profile.operators`.

    It lasts from `start_ns` to `end_ns` on `thread`, and waits for `wait_ns` of that before it
    computes. If another thread dispatched it, that thread is recorded too. On a CPU the thread is
    one of the host's, on CUDA it stands for a stream.
    """

    operator: int
    step: int
    thread: int
    start_ns: int
    end_ns: int
    wait_ns: int | None = None
    dispatch_start_ns: int | None = None
    dispatch_end_ns: int | None = None
    dispatch_thread: int | None = None
    warmup: bool = False

    @property
    def compute_ns(self) -> int:
        """The time after the wait."""
        return self.end_ns - self.start_ns - (self.wait_ns or 0)

    @property
    def computation(self) -> Interval:
        """The begin and end of the time after the wait."""
        return self.start_ns + (self.wait_ns or 0), self.end_ns

    @property
    def work(self) -> Interval:
        """The begin and end of the time in which it kept its thread busy: its computation or, if no
        other thread dispatched it, all of it, since its dispatch then comes before."""
        return self.interval if self.dispatch is None else self.computation

    @property
    def dispatch(self) -> Interval | None:
        """The begin and end of its dispatch, None if that is not recorded."""
        if self.dispatch_start_ns is None or self.dispatch_end_ns is None:
            return None
        return self.dispatch_start_ns, self.dispatch_end_ns

    @property
    def host_thread(self) -> int:
        """The thread that dispatched it, as far as that is known."""
        return self.thread if self.dispatch_thread is None else self.dispatch_thread


class Span(Lasting, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Anything else that lasts.

    - phase: load, prepare, warmup, dataloader, input_copy, forward, wait, output_copy, finish
    - runtime: a call of the engine's API, by its name
    - kernel, memcpy, memset on a device; memcpy between two places of the host's memory too
    - relayout: an operator's conversion of a layout
    - user_annotation: a range that the user has named
    - osrt: a call of the operating system
    """

    category: Category
    name: str
    start_ns: int
    end_ns: int
    thread: int = 0
    step: int | None = None
    warmup: bool = False
    operator: int | None = None
    size_bytes: int | None = None
    tensor: str | None = None
    device: str | None = None
    stream: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    source_kind: str | None = None
    destination_kind: str | None = None
    color: str | None = None
    style: str | None = None
    source: str | None = None
    result: str | None = None


class CounterSample(msgspec.Struct, frozen=True, gc=False):
    """A reading of a counter: `rss` in bytes, `cpu` in percent of one core."""

    name: str
    at_ns: int
    value: float


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """A piece of memory taken (`size_bytes` above 0) or given back (below 0).

    What is given back was taken last at the same `address`; for an estimate that is any number.
    `source` says where that is known from: `static plan`, `estimate`, `engine`.
    """

    at_ns: int
    size_bytes: int
    operator: int | None = None
    address: int | None = None
    device: str = "cpu"
    source: str = ""


class MemoryChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of the static memory plan, held from one operator to another, both included."""

    address: int
    size_bytes: Count = msgspec.field(name="size")
    owner: str = ""
    first_operator: int | None = None
    last_operator: int | None = None


class MemoryPlan(msgspec.Struct, frozen=True):
    """The memory that an engine has planned before it runs; `static_bytes` is its size."""

    static_bytes: Count | None = None
    chunks: tuple[MemoryChunk, ...] = ()


class Alignment(msgspec.Struct, frozen=True):
    """The alignment of another clock's times with this clock."""

    domain: str
    offset_ns: int
    error_ns: int | None = None


class Clock(msgspec.Struct, frozen=True):
    """The clock of all times: its zero, and the time of day at it."""

    base: str = "perf_counter_ns"
    t0_ns: int = 0
    unix_ns: int = 0
    align: tuple[Alignment, ...] = ()


class CpuUse(msgspec.Struct, frozen=True):
    """The CPU over the timed iterations: the process's time in percent of one core, and how busy
    all cores of the machine were in percent."""

    count: int = 0
    process_percent: float | None = msgspec.field(default=None, name="process_util")
    system_percent: float | None = msgspec.field(default=None, name="system_util")


class Cost(msgspec.Struct, frozen=True):
    """The cost of profiling: the median iteration with it and without.

    If iterations were disturbed, the calm ones have medians of their own. If these are too few, the
    fastest profiled one stands for them, provided it was slower than most without. `disturbed` says
    that the cost is not known.
    """

    profiled_seconds: Seconds
    unprofiled_seconds: Seconds
    profiled_iterations: int = 0
    unprofiled_iterations: int = 0
    calm_profiled_seconds: Seconds | None = None
    calm_unprofiled_seconds: Seconds | None = None
    disturbed: bool = False

    @property
    def calm(self) -> tuple[float, float]:
        """The seconds with profiling and without, of calm iterations where some were not."""
        with_it, without = self.calm_profiled_seconds, self.calm_unprofiled_seconds
        return (
            self.profiled_seconds if with_it is None else with_it,
            self.unprofiled_seconds if without is None else without,
        )


class Correction(msgspec.Struct, frozen=True):
    """How the times of operators came onto the scale of a plain iteration
    (`lar.profiles.costs`): by a factor, and what profiling cost each iteration."""

    scale: float = 1.0
    cost_ns: int = 0


class StepNoise(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What else on the machine did to one timed iteration.

    `waiting_ns` is the longest time that a runnable thread waited for a CPU, None if that is not
    known; `causes` are those that disturbed the iteration (`lar.records.summary.Cause`), empty if
    nothing did.
    """

    step: int
    waiting_ns: Count | None = None
    causes: tuple[str, ...] = ()


class Peak(msgspec.Struct, frozen=True):
    """The measured peak of this machine, with as many threads as the run had: of float32
    operations, and of bytes of the main memory.

    It is the best of `rounds`; `spread` says how far their median lies below the best, as a part
    of the best, for the figure where it is further. `measured_at` is the time of day of the last
    of them, in UTC. A profile of an earlier lar lacks these three.
    """

    flops_per_second: float
    bytes_per_second: float
    threads: int
    source: str = ""
    spread: float | None = None
    measured_at: str = ""
    rounds: int | None = None


class TriedSetting(msgspec.Struct, frozen=True):
    """A setting that was run beside the profiled run, in turns with it (`lar advise`).

    `why` is the part of the profile that speaks for it. `difference` is its time against that of
    the run, None if it was not measured. `outputs` says how they agree with those of the run, empty
    if they were not compared, and `error` how it failed.
    """

    flags: str
    why: str = ""
    difference: Difference | None = None
    outputs: str = ""
    error: str = ""


class ModelFacts(msgspec.Struct, frozen=True):
    path: str = ""
    sha256: str = ""
    format: str = ""


if TYPE_CHECKING:
    Machine = dict[str, Any]
else:
    # The machine of a run as it was recorded; `instruction_sets` are its vendor and what its
    # processor can do, as `read_instruction_sets` returns them.
    FACTS = typing.get_type_hints(MachineFacts) | {"instruction_sets": str}
    Machine = TypedDict("Machine", FACTS, total=False)


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a profile. `dropped` lists what the engine could not record, a line each.

    `dispatch_only` is for operators on a device whose times the engine does not report: their times
    are those of the host, which dispatched them. `times` says whether each execution has a time of
    its own, or the mean of all iterations, as the engine gives it.

    `noise` has the timed iterations in order, and is empty if it was not recorded. `plain` has
    those of the run without the profiler: their seconds, and whether something disturbed them.
    `folder` is the one that the run was started in, from which relative paths start. `tried` has
    the settings that were tried after it, in the order in which the profile speaks for them.
    """

    lar_version: str = ""
    engine: str = ""
    engine_version: str = ""
    driver: str = ""
    device: str = "cpu"
    model: ModelFacts = ModelFacts()
    arguments: tuple[str, ...] = msgspec.field(default=(), name="argv")
    folder: str = msgspec.field(default="", name="cwd")
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    batch: int | None = None
    iterations: int = msgspec.field(default=0, name="iters")
    warmup_iterations: int = msgspec.field(default=0, name="warmup")
    threads: int | None = None
    clock: Clock = Clock()
    cpu: CpuUse = CpuUse()
    machine: Machine = msgspec.field(default_factory=Machine, name="host")
    peak_memory_bytes: Count | None = msgspec.field(default=None, name="peak_rss")
    cost: Cost | None = None
    peak: Peak | None = None
    dropped: tuple[str, ...] = ()
    dispatch_only: bool = False
    times: Times = "each"
    noise: tuple[StepNoise, ...] = ()
    plain: tuple[tuple[float, bool], ...] = ()
    tried: tuple[TriedSetting, ...] = ()


class Profile(Record):
    """All that one run has recorded, each in the order of time.

    `engine_raw` is the engine's own profile of the last iteration, as it wrote it, in JSON; empty
    if it wrote no profile. `correction` says how times differ from those recorded.
    """

    facts: ProfileFacts = field(default_factory=ProfileFacts)
    operators: tuple[ProfiledOperator, ...] = ()
    steps: tuple[Step, ...] = ()
    executions: Sequence[Execution] = ()
    spans: Sequence[Span] = ()
    counters: tuple[CounterSample, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    memory_plan: MemoryPlan = field(default_factory=MemoryPlan)
    threads: Mapping[int, str] = field(default_factory=dict)
    engine_raw: bytes = b""
    correction: Correction | None = None

    @cached_property
    def on_device(self) -> bool:
        """True if operators' times are those of a device of their own; a CPU is the host."""
        return not (self.facts.device.startswith("cpu") or self.facts.dispatch_only)

    def timed_steps(self) -> tuple[Step, ...]:
        """Return the iterations without those of the warm-up."""
        return tuple(step for step in self.steps if not step.warmup)

    @cached_property
    def timed_executions(self) -> tuple[Execution, ...]:
        """The executions without those of the warm-up."""
        return tuple(execution for execution in self.executions if not execution.warmup)

    def spans_of(self, *categories: Category, timed: bool = True) -> tuple[Span, ...]:
        """Return the spans of some categories; `timed` leaves out all outside timed iterations."""
        return tuple(
            span
            for span in self.spans
            if span.category in categories and not (timed and (span.warmup or span.step is None))
        )

    @cached_property
    def host_times_ns(self) -> Sequence[int]:
        """How long each of the timed executions kept the host busy."""
        return [self.host_ns(execution) for execution in self.timed_executions]

    def host_ns(self, execution: Execution) -> int:
        """Return how long an execution kept the host busy: its dispatch and, on a CPU, its
        computation too. Time that is both counts once; waiting for a thread does not count."""
        if (dispatch := execution.dispatch) is None:
            return 0 if self.on_device else execution.duration_ns
        (a, b), (c, d) = execution.computation, dispatch
        both = max(0, min(b, d) - max(a, c))
        return d - c if self.on_device else (b - a) + (d - c) - both


# Records as columns of integers


R = TypeVar("R")

# What stands for None in columns of 32 and of 64 bits: no step, thread or time has the number.
NONES = {"I": -(1 << 31), "Q": -(1 << 63)}


def values_in(kind: str, column: Sequence[int]) -> Iterable[int | None]:
    """Return the values that a column of a type stands for."""
    if kind in NONES:
        return map({NONES[kind]: None}.get, column, column)
    return map(bool, column) if kind == "B" else column


class Columns(Sequence[R], Generic[R]):
    """Records of a few values each; more can be added at the end. `make` makes a record of its
    values when it is asked for.

    `kinds` has the type of each column: i and q for integers of 32 and 64 bits, I and Q if they may
    be None, B for true or false.
    """

    def __init__(self, make: Callable[..., R], kinds: str) -> None:
        self._make, self._kinds = make, kinds
        self._columns = [array(kind.lower()) for kind in kinds]
        self._lock = Lock()

    def _stored(self, values: Iterable[int | None]) -> Iterator[int]:
        """Yield what stands for the values of a record in its columns."""
        for kind, value in zip(self._kinds, values, strict=True):
            yield NONES[kind] if value is None else value

    def _append(self, *values: int | None) -> None:
        for column, value in zip(self._columns, self._stored(values), strict=True):
            column.append(value)

    def _records(self, columns: Sequence[Sequence[int]]) -> Iterator[R]:
        return map(self._make, *map(values_in, self._kinds, columns))

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def __getitem__(self, place: int | slice) -> R | list[R]:
        if isinstance(place, slice):
            return [*self._records([column[place] for column in self._columns])]
        return next(self._records([[column[place]] for column in self._columns]))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[R]:
        return self._records(self._columns)

    def _reorder(self, places: Sequence[int]) -> None:
        """Put the records into the order of their places, one column after the other."""
        for number, column in enumerate(self._columns):
            self._columns[number] = array(column.typecode, map(column.__getitem__, places))


class RecordColumns(Columns[R]):
    """Records that several threads may add."""

    def add(self, *values: int) -> None:
        """Add a record."""
        with self._lock:
            self._append(*values)


class ExecutionColumns(Columns[Execution]):
    """Executions, of which more can be added at the end."""

    def __init__(self) -> None:
        super().__init__(Execution, "iiiqqQQQIB")

    def append(self, each: Execution) -> None:
        """Add an execution."""
        self._append(*msgspec.structs.astuple(each))

    def extend(self, executions: Iterable[Execution]) -> None:
        """Add executions."""
        for each in executions:
            self.append(each)

    def rewrite(self, executions: Iterable[Execution]) -> None:
        """Replace the executions by others. Each of them may be made of one here that stands at its
        place or behind."""
        count = 0
        for count, each in enumerate(executions, start=1):
            stored = self._stored(msgspec.structs.astuple(each))
            for column, value in zip(self._columns, stored, strict=True):
                column[count - 1] = value
        for column in self._columns:
            del column[count:]

    def sort_by_start(self) -> None:
        """Put them in the order in which they began."""
        starts = self._columns[Execution.__struct_fields__.index("start_ns")]
        if not all(map(le, starts, islice(starts, 1, None))):
            self._reorder(sorted(range(len(starts)), key=starts.__getitem__))


class SpanColumns(Columns[Span]):
    """Spans, which several threads may add. Spans that differ only in their times and steps share
    the rest."""

    def __init__(self) -> None:
        super().__init__(self._made, "iqqI")
        self._places: dict[tuple[object, ...], int] = {}
        self._common: list[Span] = []

    def add(self, start_ns: int, end_ns: int, step: int | None = None, **common: Any) -> None:
        """Add a span; `common` are its other fields."""
        key = (*common, *common.values())
        with self._lock:
            place = self._places.setdefault(key, len(self._common))
            if place == len(self._common):
                self._common.append(Span(start_ns=0, end_ns=0, **common))
            self._append(place, start_ns, end_ns, step)

    def add_all(self, spans: Sequence[Span]) -> None:
        """Add other spans."""
        first = len(self._common)
        if isinstance(spans, SpanColumns):
            self._common += spans._common
            for place, *rest in zip(*spans._columns, strict=True):
                self._append(first + place, *rest)
            return
        self._common += spans
        for place, each in enumerate(spans, first):
            self._append(place, each.start_ns, each.end_ns, each.step)

    def sort_by_time(self) -> None:
        """Put them in the order in which they began, the longer first if two began at once."""
        _, starts, ends, _ = self._columns
        # Twice, as pairs would take much more memory than the spans.
        places = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        places.sort(key=starts.__getitem__)
        self._reorder(places)

    def _made(self, place: int, start_ns: int, end_ns: int, step: int | None) -> Span:
        return msgspec.structs.replace(
            self._common[place], start_ns=start_ns, end_ns=end_ns, step=step
        )
