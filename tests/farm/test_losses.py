"""Runs that are interrupted, and workers, schedulers and clients that are lost in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lar.errors import LarError
from lar.farm import farm as farm_module
from lar.farm.farm import Farm, Lost
from lar.farm.runs import make_on_farm, open_farm, run_many
from lar.farm.sending import Sending
from lar.records.run import RunContext
from tests.command_lines import MODULE_PATH
from tests.conftest import WriteScript
from tests.farm.conftest import LABELS, SOON, LocalCluster, await_that, planned
from tests.tuning.made_tune import LANDSCAPES
from tests.tuning.test_search import measured

HANGS: dict[str, Any] = {"times": [[0.01, 0.01, 0.01], [SOON, 0.01, SOON]], "real_time": True}


@contextmanager
def meanwhile(function: Any, *arguments: Any) -> Iterator[None]:
    """Call a function in a thread of its own."""
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    yield
    thread.join()


def once(condition: Callable[[], object], *actions: Callable[[], object]) -> None:
    """Do something as soon as a condition holds."""
    await_that(condition)
    for each in actions:
        each()


def interrupt_soon() -> None:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_device_does_one_job_at_a_time(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript
) -> None:
    def watch() -> None:
        while not ended.is_set():
            most.append(len(cluster.runs_of("arm")))
            time.sleep(0.02)

    spec = planned(write_script(times=[[0.3, 0.01, 0.3]], real_time=True))
    ended, most = threading.Event(), list[int]()
    with open_farm(cluster.address) as other, meanwhile(watch):
        with meanwhile(make_on_farm, other, "arm", spec, RunContext()):
            results = run_many([spec] * 2, farm, on="arm")
        ended.set()
    assert [each.status for each in results] == ["ok", "ok"]
    assert max(most) == 2  # the process of a task, and its run


def test_an_interrupt_ends_the_run_there(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript
) -> None:
    with meanwhile(once, lambda: cluster.computing() == ["arm"], interrupt_soon):
        result = make_on_farm(farm, "arm", planned(write_script(**HANGS)), RunContext())
    assert result.status == "interrupted"
    await_that(lambda: not cluster.runs_of("arm"))


def test_an_interrupt_of_many_runs_leaves_the_farm_open(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript
) -> None:
    both_run = meanwhile(once, lambda: len(cluster.computing()) == 2, interrupt_soon)
    with both_run, pytest.raises(KeyboardInterrupt):
        run_many([planned(write_script(**HANGS))] * 3, farm)
    await_that(lambda: not any(map(cluster.runs_of, LABELS)))
    (result,) = run_many([planned(write_script(times=[[0.1, 0.01, 0.1]]))], farm)
    assert result.status == "ok"


def test_a_client_that_goes_ends_its_run(cluster: LocalCluster, write_script: WriteScript) -> None:
    gone = Farm(cluster.address)
    with meanwhile(run_many, [planned(write_script(**HANGS))], gone):
        await_that(lambda: bool(cluster.computing()))
        gone.close()
    await_that(lambda: not any(map(cluster.runs_of, LABELS)))


def test_a_hang_ends_at_its_deadline(farm: Farm, write_script: WriteScript) -> None:
    result = make_on_farm(farm, "", planned(write_script(**HANGS), timeout=1), RunContext())
    assert result.status == "timed_out"


def test_a_killed_worker_s_runs_are_made_by_another(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript
) -> None:
    def kill_it() -> None:
        await_that(lambda: len(cluster.computing()) == 2)
        left.extend(cluster.runs_of("x86"))
        cluster.kill("x86")

    left = list[Any]()
    with meanwhile(kill_it):
        model = write_script(times=[[0.1, 0.01, 0.1]], real_time=True)
        results = run_many([planned(model)] * 3, farm)
    assert [each.status for each in results] == ["ok"] * 3
    await_that(lambda: not any(each.is_running() and each.status() != "zombie" for each in left))


def test_a_worker_that_goes_before_it_has_the_files(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, killed = farm.send, list[str]()

    def send_too_late(worker: str, files: Any, sending: Sending) -> None:
        if not killed:
            killed.append("x86" if worker in farm.able("x86") else "arm")
            cluster.kill(killed[0])
        send(worker, files, sending)

    monkeypatch.setattr(farm, "send", send_too_late)
    (result,) = run_many([planned(write_script(times=[[0.1, 0.01, 0.1]]))], farm)
    assert result.status == "ok"
    assert killed


def end_own_process(stream: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_worker(stream: object) -> None:
    os.kill(os.getppid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (end_own_process, "its process ended by SIGKILL, again and again"),
        (end_worker, "workers were lost, again and again: tcp://"),
    ],
)
def test_what_kills_workers_is_given_up(farm: Farm, end: Any, message: str) -> None:
    with pytest.raises(Lost, match=message):
        farm.play(Sending(), end)


def test_the_last_worker_of_a_label_is_lost(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm_module, "AGAIN_SECONDS", 1.0)
    with meanwhile(once, lambda: cluster.computing() == ["arm"], lambda: cluster.kill("arm")):
        result = make_on_farm(farm, "arm", planned(write_script(**HANGS)), RunContext())
    assert result.status == "crashed"
    assert result.failure is not None
    assert result.failure.message.endswith("no worker with the label 'arm' is left")


def test_a_scheduler_that_goes(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"the connection to the scheduler tcp://.* is lost"
    lost = meanwhile(once, cluster.computing, lambda: cluster.kill("scheduler"))
    with lost, pytest.raises(LarError, match=said):
        make_on_farm(farm, "arm", planned(write_script(**HANGS)), RunContext())
    monkeypatch.setattr(farm_module, "CONNECT_SECONDS", 0.5)
    with pytest.raises(LarError, match="no scheduler answers at tcp://127"):
        open_farm(cluster.address)


# A round of these takes some seconds.
CRASHING: dict[str, Any] = LANDSCAPES["one crashes at once, one goes on and helps"]


def begin_tune(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lar", "tune", *words, "--budget", "100"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": MODULE_PATH, "XDG_DATA_HOME": str(folder / "data")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def has_kept(session: str, choice: str) -> bool:
    """Return whether a session has the result of a process with a choice."""
    is_there = os.path.exists(session) and os.path.getsize(session)
    return any(tag.endswith(f": {choice}") for tag, _ in measured(session)) if is_there else False


def check_rounds(process: subprocess.Popen[str], cluster: LocalCluster, session: str) -> None:
    """Interrupt a search after the round that follows one that was cut short; check that it made
    nothing again that had ended, and all else, and that nothing goes on."""
    await_that(lambda: process.poll() is not None or has_kept(session, "recorded"))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SOON)
    assert process.returncode in (0, 130), errors
    found = measured(session)
    assert [status for tag, status in found if tag.endswith(": constant")] == ["crashed"]
    assert "ok" in [status for tag, status in found if tag.endswith(": recorded")]
    await_that(lambda: not cluster.computing())


@pytest.mark.parametrize("lost", ["client", "worker"])
def test_a_search_repeats_nothing_that_had_ended(
    cluster: LocalCluster, write_script: WriteScript, tmp_path: Path, lost: str
) -> None:
    session = str(tmp_path / "search.tune")
    words = (write_script(**CRASHING), "--session", session, "--scheduler", cluster.address)
    process = begin_tune(tmp_path, *words)
    await_that(lambda: process.poll() is not None or has_kept(session, "constant"))
    if lost == "client":
        process.kill()
        process.communicate()
        await_that(lambda: not cluster.computing())
        process = begin_tune(tmp_path, *words)
    else:
        (label,) = cluster.computing()
        cluster.kill(label)
    check_rounds(process, cluster, session)
