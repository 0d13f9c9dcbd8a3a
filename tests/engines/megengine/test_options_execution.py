"""Options of how MegEngine executes a model: the first execution, replaying it, waiting threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from lar.engines import engine_named
from lar.engines.megengine.driver import SPIN_SECONDS, SPIN_VARIABLE, find_spin_seconds
from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.engines.megengine.probed import MOBILENET, difference, probe
from tests.engines.megengine.programs import DIGITS
from tests.tables import each_row

# Threads


@each_row("engines/megengine/threads/dispatch")
def test_what_computes_in_the_calling_thread(settings: dict[str, Any], asynchronous: bool) -> None:
    probed = probe("lite", MOBILENET, settings, iterations=6)
    assert probed.dispatch < 0.5 if asynchronous else probed.dispatch > 0.9
    assert difference(probed, probe("lite", MOBILENET, iterations=6)) < 1e-4


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


# Threads that wait for work


def test_a_thread_spins_unless_it_is_forbidden_or_computes_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
    assert find_spin_seconds({}) == SPIN_SECONDS
    assert find_spin_seconds({"cpu_default": True}) == 0
    assert find_spin_seconds({"no_spinning": True}) == 0
    monkeypatch.setenv(SPIN_VARIABLE, "0")
    assert find_spin_seconds({}) == 0


def test_the_flag_sets_what_the_engine_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    # With MGB_WORKER_MAX_SPIN=0 a thread sleeps at once (`conftest.py` sets it for all tests).
    monkeypatch.setenv(SPIN_VARIABLE, "20000")
    row = engine_named("megengine").rows["no_spinning"]
    assert row.drivers == ("lite", "graph")
    assert row.before_load is not None
    row.before_load(None, True)
    assert os.environ[SPIN_VARIABLE] == "0"
