"""Runs made by Dask workers against the same runs made one after the other: what a farm costs.

    uv run python tools/bench_farm.py [--count N]

Starts a scheduler and workers on this machine, kills one worker halfway, and prints how many
results came, and what a run costs beside its own time: the time of the workers that live on,
shared out between the runs, without what the runs themselves took; and the CPU time of all that is
neither the run nor what starts it. A scripted engine that sleeps shows the farm alone; with a
real model the workers compete for the CPUs of one machine, and wait for each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from figures import Figures, Outcome, Settings
from processes import MODELS, ROOT, SCRIPTED_ENGINE, add_scripted_engine

from lar.errors import LarError
from lar.farm.farm import Farm
from lar.farm.runs import open_farm, run_many
from lar.running.api import run
from lar.running.plan import plan_run

WORKERS = 4
SECONDS = 0.1  # of an iteration of the scripted engine
PATIENCE_SECONDS = 120.0
FIGURES = Figures()


@FIGURES.row("script", "results of 4 workers, one killed halfway, scripted engine", "all", 40)
def measure_script(settings: Settings) -> Outcome:
    add_scripted_engine()
    script = settings.folder / "sleeps.fake"
    script.write_text(json.dumps({"times": [[SECONDS, 0.01, SECONDS]], "real_time": True}))
    return measure(settings, script)


@FIGURES.row("model", "the same, digits_cnn.onnx", "all", 40)
def measure_model(settings: Settings) -> Outcome:
    return measure(settings, MODELS / "digits_cnn.onnx")


def measure(settings: Settings, model: Path) -> Outcome:
    """Make runs of a model by workers, of which one is killed halfway, and a few here."""
    count = settings.repetitions
    specs = [plan_run(str(model), {"iter": 3, "seed": number}) for number in range(count)]
    here = statistics.median(time_here(str(model), number) for number in range(5))
    with cluster(settings.folder) as (address, processes), connected(address) as farm:
        used = CpuSeconds([os.getpid(), *(each.pid for each in processes)])
        killer = threading.Timer(here * count / WORKERS / 2, processes[0].kill)
        killer.start()
        began = time.monotonic()
        results = run_many(specs, farm)
        wall = time.monotonic() - began
        killer.cancel()
        cpu = used.read() / count
    ok = [result for result in results if result.status == "ok"]
    # Of the killed one nothing is counted: what it had made is made again.
    beside = (wall * (WORKERS - 1) - sum(result.wall_seconds for result in ok)) / count
    return Outcome(
        f"{len(ok)} of {count}; {1e3 * beside:.0f} ms beside a run, {1e3 * cpu:.0f} ms of CPU; "
        f"{wall:.1f} s, {here * count:.1f} s one after the other",
        len(ok) == count,
    )


class CpuSeconds:
    """The CPU time of the processes of a farm, without what they start to make runs."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.processes = [psutil.Process(pid) for pid in pids]
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.read()
        self.first = dict(self.last)

    def read(self) -> float:
        """Return the seconds since the beginning; those of a killed process are its last ones."""
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                # Beside each worker stands the process that makes its runs; this one has workers.
                beside = [] if process.pid == os.getpid() else process.children()
                for each in (process, *beside):
                    times = each.cpu_times()
                    self.last[each.pid] = times.user + times.system
        return sum(last - self.first.get(pid, 0.0) for pid, last in self.last.items())


def time_here(model: str, seed: int) -> float:
    """Return how long a run takes on this machine, in a worker process as ever."""
    began = time.monotonic()
    result = run(model, iter=3, seed=seed)
    assert result.status == "ok", result.failure
    return time.monotonic() - began


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers; return its address, and the processes, the scheduler last."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = ("--no-dashboard", "--host", "127.0.0.1")
    worker = [
        *("worker", f"tcp://127.0.0.1:{port}", *common, "--no-nanny", "--nthreads", "1"),
        *("--resources", "device=1", "--local-directory", str(folder)),
    ]
    processes = [start(*worker) for _ in range(WORKERS)]
    processes.append(start("scheduler", *common, "--port", str(port)))
    try:
        yield f"dask://127.0.0.1:{port}", processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{SCRIPTED_ENGINE}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def connected(address: str) -> Iterator[Farm]:
    """Connect to a scheduler that has just been started, and wait until its workers are there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    farm: Farm | None = None
    with contextlib.ExitStack() as stack:
        while farm is None or len(farm.able()) < WORKERS:
            assert time.monotonic() < deadline, "the farm does not come"
            with contextlib.suppress(LarError):
                farm = farm or stack.enter_context(open_farm(address))
            time.sleep(0.1)
        yield farm


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
