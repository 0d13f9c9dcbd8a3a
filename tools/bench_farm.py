"""Runs made by Dask workers against the same runs made one after the other: what a farm costs.

    uv run python tools/bench_farm.py [--workers 4] [--specs 40]

Starts a scheduler and workers on this machine, kills one worker halfway, and prints a table: how
many results came, and what a run costs beside its own time: the time of the workers that live on,
shared out between the runs, without what the runs themselves took; and the CPU time of all that is
neither the run nor what starts it. A scripted engine that sleeps shows the farm alone; with a
real model the workers compete for the CPUs of one machine, and wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from lar.errors import LarError
from lar.farm.farm import Farm
from lar.farm.runs import open_farm, run_many
from lar.records.run import RunSpec
from lar.running.api import run
from lar.running.plan import plan_run

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPTED_ENGINE = str(REPOSITORY / "tests" / "engines" / "scripted_engine")
SECONDS = 0.1  # of an iteration of the scripted engine
PATIENCE_SECONDS = 120.0


class Row(NamedTuple):
    """A line of the table; times are in seconds."""

    name: str
    results: int
    specs: int
    overhead: float
    cpu: float
    wall: float
    alone: float


def main(argv: list[str] | None = None) -> int:
    """Measure and print; return 1 where a result is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--specs", type=int, default=40)
    parser.add_argument("--model", default=str(REPOSITORY / "models" / "digits_cnn.onnx"))
    arguments = parser.parse_args(argv)
    sys.path.append(SCRIPTED_ENGINE)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "sleeps.fake")
        script.write_text(json.dumps({"times": [[SECONDS, 0.01, SECONDS]], "real_time": True}))
        rows = [
            measure("scripted engine", str(script), arguments.specs, arguments.workers, folder),
            measure(
                Path(arguments.model).name,
                arguments.model,
                arguments.specs,
                arguments.workers,
                folder,
            ),
        ]
    print(format_table(rows, arguments.workers))
    return 0 if all(row.results == row.specs for row in rows) else 1


def measure(name: str, model: str, count: int, workers: int, folder: str) -> Row:
    """Make runs of a model by workers, of which one is killed halfway, and a few here."""
    specs = [plan_run(model, {"iter": 3, "seed": number}) for number in range(count)]
    here = statistics.median(time_here(spec) for spec in specs[:5])
    with cluster(workers, folder) as (address, processes), connected(address, workers) as farm:
        meter = Meter([*processes, None])
        killer = threading.Timer(here * count / workers / 2, processes[0].kill)
        killer.start()
        began = time.monotonic()
        results = run_many(specs, farm)
        wall = time.monotonic() - began
        killer.cancel()
        cpu = meter.read() / count
    ok = [result for result in results if result.status == "ok"]
    inside = sum(result.wall_seconds for result in ok)
    devices = workers - 1  # of the killed one nothing is counted: what it had made is made again
    overhead = (wall * devices - inside) / count
    return Row(name, len(ok), count, overhead, cpu, wall, here * count)


class Meter:
    """The CPU time of the processes of a farm, without what they start to make runs."""

    def __init__(self, processes: list[subprocess.Popen[bytes] | None]) -> None:
        """None stands for this process."""
        self.processes = [psutil.Process(each.pid if each else None) for each in processes]
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


def time_here(spec: RunSpec) -> float:
    """Return how long a run takes on this machine, in a worker process as ever."""
    began = time.monotonic()
    result = run(spec.model, iter=3, seed=spec.seed)
    assert result.status == "ok", result.failure
    return time.monotonic() - began


@contextlib.contextmanager
def cluster(workers: int, folder: str) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers; return its address, and the processes, the scheduler last."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"127.0.0.1:{port}"
    common = ("--no-dashboard", "--host", "127.0.0.1")
    scheduler = start("scheduler", *common, "--port", str(port))
    processes = [
        start(
            *("worker", f"tcp://{address}", *common, "--no-nanny", "--nthreads", "1"),
            *("--resources", "device=1", "--local-directory", folder),
        )
        for _ in range(workers)
    ]
    try:
        yield f"dask://{address}", [*processes, scheduler]
    finally:
        for process in (*processes, scheduler):
            process.kill()
            process.wait()


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{SCRIPTED_ENGINE}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def connected(address: str, count: int) -> Iterator[Farm]:
    """Connect to a scheduler that has just been started, and wait until its workers are there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with contextlib.ExitStack() as stack:
        while (farm := try_to_connect(address, stack)) is None:
            assert time.monotonic() < deadline, "the scheduler does not come"
        while len(farm.able()) < count:
            assert time.monotonic() < deadline, "the workers do not come"
            time.sleep(0.1)
        yield farm


def try_to_connect(address: str, stack: contextlib.ExitStack) -> Farm | None:
    """Connect to a scheduler; None if it does not answer yet."""
    try:
        return stack.enter_context(open_farm(address))
    except LarError:
        return None


def format_table(rows: list[Row], workers: int) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| {workers} workers, one killed halfway | results | overhead of a run, ms | "
        "CPU of it, ms | wall s | one after the other, s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {row.results} of {row.specs} | {1e3 * row.overhead:.0f} | "
        f"{1e3 * row.cpu:.0f} | {row.wall:.1f} | {row.alone:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
