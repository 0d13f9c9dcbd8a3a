"""A real scheduler and two labelled workers, all processes of their own; one of each is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lar.errors import LarError
from lar.farm import cluster as dask_cluster
from lar.farm import field
from lar.farm.cluster import DaskCluster
from lar.farm.field import Field
from lar.farm.runs import make_on_farm, open_farm, run_many
from lar.records.run import RunContext, RunSpec
from lar.running.plan import parse_values, plan_run
from tests.conftest import REPOSITORY, RunLar, WriteScript
from tests.tuning.test_search import measured

LABELS = ("x86", "arm")
# Where the machine does something else, Dask takes its time.
SOON = 60.0

Processes = dict[str, "subprocess.Popen[bytes]"]


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its children, and wait."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


class LocalCluster:
    """A scheduler and two workers, which are started again where a test has killed one: whatever
    tests follow each other in a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.processes: Processes = {}
        self.client = contextlib.ExitStack()
        self.farm: Field | None = None

    def require(self, *names: str) -> Field:
        """Return a farm of which these processes live."""
        if self.farm is None or any(self.processes[name].poll() is not None for name in names):
            self.end()
            self.start()
            self.farm = self.connect()
        return self.farm

    def start(self) -> None:
        port = str(free_port())
        self.address = f"dask://127.0.0.1:{port}"
        common = ("--no-dashboard", "--host", "127.0.0.1")
        self.processes["scheduler"] = start("scheduler", *common, "--port", port)
        for label in LABELS:
            self.processes[label] = start(
                *("worker", f"tcp://127.0.0.1:{port}", *common, "--no-nanny", "--nthreads", "1"),
                *("--resources", f"device=1 {label}=1", "--name", label),
                *("--death-timeout", str(SOON), "--local-directory", str(self.folder)),
            )

    def connect(self) -> Field:
        deadline = time.monotonic() + SOON
        while (found := self.try_to_connect()) is None:
            assert time.monotonic() < deadline, "the scheduler does not come"
        while len(found.cluster.workers()) < len(LABELS):
            assert time.monotonic() < deadline, "the workers do not come"
            time.sleep(0.1)
        return found

    def try_to_connect(self) -> Field | None:
        # As long as this a client also waits for a scheduler that has gone.
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(LarError):
            patch.setattr(dask_cluster, "CONNECT_SECONDS", 3.0)
            return self.client.enter_context(open_farm(self.address))
        return None

    def end(self) -> None:
        self.client.close()
        for process in self.processes.values():
            end(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(tmp_path_factory.mktemp("dask"))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def farm(cluster: LocalCluster) -> Field:
    return cluster.require("scheduler", *LABELS)


@pytest.fixture
def farm_with_arm(cluster: LocalCluster) -> Field:
    return cluster.require("scheduler", "arm")


@pytest.fixture
def address(farm: Field, cluster: LocalCluster) -> str:
    return cluster.address


@pytest.fixture
def processes(cluster: LocalCluster) -> Processes:
    return cluster.processes


def planned(model: str, **options: Any) -> RunSpec:
    return plan_run(model, parse_values({"iter": 2, **options}), elsewhere=True)


def test_a_run_on_a_labelled_worker(
    farm: Field,
    address: str,
    write_script: WriteScript,
    run_lar: RunLar,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = write_script(times=[[0.25, 0.01, 0.2]], prints="hello")
    done = run_lar(model, "--iter", "2", "--scheduler", address, "--on", "arm", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "iter 1/2: 250.000ms" in done.stdout
    assert "hello" in done.stderr
    monkeypatch.setattr(field, "FIRST_SECONDS", 0.1)
    done = run_lar(model, "--scheduler", address, "--on", "riscv")
    assert done.stderr.endswith("has the label 'riscv'\nhint: labels: arm, x86\n")


def test_a_device_does_one_job_at_a_time(
    farm: Field, address: str, write_script: WriteScript
) -> None:
    specs = [planned(write_script(times=[[0.2, 0.01, 0.2]], real_time=True), iter=1)] * 2
    began = time.monotonic()
    with open_farm(address) as other:
        thread = threading.Thread(target=run_many, args=(specs, other), kwargs={"on": "arm"})
        thread.start()
        results = run_many(specs, farm, on="arm")
        thread.join()
    assert [each.status for each in results] == ["ok", "ok"]
    assert time.monotonic() - began > 4 * 2 * 0.2


def test_an_interrupt_ends_the_run_there(
    farm: Field, processes: Processes, write_script: WriteScript
) -> None:
    model = write_script(times=[[0.01, 0.01, 0.01], [SOON, 0.01, SOON]], real_time=True)

    def interrupt_when_it_runs() -> None:
        await_children(processes["arm"], 2)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_it_runs)
    thread.start()
    began = time.monotonic()
    result = make_on_farm(farm, "arm", planned(model), RunContext())
    thread.join()
    assert result.status == "interrupted"
    assert time.monotonic() - began < SOON / 2
    await_children(processes["arm"], 0, 1)


def test_a_client_that_goes_ends_its_run(
    farm: Field, address: str, processes: Processes, write_script: WriteScript
) -> None:
    model = write_script(times=[[0.01, 0.01, 0.01], [SOON, 0.01, SOON]], real_time=True)
    with open_farm(address) as gone:
        specs = [planned(model)]
        thread = threading.Thread(
            target=run_many, args=(specs, gone), kwargs={"on": "arm"}, daemon=True
        )
        thread.start()
        await_children(processes["arm"], 2)
    await_children(processes["arm"], 0, 1)


def await_children(process: subprocess.Popen[bytes], *counts: int) -> None:
    """Wait until a process has so many children: the one that makes runs, and a run's."""
    deadline = time.monotonic() + SOON
    while len(children_of(process)) not in counts:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(process: subprocess.Popen[bytes]) -> list[Any]:
    return [*psutil.Process(process.pid).children(recursive=True)]


CHOICES: dict[str, Any] = {
    "outputs": {"y": [1.0]},
    "effects": [{"when": {"const_shape": True}, "factor": 0.5}],
    "dimensions": [
        {"name": "shapes", "choices": [{"name": "constant", "options": {"const_shape": True}}]}
    ],
}


def begin_tune(folder: Path, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    own = {"PYTHONPATH": str(REPOSITORY), "XDG_DATA_HOME": str(folder / "data")}
    own |= {"TERM": "xterm", "NO_COLOR": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "lar", "tune", *words],
        cwd=folder,
        env={**os.environ, **own},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def computing_workers(processes: Processes) -> list[str]:
    """Return the labels of the workers that make a run: one process makes runs, another is it."""
    return [label for label in LABELS if len(children_of(processes[label])) > 1]


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_of_several_that_fails_ends_no_other(
    farm: Field, address: str, write_script: WriteScript, tmp_path: Path
) -> None:
    works = write_script(times=[[0.01, 0.01, 0.01]], **CHOICES)
    fails = write_script(
        times=[[0.01, 0.01, 0.01]], faults=[{"at": "load", "do": "abort"}], **CHOICES
    )
    process = begin_tune(tmp_path, fails, works, "--budget", "3", "--scheduler", address)
    output, errors = process.communicate(timeout=SOON)
    assert process.returncode == 4
    assert "killed by SIGABRT" in errors
    assert f"{works}: fastest: " in " ".join(output.split())
    assert "constant" in output


def test_an_interrupt_ends_a_search(
    farm: Field,
    address: str,
    processes: Processes,
    write_script: WriteScript,
    tmp_path: Path,
) -> None:
    script = write_script(times=[[0.1, 0.01, 0.1]], real_time=True, **CHOICES)
    process = begin_tune(tmp_path, script, "--budget", "100", "--scheduler", address)
    await_that(lambda: bool(computing_workers(processes)))
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SOON)
    assert process.returncode == 130
    await_that(lambda: not computing_workers(processes))


# A choice that crashes at once, and one that goes on and helps. A trial of these takes some
# seconds: what has ended comes half a second late.
CRASHING: dict[str, Any] = {
    "times": [[0.15, 0.01, 0.15]],
    "real_time": True,
    "outputs": {"y": [1.0]},
    "effects": [
        {"when": {"const_shape": True}, "fault": {"at": "start", "index": 1, "do": "abort"}},
        {"when": {"record_comp_seq": True}, "factor": 0.5},
    ],
    "dimensions": [
        *CHOICES["dimensions"],
        {
            "name": "sequence",
            "choices": [{"name": "recorded", "options": {"record_comp_seq": True}}],
        },
    ],
}


def has_kept(session: str) -> bool:
    """Return whether a session has the candidate that crashes, in a round that goes on."""
    return ("round 1: constant", "crashed") in kept_in(session)


def kept_in(session: str) -> list[tuple[str, str]]:
    """Return the tag and the status of each process in a session, if there is one."""
    if not os.path.exists(session) or not os.path.getsize(session):
        return []
    return measured(session)


def check_rounds(process: subprocess.Popen[str], session: str) -> None:
    """Interrupt a search after the round that follows one that was cut short; check that it made
    nothing again that had ended, and all else."""
    recorded = ": recorded"
    await_that(
        lambda: (
            process.poll() is not None or any(tag.endswith(recorded) for tag, _ in kept_in(session))
        )
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SOON)
    found = kept_in(session)
    assert [status for tag, status in found if tag.endswith(": constant")] == ["crashed"]
    assert "ok" in [status for tag, status in found if tag.endswith(recorded)]


def test_a_search_whose_client_is_killed_repeats_nothing_that_had_ended(
    farm: Field,
    address: str,
    processes: Processes,
    write_script: WriteScript,
    tmp_path: Path,
) -> None:
    script, session = write_script(**CRASHING), str(tmp_path / "search.tune")
    elsewhere = ("--scheduler", address, "--on", "arm")
    process = begin_tune(tmp_path, script, "--budget", "100", "--session", session, *elsewhere)
    await_that(lambda: process.poll() is not None or has_kept(session))
    process.kill()
    process.communicate()
    await_that(lambda: not computing_workers(processes))
    words = ("--budget", "100", "--session", session, *elsewhere)
    check_rounds(begin_tune(tmp_path, script, *words), session)


def test_a_search_goes_on_with_another_worker(
    farm: Field,
    address: str,
    processes: Processes,
    write_script: WriteScript,
    tmp_path: Path,
) -> None:
    script, session = write_script(**CRASHING), str(tmp_path / "search.tune")
    process = begin_tune(
        tmp_path, script, "--budget", "100", "--session", session, "--scheduler", address
    )
    await_that(lambda: has_kept(session) and len(computing_workers(processes)) == 1)
    (label,) = computing_workers(processes)
    end(processes[label])
    check_rounds(process, session)


def test_a_killed_worker_s_runs_are_made_by_another(
    farm: Field, processes: Processes, write_script: WriteScript
) -> None:
    specs = [planned(write_script(times=[[0.1, 0.01, 0.1]], real_time=True))] * 6
    left = children_of(processes["x86"])

    def kill_one(number: int, result: object, seconds: float) -> None:
        if processes["x86"].poll() is None:
            processes["x86"].kill()
            processes["x86"].wait()

    results = run_many(specs, farm, ended=kill_one)
    assert [each.status for each in results] == ["ok"] * 6
    assert not [each for each in left if each.is_running() and each.status() != "zombie"]


def test_a_worker_that_goes_before_its_result_is_fetched(
    farm: Field,
    processes: Processes,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetch = DaskCluster.value_of

    killed: list[str] = []

    def kill_before(cluster: DaskCluster, future: Any, worker: str) -> Any:
        if killed or "lar-play" not in future.key:
            return fetch(cluster, future, worker)
        killed.append(future.key)
        end(processes[cluster.workers()[worker].name])
        return fetch(cluster, future, worker)

    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 3.0)
    monkeypatch.setattr(DaskCluster, "value_of", kill_before)
    (result,) = run_many([planned(write_script(times=[[0.1, 0.01, 0.1]]))], farm)
    assert result.status == "ok"
    assert killed


def test_a_scheduler_that_goes(
    farm_with_arm: Field,
    processes: Processes,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = write_script(times=[[0.01, 0.01, 0.01], [SOON, 0.01, SOON]], real_time=True)

    def kill_it() -> None:
        time.sleep(0.5)
        processes["scheduler"].kill()

    thread = threading.Thread(target=kill_it)
    thread.start()
    with pytest.raises(LarError, match=r"the connection to the scheduler tcp://.* is lost"):
        make_on_farm(farm_with_arm, "arm", planned(model), RunContext())
    thread.join()
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(LarError, match="no scheduler answers at tcp://127"),
        open_farm(farm_with_arm.cluster.address),
    ):
        pass
