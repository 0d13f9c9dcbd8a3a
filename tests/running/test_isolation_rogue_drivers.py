"""A driver that does what it should not, run by the real worker, harms no more than its run."""

from __future__ import annotations

import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lar.engines.listener import Listener
from lar.records.run import ModelFile, RunContext, RunResult, RunSpec
from lar.running.isolation import run_isolated
from lar.running.worker_process import WorkerProcess
from tests.engines.added import install
from tests.running.isolated_runs import SOON, eventually, is_alive, known, needs_proc

pytestmark = pytest.mark.usefixtures("nothing_left")

ROGUE = """
import os, signal, sys, time
from lar.engines.driver import Driver
from lar.engines.engine import DriverEntry, Engine
from lar.records.run import (EngineFacts)

class Rogue(Engine):
    name = title = "rogue"
    formats = ()
    drivers = (DriverEntry("rogue", "", lambda: RogueDriver),)
    def option_rows(self): return ()
    def read_model(self, path): raise NotImplementedError
    def find_devices(self): return ("cpu",)

ENGINE = Rogue()

class RogueDriver(Driver):
    def facts(self): return EngineFacts(name="rogue", version="1", driver="rogue", device="cpu")
    def inputs(self): return ()
    def load(self): pass
    def outputs(self): return {}
    def feed(self, arrays):
        self.start = self.wait = lambda: None
"""

RunRogue = Callable[..., RunResult]


@pytest.fixture
def run_rogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRogue:
    """Run a driver whose `feed` does what `code` says."""

    def run(code: str, listener: Listener | None = None, **fields: Any) -> RunResult:
        install(tmp_path, "rogue", ROGUE + textwrap.indent(textwrap.dedent(code), "        "))
        monkeypatch.syspath_prepend(str(tmp_path))
        spec = RunSpec(model="", engine="rogue", driver="rogue", iterations=2, **fields)
        model = ModelFile(path="rogue", size_bytes=0, sha256="")
        return run_isolated(spec, RunContext(model=model), listener or Listener())

    return run


def test_a_process_that_the_engine_started_ends_with_the_run(
    run_rogue: RunRogue, tmp_path: Path
) -> None:
    result = run_rogue(
        f"""
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        open({str(tmp_path / "child")!r}, "w").write(str(child))
        """
    )
    assert result.status == "ok"
    child = int((tmp_path / "child").read_text())
    assert eventually(lambda: not is_alive(child))


def test_a_death_is_noticed_though_a_process_of_the_engine_holds_the_pipes(
    run_rogue: RunRogue,
) -> None:
    result = run_rogue(
        """
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        os._exit(3)
        """
    )
    assert (result.status, result.wall_seconds < SOON * 2) == ("crashed", True)
    assert known(result.failure).message.endswith("exit code 3")


def test_a_worker_that_has_told_its_end_and_is_gone_before_it_is_read_has_not_crashed(
    run_rogue: RunRogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The parent finds nothing to read, then looks for the worker, which ends in between.
    look = WorkerProcess.poll_exit

    def look_until_it_ends(worker: WorkerProcess) -> tuple[int, Any] | None:
        while (found := look(worker)) is None:
            time.sleep(0.001)
        return found

    monkeypatch.setattr(WorkerProcess, "poll_exit", look_until_it_ends)
    result = run_rogue("time.sleep(0.5); self.start = self.wait = lambda: None")
    assert (result.status, result.failure) == ("ok", None)


def test_an_engine_that_closes_the_event_pipe_is_still_ended_in_time(run_rogue: RunRogue) -> None:
    began = time.monotonic()
    result = run_rogue("os.close(3); time.sleep(8)", timeout_seconds=1)
    assert result.status in ("timed_out", "crashed")
    assert time.monotonic() - began < 1 + SOON


def test_an_engine_that_writes_into_the_event_pipe_fails_its_run(run_rogue: RunRogue) -> None:
    result = run_rogue("os.write(3, b'engine noise\\n'); time.sleep(0.5)")
    assert result.status in ("failed", "crashed")
    assert known(result.failure).message


def test_a_signal_without_a_name_is_told_by_its_number(run_rogue: RunRogue) -> None:
    number = int(signal.SIGRTMIN) + 3
    result = run_rogue(f"os.kill(os.getpid(), {number}); time.sleep(1)")
    assert result.status == "crashed"
    assert str(number) in known(result.failure).message


def test_an_engine_that_exits_python_fails_its_run(run_rogue: RunRogue) -> None:
    result = run_rogue("sys.exit('enough')")
    assert result.status == "failed"
    assert known(result.failure).message == "the engine failed: enough"


def test_noise_that_is_no_text_is_shown_as_well_as_may_be(run_rogue: RunRogue) -> None:
    result = run_rogue("os.write(2, b'bad \\xff\\xfe byte\\nno end'); os.abort()")
    assert result.log_tail == "bad \ufffd\ufffd byte\nno end"


def test_the_worker_has_the_environment_of_the_spec(run_rogue: RunRogue) -> None:
    result = run_rogue(
        "raise RuntimeError(os.environ['LAR_TEST'])", environment={"LAR_TEST": "as asked"}
    )
    assert known(result.failure).message == "the engine failed: as asked"


@needs_proc
def test_the_worker_has_none_of_the_files_that_its_parent_has_open(
    run_rogue: RunRogue, tmp_path: Path
) -> None:
    with (tmp_path / "file of the parent").open("w"):
        result = run_rogue(
            """
            files = [os.readlink(entry) for entry in os.scandir("/proc/self/fd")]
            raise RuntimeError([file for file in files if "of the parent" in file])
            """
        )
    assert known(result.failure).message == "the engine failed: []"


def test_an_engine_that_notes_what_is_no_text_fails_its_run(run_rogue: RunRogue) -> None:
    result = run_rogue("self.notes.append(object())")
    assert result.status == "failed"
    assert known(result.failure).message.startswith("the engine failed: ")
