"""Whatever an engine does, a run ends in time, says what happened and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import lar
from lar.api import run_spec
from lar.events import Event, Listener
from lar.isolation import run_isolated
from lar.measurement.rows import SampleRows
from lar.plan import plan_run, spec_of
from lar.records import RunResult, RunSpec, Status
from lar.worker_process import WorkerProcess

WriteScript = Callable[..., str]

# Times are measured while other work may hold the machine's CPUs: where lar promises a second,
# the tests ask for three.
SOON = 3.0

needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc")


def workers_of(parent: int) -> set[int]:
    """The processes that are children of `parent`, zombies too."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.add(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = SOON) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a child process of its own behind."""
    before = workers_of(os.getpid())
    yield
    assert not workers_of(os.getpid()) - before


@pytest.fixture
def start_lar(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command line and go on while it runs."""
    started: list[subprocess.Popen[str]] = []

    def heed_signals() -> None:
        # What started the tests may have them ignored, as nohup and a shell's & do.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def start(*arguments: str, **keywords: Any) -> subprocess.Popen[str]:
        keywords.setdefault("preexec_fn", heed_signals)
        process = subprocess.Popen(
            [sys.executable, "-m", "lar", *arguments],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **keywords,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def fault(do: str, at: str = "start", index: int = 3) -> list[dict[str, Any]]:
    return [{"at": at, "do": do, "index": index if at == "start" else 0}]


# What engines do


@pytest.mark.parametrize(
    ("do", "at", "status", "message"),
    [
        ("raise", "load", "failed", "the engine cannot load it"),
        ("raise", "feed", "failed", "the engine failed: scripted failure"),
        ("raise", "start", "failed", "the engine failed: scripted failure"),
        ("raise", "outputs", "failed", "the engine failed: scripted failure"),
        ("memory", "feed", "failed", "out of memory"),
        ("exit", "start", "crashed", "phase iterations (iteration 2): exit code 7"),
        ("abort", "load", "crashed", "phase load: killed by SIGABRT"),
        ("abort", "start", "crashed", "phase iterations (iteration 2): killed by SIGABRT"),
        ("kill", "start", "crashed", "phase iterations (iteration 2): killed by SIGKILL"),
        ("segfault", "outputs", "crashed", "phase finish: killed by SIGSEGV"),
    ],
)
def test_a_fault_is_told_and_what_was_measured_before_it_is_kept(
    write_script: WriteScript, do: str, at: str, status: str, message: str
) -> None:
    result = lar.run(write_script(faults=fault(do, at), times=[[0.002, 0.001, 0.001]]), iter=5)
    assert result.status == status
    assert result.failure is not None
    assert message in result.failure.message
    # A model that does not load is the fault of the file, until more is known.
    assert result.failure.exit_code == (2 if (do, at) == ("raise", "load") else 4)
    kept = {"start": (1, 2), "outputs": (1, 5)}.get(at, (0, 0))
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == kept
    assert result.samples.end_to_end == pytest.approx([0.002] * kept[1])
    assert result.machine is not None
    assert result.model is not None
    assert result.wall_seconds > 0


def test_a_run_without_a_fault_is_ok(write_script: WriteScript) -> None:
    result = lar.run(write_script(outputs={"prob": [0.25, 0.75]}), iter=3)
    assert (result.status, result.phase, result.failure) == ("ok", "done", None)
    assert len(result.samples.end_to_end) == 3
    assert [output.name for output in result.outputs] == ["prob"]


def test_a_kill_hints_at_memory(write_script: WriteScript) -> None:
    failure = lar.run(write_script(faults=fault("kill"))).failure
    assert failure is not None
    assert re.fullmatch(r"did the machine run out of memory\? The run held \d+ MiB", failure.hint)


@pytest.mark.parametrize("at", ["load", "start"])
def test_an_engine_that_hangs_is_ended_at_the_stall_limit(
    write_script: WriteScript, at: str
) -> None:
    result = lar.run(write_script(faults=fault("hang", at)), stall_timeout=1)
    assert result.status == "timed_out"
    assert result.failure is not None
    assert "hangs" in result.failure.message
    assert "--stall-timeout" in result.failure.hint
    assert result.failure.exit_code == 124
    assert 1 <= result.wall_seconds < 1 + SOON
    assert len(result.samples.end_to_end) == (2 if at == "start" else 0)


def test_an_engine_that_computes_is_not_stalled_but_ended_at_the_deadline(
    write_script: WriteScript,
) -> None:
    result = lar.run(write_script(faults=fault("spin")), stall_timeout=1, timeout=2.5)
    assert result.status == "timed_out"
    assert result.failure is not None
    assert result.failure.message == "timed out after 2.5 s in phase iterations (iteration 2)"
    assert len(result.samples.end_to_end) == 2
    assert 2.5 <= result.wall_seconds < 2.5 + SOON


def test_the_stall_limit_may_be_turned_off(write_script: WriteScript) -> None:
    result = lar.run(write_script(faults=fault("hang")), stall_timeout=0, timeout=1.5)
    assert result.failure is not None
    assert "timed out after 1.5 s" in result.failure.message


def test_slow_iterations_are_no_stall(write_script: WriteScript) -> None:
    script = write_script(times=[[0.7, 0.01, None]], real_time=True)
    result = lar.run(script, iter=2, warmup_iter=0, stall_timeout=2)
    assert result.status == "ok"
    assert min(result.samples.end_to_end) >= 0.7


def test_a_flood_of_engine_noise_neither_blocks_the_run_nor_fills_memory(
    write_script: WriteScript,
) -> None:
    result = lar.run(write_script(faults=fault("flood")), iter=5)
    assert result.status == "ok"
    assert len(result.samples.end_to_end) == 5
    assert len(result.log_tail) < 10_000


def test_the_engines_last_words_are_kept(write_script: WriteScript) -> None:
    script = write_script(prints="famous last words", faults=fault("abort"))
    result = lar.run(script)
    assert result.log_tail.splitlines() == ["famous last words"] * 2
    assert result.failure is not None
    assert result.failure.detail == result.log_tail


# What an engine should not do, and some do: a driver of the test's own, run by the real worker.

ROGUE = """
import os, signal, sys, time
from lar.engines.base import Driver
from lar.records import EngineFacts

class RogueDriver(Driver):
    def facts(self): return EngineFacts(name="fake", version="1", driver="script", device="cpu")
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
        body = textwrap.indent(textwrap.dedent(code), "        ")
        (tmp_path / "rogue_driver.py").write_text(ROGUE + body)
        monkeypatch.syspath_prepend(str(tmp_path))
        spec = RunSpec(model="", engine="fake", driver="script", iterations=2, **fields)
        return run_isolated(spec, "rogue_driver:RogueDriver", listener)

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
    assert result.failure is not None
    assert result.failure.message.endswith("exit code 3")


def test_a_worker_that_has_told_its_end_and_is_gone_before_it_is_read_has_not_crashed(
    run_rogue: RunRogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The parent finds nothing to read, then looks for the worker, which ends in between.
    look = WorkerProcess.poll_exit
    monkeypatch.setattr(WorkerProcess, "poll_exit", lambda worker, block=False: look(worker, True))
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
    assert result.failure is not None
    assert result.failure.message


def test_a_signal_without_a_name_is_told_by_its_number(run_rogue: RunRogue) -> None:
    number = int(signal.SIGRTMIN) + 3
    result = run_rogue(f"os.kill(os.getpid(), {number}); time.sleep(1)")
    assert result.status == "crashed"
    assert result.failure is not None
    assert str(number) in result.failure.message


def test_an_engine_that_exits_python_fails_its_run(run_rogue: RunRogue) -> None:
    result = run_rogue("sys.exit('enough')")
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.message == "the engine failed: enough"


def test_noise_that_is_no_text_is_shown_as_well_as_may_be(run_rogue: RunRogue) -> None:
    result = run_rogue("os.write(2, b'bad \\xff\\xfe byte\\nno end'); os.abort()")
    assert result.log_tail == "bad \ufffd\ufffd byte\nno end"


def test_the_worker_has_the_environment_of_the_spec(run_rogue: RunRogue) -> None:
    result = run_rogue(
        "raise RuntimeError(os.environ['LAR_TEST'])", environment={"LAR_TEST": "as asked"}
    )
    assert result.failure is not None
    assert result.failure.message == "the engine failed: as asked"


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
    assert result.failure is not None
    assert result.failure.message == "the engine failed: []"


# What is told while the run goes on


class Recorder(Listener):
    """Writes down what it hears, as words, and dawdles where told to."""

    def __init__(self, dawdle_at: str = "", seconds: float = 1) -> None:
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


IN_ORDER = [
    "EngineStarted",
    "load",
    "Loaded",
    "Fed",
    "prepare",
    "Prepared",
    "warmup",
    "row 0",
    "iterations",
    "row 1",
    "row 2",
    "finish",
    "Finished",
]


@pytest.mark.parametrize("dawdle_at", ["", "EngineStarted", "log", "Prepared", "row 0"])
def test_events_and_rows_come_in_order_however_late_they_are_heard(
    write_script: WriteScript, dawdle_at: str
) -> None:
    recorder = Recorder(dawdle_at)
    plan = plan_run(write_script(prints="noise"), {"iter": 2})
    assert run_spec(spec_of(plan), plan.driver.path, recorder).status == "ok"
    assert [word for word in recorder.heard if word != "log"] == IN_ORDER


def test_a_run_that_finished_in_time_is_ok_however_late_that_is_heard(
    write_script: WriteScript,
) -> None:
    plan = plan_run(write_script(), {"iter": 2, "timeout": 3.0})
    result = run_spec(spec_of(plan), plan.driver.path, Recorder("EngineStarted", seconds=3.1))
    assert (result.status, result.failure) == ("ok", None)


def test_an_exception_of_the_listener_ends_the_worker(write_script: WriteScript) -> None:
    class Broken(Listener):
        def on_event(self, event: Event, result: RunResult) -> None:
            raise BrokenPipeError

    plan = plan_run(write_script(faults=fault("hang", "load")), {})
    with pytest.raises(BrokenPipeError):
        run_spec(spec_of(plan), plan.driver.path, Broken())


def test_an_interrupt_gives_what_was_measured(write_script: WriteScript) -> None:
    class Interrupting(Listener):
        seen = 0

        def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
            before, self.seen = self.seen, last
            if before < 3 <= last:
                raise KeyboardInterrupt

    listener = Interrupting()
    script = write_script(times=[[0.2, 0.01, None]], real_time=True)
    plan = plan_run(script, {"iter": 50})
    result = run_spec(spec_of(plan), plan.driver.path, listener)
    assert result.status == "interrupted"
    assert result.failure is not None
    assert result.failure.exit_code == 130
    assert 2 <= len(result.samples.end_to_end) < 10
    assert listener.seen == 1 + len(result.samples.end_to_end)


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
    result = lar.run(script, "[" + ",".join(["1.5"] * count) + "]", iter=1)
    assert result.status == "ok", result.failure
    assert result.fed[0].shape == (1, count)


def test_nothing_in_the_current_folder_stands_in_for_a_library(
    write_script: WriteScript, tmp_path: Path
) -> None:
    command = Path(sys.executable).with_name("lar")
    if not command.exists():
        pytest.skip("lar is not installed beside this Python")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the wrong numpy')")
    (tmp_path / "lar.py").write_text("raise RuntimeError('the wrong lar')")
    done = subprocess.run(
        [command, write_script(), "--iter", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


# The command line, ended from outside

LIVE = {"times": [[0.1, 0.01, None]], "real_time": True}


def read_until(stream: IO[str] | None, begin: str) -> list[str]:
    """Read lines up to one that begins so."""
    assert stream is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith(begin)):
        line = stream.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    return lines


def end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read what is left of a process's output and errors, until it has ended.

    Not `communicate`: it passes over what `read_until` has buffered.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    process.wait(30)
    return output, errors


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_tells_what_was_measured(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript, number: int
) -> None:
    process = start_lar(write_script(**LIVE), "--iter", "1000")
    lines = read_until(process.stdout, "iter 2/1000")
    (worker,) = workers_of(process.pid)
    began = time.monotonic()
    process.send_signal(number)
    output, errors = end_of(process)
    assert time.monotonic() - began < SOON
    assert process.returncode == 130
    assert errors == "lar: error: interrupted\n"
    lines += output.splitlines()
    iterations = [line for line in lines if line.startswith("iter ")]
    assert [line.split("/")[0] for line in iterations] == [
        f"iter {index}" for index in range(len(iterations))
    ]
    after = lines[lines.index(iterations[-1]) + 1 :]
    assert after[0].startswith("=== finished test #0: time=")
    assert not is_alive(worker)


def test_an_interrupt_before_the_first_iteration_tells_no_times(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    process = start_lar(write_script(faults=fault("hang", "load")), "--stall-timeout", "20")
    lines = read_until(process.stdout, "lar ")
    process.send_signal(signal.SIGINT)
    output, errors = end_of(process)
    assert (process.returncode, output, errors) == (130, "", "lar: error: interrupted\n")
    assert len(lines) == 1


@pytest.mark.parametrize("delay", [0.05, 0.11, 0.17])
def test_every_iteration_of_an_interrupted_run_is_printed_once(
    start_lar: Callable[..., subprocess.Popen[str]],
    write_script: WriteScript,
    tmp_path: Path,
    delay: float,
) -> None:
    # Iterations so short that the interrupt falls into the printing of some.
    script = write_script(times=[[2e-6, 1e-6, None]], real_time=True)
    report = tmp_path / "result.json"
    process = start_lar(script, "--iter", "1000000", "--json", str(report))
    read_until(process.stdout, "iter 0/")
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    output, _ = end_of(process)
    assert process.returncode == 130
    printed = [int(number) for number in re.findall(r"^iter (\d+)/", output, re.MULTILINE)]
    measured = len(json.loads(report.read_bytes())["samples"]["end_to_end"])
    assert printed == list(range(1, measured))
    assert "=== finished test #0" in output


def test_a_run_that_shall_survive_the_end_of_its_terminal_does(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    # As nohup starts it.
    process = start_lar(
        write_script(**LIVE),
        "--iter",
        "5",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    read_until(process.stdout, "iter 1/5")
    process.send_signal(signal.SIGHUP)
    output, errors = end_of(process)
    assert process.returncode == 0, errors
    assert "iter 4/5" in output


@needs_proc
def test_a_worker_does_not_outlive_a_parent_that_is_killed(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    process = start_lar(write_script(faults=fault("hang")), "--stall-timeout", "60")
    read_until(process.stdout, "iter 1/")
    (worker,) = workers_of(process.pid)
    assert is_alive(worker)
    process.kill()
    process.wait(30)
    assert eventually(lambda: not is_alive(worker))


@needs_proc
def test_a_reader_that_goes_away_ends_the_run_without_a_word(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    # As `lar ... | head -1`.
    process = start_lar(write_script(**LIVE), "--iter", "1000")
    read_until(process.stdout, "warmup 0")
    (worker,) = workers_of(process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(30) == 141
    assert errors == ""
    assert not is_alive(worker)


def test_lines_appear_while_the_run_goes_on(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    script = write_script(times=[[0.4, 0.01, None]], load_seconds=0.4, real_time=True)
    process = start_lar(script, "--iter", "3")
    came = {}
    assert process.stdout is not None
    for line in process.stdout:
        came[line.split(":")[0].strip()] = time.monotonic()
    order = ["load model", "warmup 0", "iter 0/3", "iter 1/3", "iter 2/3"]
    assert [name for name in came if name in order] == order
    # Each 0.4 s after the one before, and not all at the end.
    gaps = [came[after] - came[before] for before, after in pairwise(order)]
    assert all(0.2 < gap < 0.4 + SOON for gap in gaps), gaps


# Without a worker


def test_a_run_in_this_process_prints_the_same_lines(
    run_lar: Callable[..., Any], write_script: WriteScript
) -> None:
    script = write_script(load_seconds=0.5, times=[[0.25, 0.125, 0.1875], [0.5, 0.25, 0.375]])
    apart, here = run_lar(script), run_lar(script, "--in-process")
    assert here.returncode == 0, here.stderr
    with_memory, without = (
        [line for line in done.stdout.splitlines() if not line.startswith("peak memory")]
        for done in (apart, here)
    )
    assert with_memory == without


def test_an_interrupt_in_this_process_tells_what_was_measured(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    process = start_lar(write_script(**LIVE), "--iter", "1000", "--in-process")
    read_until(process.stdout, "=== going to run")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = end_of(process)
    assert (process.returncode, errors) == (130, "lar: error: interrupted\n")
    assert output.startswith("iter 0/1000: ")
    assert "\n=== finished test #0: " in output
