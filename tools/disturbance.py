"""Other work on the machine, made on purpose: processes that compute and rest at random."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# Each computes for a while and rests for a while; both are drawn anew each time.
MEAN_BUSY_SECONDS = 0.4
MEAN_IDLE_SECONDS = 0.6
HOGS_FOR_A_CPU = 1  # pinned to it; as many again are not pinned

# It ends with the process that started it, however that one ends.
HOG = """
import os, random, sys, time
random.seed(int(sys.argv[1]))
busy, idle, parent = float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
while os.getppid() == parent:
    time.sleep(random.expovariate(1 / idle))
    end = time.monotonic() + random.expovariate(1 / busy)
    while time.monotonic() < end:
        for _ in range(10_000):
            pass
"""


@contextlib.contextmanager
def disturbed(seed: int, strength: float = 1.0) -> Iterator[list[int]]:
    """Disturb the machine until the end: hogs pinned to each CPU, and as many that are not.

    `strength` multiplies the time for which each computes. Yields the hogs' process ids.
    """
    cpus = sorted(os.sched_getaffinity(0))
    places = [*([cpu] for cpu in cpus for _ in range(HOGS_FOR_A_CPU)), *(cpus for _ in cpus)]
    times = strength * MEAN_BUSY_SECONDS, MEAN_IDLE_SECONDS
    with contextlib.ExitStack() as stack:
        hogs = []
        for number, place in enumerate(places):
            words = (str(each) for each in (seed + number, *times, os.getpid()))
            hog = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", HOG, *words]))
            stack.callback(hog.kill)
            os.sched_setaffinity(hog.pid, place)
            hogs.append(hog.pid)
        yield hogs
