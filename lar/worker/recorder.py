"""The recorder of a profiled run: what the worker records beside the engine's own profile."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from copy import copy as copy_of
from dataclasses import replace
from functools import partial
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lar import __version__
from lar.engines.driver import HOST_THREAD, Driver, EngineTrace, Silent
from lar.options.table import PROFILE_RAW, PROFILE_SYSCALLS, PROFILES

if TYPE_CHECKING:
    from lar.measurement.syscalls import SyscallTrace
    from lar.records.profile import Category, Profile
    from lar.records.run import RunSpec

T = TypeVar("T")


class Recorder(Silent):
    """Records phases, calls, copies and iterations, in nanoseconds since it was made.

    Copies of a model that run at once have a recorder each, which record into the same lists: the
    iterations of all are numbered in turn.
    """

    def __init__(self, copies: int = 1) -> None:
        from lar.records import profile
        from lar.records.columns import SpanColumns, counter_columns, step_columns

        self.types = profile
        self.t0_ns = time.perf_counter_ns()
        self.unix_ns = time.time_ns()
        self.spans = SpanColumns()
        self.steps = step_columns()
        self.memory = counter_columns("rss")
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

    def beside(self, runner: int) -> Recorder:
        """Return the recorder of another copy."""
        from lar.worker.copy_traces import host_thread_of

        other = copy_of(self)
        other.runner, other.thread = runner, host_thread_of(runner)
        self._others.append(other)
        return other

    def attach(self, driver: Driver) -> None:
        recorder = self.beside(driver.runner) if driver.runner else self
        self.drivers.append(driver)
        driver.recorder = recorder
        driver.record = partial(recorder.record, driver)
        if PROFILE_SYSCALLS.is_given(driver.spec.settings):
            from lar.measurement.syscalls import SyscallTrace

            written = driver.context.written
            place = next(written[each.key] for each in PROFILES if each.key in written)
            self._syscalls = SyscallTrace(os.path.dirname(place))

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
        while True:
            began = self.now()
            try:
                feed = next(feeds)
            except StopIteration:
                return
            self._step_began = began
            place = {"step": self.next_step, "warmup": self.warmup}
            self.add("phase", "dataloader", began, self.now(), **place)
            yield feed

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
        values = self.next_step, first, end, self.warmup, self.runner
        step = self.types.Step(*values)
        self.recorded += 1
        self.steps.add(*values)
        place = {"step": step.number, "warmup": self.warmup}
        copied, waited = driver.copied_at, end
        if copied is not None:
            own = driver.own_seconds() if driver.own_seconds is not None else 0.0
            waited = min(end, round((copied() - own) * 1e9) - self.t0_ns)
        for phase, at, until in (("forward", start, middle), ("wait", middle, waited)):
            self.add("phase", phase, at, until, **place)
            if name := driver.calls.get(phase):
                self.add("runtime", name, at, until, **place)
        if copied is not None:
            self.add("phase", "output_copy", waited, end, **place)
            if name := driver.calls.get("outputs"):
                self.add("runtime", name, waited, end, **place)
        if (held := read_resident_bytes()) is not None:
            self.memory.add(end, held)
        assert driver.profiler is not None
        driver.profiler.take(step, start, middle, waited)
        self._step_began = None
        if not self.runner:
            self._cpu.begin_iteration()

    def write(self, spec: RunSpec, driver: Driver, batch: int | None) -> list[str]:
        """Write the profile, and the engine's own, where the spec says.

        What only the parent process knows is missing in it (`lar.running.profiled_run`).
        """
        from lar.profiles.ranges import patterns_of, spans_of_patterns, unmatched
        from lar.profiles.trace_file import write_profile
        from lar.worker.copy_traces import join_traces

        calls = self._syscalls.stop() if self._syscalls is not None else None
        profilers = [each.profiler for each in self.drivers]
        trace = join_traces([each.finish() for each in profilers if each is not None])
        if calls is not None:
            from lar.measurement.syscalls import spans_of_calls

            known = (HOST_THREAD, trace.threads, self.unix_ns)
            spans, names = spans_of_calls(calls, self.steps, *known)
            threads = {**names, **trace.threads}
            trace = replace(trace, spans=(*trace.spans, *spans), threads=threads)
        patterns = patterns_of(spec.settings)
        written = driver.context.written
        for option in PROFILES:
            if option.key in written:
                profile = self.profile_of(spec, driver, trace, batch)
                if named := spans_of_patterns(profile, patterns):
                    profile = replace(profile, spans=(*profile.spans, *named))
                # The parent writes it again, with what only that knows, and packs it then.
                write_profile(profile, written[option.key], packed=False)
        if PROFILE_RAW.key in written:
            place = written[PROFILE_RAW.key]
            if trace.raw_file:
                shutil.copyfile(trace.raw_file, place)
            else:
                Path(place).write_bytes(trace.engine_raw)
        return [*unmatched(trace.operators, patterns), *trace.notes]

    def profile_of(
        self, spec: RunSpec, driver: Driver, trace: EngineTrace, batch: int | None
    ) -> Profile:
        """Return all that was recorded."""
        from lar.records.columns import SpanColumns
        from lar.worker.copy_traces import names_of_threads

        spans = SpanColumns()
        spans.add_all(self.spans)
        spans.add_all(trace.spans)
        spans.sort_by_time()
        types: Any = self.types
        engine = driver.facts()
        profile: Profile = types.Profile(
            facts=types.ProfileFacts(
                lar_version=__version__,
                engine=engine.name,
                engine_version=engine.version,
                driver=engine.driver,
                device=engine.device,
                model=types.ModelFacts(
                    spec.model,
                    driver.context.model_sha256,
                    os.path.splitext(driver.model_file)[1].lstrip("."),
                ),
                options=dict(spec.settings),
                batch=batch,
                iterations=len(self.steps) - sum(step.warmup for step in self.steps),
                warmup_iterations=sum(step.warmup for step in self.steps),
                threads=trace.thread_count,
                clock=types.Clock("perf_counter_ns", self.t0_ns, self.unix_ns, trace.alignments),
                cpu=types.CpuUse(os.cpu_count() or 0, *self._cpu.percents()),
                dropped=trace.dropped,
                dispatch_only=trace.dispatch_only,
                times=trace.times,
            ),
            operators=trace.operators,
            steps=tuple(sorted(self.steps, key=lambda step: (not step.warmup, abs(step.number)))),
            executions=trace.executions,
            spans=spans,
            counters=tuple(sorted(self.memory, key=lambda sample: sample.at_ns)),
            allocations=trace.allocations,
            memory_plan=trace.memory_plan or types.MemoryPlan(),
            threads=names_of_threads(self.copies, trace.threads),
            engine_raw=trace.engine_raw,
        )
        return profile


# The system counts CPU time in ticks of up to 10 ms: fewer than some ticks mean nothing.
SHORTEST_CPU_SECONDS = 0.05


class CpuMeter:
    """Sums up the CPU time of this process and of the machine, over iterations alone.

    Before the first timed iteration garbage is collected, so that it counts only if it is the
    only one.
    """

    def __init__(self) -> None:
        self._first: tuple[float, ...] = ()
        self._later: tuple[float, ...] = ()  # the sums over all but the first
        self.begin_iteration()

    def begin_iteration(self) -> None:
        self._began = read_times()

    def end_iteration(self, *, timed: bool) -> None:
        if timed:
            pairs = zip(read_times(), self._began, strict=True)
            taken = tuple(now - before for now, before in pairs)
            if not self._first:
                self._first = taken
            else:
                self._later = tuple(map(add, self._later or (0.0,) * len(taken), taken))

    def percents(self) -> tuple[float | None, float | None]:
        """Return those of the process, of one core, and of the machine, of all cores; None if the
        iterations were too short."""
        counted = self._later or self._first
        if not counted:
            return None, None
        elapsed, process, busy, every = counted
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
