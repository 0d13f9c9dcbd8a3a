"""Noise meters: how long this process's threads computed, and were ready without a CPU.

Linux reports both without special rights. The run-queue delay is the second field of
`/proc/self/task/TID/schedstat` (kernel documentation, scheduler/sched-stats); it shows how other
processes disturb this one far better than context switches do. The CPU time of a thread is read
from its clock (clock_gettime(3): CLOCK_THREAD_CPUTIME_ID of another thread of the same process),
which is exact, while schedstat's first field lags by up to a tick.
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
# A fixed piece of work whose time says how fast the core is: a checksum of bytes that the iteration
# before it has driven out of the cache. Programs on the same core, or with a share of its caches,
# slow it down as they slow down an engine; nothing else shows other guests of the host. It takes a
# few us; zlib keeps the interpreter's lock for fewer bytes than 5 KiB.
PROBE_BYTES = bytes(range(256)) * 16
PROBE = f"a checksum of {len(PROBE_BYTES) // 1024} KiB after each reading"


class Reading(NamedTuple):
    """The times since the last reading, in seconds.

    `queue_delay` is the longest time that a runnable thread waited for a CPU which other work may
    have held: waits for this process's own threads do not count. `busiest_thread` is the CPU time
    of the thread that computed most, `active` the time in which it computed or slept (0: unknown).
    `waited_before` is the part of a wait before the last reading. `cpu` is the CPU time of all
    threads; `steal`, `throttled`, `frequency` (in Hz) and `probe` are those of `Samples`. NaN: not
    read this time.
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
    """Reads what happened since its last reading."""

    sources: NoiseSources

    def read(self, *, ends: bool = False) -> Reading:
        """Return a reading; `ends` says that no iteration follows at once: it may take longer."""


def time_probe() -> float:
    """Return how many seconds the fixed piece of work takes now."""
    began = time.perf_counter()
    zlib.crc32(PROBE_BYTES)
    return time.perf_counter() - began


def usable_cores(tasks: Iterable[str]) -> int:
    """Return how many CPUs these threads may use together."""
    cores: set[int] = set()
    for task in tasks:
        with contextlib.suppress(OSError):  # the thread has ended
            cores |= os.sched_getaffinity(int(task))
    return len(cores)


def open_meter(task: str = "") -> Meter:
    """Return the meter of this process, or of one thread by its number; it has been read once."""
    meter = ThreadMeter((task,) if task else None)
    try:
        meter.read(ends=True)
    except OSError:  # the system does not report threads
        return CpuMeter(bool(task))
    return meter


class ThreadMeter:
    """The meter of all threads of this process, or of those whose numbers are given."""

    def __init__(self, tasks: Sequence[str] | None = None) -> None:
        self._given = tasks is not None
        self._tasks: Sequence[str] = tasks or ()
        self._listed: Sequence[str] = ()  # all threads
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
            # The kernel adds a whole wait when it is over. So a wait that began before the last
            # reading is longer than the time since then, part of which was computing.
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
        # The time of the CPUs that was left for others: a longer wait was for this process's
        # threads.
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
        """Return whether there are as many threads as were listed: each is a link of the folder."""
        return os.stat(TASKS).st_nlink == 2 + len(self._listed)

    def leave_out_own(self) -> None:
        """Leave the thread's own work and waiting in this reading out of the next one."""
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
        """Return how long it has waited for a CPU so far, in nanoseconds."""
        return int(os.pread(self.file, 80, 0).split()[1])


class CpuMeter:
    """The meter for systems that do not report waiting threads: macOS, some containers."""

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
    """Return the source of each kind of noise."""
    from lar.records.run import NoiseSources

    places = {kind: source.where for kind, source in machine.sources.items()}
    return NoiseSources(queue_delay=queue_delay, cpu=cpu, probe=PROBE, **places)
