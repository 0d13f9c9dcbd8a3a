"""Calls of the operating system: read from what strace writes, and traced in real runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.operator_times import read_profile
from lar.measurement.syscalls import (
    LEAST_NS,
    Syscall,
    SyscallTrace,
    TracedCalls,
    parse_calls,
    spans_of_calls,
)
from lar.records.profile import Step
from tests.conftest import RunLar, WriteScript
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
SECOND = 10**9
DAY = 1_795_188_056  # a time of day, in seconds

# As strace 6.1 writes them.
LINES = (ROOT / "tests" / "data" / "strace.txt").read_text()


def test_calls_are_read_with_times_and_results() -> None:
    at = DAY * SECOND
    assert [*parse_calls(LINES.splitlines())] == [
        Syscall("restart_syscall", at + 595_500_000, 100_000, "0"),
        Syscall("read", at + 595_103_000, 12_000, "512"),
        Syscall("open", at + 595_300_000, 30_000, "-1 ENOENT (No such file or directory)"),
        Syscall("within", at + 595_400_000, LEAST_NS, "-1 ENOTTY (Not a typewriter)"),
        Syscall("brk", at + 695_400_000, SECOND + 2_000, "0x55d0"),
    ]


@given(st.lists(st.text()))
def test_any_text_is_read_without_an_error(lines: list[str]) -> None:
    assert all(call.duration_ns >= 0 for call in parse_calls(lines))


def test_calls_become_spans_of_the_iteration_that_they_begin_in() -> None:
    zero = DAY * SECOND
    calls = {
        70: [
            Syscall("late", zero + 2_500, 5_000, "0"),
            Syscall("early", zero - 700, 1_000, "-1 E"),
        ],
        71: [Syscall("within", zero + 1_000, LEAST_NS, "0")],
        72: [Syscall("between", zero + 2_000, 1_000, "0")],
        73: [],
    }
    steps = [Step(0, 500, 2_000, True), Step(1, 2_400, 4_000)]
    traced = TracedCalls(calls, 70, {70: "python", 71: "worker"})
    spans, names = spans_of_calls(traced, steps, 1, [2, 5], zero)
    told = [(each.name, each.start_ns, each.end_ns, each.thread, each.step) for each in spans]
    assert told == [
        ("early", -700, 300, 1, None),
        ("within", 1_000, 2_000, 6, 0),
        ("between", 2_000, 3_000, 7, None),
        ("late", 2_500, 7_500, 1, 1),
    ]
    assert names == {6: "worker 71", 7: "thread 72"}
    assert [each.warmup for each in spans] == [False, True, False, False]
    assert {(each.category, each.source) for each in spans} == {("osrt", "strace")}
    assert spans[0].result == "-1 E"


def test_without_strace_nothing_is_timed(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    ended = run_lar(
        write_script(),
        *("--profile", str(tmp_path / "p.json"), "--profile-syscalls"),
        env={"PATH": str(tmp_path)},
        code=2,
    )
    assert "--profile-syscalls: strace is not installed" in ended.stderr
    assert "iter 0" not in ended.stdout
    assert not (tmp_path / "p.json").exists()


def test_a_trace_that_is_not_permitted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted"
    refusing = tmp_path / "strace"
    refusing.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    error = refused(r"cannot trace processes here: .*not permitted", SyscallTrace, tmp_path)
    assert "SYS_PTRACE" in error.hint


def can_trace() -> bool:
    """Tell whether this machine lets processes be traced."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", os.devnull, "true"]).returncode == 0


traced_here = pytest.mark.skipif(not can_trace(), reason="strace cannot trace here")


@traced_here
def test_a_run_of_the_scripted_engine_tells_what_it_slept(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    # A tracer that gets no CPU for a moment must not use up the wait.
    script = write_script(times=[[0.2, 0.005, None]], real_time=True)
    place = tmp_path / "p.json"
    run_lar(script, "--iter", "2", "--profile", str(place), "--profile-syscalls", code=0)
    found = read_profile(place)
    spans = [span for span in found.spans if span.category == "osrt"]
    assert all(span.duration_ns >= LEAST_NS and span.source == "strace" for span in spans)
    for step in found.steps:
        # A sleep in the dispatch, and one in the wait.
        sleeps = [
            span
            for span in spans
            if span.step == step.number and span.name in ("clock_nanosleep", "pselect6", "select")
        ]
        dispatch, wait = sleeps
        assert dispatch.duration_ns >= 5_000_000
        assert wait.duration_ns >= 15_000_000
        assert all(span.thread == 1 and span.warmup == step.warmup for span in sleeps)
        assert all(step.start_ns <= span.start_ns <= span.end_ns <= step.end_ns for span in sleeps)
    assert sorted(tmp_path.iterdir()) == sorted([place, Path(script)])


@traced_here
def test_a_run_of_an_engine_is_traced_with_its_threads(run_lar: RunLar, tmp_path: Path) -> None:
    model, place = ROOT / "models" / "mobilenet_v2.onnx", tmp_path / "p.json"
    run_lar(
        *(str(model), "--iter", "2", "--multithread", "2"),
        *("--profile", str(place), "--profile-syscalls"),
        code=0,
    )
    found = read_profile(place)
    spans = [span for span in found.spans if span.category == "osrt"]
    assert "futex" in {span.name for span in spans}  # as its threads wait for each other
    load = next(span for span in found.spans if span.category == "phase" and span.name == "load")
    opened = [span for span in spans if span.name == "openat"]
    assert any(load.start_ns <= span.start_ns <= load.end_ns for span in opened)
    threads = {span.thread for span in spans}
    assert 1 in threads
    assert len(threads) > 1
    assert threads <= found.threads.keys()
    assert found.operators
    assert found.executions
