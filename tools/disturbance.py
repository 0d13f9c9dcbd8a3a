"""Disturbs the machine on purpose, by processes that compute and rest at random (hogs)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# A hog computes and rests in turns; the length of each turn is drawn at random.
MEAN_BUSY_SECONDS = 0.4
MEAN_IDLE_SECONDS = 0.6
HOGS_FOR_A_CPU = 1  # hogs pinned to each CPU; as many hogs are not pinned

# A hog ends when the process that started it has ended, even if that process was killed.
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
    """Disturb the machine until the `with` block ends; yield the process ids of the hogs.

    One hog is pinned to each CPU, and as many hogs are not pinned. `strength` multiplies the time
    for which each hog computes.
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
