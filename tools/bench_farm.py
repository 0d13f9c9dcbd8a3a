"""Measures what a farm costs: runs on Dask workers, against the same runs one after the other.

    uv run python tools/bench_farm.py [--count N]

The tool starts a scheduler and workers on this machine, and kills one worker halfway. It prints how
many results came, and two costs for each run. The first cost is time: the time of the workers that
were not killed, minus the time of the runs themselves, divided by the number of runs. The second
cost is CPU time: that of the scheduler, the workers and this process, without the processes that
make runs. With a scripted engine that only sleeps, the costs are those of the farm alone. With a
real model, the workers also compete for the CPUs of one machine, and wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterable

import psutil
from figures import Figures, Outcome, Settings
from processes import DIGITS, run_model, write_script

from lar.farm.runs import run_many
from lar.running.plan import plan_run
from tests.farm.conftest import LocalCluster

WORKERS = ("one", "two", "three", "four")
SECONDS = 0.1  # duration of an iteration of the scripted engine
FIGURES = Figures("bench_farm")


@FIGURES.row("script")
def measure_script(settings: Settings) -> Outcome:
    times = [[SECONDS, 0.01, SECONDS]]
    return measure(settings, write_script(settings.folder, times=times, real_time=True))


@FIGURES.row("model")
def measure_model(settings: Settings) -> Outcome:
    return measure(settings, DIGITS[1])


def measure(settings: Settings, model: str) -> Outcome:
    """Make runs of a model on workers, one of which is killed halfway, and a few runs here."""
    count = settings.repetitions
    specs = [plan_run(model, {"iter": 3, "seed": number}) for number in range(count)]
    here = statistics.median(time_here(model, number) for number in range(5))
    cluster = LocalCluster(settings.folder, WORKERS)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.end)
        cluster.start()
        farm = stack.enter_context(contextlib.closing(cluster.connect()))
        pids = [os.getpid(), *(each.pid for each in cluster.processes.values())]
        before = cpu_seconds_of(pids)
        killer = threading.Timer(here * count / len(WORKERS) / 2, cluster.kill, WORKERS[:1])
        killer.start()
        began = time.monotonic()
        results = run_many(specs, farm)
        wall = time.monotonic() - began
        killer.cancel()
        after = cpu_seconds_of(pids)
        cpu = sum(after[pid] - before.get(pid, 0.0) for pid in after) / count
    ok = [result for result in results if result.status == "ok"]
    # The killed worker is not counted, as another worker makes its runs again.
    beside = (wall * (len(WORKERS) - 1) - sum(result.wall_seconds for result in ok)) / count
    return Outcome(
        f"{len(ok)} of {count}; {1e3 * beside:.0f} ms beside a run, {1e3 * cpu:.0f} ms of CPU; "
        f"{wall:.1f} s, {here * count:.1f} s one after the other",
        len(ok) == count,
    )


def cpu_seconds_of(pids: Iterable[int]) -> dict[int, float]:
    """Return the CPU time of each living process of a farm, except the processes of runs."""
    found = {}
    for process in map(psutil.Process, filter(psutil.pid_exists, pids)):
        # Children of workers are counted too. This process's children are in `pids` already.
        beside = [] if process.pid == os.getpid() else process.children()
        for each in (process, *beside):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                found[each.pid] = times.user + times.system
    return found


def time_here(model: str, seed: int) -> float:
    """Return how long a run takes on this machine, in a worker process, without a farm."""
    began = time.monotonic()
    run_model(model, iter=3, seed=seed)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
