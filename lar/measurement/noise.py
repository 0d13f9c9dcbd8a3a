"""Noise meters: how long this process's threads computed, and stood ready without a CPU.

Linux reports both without special rights. The run-queue delay is the second field of
`/proc/self/task/TID/schedstat` (kernel documentation, scheduler/sched-stats); it follows the
disturbance that other processes cause far better than context switches do. The CPU time of a thread
is read from its clock (clock_gettime(3): CLOCK_THREAD_CPUTIME_ID of another thread of the same
process), which is exact where schedstat's first field lags by up to a tick.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TASKS = "/proc/self/task"


@dataclass(frozen=True, slots=True)
class Reading:
    """The times since the last reading, in seconds.

    `queue_delay` is that of the thread which stood longest ready without a CPU, `busiest_thread`
    the CPU time of the one that computed most, `window` the time in which it did and `waited` how
    long of that it stood ready without a CPU. `cpu` is the CPU time of all threads; `steal`,
    `throttled` and `frequency` (in Hz) are those of `Samples`. NaN: not read this time.
    """

    queue_delay: float
    busiest_thread: float
    window: float = math.inf
    waited: float = 0.0
    cpu: float = math.nan
    steal: float = math.nan
    throttled: float = math.nan
    frequency: float = math.nan


class Meter(Protocol):
    """Reads what happened since it was read last."""

    def read(self) -> Reading: ...


class ThreadMeter:
    """The meter of the real threads of this process, or of those whose numbers are given."""

    def __init__(self, tasks: Sequence[str] | None = None) -> None:
        self._tasks = tasks
        self._files: dict[str, tuple[int, int]] = {}
        self._delays: dict[str, int] = {}
        self._cpu: dict[str, int] = {}
        self._began: dict[str, int] = {}  # when each was read last
        self._last_read = 0

    @classmethod
    def open(cls, tasks: Sequence[str] | None = None) -> ThreadMeter | None:
        """Return a meter that has been read once, None if the system reports nothing."""
        meter = cls(tasks)
        try:
            meter.read()
        except OSError:
            return None
        return meter

    def read(self) -> Reading:
        longest, busiest, window, waited, cpu = 0, -1, 0, 0, 0
        for task in self._tasks or os.listdir(TASKS):
            began = time.monotonic_ns()
            try:
                if task not in self._files:
                    # The kernel's encoding of "CPU clock of thread N" as a clock number.
                    clock = (~int(task) << 3) | 6
                    self._files[task] = (os.open(f"{TASKS}/{task}/schedstat", os.O_RDONLY), clock)
                    self._delays[task] = self._cpu[task] = 0
                    self._began[task] = self._last_read
                file, clock = self._files[task]
                delay_so_far = int(os.pread(file, 80, 0).split()[1])
                cpu_so_far = time.clock_gettime_ns(clock)
            except OSError:
                continue  # the thread ended between the two reads
            passed = time.monotonic_ns() - self._began[task]
            computed = cpu_so_far - self._cpu[task]
            # The kernel adds a wait when it is over, all of it: one that began long before the
            # last reading is longer than the time since, of which a part was computed in.
            delay = min(delay_so_far - self._delays[task], passed - computed)
            longest = max(longest, delay)
            cpu += computed
            if computed > busiest:
                busiest, window, waited = computed, passed, max(delay, 0)
            self._delays[task], self._cpu[task] = delay_so_far, cpu_so_far
            self._began[task] = self._last_read = began
        if busiest < 0:
            raise OSError(f"{TASKS} has nothing about any thread")
        return Reading(longest * 1e-9, busiest * 1e-9, window * 1e-9, waited * 1e-9, cpu * 1e-9)
