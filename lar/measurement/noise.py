"""Meters of noise, which read how long this process's threads computed or waited for a CPU.

Linux reports the time of computing and the time of waiting without special rights. The run-queue
delay is the second field of `/proc/self/task/TID/schedstat` (kernel documentation,
scheduler/sched-stats). The run-queue delay shows disturbances by other processes far better than
the number of context switches does. The CPU time of a thread is read from the thread's own CPU
clock with clock_gettime(3); any thread of the process may read this clock. The CPU clock is exact,
while the CPU time in the first field of schedstat may be late by up to a tick.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lar.measurement.machine import MachineNoise

if TYPE_CHECKING:
    from lar.records.run import NoiseSources

TASKS = "/proc/self/task"
NAN = math.nan
# The probe is a fixed piece of work whose time shows how fast the core is: a checksum of bytes that
# the previous iteration has driven out of the cache. Programs that use the same core, or its
# caches, slow down the probe as they slow down an engine. Other guests of the host can be detected
# in no other way. The probe takes a few us. It has less than 5 KiB, since zlib keeps the
# interpreter's lock only for so few bytes.
PROBE_BYTES = bytes(range(256)) * 16
PROBE = f"a checksum of {len(PROBE_BYTES) // 1024} KiB after each reading"


class Reading(NamedTuple):
    """The noise since the last reading; all times are in seconds.

    A time that was not read is NaN. `queue_delay` is the longest time for which a runnable thread
    waited for a CPU, while other processes may have used the CPU. `queue_delay` does not include
    waits for threads of this process. `busiest_thread` is the CPU time of the thread that computed
    most. `active` is the time in which the busiest thread computed or slept, 0 if unknown. Some
    waits began before the last reading: `waited_before` is the longest time that one of these waits
    had already lasted at the last reading. `cpu` is the CPU time of all threads. `steal`,
    `throttled`, `frequency` (in Hz) and `probe` are as in `Samples`.
    """

    queue_delay: float
    busiest_thread: float
    active: float = 0.0
    cpu: float = NAN
    steal: float = NAN
    throttled: float = NAN
    frequency: float = NAN
    probe: float = NAN
    waited_before: float = 0.0


class Meter(Protocol):
    """Reads the noise since the last reading of this meter."""

    sources: NoiseSources

    def read(self, *, ends: bool = False) -> Reading:
        """Return a reading.

        If `ends` is true, the reading may take longer, since no iteration follows at once.
        """


def time_probe() -> float:
    """Execute the probe (a short, fixed computation) once, and return its time in seconds."""
    began = time.perf_counter()
    zlib.crc32(PROBE_BYTES)
    return time.perf_counter() - began


def usable_cores(tasks: Iterable[str]) -> int:
    """Return the number of CPUs that the given threads may use together."""
    cores: set[int] = set()
    for task in tasks:
        with contextlib.suppress(OSError):  # the thread has ended
            cores |= os.sched_getaffinity(int(task))
    return len(cores)


def open_meter(task: str = "") -> Meter:
    """Make a meter of this process, or of the thread `task`; take a first reading."""
    meter = ThreadMeter((task,) if task else None)
    try:
        meter.read(ends=True)
    except OSError:  # the system does not report threads
        return CpuMeter(bool(task))
    return meter


class ThreadMeter:
    """The meter of all threads of this process, or of the threads with the given numbers."""

    def __init__(self, tasks: Sequence[str] | None = None) -> None:
        self._given = tasks is not None
        self._tasks: Sequence[str] = tasks or ()
        self._listed: Sequence[str] = ()  # the numbers of all threads
        self._machine = MachineNoise()
        self._own = ""  # the number of the calling thread
        self._threads: dict[str, ReadThread] = {}
        self._last_read = 0
        self._cores = self._computed = 0  # the threads' CPU time before the last reading
        self._left_before = self._window_before = math.inf
        cpu = "clock_gettime of each thread, summed"
        self.sources = sources_of(self._machine, f"{TASKS}/*/schedstat", cpu)

    def read(self, *, ends: bool = False) -> Reading:
        # Engines start their threads in the first iteration, or when they load a model.
        seldom = self._machine.is_due(ends=ends)
        if seldom and not (ends and self._knows_all()):
            self._own = str(threading.get_native_id())
            self._listed = os.listdir(TASKS)
            self._cores = usable_cores(self._listed)
            if not self._given:
                self._tasks = self._listed
        probe = time_probe()
        longest, busiest, active, before, cpu, widest = 0, -1, 0, 0, 0, 0
        last_read = self._last_read
        for task in self._tasks:
            began = time.monotonic_ns()
            try:
                if task not in self._threads:
                    self._threads[task] = ReadThread(task, self._last_read)
                thread = self._threads[task]
                delay_so_far = thread.read_delay()
                cpu_so_far = time.clock_gettime_ns(thread.clock)
            except OSError:
                self._listed = ()
                continue  # the thread has ended
            passed = time.monotonic_ns() - thread.began
            computed = cpu_so_far - thread.cpu
            # The kernel adds a wait only when it is over. So a wait that began before the last
            # reading may be longer than the time since that reading without computing.
            delay_in_all = delay_so_far - thread.delay
            delay = min(delay_in_all, passed - computed)
            longest = max(longest, delay)
            before = max(before, delay_in_all - delay)
            cpu += computed
            widest = max(widest, passed)
            if computed > busiest:
                busiest, active = computed, passed - max(delay, 0)
            thread.delay, thread.cpu = delay_so_far, cpu_so_far
            thread.began = last_read = began
        if busiest < 0:
            raise OSError(f"{TASKS} has nothing about any thread")
        self._last_read = last_read
        # The CPU time that this process left for other work. The rest of a longer wait was for
        # threads of this process.
        left = max(0, self._cores * widest - time.process_time_ns() + self._computed)
        longest = min(longest, left)
        if self._left_before < min(before, self._window_before):
            before = int(self._left_before)
        self._left_before, self._window_before = left, widest
        machine = self._machine.read(is_due=seldom)
        self.leave_out_own()
        seconds = [each * 1e-9 for each in (longest, busiest, active, cpu)]
        return Reading._make((*seconds, *machine, probe, before * 1e-9))

    def _knows_all(self) -> bool:
        """Return whether the process has as many threads as when its threads were last listed."""
        return os.stat(TASKS).st_nlink == 2 + len(self._listed)

    def leave_out_own(self) -> None:
        """Leave out of the next reading what the calling thread has computed and waited so far."""
        own = self._threads.get(self._own)
        if own is not None:
            own.delay = own.read_delay()
            own.began = time.monotonic_ns()
            own.cpu = time.clock_gettime_ns(own.clock)
        self._computed = time.process_time_ns()


class ReadThread:
    """A thread, and the figures of its last reading, in nanoseconds."""

    __slots__ = ("began", "clock", "cpu", "delay", "file")

    def __init__(self, task: str, began: int) -> None:
        self.file = os.open(f"{TASKS}/{task}/schedstat", os.O_RDONLY)
        # The kernel's encoding of "CPU clock of thread N" as a clock number.
        self.clock = (~int(task) << 3) | 6
        self.delay = self.cpu = 0
        self.began = began

    def read_delay(self) -> int:
        """Return how long the thread has waited for a CPU so far, in nanoseconds."""
        return int(os.pread(self.file, 80, 0).split()[1])


class CpuMeter:
    """The meter for systems that do not report waits of threads, such as macOS."""

    def __init__(self, of_thread: bool) -> None:
        self._clock = time.thread_time if of_thread else time.process_time
        self._machine = MachineNoise()
        self._cpu, self._began = self._clock(), time.monotonic()
        self.sources = sources_of(self._machine, "", f"time.{self._clock.__name__}")

    def read(self, *, ends: bool = False) -> Reading:
        cpu, now, probe = self._clock() - self._cpu, time.monotonic(), time_probe()
        machine = self._machine.read(is_due=self._machine.is_due(ends=ends))
        reading = Reading(NAN, NAN, now - self._began, cpu, *machine, probe)
        self._cpu, self._began = self._clock(), time.monotonic()
        return reading


def sources_of(machine: MachineNoise, queue_delay: str, cpu: str) -> NoiseSources:
    """Return where lar reads the figures of each kind of noise."""
    from lar.records.run import NoiseSources

    places = {kind: source.where for kind, source in machine.sources.items()}
    return NoiseSources(queue_delay=queue_delay, cpu=cpu, probe=PROBE, **places)
