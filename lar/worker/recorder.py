"""The recorder of a profiled run: what the worker records beside the engine's own profile."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy as copy_of
from dataclasses import replace
from functools import partial, reduce
from operator import add, sub
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace as changed

from lar import __version__
from lar.engines.driver import HOST_THREAD, Driver, EngineTrace, Silent
from lar.options.table import PROFILE_RAW, PROFILE_SYSCALLS, PROFILES
from lar.records.columns import ExecutionColumns, RecordColumns, SpanColumns
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Category,
    Clock,
    CounterSample,
    CpuUse,
    MemoryPlan,
    ModelFacts,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
    ThreadUse,
)

if TYPE_CHECKING:
    from lar.measurement.syscalls import SyscallTrace

T = TypeVar("T")


class Recorder(Silent):
    """Records phases, calls, copies and iterations, in nanoseconds since it was made.

    Copies of a model that run at once have a recorder each, which record into the same lists: the
    iterations of all are numbered in turn.
    """

    def __init__(self, copies: int = 1) -> None:
        self.t0_ns = time.perf_counter_ns()
        self.unix_ns = time.time_ns()
        self.spans = SpanColumns()
        self.steps = RecordColumns(Step, "qqqBi")
        self.memory = RecordColumns(partial(CounterSample, "rss"), "qq")
        self.warmup = False
        self.copies, self.runner, self.recorded = copies, 0, 0
        self.thread = HOST_THREAD
        self.drivers: list[Driver] = []
        self._others: list[Recorder] = []
        self._step_began: int | None = None
        self._cpu = CpuMeter()
        self._syscalls: SyscallTrace | None = None

    def now(self) -> int:
        return time.perf_counter_ns() - self.t0_ns

    def add(self, category: Category, name: str, start_ns: int, end_ns: int, **fields: Any) -> None:
        """Add a span of the thread that runs this copy."""
        self.spans.add(start_ns, end_ns, category=category, name=name, thread=self.thread, **fields)

    @contextlib.contextmanager
    def _span(self, category: Category, name: str, **fields: Any) -> Iterator[None]:
        began = self.now()
        if self._step_began is not None:  # it belongs to the iteration that comes next
            fields |= {"step": self.next_step, "warmup": self.warmup}
        try:
            yield
        finally:
            self.add(category, name, began, self.now(), **fields)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._span("phase", name)

    @property
    def next_step(self) -> int:
        """The number of the iteration that comes next: timed ones count from 0 on, those of the
        warm-up from -1 down."""
        number = self.recorded * self.copies + self.runner
        return -1 - number if self.warmup else number

    def attach(self, driver: Driver) -> None:
        recorder = self
        if driver.runner:
            recorder = copy_of(self)
            recorder.runner = driver.runner
            recorder.thread = HOST_THREAD + driver.runner * THREADS_OF_A_COPY
            self._others.append(recorder)
        self.drivers.append(driver)
        driver.recorder = recorder
        driver.record = partial(recorder.record, driver)
        if PROFILE_SYSCALLS.is_given(driver.spec.settings):
            from lar.measurement.syscalls import SyscallTrace

            self._syscalls = SyscallTrace(os.path.dirname(place_of_profile(driver)))

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        everyone = (self, *self._others)
        for each in everyone:
            each.warmup = True
        with self.phase("warmup"):
            yield
        for each in everyone:
            each.warmup, each.recorded = False, 0

    def each_feed(self, feeds: Iterator[T]) -> Iterator[T]:
        began = self.now()
        for feed in feeds:
            self._step_began = began
            place = {"step": self.next_step, "warmup": self.warmup}
            self.add("phase", "dataloader", began, self.now(), **place)
            yield feed
            began = self.now()

    def noting_begin(self, driver: Driver, copy: Callable[[], object]) -> Callable[[], object]:
        began = 0.0

        def note_and_copy() -> object:
            nonlocal began
            began = time.perf_counter()
            return copy()

        driver.copied_at = lambda: began
        return note_and_copy

    def call(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._span("runtime", name) if name else contextlib.nullcontext()

    @contextlib.contextmanager
    def copy(self, name: str, size_bytes: int, tensor: str) -> Iterator[None]:
        kinds = {"source_kind": "host", "destination_kind": "host"}
        with (
            self._span("runtime", name),
            self._span(
                "memcpy", "[CPU memcpy HtoH]", size_bytes=size_bytes, tensor=tensor, **kinds
            ),
        ):
            yield

    def record(self, driver: Driver, began: float, dispatched: float, ended: float) -> None:
        """Record an iteration that has ended; the times are the driver's clock's, in seconds."""
        start, middle, end = (round(at * 1e9) - self.t0_ns for at in (began, dispatched, ended))
        if not self.runner:  # the process has one CPU time
            self._cpu.end_iteration(timed=not self.warmup)
        first = start if self._step_began is None else self._step_began
        step = Step(self.next_step, first, end, self.warmup, self.runner)
        self.recorded += 1
        self.steps.add(step.number, first, end, self.warmup, self.runner)
        place = {"step": step.number, "warmup": self.warmup}
        copied, waited = driver.copied_at, end
        if copied is not None:
            own = driver.own_seconds() if driver.own_seconds is not None else 0.0
            waited = min(end, round((copied() - own) * 1e9) - self.t0_ns)
        parts = [("forward", "forward", start, middle), ("wait", "wait", middle, waited)]
        if copied is not None:
            parts.append(("output_copy", "outputs", waited, end))
        for phase, call, at, until in parts:
            self.add("phase", phase, at, until, **place)
            if name := driver.calls.get(call):
                self.add("runtime", name, at, until, **place)
        if (held := read_resident_bytes()) is not None:
            self.memory.add(end, held)
        assert driver.profiler is not None
        driver.profiler.take(step, start, middle, waited)
        self._step_began = None
        if not self.runner:
            self._cpu.begin_iteration()

    def write(self, batch: int | None) -> list[str]:
        """Write the profile, and the engine's own, where the spec says.

        What only the parent process knows is missing in it (`lar.running.steps`).
        """
        from lar.profiles.ranges import patterns_of, spans_of_patterns, unmatched
        from lar.profiles.trace_file import write_profile

        driver = self.drivers[0]
        calls = self._syscalls.stop() if self._syscalls is not None else None
        profilers = [each.profiler for each in self.drivers]
        trace = join_traces([each.finish() for each in profilers if each is not None])
        if calls is not None:
            from lar.measurement.syscalls import spans_of_calls

            known = (HOST_THREAD, trace.threads, self.unix_ns)
            spans, names = spans_of_calls(calls, self.steps, *known)
            trace.threads.update(names)
            trace = replace(trace, spans=(*trace.spans, *spans))
        patterns = patterns_of(driver.spec.settings)
        if place := place_of_profile(driver):
            profile = self.profile_of(driver, trace, batch)
            if named := spans_of_patterns(profile, patterns):
                profile = replace(profile, spans=(*profile.spans, *named))
            # The parent writes it again, with what only the parent knows, and then packs it.
            write_profile(profile, place, packed=False)
        if place := driver.context.written.get(PROFILE_RAW.key, ""):
            if trace.raw_file:
                shutil.copyfile(trace.raw_file, place)
            else:
                Path(place).write_bytes(trace.engine_raw)
        return [*unmatched(trace.operators, patterns), *trace.notes]

    def profile_of(self, driver: Driver, trace: EngineTrace, batch: int | None) -> Profile:
        """Return all that was recorded."""
        spans = SpanColumns()
        spans.add_all(self.spans)
        spans.add_all(trace.spans)
        spans.sort_by_time()
        spec, engine = driver.spec, driver.facts()
        warmups = sum(step.warmup for step in self.steps)
        model_format = os.path.splitext(driver.model_file)[1].lstrip(".")
        facts = ProfileFacts(
            lar_version=__version__,
            engine=engine.name,
            engine_version=engine.version,
            driver=engine.driver,
            device=engine.device,
            model=ModelFacts(spec.model, driver.context.model_sha256, model_format),
            options=dict(spec.settings),
            batch=batch,
            iterations=len(self.steps) - warmups,
            warmup_iterations=warmups,
            threads=trace.thread_count,
            clock=Clock("perf_counter_ns", self.t0_ns, self.unix_ns, trace.alignments),
            cpu=CpuUse(os.cpu_count() or 0, *self._cpu.percents()),
            dropped=trace.dropped,
            dispatch_only=trace.dispatch_only,
            times=trace.times,
        )
        return Profile(
            facts=facts,
            operators=trace.operators,
            steps=tuple(sorted(self.steps, key=lambda step: (not step.warmup, abs(step.number)))),
            executions=trace.executions,
            spans=spans,
            counters=tuple(sorted(self.memory, key=lambda sample: sample.at_ns)),
            allocations=trace.allocations,
            memory_plan=trace.memory_plan or MemoryPlan(),
            threads=trace.threads,
            engine_raw=trace.engine_raw,
        )


def place_of_profile(driver: Driver) -> str:
    """Return where a run writes its profile in lar's format, empty if it writes none."""
    written = driver.context.written
    return next((written[each.key] for each in PROFILES if each.key in written), "")


# The system counts CPU time in ticks of up to 10 ms: fewer than some ticks mean nothing.
SHORTEST_CPU_SECONDS = 0.05


class CpuMeter:
    """Sums up the CPU time of this process and of the machine, over iterations alone.

    Before the first timed iteration garbage is collected, so that it counts only if it is the
    only one.
    """

    def __init__(self) -> None:
        self._count, self._sums = 0, (0.0,) * 4
        self.begin_iteration()

    def begin_iteration(self) -> None:
        self._began = read_times()

    def end_iteration(self, *, timed: bool) -> None:
        if timed:
            self._count += 1
            counted = self._sums if self._count > 2 else (0.0,) * 4  # without the first
            self._sums = tuple(map(add, counted, map(sub, read_times(), self._began)))

    def percents(self) -> tuple[float | None, float | None]:
        """Return the percent of one core that the process used, and of all cores that the machine
        used; None if the iterations were too short."""
        elapsed, process, busy, every = self._sums
        if elapsed < SHORTEST_CPU_SECONDS:
            return None, None
        return 100 * process / elapsed, 100 * busy / every if every else None


def read_times() -> tuple[float, ...]:
    """Return seconds and this process's CPU seconds, and ticks of the CPUs: busy ones and all."""
    return time.perf_counter(), time.process_time(), *read_cpu_ticks()


def read_cpu_ticks() -> tuple[int, int]:
    """Return the clock ticks that the machine's CPUs were busy, and all; 0, 0 where unknown."""
    try:
        with open("/proc/stat", "rb") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # but idle and waiting for a disk


def read_resident_bytes() -> int | None:
    """Return the memory that this process holds; None where unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return None


def join_traces(traces: Sequence[EngineTrace]) -> EngineTrace:
    """Return the engine's reports of copies of a model that ran at once, joined into one.

    Each copy has threads of its own: the numbers of copy 1 begin at 1001, where copy 0's begin at
    1. The same operator of all copies is one operator. If there is one copy, it runs in the host's
    thread.
    """
    if len(traces) == 1:
        return replace(traces[0], threads={HOST_THREAD: "host", **traces[0].threads})
    operators: list[ProfiledOperator] = []
    executions = ExecutionColumns()
    spans: list[Span] = []
    allocations: list[Allocation] = []
    threads: dict[int, str] = {}
    for copy, trace in enumerate(traces):
        at = join_operators(operators, trace.operators)
        offset = copy * THREADS_OF_A_COPY
        threads[HOST_THREAD + offset] = f"copy {copy}"
        threads |= {number + offset: f"copy {copy}: {it}" for number, it in trace.threads.items()}
        executions.extend(
            changed(
                each,
                operator=at[each.operator],
                thread=each.thread + offset,
                dispatch_thread=each.dispatch_thread and each.dispatch_thread + offset,
            )
            for each in trace.executions
        )
        places: dict[int | None, int | None] = {None: None, **dict(enumerate(at))}
        spans += [
            changed(each, thread=each.thread + offset, operator=places[each.operator])
            for each in trace.spans
        ]
        allocations += [changed(each, operator=places[each.operator]) for each in trace.allocations]
    executions.sort_by_start()
    return replace(
        traces[0],
        operators=tuple(operators),
        executions=executions,
        spans=tuple(spans),
        allocations=tuple(sorted(allocations, key=lambda each: each.at_ns)),
        threads=threads,
        alignments=tuple(
            changed(each, domain=f"{each.domain}, copy {copy}")
            for copy, trace in enumerate(traces)
            for each in trace.alignments
        ),
        dropped=tuple(dict.fromkeys(line for trace in traces for line in trace.dropped)),
    )


def join_operators(
    operators: list[ProfiledOperator], more: Sequence[ProfiledOperator]
) -> list[int]:
    """Add the operators of another copy to those of all; return the place of each.

    Operators of one name, type and shapes are the same. An engine may give operators that it adds
    to a graph, such as conversions of a layout, another name in each copy: the rest are joined by
    type and shapes, in the order of execution.
    """
    unjoined = dict(enumerate(operators))
    at: dict[int, int] = {}
    for key_of in (named_key, unnamed_key):
        known: dict[tuple[object, ...], list[int]] = {}
        for place, operator in unjoined.items():
            known.setdefault(key_of(operator), []).append(place)
        for index, operator in enumerate(more):
            places = known.get(key_of(operator))
            if index not in at and places:
                at[index] = place = places.pop(0)
                operators[place] = with_use_of(unjoined.pop(place), operator)
    for index, operator in enumerate(more):
        if index not in at:
            at[index] = len(operators)
            operators.append(operator)
    return [at[index] for index in range(len(more))]


def named_key(operator: ProfiledOperator) -> tuple[object, ...]:
    return operator.id, operator.name, *unnamed_key(operator)


def unnamed_key(operator: ProfiledOperator) -> tuple[object, ...]:
    return operator.type, operator.provider, operator.inputs, operator.outputs


def with_use_of(operator: ProfiledOperator, other: ProfiledOperator) -> ProfiledOperator:
    """Return an operator that used the threads as both did."""
    uses = [use for use in (operator.threads, other.threads) if use is not None]
    return changed(operator, threads=reduce(ThreadUse.with_that_of, uses) if uses else None)
