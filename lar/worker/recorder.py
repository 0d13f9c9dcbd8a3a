"""The recorder of a profiled run: it records phases, calls, copies and iterations in the worker."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from _thread import get_ident
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import add, attrgetter, sub
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace as changed

from lar import __version__
from lar.engines.driver import HOST_THREAD, Driver, EngineTrace, Silent
from lar.measurement.machine import read_text
from lar.options.table import PROFILE_RAW, PROFILE_SYSCALLS, PROFILES
from lar.records import profile as records
from lar.records.profile import Category, ExecutionColumns, RecordColumns, SpanColumns

if TYPE_CHECKING:
    from lar.measurement.syscalls import SyscallTrace

T = TypeVar("T")

# The fields in which the same operator is equal in several copies of a model.
UNNAMED = attrgetter("type", "provider", "inputs", "outputs")
NAMED = attrgetter("id", "name", "type", "provider", "inputs", "outputs")
# The fields that a profile takes unchanged from the engine's report, by the name in both records.
TOLD = ("operators", "executions", "allocations", "threads", "engine_raw")


class Recorder(Silent):
    """Records phases, calls, copies and iterations, in nanoseconds since the recorder was made.

    Copies of a model that run at once record into the same lists, each from its own thread. The
    iterations of all copies are numbered in turn, so that with two copies, copy 0 has the numbers
    0, 2, 4 and so on.
    """

    def __init__(self) -> None:
        self.t0_ns, self.unix_ns = time.perf_counter_ns(), time.time_ns()
        self.spans, self.steps = SpanColumns(), RecordColumns(records.Step, "qqqBi")
        self.memory = RecordColumns(partial(records.CounterSample, "rss"), "qq")
        self.warmup = False
        self.drivers: list[Driver] = []
        self._copies: dict[int, int] = {}  # by thread
        self.recorded: Counter[int] = Counter()  # by copy: its iterations
        self._begun: dict[int, int] = {}  # by copy: when its next iteration began
        self.cpu, self._cpu_began = NO_TIMES, read_times()
        self._syscalls: SyscallTrace | None = None

    def now(self) -> int:
        return time.perf_counter_ns() - self.t0_ns

    @property
    def own_copy(self) -> int:
        """The number of the copy that the calling thread runs."""
        return self._copies.get(get_ident(), 0)

    def next_step(self) -> dict[str, Any]:
        """Return the number of the copy's next iteration, and whether it belongs to the warm-up.

        Timed iterations have the numbers 0, 1, 2 and so on. Iterations of the warm-up have the
        numbers -1, -2, -3 and so on.
        """
        number = self.recorded[self.own_copy] * len(self.drivers) + self.own_copy
        return {"step": -1 - number if self.warmup else number, "warmup": self.warmup}

    def add(self, category: Category, name: str, start_ns: int, end_ns: int, **fields: Any) -> None:
        """Record from when to when the calling thread did something, such as a copy."""
        thread = HOST_THREAD + self.own_copy * records.THREADS_OF_A_COPY
        self.spans.add(start_ns, end_ns, category=category, name=name, thread=thread, **fields)

    @contextlib.contextmanager
    def _span(self, category: Category, name: str, **fields: Any) -> Iterator[None]:
        began = self.now()
        if self.own_copy in self._begun:
            fields |= self.next_step()
        try:
            yield
        finally:
            self.add(category, name, began, self.now(), **fields)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._span("phase", name)

    def attach(self, driver: Driver) -> None:
        self._copies[get_ident()] = driver.runner
        self.drivers.append(driver)
        driver.recorder, driver.record = self, partial(self.record, driver)
        if PROFILE_SYSCALLS.is_given(driver.spec.settings):
            from lar.measurement.syscalls import SyscallTrace

            self._syscalls = SyscallTrace(os.path.dirname(place_of_profile(driver)))

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        self.warmup = True
        with self.phase("warmup"):
            yield
        self.warmup = False
        self.recorded.clear()

    def each_feed(self, feeds: Iterator[T]) -> Iterator[T]:
        began = self.now()
        for feed in feeds:
            self._begun[self.own_copy] = began
            self.add("phase", "dataloader", began, self.now(), **self.next_step())
            yield feed
            began = self.now()

    def noting_begin(self, driver: Driver, copy: Callable[[], object]) -> Callable[[], object]:
        began = [0.0]
        driver.copied_at = lambda: began[0]

        def note_and_copy() -> object:
            began[0] = time.perf_counter()
            return copy()

        return note_and_copy

    def call(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._span("runtime", name) if name else contextlib.nullcontext()

    @contextlib.contextmanager
    def copy(self, name: str, size_bytes: int, tensor: str) -> Iterator[None]:
        kinds = {"source_kind": "host", "destination_kind": "host"}
        moved = {"size_bytes": size_bytes, "tensor": tensor, **kinds}
        with self._span("runtime", name), self._span("memcpy", "[CPU memcpy HtoH]", **moved):
            yield

    def record(self, driver: Driver, began: float, dispatched: float, ended: float) -> None:
        """Record an ended iteration; the times are seconds of the driver's clock."""
        start, middle, end = (round(at * 1e9) - self.t0_ns for at in (began, dispatched, ended))
        copy, place = self.own_copy, self.next_step()
        if not (copy or self.warmup):  # CPU time is the process's, so that only copy 0 records it
            # Garbage is collected before the first timed iteration, which counts only if it is the
            # only one.
            sums = self.cpu if self.recorded[copy] > 1 else NO_TIMES
            self.cpu = tuple(map(add, sums, map(sub, read_times(), self._cpu_began)))
        step = records.Step(place["step"], self._begun.pop(copy, start), end, self.warmup, copy)
        self.recorded[copy] += 1
        self.steps.add(*msgspec.structs.astuple(step))
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
        if held := read_text("/proc/self/statm").split():
            self.memory.add(end, int(held[1]) * os.sysconf("SC_PAGESIZE"))
        assert driver.profiler is not None
        driver.profiler.take(step, start, middle, waited)
        if not copy:
            self._cpu_began = read_times()

    def write(self, batch: int | None) -> list[str]:
        """Write the profile, and the engine's own profile, to the files that the spec names.

        Facts that only the parent process has are added later (`lar.running.steps`). Return
        warnings.
        """
        from lar.profiles.ranges import patterns_of, spans_of_patterns, unmatched
        from lar.profiles.trace_file import write_profile

        driver = self.drivers[0]
        calls = self._syscalls.stop() if self._syscalls is not None else None
        trace = join_traces([each.profiler.finish() for each in self.drivers if each.profiler])
        self.spans.add_all(trace.spans)
        if calls is not None:
            from lar.measurement.syscalls import spans_of_calls

            spans, names = spans_of_calls(
                calls, self.steps, HOST_THREAD, trace.threads, self.unix_ns
            )
            self.spans.add_all(spans)
            trace.threads.update(names)
        patterns = patterns_of(driver.spec.settings)
        if place := place_of_profile(driver):
            profile = self.profile_of(driver, trace, batch)
            if named := spans_of_patterns(profile, patterns):
                profile = replace(profile, spans=(*profile.spans, *named))
            # The parent writes the file again, with its own facts, and compresses a large one.
            write_profile(profile, place, packed=False)
        if place := driver.context.written.get(PROFILE_RAW.key, ""):
            if trace.raw_file:
                shutil.copyfile(trace.raw_file, place)
            else:
                Path(place).write_bytes(trace.engine_raw)
        return [*unmatched(trace.operators, patterns), *trace.notes]

    def profile_of(self, driver: Driver, trace: EngineTrace, batch: int | None) -> records.Profile:
        """Return the profile with all recorded events."""
        self.spans.sort_by_time()
        spec, engine = driver.spec, driver.facts()
        warmups = sum(step.warmup for step in self.steps)
        model_format = os.path.splitext(driver.model_file)[1].lstrip(".")
        facts = records.ProfileFacts(
            lar_version=__version__,
            engine=engine.name,
            engine_version=engine.version,
            driver=engine.driver,
            device=engine.device,
            model=records.ModelFacts(spec.model, driver.context.model_sha256, model_format),
            options=dict(spec.settings),
            batch=batch,
            iterations=len(self.steps) - warmups,
            warmup_iterations=warmups,
            threads=trace.thread_count,
            clock=records.Clock("perf_counter_ns", self.t0_ns, self.unix_ns, trace.alignments),
            cpu=cpu_use_of(self.cpu),
            **{name: getattr(trace, name) for name in ("dropped", "dispatch_only", "times")},
        )
        return records.Profile(
            facts=facts,
            steps=tuple(sorted(self.steps, key=lambda step: (not step.warmup, abs(step.number)))),
            spans=self.spans,
            counters=tuple(sorted(self.memory, key=lambda sample: sample.at_ns)),
            memory_plan=trace.memory_plan or records.MemoryPlan(),
            **{name: getattr(trace, name) for name in TOLD},
        )


def place_of_profile(driver: Driver) -> str:
    """Return the path to which a run writes a profile in lar's format; empty if it writes none."""
    written = driver.context.written
    return next((written[each.key] for each in PROFILES if each.key in written), "")


# CPU use over a shorter time is not reported: the system counts CPU time in ticks of up to 10 ms.
SHORTEST_CPU_SECONDS = 0.05
NO_TIMES: tuple[float, ...] = (0.0,) * 4


def cpu_use_of(times: Sequence[float]) -> records.CpuUse:
    """Return how much of the CPU was used during iterations, in percent.

    `times` has an increase for each figure that `read_times` returns: the figure after the
    iterations minus the figure before them. If the iterations were too short, the percents are left
    out.
    """
    elapsed, process, busy, every = times
    if elapsed < SHORTEST_CPU_SECONDS:
        return records.CpuUse(os.cpu_count() or 0)
    system = 100 * busy / every if every else None
    return records.CpuUse(os.cpu_count() or 0, 100 * process / elapsed, system)


def read_times() -> tuple[float, ...]:
    """Return the time and this process's CPU time in seconds, then all CPUs' busy and total ticks.

    Unknown ticks are 0.
    """
    ticks = [int(word) for word in read_text("/proc/stat").split()[1:9]] or [0] * 8
    # A CPU that is idle or waits for a disk (fields 3 and 4) is not busy.
    return time.perf_counter(), time.process_time(), sum(ticks) - sum(ticks[3:5]), sum(ticks)


def join_traces(traces: Sequence[EngineTrace]) -> EngineTrace:
    """Return the engine's reports on copies of a model that ran at once, joined into one report.

    Each copy has its own threads: the threads of copy 0 have numbers from 1 up, and the threads of
    copy 1 from 1001 up. An operator that all copies execute is listed once. If there is only one
    copy, it runs in the host's thread.
    """
    if len(traces) == 1:
        return replace(traces[0], threads={HOST_THREAD: "host", **traces[0].threads})
    operators: list[records.ProfiledOperator] = []
    executions, threads = ExecutionColumns(), dict[int, str]()
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    for copy, trace in enumerate(traces):
        at = join_operators(operators, trace.operators)
        places: dict[int | None, int | None] = {None: None, **dict(enumerate(at))}
        offset = copy * records.THREADS_OF_A_COPY
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
        parts["spans"] += [
            changed(each, thread=each.thread + offset, operator=places[each.operator])
            for each in trace.spans
        ]
        parts["allocations"] += [
            changed(each, operator=places[each.operator]) for each in trace.allocations
        ]
        parts["alignments"] += [
            changed(each, domain=f"{each.domain}, copy {copy}") for each in trace.alignments
        ]
        parts["dropped"] += trace.dropped
    executions.sort_by_start()
    parts["allocations"].sort(key=lambda each: each.at_ns)
    parts["dropped"] = [*dict.fromkeys(parts["dropped"])]
    joined: dict[str, Any] = {name: tuple(found) for name, found in parts.items()}
    return replace(
        traces[0], operators=tuple(operators), executions=executions, threads=threads, **joined
    )


def join_operators(
    operators: list[records.ProfiledOperator], more: Sequence[records.ProfiledOperator]
) -> list[int]:
    """Add another copy's operators to a joint list; return the index of each operator in the list.

    Operators with equal name, type and shapes are joined. An engine may add operators to a graph,
    such as conversions of a layout, and name the added operators differently in each copy. The
    operators that an engine adds are joined by type and shapes, in the order of execution.
    """
    unjoined, at = dict(enumerate(operators)), dict[int, int]()
    for key_of in (NAMED, UNNAMED):
        known = defaultdict(list)
        for place, operator in unjoined.items():
            known[key_of(operator)].append(place)
        for index, operator in enumerate(more):
            if index not in at and (places := known[key_of(operator)]):
                at[index] = place = places.pop(0)
                one, other = unjoined.pop(place).threads, operator.threads
                used = one.with_that_of(other) if one and other else one or other
                operators[place] = changed(operators[place], threads=used)
    for index, operator in enumerate(more):
        if index not in at:
            at[index] = len(operators)
            operators.append(operator)
    return [at[index] for index in range(len(more))]
