"""Results side by side: what varies, baselines, and what ratios show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lar.errors import UsageError
from lar.measurement.summary import summarize
from lar.records.run import RunResult
from lar.records.summary import Difference
from lar.reports.results_report import report_results, warnings_of
from lar.results import NamedResult
from lar.results.reading import distinguish, shorten
from lar.results.side_by_side import NOT_IN_TURNS, Row, SideBySide, compare_results
from tests.known import known
from tests.refusals import refused
from tests.results.made_results import make_result, make_runs
from tests.tables import each_row

TIMES = [0.010 + 0.0001 * (each % 7) for each in range(40)]


def name(*results: RunResult) -> list[NamedResult]:
    return [NamedResult(f"r{number}", result) for number, result in enumerate(results)]


def compare(results: Sequence[RunResult], by: Sequence[str] = (), baseline: str = "") -> SideBySide:
    return compare_results(name(*results), by, baseline)


def second_difference(runs: Sequence[RunResult], by: str = "option") -> Difference:
    """The difference of the second row."""
    return known(compare(runs, by=[by]).rows[1].difference)


def row_named(table: SideBySide, name: str) -> Row:
    return next(row for row in table.rows if row.name == name)


def test_columns_are_what_varies() -> None:
    table = compare(
        [
            make_result(TIMES, fast_run=True, multithread=2),
            make_result(TIMES, multithread=2),
            make_result(TIMES, processor="another", multithread=2),
        ]
    )
    assert table.varying == ("machine", "--fast-run")
    assert table.common["--multithread"] == "2"
    assert table.common["model"] == "net.onnx"
    assert [row.facts["--fast-run"] for row in table.rows] == ["yes", "", ""]
    old = make_result(TIMES)
    new = replace(old, engine=replace(known(old.engine), version="2.0"))
    assert compare([old, new]).varying == ("version",)


def test_models_of_one_name_are_distinguished() -> None:
    table = compare([make_result(TIMES), make_result(TIMES, sha256="b" * 64)])
    assert [row.facts["model"] for row in table.rows] == [
        "net.onnx (aaaaaaaa)",
        "net.onnx (bbbbbbbb)",
    ]


def test_a_single_run_on_each_side_is_not_judged() -> None:
    """Runs of another kind do not show how much these differ."""
    others = make_runs(6, 0.020, seed=3, multithread=2)
    results = [make_result(TIMES), make_result([2 * each for each in TIMES], fast_run=True)]
    table = compare([*results, *others], by=["option"])
    difference = known(row_named(table, "--fast-run").difference)
    assert difference.ratio == pytest.approx(2)
    assert difference.verdict == "not judged"
    assert difference.reason == "1 against 1, and two on each side are needed"
    assert any("needs several runs of each side" in it for it in warnings_of(table))


def test_rows_that_pool_what_differs_say_so() -> None:
    table = compare(make_runs(2, 0.01) + make_runs(2, 0.02, multithread=2), by=["model"])
    assert [row.facts["--multithread"] for row in table.rows] == ["several"]
    assert "options: --multithread several\n" in report_results(table).text


@pytest.mark.parametrize(("threads", "count"), [((1, 1), 0), ((1, 2), 1), ((2, 4), 0)])
def test_rates_with_and_without_pauses_are_told_apart(threads: list[int], count: int) -> None:
    text = report_results(compare([make_result(TIMES, thread=it) for it in threads])).text
    assert text.count("includes the pauses between iterations, that of one runner does") == count


def test_disturbed_samples_are_left_out_and_counted() -> None:
    times = [0.010] * 20 + [0.030] * 20
    (row,) = compare([make_result(times, queue_delay=[0.0] * 20 + [0.02] * 20)]).rows
    assert (row.median, row.minimum, row.disturbed_count, row.sample_count) == (0.01, 0.01, 20, 40)
    assert row.middle(lambda run: run.iterations_per_second) == pytest.approx(100)
    assert row.runs[0].trust == "undisturbed latency"


def test_a_single_run_has_percentiles_if_it_has_enough_samples() -> None:
    long = make_result([0.001 * each for each in range(1, 202)])
    rows = compare([long, make_result(TIMES), make_result()]).rows
    assert [row.percentile(90) for row in rows] == [pytest.approx(0.181), 0.0106, None]
    assert [row.percentile(99) for row in rows] == [pytest.approx(0.199), None, None]


def test_where_nearly_all_were_disturbed_nothing_is_shown() -> None:
    busy = make_result([0.010] * 2 + [0.030] * 38, queue_delay=[0.0] * 2 + [0.02] * 38)
    fast = replace(busy, spec=replace(busy.spec, settings={"fast_run": True}))
    table = compare([*make_runs(3, 0.010), *[fast] * 3], by=["option"])
    row = table.rows[1]
    assert (row.median, row.difference) == (0.030, None)
    assert row.ratio == pytest.approx(3, rel=0.05)


def test_a_run_that_shows_nothing_is_in_no_figure_of_its_row() -> None:
    """The verdict is of the others: the median, its interval and the minimum are too."""
    busy = make_result([0.5] * 40, queue_delay=[0.4] * 40)
    first, second = make_runs(2, 0.010, seed=1)
    row, _ = compare([first, busy, second, make_result(TIMES, fast_run=True)], ["option"]).rows
    assert known(row.interval).high < 0.5
    assert row.median == pytest.approx(0.010, rel=0.05)
    assert (len(row.runs), row.disturbed_count) == (3, 40)


def begun(runs: list[RunResult], minutes: range) -> list[RunResult]:
    """Runs with an eighth of their iterations disturbed, begun at these minutes."""
    return [
        replace(
            run,
            started_at=f"2025-06-01T12:{minute:02d}:00+00:00",
            samples=replace(run.samples, queue_delay=(0.009,) * 5 + (0.0,) * 35),
        )
        for run, minute in zip(runs, minutes, strict=True)
    ]


def test_runs_in_turns_are_judged_on_a_busy_machine_and_others_are_not() -> None:
    plain, fast = make_runs(5, 0.010, seed=1), make_runs(5, 0.011, seed=2, fast_run=True)
    apart = begun(plain, range(5)) + begun(fast, range(5, 10))
    assert second_difference(apart).reason == NOT_IN_TURNS
    turns = begun(plain, range(0, 10, 2)) + begun(fast, range(1, 11, 2))
    assert second_difference(turns).verdict == "slower"


def test_on_a_quiet_machine_runs_after_one_another_are_judged_with_a_warning() -> None:
    runs = make_runs(5, 0.010, seed=1) + [
        replace(run, started_at="2025-06-02T12:00:00+00:00")
        for run in make_runs(5, 0.011, seed=2, fast_run=True)
    ]
    table = compare(runs, by=["option"])
    assert known(table.rows[1].difference).verdict == "slower"
    assert any("were not made in turns" in it for it in warnings_of(table))


def test_the_baseline_is_the_first_row_of_each_model() -> None:
    results = [
        make_result(TIMES, model="a.onnx"),
        make_result(TIMES, model="b.onnx"),
        make_result(TIMES, model="a.mge"),
        make_result(TIMES, model="b.mge"),
    ]
    assert [row.baseline for row in compare(results).rows] == ["r0", "r1", "r0", "r1"]


def results_of_two_machines() -> list[RunResult]:
    return [
        make_result(TIMES, processor=processor, **options)
        for processor in ("x", "y")
        for options in ({}, {"multithread": 2}, {"fast_run": True})
    ]


@each_row("results/cases/baselines")
def test_a_baseline_may_be_a_row_or_a_fact(asked: str, baselines: list[str]) -> None:
    table = compare(results_of_two_machines(), baseline=asked)
    assert [row.baseline for row in table.rows] == baselines


def test_a_baseline_may_be_an_option() -> None:
    results = [make_result(TIMES), make_result(TIMES, fast_run=True)]
    for asked in ("--fast-run", "fast_run", "fast-run"):
        assert [row.baseline for row in compare(results, baseline=asked).rows] == ["r1", "r1"]
    results = [make_result(TIMES, multithread=1), make_result(TIMES, multithread=2)]
    assert [row.baseline for row in compare(results, baseline="multithread=2").rows] == ["r1", "r1"]


def test_where_dumps_go_is_no_fact() -> None:
    table = compare([make_result(TIMES, bin_out_dump=folder) for folder in ("a", "b")])
    assert not table.varying
    assert table.common["--bin-out-dump"] == "yes"
    table = compare([make_result(TIMES, new_thing=value) for value in ("a", "b")])
    assert [row.facts["--new-thing"] for row in table.rows] == ["a", "b"]


def test_the_confidence_is_that_of_all_ratios_together() -> None:
    runs = [run for n in range(4) for run in make_runs(3, 0.01, seed=n, multithread=n + 1)]
    differences = [row.difference for row in compare(runs, by=["option"]).rows[1:]]
    confidences = [each.interval.confidence for each in differences if each and each.interval]
    assert confidences == pytest.approx([1 - 0.05 / 3] * 3)


def test_runs_that_do_not_say_when_they_began_were_not_in_turns() -> None:
    runs = make_runs(3, 0.010, seed=1) + make_runs(3, 0.011, seed=2, fast_run=True)
    table = compare([replace(run, started_at="") for run in runs], by=["option"])
    assert any("were not made in turns" in it for it in warnings_of(table))
    assert not any("in turns" in it for it in warnings_of(compare(runs, by=["option"])))


def test_a_row_without_a_twin_has_no_baseline() -> None:
    results = [*results_of_two_machines(), make_result(TIMES, processor="y", multithread=4)]
    table = compare(results, baseline="machine=x, 2 of 4 cores, 8 GiB")
    assert (table.rows[-1].baseline, table.rows[-1].ratio) == ("", None)


def test_baselines_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="--baseline: row 9: names no row") as error:
        compare(results_of_two_machines(), baseline="row 9")
    assert "give one of: r0, r1" in error.value.hint
    twice = [
        make_result(TIMES),
        make_result(TIMES, fast_run=True),
        make_result(TIMES, fast_run=True),
    ]
    refused("names no row", compare, twice, baseline="multithread=yes")
    refused("stands for 2 rows", compare, twice, baseline="fast-run")


def test_by_takes_flags_and_refuses_what_is_no_fact() -> None:
    results = [make_result(TIMES, multithread=1), make_result(TIMES, multithread=2)]
    assert len(compare(results, by=["multithread"]).rows) == 2
    assert len(compare(results, by=["--multithread", "model"]).rows) == 2
    error = refused("--by: machin: is neither an option", compare, results, by=["machin"])
    assert error.hint.startswith("did you mean machine?")


def test_times_of_zero_have_no_ratio() -> None:
    table = compare([make_result(TIMES), make_result([0.0] * 20)])
    assert (table.rows[1].median, table.rows[1].ratio) == (None, None)


def calls_of(function: Callable[[], object]) -> int:
    """How many calls of functions it makes."""
    counts = dict.fromkeys(("call", "c_call"), 0)

    def count(frame: object, event: str, argument: object) -> None:
        if event in counts:
            counts[event] += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(counts.values())


def test_ten_times_as_many_results_are_ten_times_the_work() -> None:
    runs = [make_result(TIMES, multithread=number) for number in range(500)]
    for run in runs:
        object.__setattr__(run, "summary", summarize(run))
    few, many = (name(*runs[:count]) for count in (50, 500))
    tables = [compare_results(each) for each in (few, many)]  # what is made once is made
    assert calls_of(lambda: compare_results(many)) < 11 * calls_of(lambda: compare_results(few))
    works = [calls_of(partial(text_of, table)) for table in tables]
    assert works[1] < 11 * works[0]


def text_of(table: SideBySide) -> str:
    return report_results(table).text


def test_the_paths_of_many_files_are_shortened_by_few_calls() -> None:
    few, many = ([f"folder{number}/run.json" for number in range(n)] for n in (50, 500))
    shorten(few)
    assert calls_of(lambda: shorten(many)) < 11 * calls_of(lambda: shorten(few))
    few, many = (["a"] * n for n in (50, 500))
    assert calls_of(lambda: distinguish(many)) < 11 * calls_of(lambda: distinguish(few))


def on_one_thread(
    latency: float, cpu_time: float, *, disturbed: bool = False, **options: Any
) -> RunResult:
    """A run on one thread; a disturbed one waited for a CPU in each iteration."""
    delay = latency - cpu_time if disturbed else 0.0
    result = make_result([latency] * 40, queue_delay=[delay] * 40, **options)
    samples = replace(result.samples, busiest_thread=(cpu_time,) * 40)
    return replace(result, samples=samples, engine=replace(known(result.engine), threads=1))


def test_a_column_is_one_figure() -> None:
    """One run's summary trusts its CPU time, the other's its latency."""
    busy = on_one_thread(0.017, 0.0068, disturbed=True)
    table = compare([busy, on_one_thread(0.010, 0.0098, multithread=1)])
    assert table.figure == "CPU time"
    assert [row.median for row in table.rows] == [0.0068, 0.0098]
    assert table.rows[1].ratio == pytest.approx(0.0098 / 0.0068)
    for row in table.rows:
        assert row.minimum == row.median
        assert row.middle(lambda run: run.iterations_per_second) == pytest.approx(
            1 / (row.median or 0)
        )
    assert "CPU time median ms" in report_results(table).text


def test_what_has_no_figure_of_the_table_is_not_judged() -> None:
    busy = on_one_thread(0.017, 0.0068, disturbed=True)
    table = compare([busy, make_result([0.010] * 40, multithread=1)])
    assert table.figure == "latency"
    assert [row.median for row in table.rows] == [0.017, 0.010]
    assert table.rows[1].difference is None
    assert "not judged (too few iterations were undisturbed)" in report_results(table).text
