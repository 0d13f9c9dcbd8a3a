"""Checks for regressions: what is compared, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lar.records.run import RunResult
from lar.results import figure_of
from lar.results.side_by_side import Check, check_kind, sittings_of
from tests.known import known
from tests.results.made_results import make_result, make_runs
from tests.tables import each_row


def check(
    new: list[RunResult], base: list[RunResult], others: dict[str, list[RunResult]] | None = None
) -> Check:
    return check_kind("net.onnx", new, base, others or {})


def at(day: int, runs: list[RunResult]) -> list[RunResult]:
    """Runs of a day, a minute after one another."""
    times = (f"2025-06-{day:02d}T12:{minute:02d}:00+00:00" for minute in range(60))
    return [replace(run, started_at=time) for run, time in zip(runs, times, strict=False)]


@each_row("results/cases/sittings")
def test_runs_within_ten_minutes_of_each_other_are_a_sitting(
    times: list[str], sizes: list[int]
) -> None:
    _, runs = figure_of([make_result([0.01], started_at=time) for time in times])
    assert [len(sitting) for sitting in sittings_of(runs)] == sizes


@each_row("results/cases/sides")
def test_the_ratio_is_that_of_sittings_if_their_spread_is_known(
    base: list[list[float]], new: list[list[float]], tags: list[list[list[float]]], told: list[Any]
) -> None:
    """Each side, and each tag, has the times of runs by day."""

    def runs_of(days: list[list[float]]) -> list[RunResult]:
        made = ((day, [make_result([it] * 9) for it in its]) for day, its in enumerate(days, 1))
        return [run for day, runs in made for run in at(day, runs)]

    others = {str(number): runs_of(days) for number, days in enumerate(tags)}
    found = check(runs_of(new), runs_of(base), others)
    assert [found.unit, found.verdict] == told[::2]
    assert known(found.difference).ratio == pytest.approx(told[1])


def disturb(result: RunResult, threads: int | None = 1) -> RunResult:
    """A run whose iterations took three times as long, since their thread waited for a CPU."""
    times = result.samples.end_to_end
    samples = replace(
        result.samples,
        end_to_end=tuple(3 * each for each in times),
        queue_delay=tuple(2 * each for each in times),
        busiest_thread=times,
    )
    return replace(result, samples=samples, engine=replace(known(result.engine), threads=threads))


def on_one_thread(run: RunResult) -> RunResult:
    """A run whose CPU time is its latency."""
    samples = replace(run.samples, busiest_thread=run.samples.end_to_end)
    return replace(run, samples=samples, engine=replace(known(run.engine), threads=1))


def test_disturbed_runs_count_with_their_cpu_time_where_that_is_the_latency() -> None:
    calm = [on_one_thread(run) for run in at(1, make_runs(5, 0.01, seed=2))]
    busy = [disturb(run) for run in at(2, make_runs(5, 0.01, seed=1))]
    found = check(busy, calm)
    assert found.figure == "CPU time"
    assert [run.trust for run in found.new] == ["cpu"] * 5
    assert found.verdict == "not judged"  # of one sitting of a machine that does something else
    others = {str(day): at(day, make_runs(5, 0.01, seed=day)) for day in range(3, 7)}
    others = {tag: [on_one_thread(run) for run in runs] for tag, runs in others.items()}
    assert check(busy, calm, others).verdict == "no difference shown"


def test_runs_that_show_nothing_are_left_out() -> None:
    busy = [disturb(run, threads=2) for run in make_runs(2, 0.01, seed=1)]
    found = check([*busy, *make_runs(5, 0.0103, seed=1)], make_runs(5, 0.01, seed=2))
    assert (found.left_out, found.verdict) == (2, "slower")
    found = check(busy, make_runs(5, 0.01, seed=2))
    assert (found.left_out, found.difference) == (2, None)


def test_false_alarms_are_rare() -> None:
    alarms = sum(
        check(
            make_runs(4, 0.01, seed=2 * number, between=0.02),
            make_runs(4, 0.01, seed=2 * number + 1, between=0.02),
        ).verdict
        == "slower"
        for number in range(40)
    )
    assert alarms <= 4  # 1 is expected


def test_runs_without_times_are_left_out() -> None:
    found = check([make_result()], make_runs(3, 0.01))
    assert (found.difference, found.new, found.left_out) == (None, (), 1)
