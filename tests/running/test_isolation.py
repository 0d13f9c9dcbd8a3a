"""Whatever an engine does, a run ends in time, says what happened and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines.listener import Listener
from lar.measurement.rows import SampleRows
from lar.records.events import Event, Finished, ModelRead
from lar.records.run import RunContext, RunResult, Status
from lar.running.isolation import Watch, start_for
from lar.running.plan import plan_run
from lar.running.steps import make_run
from tests.conftest import WriteScript
from tests.running.isolated_runs import SOON, fault, finished, known, needs_proc

pytestmark = pytest.mark.usefixtures("nothing_left")


# What engines do


def test_the_stall_limit_may_be_turned_off(write_script: WriteScript) -> None:
    result = lar.run(write_script(faults=fault("hang")), stall_timeout=0, timeout=1.5)
    assert "timed out after 1.5 s" in known(result.failure).message


def test_slow_iterations_are_no_stall(write_script: WriteScript) -> None:
    script = write_script(times=[[0.7, 0.01, None]], real_time=True)
    result = finished(lar.run(script, iter=2, warmup_iter=0, stall_timeout=2))
    assert min(result.samples.end_to_end) >= 0.7


# What is told while the run goes on


class Recorder(Listener):
    """Writes down what it hears, as words, and dawdles where told to."""

    def __init__(self, dawdle_at: str = "", seconds: float = 0.4) -> None:
        self.heard: list[str] = []
        self.dawdle_at = dawdle_at
        self.seconds = seconds

    def hear(self, word: str) -> None:
        self.heard.append(word)
        if word == self.dawdle_at:
            time.sleep(self.seconds)

    def on_event(self, event: Event, result: RunResult) -> None:
        self.hear(getattr(event, "phase", type(event).__name__))

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        for index in range(first, last):
            self.hear(f"row {index}")

    def on_log(self, text: bytes) -> None:
        self.hear("log")


IN_ORDER = (
    "EngineStarted, load, Loaded, Fed, prepare, Prepared, warmup, row 0, "
    "iterations, row 1, row 2, finish, Finished"
)


def heard_by(listener: Listener, script: str, **options: Any) -> RunResult:
    """The result of a run that a listener is told of."""
    return make_run(plan_run(script, options), RunContext(), listener)


@pytest.mark.parametrize("dawdle_at", ["", "EngineStarted", "log", "Prepared", "row 0"])
def test_events_and_rows_come_in_order_however_late_they_are_heard(
    write_script: WriteScript, dawdle_at: str
) -> None:
    recorder = Recorder(dawdle_at)
    finished(heard_by(recorder, write_script(prints="noise"), iter=2))
    assert ", ".join(word for word in recorder.heard if word != "log") == IN_ORDER


class SlowReader(Listener):
    """Takes its time over every sample."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.told: list[int] = []
        self.most = 0

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        self.told += range(first, last)
        self.most = max(self.most, last - first)
        time.sleep(self.seconds * (last - first))


def test_the_deadline_holds_while_many_samples_are_told(write_script: WriteScript) -> None:
    reader = SlowReader(5e-4)
    script = write_script(times=[[2e-6, 1e-6, None]], real_time=True)
    result = heard_by(reader, script, iter=100_000, timeout=1.0)
    assert result.status == "timed_out"
    assert result.wall_seconds < 1 + SOON
    assert reader.most <= 1000
    assert reader.told == list(range(len(reader.told)))
    assert len(reader.told) <= 1 + len(result.samples.end_to_end)


def test_all_samples_of_a_run_that_finished_in_time_are_told(write_script: WriteScript) -> None:
    # The reader takes longer than the limit; a busy machine may take that long to start the worker.
    for seconds in (0.8, 10):
        reader = SlowReader(seconds / 2000)
        result = heard_by(reader, write_script(), iter=2500, timeout=float(seconds))
        if result.status == "ok":
            break
    assert (result.status, result.failure) == ("ok", None)
    assert reader.told == list(range(2501))


def test_the_time_to_report_counts_towards_the_limit(write_script: WriteScript) -> None:
    listener = Listener()
    listener.report_seconds = 1000.0
    script = write_script(times=[[0.05, 0.01, None]], real_time=True)
    assert heard_by(listener, script, iter=100, timeout=900.0).status == "timed_out"


@pytest.mark.parametrize(("timeout", "status"), [(None, "interrupted"), (1.0, "timed_out")])
def test_a_listener_without_room_holds_up_no_end(
    write_script: WriteScript, timeout: float | None, status: str
) -> None:
    class Full(Listener):
        interrupts = timeout is None

        def has_room(self, seconds: float) -> bool:
            time.sleep(seconds)
            if self.interrupts and time.monotonic() - began > 1:
                self.interrupts = False
                raise KeyboardInterrupt
            return False

    began = time.monotonic()
    result = heard_by(Full(), write_script(real_time=True), iter=100_000, timeout=timeout)
    assert result.status == status
    assert time.monotonic() - began < 1 + SOON


def test_an_exception_of_the_listener_ends_the_worker(write_script: WriteScript) -> None:
    class Broken(Listener):
        def on_event(self, event: Event, result: RunResult) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        heard_by(Broken(), write_script(faults=fault("hang", "load")))


def test_an_interrupt_at_the_end_of_a_run_ends_what_would_follow(write_script: WriteScript) -> None:
    class Interrupting(Listener):
        def on_event(self, event: Event, result: RunResult) -> None:
            if isinstance(event, (Finished, ModelRead)):
                raise KeyboardInterrupt

    spec = plan_run(write_script(), {"iter": 3})
    result = make_run(spec, RunContext(), Interrupting())
    assert result.status == "interrupted"
    assert len(result.samples.end_to_end) == 3
    with contextlib.ExitStack() as stack:
        watch = Watch(start_for(spec, "info", stack), spec, RunContext(), Interrupting())
        assert watch.see_through("info").status == "interrupted"


# What is left behind


@needs_proc
def test_runs_leave_no_descriptors_and_no_temporary_files(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two at a time, which saves half of the time and shows that runs do not disturb each other.
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    data = [{"name": "data", "dtype": "float32", "shape": [2]}]
    good = write_script(inputs=data)
    bad = write_script(inputs=data, faults=fault("abort"))

    def run(script: str) -> Status:
        status: Status = lar.run(script, {"data": np.zeros(2, np.float32)}, iter=3).status
        return status

    run(good)  # what is imported and opened once is not counted
    files = os.listdir("/proc/self/fd")
    with ThreadPoolExecutor(2) as pool:
        statuses = list(pool.map(run, [good, bad] * 8))
    assert statuses == ["ok", "crashed"] * 8
    assert len(os.listdir("/proc/self/fd")) == len(files)
    assert os.listdir(folder) == []


def test_a_spec_larger_than_a_pipe_holds_reaches_the_worker(write_script: WriteScript) -> None:
    count = 50_000
    script = write_script(inputs=[{"name": "data", "dtype": "float32", "shape": [1, count]}])
    result = finished(lar.run(script, "[" + ",".join(["1.5"] * count) + "]", iter=1))
    assert result.fed[0].shape == (1, count)


@pytest.mark.parametrize(
    ("limit", "prints", "message"),
    [
        (1 << 30, "std::bad_alloc", "out of memory: the limit of the address space is reached"),
        (1 << 30, "hello", "the engine crashed in phase load: killed by SIGABRT"),
        (0, "std::bad_alloc", "the engine crashed in phase load: killed by SIGABRT"),
    ],
)
def test_a_crash_is_of_the_address_space_where_it_has_a_limit_and_memory_was_refused(
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    prints: str,
    message: str,
) -> None:
    monkeypatch.setattr("lar.errors.limit_of", lambda _: limit)
    failure = known(lar.run(write_script(faults=fault("abort", "load"), prints=prints)).failure)
    assert failure.message == message
    assert ("limit is 1024 MiB" in failure.hint) == message.startswith("out of memory")
