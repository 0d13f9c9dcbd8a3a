"""Other work on the machine, made on purpose: processes that compute and rest at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

# Each computes for a while and rests for a while; both are drawn anew each time.
MEAN_BUSY_SECONDS = 0.4
MEAN_IDLE_SECONDS = 0.6
HOGS_FOR_A_CPU = 1  # pinned to it; as many again are not pinned

COMPUTE = "while True: pass"


@contextlib.contextmanager
def disturbed(seed: int, strength: float = 1.0) -> Iterator[list[int]]:
    """Disturb the machine until the end: hogs pinned to each CPU, and as many that are not.

    `strength` multiplies the time for which each computes. Yields the hogs' process ids.
    """
    cpus = sorted(os.sched_getaffinity(0))
    places = [*([cpu] for cpu in cpus for _ in range(HOGS_FOR_A_CPU)), *(cpus for _ in cpus)]
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        hogs = [stack.enter_context(hog(place)) for place in places]
        threads = [
            threading.Thread(target=play, args=(it, random.Random(seed + at), strength, ended))
            for at, it in enumerate(hogs)
        ]
        for thread in threads:
            thread.start()
        try:
            yield [it.pid for it in hogs]
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def hog(cpus: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that computes on some CPUs, stopped at first; kill it in the end."""
    with subprocess.Popen([sys.executable, "-S", "-c", COMPUTE]) as process:
        try:
            os.sched_setaffinity(process.pid, cpus)
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def play(
    process: subprocess.Popen[bytes],
    random: random.Random,
    strength: float,
    ended: threading.Event,
) -> None:
    """Let a process compute and rest by turns."""
    while not ended.wait(random.expovariate(1 / MEAN_IDLE_SECONDS)):
        process.send_signal(signal.SIGCONT)
        ended.wait(random.expovariate(1 / (strength * MEAN_BUSY_SECONDS)))
        process.send_signal(signal.SIGSTOP)
