"""Options of how MegEngine executes a model: the threads, the first execution, replaying it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.failures import check_error
from tests.engines.megengine.probed import MOBILENET, difference, probe
from tests.engines.megengine.programs import DIGITS

if TYPE_CHECKING:
    from tests.conftest import RunLar


# Threads


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({}, 1),
        ({"cpu": True}, 1),
        ({"cpu_default": True}, 0),
        ({"multithread": 1}, 1),
        ({"multithread": 3}, 3),
        ({"multithread_default": 1}, 0),
        ({"multithread_default": 3}, 2),
    ],
)
def test_the_engine_has_the_threads_asked_for(settings: dict[str, Any], threads: int) -> None:
    probed = probe("lite", "digits_cnn", settings)
    assert len(probed.new_threads) == threads
    assert difference(probed, probe("lite", "digits_cnn")) < 1e-4


@pytest.mark.parametrize(
    ("settings", "asynchronous"),
    [
        ({}, True),
        ({"const_shape": True}, True),
        ({"cpu_default": True}, False),
        ({"multithread_default": 2}, False),
        ({"record_comp_seq": True}, False),
        ({"record_comp_seq2": True}, False),
    ],
    ids=str,
)
def test_what_computes_in_the_calling_thread(settings: dict[str, Any], asynchronous: bool) -> None:
    probed = probe("lite", MOBILENET, settings, iterations=6)
    assert probed.dispatch < 0.5 if asynchronous else probed.dispatch > 0.9
    assert difference(probed, probe("lite", MOBILENET, iterations=6)) < 1e-4


@pytest.mark.parametrize("key", ["multithread", "multithread_default"])
def test_threads_are_bound_to_their_cores(key: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    first, last = cores[0], cores[-1]
    settings = {key: 2, "multi_thread_core_ids": f"{first},{last}"}
    probed = probe("lite", "digits_cnn", settings)
    caller = [probed.calling_thread] if key == "multithread_default" else []
    assert sorted(probed.new_threads + caller) == sorted([str(first), str(last)])


def test_all_threads_may_be_bound_to_one_core() -> None:
    core = max(os.sched_getaffinity(0))
    settings = {"multithread": 3, "multi_thread_core_ids": f"{core},{core},{core}"}
    assert probe("lite", "digits_cnn", settings).new_threads == [str(core)] * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--multithread", "2", "--multi-thread-core-ids", "0"], ["1 core for 2 threads"]),
        (["--multithread", "2", "--multi-thread-core-ids", "0,9999"], ["no core 9999", "cores: "]),
        (["--multi-thread-core-ids", "0,1"], ["--multithread N"]),
        (["--multithread", "2", "--multi-thread-core-ids", "0;1"], ["is not a list of cores"]),
        (["--multithread", "0"], ["--multithread"]),
        (["--multithread", "2", "--driver", "graph"], ["--driver graph", "lite"]),
        (["--multithread", "2", "--cpu-default"], ["--cpu-default", "--multithread"]),
    ],
)
def test_threads_that_cannot_be_are_refused(
    run_lar: RunLar, arguments: list[str], words: list[str]
) -> None:
    done = run_lar("run", DIGITS, *arguments)
    assert done.returncode == 2, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_one_core_for_one_thread_is_either_bound_or_refused_sensibly(run_lar: RunLar) -> None:
    core = min(os.sched_getaffinity(0))
    done = run_lar("run", DIGITS, "--iter", "1", "--multi-thread-core-ids", str(core))
    assert done.returncode in (0, 2)
    assert "1 core for 1 thread" not in done.stderr


# The first execution, and those after it


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_without_the_sanity_check_the_first_execution_is_asynchronous(driver: str) -> None:
    def first_dispatch(settings: Mapping[str, Any], attempt: int = 0) -> float:
        return probe(driver, MOBILENET, settings, iterations=6, attempt=attempt).first_dispatch

    assert first_dispatch({}) > 0.9
    # Work of others may hold the dispatch up, not hurry it.
    assert any(first_dispatch({"no_sanity_check": True}, attempt) < 0.8 for attempt in range(3))


def test_a_faked_execution_computes_nothing_and_the_next_one_all() -> None:
    plain = probe("lite", "digits_cnn")
    faked = probe("lite", "digits_cnn", {"fake_first": True})
    assert not difference(faked, plain, iteration=0) < 1e-4
    assert difference(faked, plain, iteration=1) < 1e-4


def test_a_faked_execution_is_no_result(run_lar: RunLar, tmp_path: Path) -> None:
    done = run_lar("run", DIGITS, "--fake-first", "--warmup-iter", "0", "--iter", "1")
    check_error(done, 2, "error: --fake-first and --warmup-iter 0 exclude each other: the first")
    assert "hint: leave one of them out, or give --warmup-iter 1 --iter 1" in done.stderr
    done = run_lar("run", DIGITS, "--fake-first", "--bin-out-dump", "out", cwd=tmp_path)
    check_error(done, 2, "error: --fake-first and --bin-out-dump exclude each other: the first")
    assert not [*tmp_path.iterdir()]
    done = run_lar("run", DIGITS, "--fake-first", "--iter", "0", "--warmup-iter", "1")
    check_error(done, 2, "error: --fake-first and --iter 0 exclude each other: the first")
    assert run_lar("run", DIGITS, "--fake-first", "--iter", "0").returncode == 0
    assert run_lar("run", DIGITS, "--fake-first", "--iter", "1").returncode == 0


def test_a_recorded_execution_is_replayed() -> None:
    """Where the engine cannot record it says so, and runs as ever."""
    probed = probe("lite", MOBILENET, {"record_comp_seq": True}, iterations=6)
    assert "can not enable CompNodeSeqRecorder" not in probed.log
    assert difference(probed, probe("lite", MOBILENET, iterations=6)) < 1e-4


@pytest.mark.parametrize("flag", ["--const-shape", "--record-comp-seq2"])
def test_a_constant_shape_takes_no_other(run_lar: RunLar, flag: str) -> None:
    arguments = ["run", DIGITS, "--iter", "1", "--input", "{32,1,8,8}"]
    assert run_lar(*arguments).returncode == 0
    done = run_lar(*arguments, flag)
    check_error(done, 2, f"error: {flag} fixes the shape of input data to {{1,1,8,8}}")
    assert run_lar("run", DIGITS, "--iter", "1", flag).returncode == 0
