"""Checks for regressions: what is compared, and what is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lar.records.run import RunResult
from lar.results.regressions import Check, check_kind
from tests.results.made_results import make_result, make_runs


def check(
    new: list[RunResult], base: list[RunResult], others: dict[str, list[RunResult]] | None = None
) -> Check:
    return check_kind("net.onnx", new, base, others or {})


def test_a_slowdown_is_a_regression() -> None:
    found = check(make_runs(5, 0.0103, seed=1), make_runs(5, 0.01, seed=2))
    assert found.is_regression
    assert found.difference is not None
    assert found.difference.ratio == pytest.approx(1.03, abs=0.01)


def test_a_speedup_and_no_difference_are_none() -> None:
    faster = check(make_runs(5, 0.0095, seed=1), make_runs(5, 0.01, seed=2))
    assert faster.difference is not None
    assert (faster.difference.verdict, faster.is_regression) == ("faster", False)
    same = check(make_runs(5, 0.01, seed=1), make_runs(5, 0.01, seed=2))
    assert not same.is_regression
    assert same.can_show


def test_one_run_on_each_side_shows_nothing() -> None:
    found = check(make_runs(1, 0.02), make_runs(1, 0.01))
    assert not found.is_regression
    assert not found.can_show


def test_runs_of_other_tags_show_by_how_much_runs_differ() -> None:
    others = {"v0": make_runs(6, 0.02, seed=3)}
    assert check(make_runs(1, 0.011), make_runs(1, 0.01), others).is_regression
    # They differ by more than that.
    others = {"v0": make_runs(6, 0.02, seed=3, between=0.2)}
    assert not check(make_runs(1, 0.011), make_runs(1, 0.01), others).is_regression


def disturb(result: RunResult, cpu_seconds: float) -> RunResult:
    """A run whose iterations took three times as long, since they waited for a CPU."""
    times = tuple(3 * each for each in result.samples.end_to_end)
    count = len(times)
    samples = replace(
        result.samples,
        end_to_end=times,
        queue_delay=tuple(each * 2 / 3 for each in times),
        cpu=tuple(cpu_seconds * (1 + 0.001 * (number % 5)) for number in range(count)),
    )
    return replace(result, samples=samples)


def test_where_iterations_were_disturbed_cpu_times_are_compared() -> None:
    calm = [
        replace(run, samples=replace(run.samples, cpu=run.samples.end_to_end))
        for run in make_runs(5, 0.01, seed=2)
    ]
    busy = [disturb(run, run.samples.end_to_end[0]) for run in make_runs(5, 0.01, seed=1)]
    found = check(busy, calm)
    assert (found.basis, found.is_regression) == ("CPU time", False)
    # CPU times that are not known of all runs are not compared.
    assert check(busy, make_runs(5, 0.01, seed=2)).basis == "latency"


def test_false_alarms_are_rare() -> None:
    alarms = sum(
        check(
            make_runs(4, 0.01, seed=2 * number, between=0.02),
            make_runs(4, 0.01, seed=2 * number + 1, between=0.02),
        ).is_regression
        for number in range(200)
    )
    assert alarms <= 12  # 2.5 % are expected: 5 of 200


def test_runs_without_times_are_left_out() -> None:
    found = check([make_result()], make_runs(3, 0.01))
    assert (found.difference, found.new) == (None, ())
