"""A real scheduler and two labelled workers, all of them processes of their own on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from lar.farm.farm import Farm
from lar.options.command_line import parse_values
from lar.records.run import RunSpec
from lar.running.plan import plan_run
from tests.command_lines import MODULE_PATH

LABELS = ("x86", "arm")
# Idle processes of Dask look at themselves a hundred times a second; these wait for other tests.
SELDOM = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "10s",
}
# Where the machine does something else, Dask takes its time.
SOON = 60.0
# A job that has lost two workers is given up: there are no more here.
ALLOWED_FAILURES = "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"
HERE = ("--no-dashboard", "--host", "127.0.0.1")


class LocalCluster:
    """A scheduler and its workers; what a test has killed is started again for the next one."""

    def __init__(self, folder: Path, labels: Sequence[str] = LABELS) -> None:
        self.folder = folder
        self.labels = labels
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = ""

    def require(self) -> None:
        """Have all processes live, and all workers known to the scheduler."""
        lost = [name for name in ("scheduler", *self.labels) if not self.lives(name)]
        if "scheduler" in lost:
            self.end()
            self.start()
        elif lost:
            # Until it knows that they are gone, the scheduler counts them.
            self.connect(without=len(lost)).close()
            for label in lost:
                self.start_worker(label)
        if lost:
            self.connect().close()

    def lives(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is None

    def start(self) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.address = f"dask://127.0.0.1:{self.port}"
        self.start_one("scheduler", "scheduler", *HERE, "--port", str(self.port))
        for label in self.labels:
            self.start_worker(label)

    def start_worker(self, label: str) -> None:
        self.start_one(
            *(label, "worker", self.address.replace("dask", "tcp"), *HERE, "--no-nanny"),
            *("--nthreads", "1", "--resources", f"device=1 {label}=1"),
            *("--death-timeout", str(SOON), "--local-directory", str(self.folder)),
        )

    def start_one(self, name: str, *words: str) -> None:
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            env={**os.environ, **SELDOM, "PYTHONPATH": MODULE_PATH, ALLOWED_FAILURES: "1"}
            | {"DASK_TEMPORARY_DIRECTORY": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def connect(self, without: int = 0) -> Farm:
        await_that(self.answers)
        farm = Farm(self.address)
        await_that(lambda: len(farm.able()) == len(self.labels) - without)
        return farm

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def kill(self, name: str) -> None:
        """Kill a process without a warning, and wait."""
        self.processes[name].kill()
        self.processes[name].wait()

    def runs_of(self, label: str) -> list[psutil.Process]:
        """Return the processes below a worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [*psutil.Process(self.processes[label].pid).children(recursive=True)]
        return []

    def computing(self) -> list[str]:
        """Return the labels of the workers on which a run has begun: it stands below its job."""
        return [label for label in self.labels if len(self.runs_of(label)) > 1]

    def end(self) -> None:
        for name in self.processes:
            for child in self.runs_of(name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self.kill(name)


def await_that(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path_factory.mktemp("dask"))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def cluster(processes: LocalCluster) -> LocalCluster:
    processes.require()
    return processes


@pytest.fixture
def farm(cluster: LocalCluster) -> Iterator[Farm]:
    found = cluster.connect()
    try:
        yield found
    finally:
        found.close()


def planned(model: str, **options: Any) -> RunSpec:
    return plan_run(model, parse_values({"iter": 2, **options}), elsewhere=True)
