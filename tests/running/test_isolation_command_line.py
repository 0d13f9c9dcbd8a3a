"""The command line, ended from outside or running without a worker."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tests.running.isolated_runs import SOON, eventually, fault, is_alive, needs_proc, workers_of

if TYPE_CHECKING:
    from tests.conftest import WriteScript

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def start_lar(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command line and go on while it runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        # No preexec_fn: a worker of pytest-xdist has a second thread, which may hold a lock that
        # the fork needs.
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "lar", *arguments],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


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


def wait_until_full(process: subprocess.Popen[str]) -> None:
    """Wait until a program's standard output, which nobody reads, takes no more."""
    assert process.stdout is not None
    end, before, now = time.monotonic() + 60, 0, 0
    while now < 20_000 or now > before:
        assert time.monotonic() < end
        time.sleep(0.2)
        held = fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4))
        before, now = now, int.from_bytes(held, sys.byteorder)


@needs_proc
@pytest.mark.parametrize("number", [None, signal.SIGINT])
def test_a_run_whose_lines_nobody_reads_ends_in_time(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript, number: int | None
) -> None:
    # As `lar ... | less`, left alone.
    script = write_script(times=[[2e-4, 1e-4, None]], real_time=True)
    limit = ["--timeout", "4"] if number is None else []
    began = time.monotonic()
    process = start_lar(script, "--iter", "10000000", *limit)
    wait_until_full(process)
    (worker,) = workers_of(process.pid)
    if number is not None:
        began = time.monotonic()
        process.send_signal(number)
    assert process.wait(20) == (124 if number is None else 130)
    assert time.monotonic() - began < SOON + (4 if number is None else 0)
    assert not is_alive(worker)
    output, errors = end_of(process)
    assert "there was no time to print their lines" in errors
    # What was printed is whole.
    _, *lines = re.split(r"^iter ", output, flags=re.MULTILINE)
    times = r"[\d.]+ms \(exec=[\d.]+,device=[\d.]+\)\n"
    for index, line in enumerate(lines):
        assert re.fullmatch(rf"{index}/10000000: {times}", line)


def test_all_lines_come_however_late_they_are_read(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    process = start_lar(write_script(), "--iter", "5000")
    wait_until_full(process)
    time.sleep(0.5)
    output, errors = end_of(process)
    assert (process.returncode, errors) == (0, "")
    assert re.findall(r"^iter (\d+)/", output, re.MULTILINE) == list(map(str, range(5000)))
    assert output.splitlines()[-1].startswith("peak memory: ")


def test_a_run_that_shall_survive_the_end_of_its_terminal_does(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    # As nohup starts it.
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    process = start_lar(write_script(**LIVE), "--iter", "5", before=ignoring)
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
    order = ["load model", "warmup 0", "iter 0/3", "iter 1/3", "iter 2/3"]
    # Where the machine does something else, this process may read two lines at once.
    for _ in range(4):
        process = start_lar(script, "--iter", "3")
        came = {}
        assert process.stdout is not None
        for line in process.stdout:
            came[line.split(":")[0].strip()] = time.monotonic()
        assert [name for name in came if name in order] == order
        # Each 0.4 s after the one before, and not all at the end.
        gaps = [came[after] - came[before] for before, after in pairwise(order)]
        if are_told_in_time := all(0.2 < gap < 0.4 + SOON for gap in gaps):
            break
    assert are_told_in_time, gaps


# Without a worker


def test_an_interrupt_in_this_process_tells_what_was_measured(
    start_lar: Callable[..., subprocess.Popen[str]], write_script: WriteScript
) -> None:
    # A busy machine may take longer to come to the first iteration.
    for seconds in (1, 10):
        process = start_lar(write_script(**LIVE), "--iter", "1000", "--in-process")
        read_until(process.stdout, "=== going to run")
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        output, errors = end_of(process)
        assert (process.returncode, errors) == (130, "lar: error: interrupted\n")
        if "iter 0/1000: " in output:
            break
    assert output.startswith("iter 0/1000: ")
    assert "\n=== finished test #0: " in output
