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
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.failures import end_of, read_until, run_until, started
from tests.conftest import WriteScript
from tests.running.isolated_runs import (
    SOON,
    eventually,
    fault,
    is_alive,
    known,
    needs_proc,
    workers_of,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


LIVE = {"times": [[0.1, 0.01, None]], "real_time": True}


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_tells_what_was_measured(
    write_script: WriteScript, number: int
) -> None:
    with started(write_script(**LIVE), "--iter", "1000") as process:
        lines = read_until(process, "iter 2/1000")
        (worker,) = workers_of(process.pid)
        began = time.monotonic()
        process.send_signal(number)
        output, errors = end_of(process)
    assert time.monotonic() - began < SOON
    assert (process.returncode, errors) == (130, "lar: error: interrupted\n")
    lines += output.splitlines()
    iterations = [line for line in lines if line.startswith("iter ")]
    assert [line.split("/")[0] for line in iterations] == [
        f"iter {index}" for index in range(len(iterations))
    ]
    assert lines[lines.index(iterations[-1]) + 1].startswith("=== finished test #0: time=")
    assert not is_alive(worker)


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("delay", [0.05, 0.13])
def test_every_iteration_of_an_interrupted_run_is_printed_once(
    write_script: WriteScript, tmp_path: Path, delay: float
) -> None:
    def interrupt_later(process: subprocess.Popen[str]) -> None:
        time.sleep(delay)
        interrupt(process)

    # Iterations so short that the interrupt falls into the printing of some.
    script = write_script(times=[[2e-6, 1e-6, None]], real_time=True)
    report = tmp_path / "result.json"
    words = [script, "--iter", "1000000", "--json", str(report)]
    done = run_until(words, "iter 0/", interrupt_later)
    assert done.returncode == 130
    printed = [int(number) for number in re.findall(r"^iter (\d+)/", done.stdout, re.MULTILINE)]
    measured = len(json.loads(report.read_bytes())["samples"]["end_to_end"])
    assert printed == list(range(measured))
    assert "=== finished test #0" in done.stdout


def wait_until_full(process: subprocess.Popen[str]) -> None:
    """Wait until a program's standard output, which nobody reads, takes no more, or it has
    ended."""
    end, before, now = time.monotonic() + 60, 0, 0
    while process.poll() is None and (now < 20_000 or now > before):
        assert time.monotonic() < end
        time.sleep(0.2)
        held = fcntl.ioctl(known(process.stdout), termios.FIONREAD, bytes(4))
        before, now = now, int.from_bytes(held, sys.byteorder)


@needs_proc
@pytest.mark.parametrize("number", [None, signal.SIGINT])
def test_a_run_whose_lines_nobody_reads_ends_in_time(
    write_script: WriteScript, number: int | None
) -> None:
    # As `lar ... | less`, left alone.
    script = write_script(times=[[5e-4, 1e-4, None]], real_time=True)
    for seconds in (4, 30) if number is None else (0,):  # a busy machine may print less in four
        limit = ["--timeout", str(seconds)] if seconds else []
        began = time.monotonic()
        with started(script, "--iter", "10000000", *limit) as process:
            wait_until_full(process)
            workers = workers_of(process.pid)
            if number is not None:
                began = time.monotonic()
                process.send_signal(number)
            assert process.wait(60) == (124 if number is None else 130)
            assert time.monotonic() - began < SOON + seconds
            assert not any(map(is_alive, workers))
            output, errors = end_of(process)
        if workers:
            break
    assert workers
    assert "there was no time to print their lines" in errors
    # What was printed is whole.
    _, *lines = re.split(r"^iter ", output, flags=re.MULTILINE)
    times = r"[\d.]+ms \(exec=[\d.]+,device=[\d.]+\)\n"
    for index, line in enumerate(lines):
        assert re.fullmatch(rf"{index}/10000000: {times}", line)


def test_all_lines_come_however_late_they_are_read(write_script: WriteScript) -> None:
    with started(write_script(), "--iter", "5000") as process:
        wait_until_full(process)
        time.sleep(0.5)
        output, errors = end_of(process)
    assert (process.returncode, errors) == (0, "")
    assert re.findall(r"^iter (\d+)/", output, re.MULTILINE) == list(map(str, range(5000)))
    assert output.splitlines()[-1].startswith("peak memory: ")


def test_a_run_that_shall_survive_the_end_of_its_terminal_does(write_script: WriteScript) -> None:
    # As nohup starts it.
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with started(write_script(**LIVE), "--iter", "5", before=ignoring) as process:
        read_until(process, "iter 1/5")
        process.send_signal(signal.SIGHUP)
        output, errors = end_of(process)
    assert process.returncode == 0, errors
    assert "iter 4/5" in output


@needs_proc
def test_a_worker_does_not_outlive_a_parent_that_is_killed(write_script: WriteScript) -> None:
    with started(write_script(faults=fault("hang")), "--stall-timeout", "60") as process:
        read_until(process, "iter 1/")
        (worker,) = workers_of(process.pid)
        assert is_alive(worker)
    assert eventually(lambda: not is_alive(worker))


@needs_proc
def test_a_reader_that_goes_away_ends_the_run_without_a_word(write_script: WriteScript) -> None:
    # As `lar ... | head -1`.
    with started(write_script(**LIVE), "--iter", "1000") as process:
        read_until(process, "warmup 0")
        (worker,) = workers_of(process.pid)
        known(process.stdout).close()
        errors = known(process.stderr).read()
        assert (process.wait(30), errors) == (141, "")
    assert not is_alive(worker)


def test_lines_appear_while_the_run_goes_on(write_script: WriteScript) -> None:
    script = write_script(times=[[0.4, 0.01, None]], load_seconds=0.4, real_time=True)
    order = ["load model", "warmup 0", "iter 0/3", "iter 1/3", "iter 2/3"]
    # Where the machine does something else, this process may read two lines at once.
    for _ in range(4):
        came = {}
        with started(script, "--iter", "3") as process:
            for line in known(process.stdout):
                came[line.split(":")[0].strip()] = time.monotonic()
        assert [name for name in came if name in order] == order
        # Each 0.4 s after the one before, and not all at the end.
        gaps = [came[after] - came[before] for before, after in pairwise(order)]
        if are_told_in_time := all(0.2 < gap < 0.4 + SOON for gap in gaps):
            break
    assert are_told_in_time, gaps


# Without a worker


def test_an_interrupt_in_this_process_tells_what_was_measured(write_script: WriteScript) -> None:
    # A busy machine may take longer to come to the first iteration.
    for seconds in (1, 10):
        with started(write_script(**LIVE), "--iter", "1000", "--in-process") as process:
            read_until(process, "=== going to run")
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            output, errors = end_of(process)
        assert (process.returncode, errors) == (130, "lar: error: interrupted\n")
        if "iter 0/1000: " in output:
            break
    assert output.startswith("iter 0/1000: ")
    assert "\n=== finished test #0: " in output
