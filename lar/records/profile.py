"""The records of a profile: steps, executions of operators, spans, memory.

All times are integers, in nanoseconds after `Clock.t0_ns` on the worker's clock, so that sums are
exact. A figure that an engine does not report is None, never 0. The records are structs, not
dataclasses, since a profile holds tens of thousands of records. In a file, the fields of a record
have the names of the schema in `lar.profiles.trace_file`.

A profile of thousands of iterations has very many executions and spans. To save memory, executions
and spans are stored in columns of integers, where an execution takes 57 bytes and a span takes 24
bytes. As a record, an execution or span would take about 250 bytes. A record is created only when
an execution or span is read.
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

# Each copy of a model that runs at once has its own threads. The thread numbers of two copies
# differ by a multiple of this.
THREADS_OF_A_COPY = 1000

# A number of bytes, operations or elements. A file with a negative count is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

# A duration. A record with a duration too long to count in nanoseconds is damaged.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=4e9)]


class TensorFact(msgspec.Struct, frozen=True):
    """A tensor that an operator reads or writes."""

    shape: tuple[Count, ...] = ()
    dtype: str = ""
    layout: str = ""


ThreadPart = Literal["computing", "handing_out", "waiting"]
THREAD_PARTS: tuple[ThreadPart, ...] = typing.get_args(ThreadPart)


class ThreadUse(msgspec.Struct, frozen=True):
    """How an operator used the threads of an engine, summed over its timed executions.

    The three times belong to the calling thread, which computes its own share of the work, hands
    out shares to other threads, and waits until the other threads have finished. `tasks` has one
    number for each thread except the calling thread: how many shares of the work the thread has
    computed.
    """

    executions: Count = 0
    computing_ns: Count = 0
    handing_out_ns: Count = 0
    waiting_ns: Count = 0
    tasks: tuple[Count, ...] = ()

    def share_of(self, part: ThreadPart) -> float | None:
        """Return one of the three times of the calling thread, divided by their sum.

        The share of waiting is 0 if all threads finish at the same time.
        """
        times = {name: getattr(self, f"{name}_ns") for name in THREAD_PARTS}
        return times[part] / sum(times.values()) if any(times.values()) else None

    def with_that_of(self, other: ThreadUse) -> ThreadUse:
        """Add up two `ThreadUse`: return one with the sums of their times and of their tasks.

        The tasks of two threads are added if the threads have equal numbers, even in different
        copies of the model.
        """
        *own, own_tasks = msgspec.structs.astuple(self)
        *others, other_tasks = msgspec.structs.astuple(other)
        tasks = map(sum, zip_longest(own_tasks, other_tasks, fillvalue=0))
        return ThreadUse(*(*map(add, own, others), tuple(tasks)))


class ProfiledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of the graph that was executed.

    `flops` counts a multiply-accumulate as two operations. `size_bytes` is the number of bytes that
    the operator reads and writes. `source` says whether the engine reported `flops` and
    `size_bytes`, or lar derived both from shapes. `module` is the path of the layer that contains
    the operator, if the names of operators show it. `algorithm` is the algorithm that the engine
    chose, or the kind of the kernel if the engine reports only the kind. `threads` is None if the
    engine does not report the use of threads.

    `reads` and `writes` have the keys of the input and output tensors, in order; both are empty if
    the tensors are not known. A key is unique in the graph: it is the tensor's name, or its name
    with a number. `weights` are the tensors in `reads` that are not computed from the model's
    inputs. `names` maps the key of a tensor to the tensor's name in the model file, if this name
    differs from the key.
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
    """A base class of records with a begin and an end."""

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
    """One iteration of one copy of the model.

    If each iteration gets new data, the iteration includes the time to load the data and to copy it
    to the input. Timed iterations are numbered from 0, as a run prints them. Warm-up iterations
    have negative numbers: the first is -1, the second -2.
    """

    number: int
    start_ns: int
    end_ns: int
    warmup: bool = False
    copy: int = 0

    @property
    def title(self) -> str:
        """The name of the iteration in the lines of a run, such as `iteration 0` or `warm-up 0`."""
        return f"warm-up {-1 - self.number}" if self.number < 0 else f"iteration {self.number}"

    @property
    def trace_name(self) -> str:
        """The name of the iteration in traces."""
        return f"Warmup#{-1 - self.number}" if self.number < 0 else f"ProfilerStep#{self.number}"


class Execution(Lasting, msgspec.Struct, frozen=True, gc=False):
    """One execution of an operator, whose index in `Profile.operators` is `operator`.

    The execution lasts from `start_ns` to `end_ns` on `thread`. An execution first waits for
    `wait_ns`, and then computes. If another thread dispatched the execution, `dispatch_thread` is
    that thread. On a CPU, `thread` is a thread of the host. On CUDA, `thread` stands for a stream.
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
        """The time for which the execution computes, without the time for which it waits first."""
        return self.end_ns - self.start_ns - (self.wait_ns or 0)

    @property
    def computation(self) -> Interval:
        """The begin and the end of the computing, which follows the waiting of the execution."""
        return self.start_ns + (self.wait_ns or 0), self.end_ns

    @property
    def work(self) -> Interval:
        """The begin and the end of the time in which the execution kept its thread busy.

        If the dispatch of the execution is recorded, the interval is the time of computing;
        otherwise, it is the whole execution.
        """
        return self.interval if self.dispatch is None else self.computation

    @property
    def dispatch(self) -> Interval | None:
        """The begin and the end of the dispatch, or None if the dispatch is not recorded."""
        if self.dispatch_start_ns is None or self.dispatch_end_ns is None:
            return None
        return self.dispatch_start_ns, self.dispatch_end_ns

    @property
    def host_thread(self) -> int:
        """The thread that dispatched the execution, or `thread` if no other thread is recorded."""
        return self.thread if self.dispatch_thread is None else self.dispatch_thread


class Span(Lasting, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event with a begin and an end, except executions of operators. The categories are:

    - phase: load, prepare, warmup, dataloader, input_copy, forward, wait, output_copy, finish
    - runtime: a call of the engine's API, by its name
    - kernel, memcpy, memset: work on a device; memcpy may also be a copy in the host's memory
    - relayout: an operator's conversion of a layout
    - user_annotation: a range with a name that the user gave
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
    """A reading of a counter, which is `rss` in bytes or `cpu` in percent of one core."""

    name: str
    at_ns: int
    value: float


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """An allocation of memory (`size_bytes` above 0), or a release of memory (below 0).

    A release returns the memory that was last allocated at the same `address`. `source` says
    whether lar knows the allocation from a `static plan`, from an `estimate` or from the `engine`.
    If `source` is `estimate`, the address is an arbitrary number.
    """

    at_ns: int
    size_bytes: int
    operator: int | None = None
    address: int | None = None
    device: str = "cpu"
    source: str = ""


class MemoryChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of the static memory plan, in use from `first_operator` to `last_operator`."""

    address: int
    size_bytes: Count = msgspec.field(name="size")
    owner: str = ""
    first_operator: int | None = None
    last_operator: int | None = None


class MemoryPlan(msgspec.Struct, frozen=True):
    """The memory that an engine plans before a run, with its size in `static_bytes`."""

    static_bytes: Count | None = None
    chunks: tuple[MemoryChunk, ...] = ()


class Alignment(msgspec.Struct, frozen=True):
    """The alignment of another clock with the clock of the profile."""

    domain: str
    offset_ns: int
    error_ns: int | None = None


class Clock(msgspec.Struct, frozen=True):
    """The clock of a profile.

    Time 0 of the profile is the moment at which the clock reads `t0_ns`, and at which the time of
    day is `unix_ns` (in nanoseconds since 1970).
    """

    base: str = "perf_counter_ns"
    t0_ns: int = 0
    unix_ns: int = 0
    align: tuple[Alignment, ...] = ()


class CpuUse(msgspec.Struct, frozen=True):
    """The use of the CPU during the timed iterations.

    `process_percent` is the CPU time of the process in percent of one core. `system_percent` says
    how busy all cores of the machine were, in percent of their time.
    """

    count: int = 0
    process_percent: float | None = msgspec.field(default=None, name="process_util")
    system_percent: float | None = msgspec.field(default=None, name="system_util")


class Cost(msgspec.Struct, frozen=True):
    """The cost of profiling: the median time of iterations with the profiler and without it.

    If some iterations were disturbed, the `calm` fields have the medians of the undisturbed
    iterations. If nearly all profiled iterations were disturbed, the time of the fastest profiled
    iteration is used instead of a median. But the time of the fastest profiled iteration is used
    only if it is longer than the times of most iterations without the profiler. `disturbed` says
    that the cost is not known because of disturbances.
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
        """The median times of iterations with and without profiling, in seconds.

        A median of the undisturbed iterations is used if it is known.
        """
        with_it, without = self.calm_profiled_seconds, self.calm_unprofiled_seconds
        return (
            self.profiled_seconds if with_it is None else with_it,
            self.unprofiled_seconds if without is None else without,
        )


class Correction(msgspec.Struct, frozen=True):
    """The correction by which the times of operators fit into an iteration without the profiler.

    `scale` is the factor by which all times of operators are multiplied. `cost_ns` is the cost of
    profiling in each iteration (see `lar.profiles.costs`).
    """

    scale: float = 1.0
    cost_ns: int = 0


class StepNoise(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The disturbances of one timed iteration by other work on the machine.

    `waiting_ns` is the longest time that a runnable thread waited for a CPU, or None if it is not
    known. `causes` has the causes of the disturbance (`lar.records.summary.Cause`), and is empty if
    nothing disturbed the iteration.
    """

    step: int
    waiting_ns: Count | None = None
    causes: tuple[str, ...] = ()


class Peak(msgspec.Struct, frozen=True):
    """The measured peak of a machine: float32 operations and bytes of main memory per second.

    The peak was measured with as many threads as the run had, and is the best of `rounds` rounds.
    `spread` is the difference between the best round and the median round, divided by the best
    round. The spread is computed for operations and for bytes, and the larger of the two results is
    taken. `measured_at` is the time of the last round, in UTC. A profile of an older lar lacks
    `rounds`, `spread` and `measured_at`.
    """

    flops_per_second: float
    bytes_per_second: float
    threads: int
    source: str = ""
    spread: float | None = None
    measured_at: str = ""
    rounds: int | None = None


class TriedSetting(msgspec.Struct, frozen=True):
    """A setting that `lar advise` tried, in alternation with the run that was profiled.

    `why` is the part of the profile that suggests the setting. `difference` compares the times with
    and without the setting, and is None if the setting was not measured. `outputs` says how the
    outputs with and without the setting agree, and is empty if they were not compared. `error` says
    why the setting failed.
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
    # The recorded machine of a run. `instruction_sets` are the processor's vendor and instruction
    # sets, as `read_instruction_sets` returns them.
    FACTS = typing.get_type_hints(MachineFacts) | {"instruction_sets": str}
    Machine = TypedDict("Machine", FACTS, total=False)


class ProfileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a profile. `dropped` has a line for each thing that the engine did not record.

    `dispatch_only` says that the engine does not report the device times of operators. With
    `dispatch_only`, the recorded times of operators are times of the dispatch on the host. `times`
    says whether each execution has its own time, or the engine reports only the mean of all
    iterations.

    `noise` has an entry for each timed iteration in order; it is empty if noise was not recorded.
    `plain` describes each iteration of the run without the profiler: its duration in seconds, and
    whether other work disturbed it. `folder` is the folder in which the run was started; relative
    paths start there. `tried` has the settings that were tried after the run, in the order in which
    the profile suggests them.
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
    """All that one run has recorded, with steps, executions, spans and counters in order of time.

    `engine_raw` is the engine's own profile of the last iteration, in the engine's JSON; it is
    empty if the engine wrote no profile. If times were corrected, `correction` says how the
    corrected times differ from the recorded times.
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
        """True if the times of operators are times of a device other than the host's CPU."""
        return not (self.facts.device.startswith("cpu") or self.facts.dispatch_only)

    def timed_steps(self) -> tuple[Step, ...]:
        """Return the timed iterations, which are all steps except the steps of the warm-up."""
        return tuple(step for step in self.steps if not step.warmup)

    @cached_property
    def timed_executions(self) -> tuple[Execution, ...]:
        """The executions in timed iterations, without the executions in the warm-up."""
        return tuple(execution for execution in self.executions if not execution.warmup)

    def spans_of(self, *categories: Category, timed: bool = True) -> tuple[Span, ...]:
        """Return the spans of some categories; with `timed`, only spans in timed iterations."""
        return tuple(
            span
            for span in self.spans
            if span.category in categories and not (timed and (span.warmup or span.step is None))
        )

    @cached_property
    def host_times_ns(self) -> Sequence[int]:
        """The time for which each timed execution kept the host busy."""
        return [self.host_ns(execution) for execution in self.timed_executions]

    def host_ns(self, execution: Execution) -> int:
        """Return the time for which an execution kept the host busy.

        The host is busy with the dispatch of the execution and, on a CPU, with its computation.
        Time that belongs to both dispatch and computation is added only once. Time spent waiting
        for a thread is not added.
        """
        if (dispatch := execution.dispatch) is None:
            return 0 if self.on_device else execution.duration_ns
        (a, b), (c, d) = execution.computation, dispatch
        return d - c if self.on_device else (b - a) + (d - c) - max(0, min(b, d) - max(a, c))


# Records as columns of integers


R = TypeVar("R")

# The numbers that stand for None in columns of 32 and 64 bits: no step, thread or time has them.
NONES = {"I": -(1 << 31), "Q": -(1 << 63)}


def values_in(kind: str, column: Sequence[int]) -> Iterable[int | None]:
    """Return the values of a column, and replace integers that stand for None or for a bool."""
    if kind in NONES:
        return map({NONES[kind]: None}.get, column, column)
    return map(bool, column) if kind == "B" else column


class Columns(Sequence[R], Generic[R]):
    """A sequence of records, kept as columns of integers; records can be added at the end.

    `make` is called when a record is read, and makes the record from its values. `kinds` has the
    type of each column: i or q for integers of 32 or 64 bits, I or Q if they may be None, B for
    true or false.
    """

    def __init__(self, make: Callable[..., R], kinds: str) -> None:
        self._make, self._kinds = make, kinds
        self._columns = [array(kind.lower()) for kind in kinds]
        self._lock = Lock()

    def _stored(self, values: Iterable[int | None]) -> Iterator[int]:
        """Yield the integers that stand for the values of a record."""
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
        """Put the records into the order of `places`, one column after the other."""
        for number, column in enumerate(self._columns):
            self._columns[number] = array(column.typecode, map(column.__getitem__, places))


class RecordColumns(Columns[R]):
    """Columns to which several threads may add records."""

    def add(self, *values: int) -> None:
        """Add a record."""
        with self._lock:
            self._append(*values)


class ExecutionColumns(Columns[Execution]):
    """Executions in columns; more executions can be added at the end."""

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
        """Replace all executions by the given executions.

        `executions` may be a generator that reads the old executions: an old execution can be read
        until a new execution is stored at its index.
        """
        count = 0
        for count, each in enumerate(executions, start=1):
            stored = self._stored(msgspec.structs.astuple(each))
            for column, value in zip(self._columns, stored, strict=True):
                column[count - 1] = value
        for column in self._columns:
            del column[count:]

    def sort_by_start(self) -> None:
        """Sort the executions by the time when they began."""
        starts = self._columns[Execution.__struct_fields__.index("start_ns")]
        if not all(map(le, starts, islice(starts, 1, None))):
            self._reorder(sorted(range(len(starts)), key=starts.__getitem__))


class SpanColumns(Columns[Span]):
    """Spans in columns, to which several threads may add.

    Spans that differ only in their times and steps share all other fields.
    """

    def __init__(self) -> None:
        super().__init__(self._made, "iqqI")
        self._places: dict[tuple[object, ...], int] = {}
        self._common: list[Span] = []

    def add(self, start_ns: int, end_ns: int, step: int | None = None, **common: Any) -> None:
        """Add a span; `common` has all fields of the span except its times and its step."""
        key = (*common, *common.values())
        with self._lock:
            place = self._places.setdefault(key, len(self._common))
            if place == len(self._common):
                self._common.append(Span(start_ns=0, end_ns=0, **common))
            self._append(place, start_ns, end_ns, step)

    def add_all(self, spans: Sequence[Span]) -> None:
        """Add the spans of another sequence."""
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
        """Sort the spans by the time when they began.

        If two spans began at the same time, the longer span comes first.
        """
        _, starts, ends, _ = self._columns
        # Sorted twice, since sorting pairs would take much more memory than the spans.
        places = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        places.sort(key=starts.__getitem__)
        self._reorder(places)

    def _made(self, place: int, start_ns: int, end_ns: int, step: int | None) -> Span:
        return msgspec.structs.replace(
            self._common[place], start_ns=start_ns, end_ns=end_ns, step=step
        )
