"""Two runs joined on their operators, and what pairs of runs show of each."""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.activities import host_activities_of
from lar.profiles.run_differences import METRICS, Diff, DiffRow, Metric, are_apart, diff_of
from lar.profiles.trace_file import write_profile
from lar.records.profile import ModelFacts, Profile, StepNoise, TensorFact
from lar.reports.csv import format_csv
from lar.reports.report import Report
from lar.reports.styles import STYLES
from lar.reports.styles.diff import build, metric_columns
from lar.reports.text import Screen
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import execution_of, profile_of, step_of

TYPES = {"a": "Conv", "b": "Pool", "c": "Relu"}
FIRST = [{"a": 60, "b": 20, "c": 3}, {"a": 62, "b": 24, "c": 3}, {"a": 64, "b": 22, "c": 3}]
SECOND = [{"a": 40, "b": 23, "c": 4}, {"a": 42, "b": 21, "c": 4}]


def run_of(types: Mapping[str, str], times: Sequence[Mapping[str, int]], **fields: Any) -> Profile:
    """A run of those operators, of which others may have times that do not matter."""
    own = [{name: us for name, us in each.items() if name in types} for each in times]
    return profile_of_times(types, own, **{"step_us": 100, **fields})


def rows_of(diff: Diff) -> dict[str, DiffRow]:
    return {row.name: row for row in diff.rows}


def figures_of(row: DiffRow, metric: Any = "host") -> tuple[float, float]:
    difference = row.values[metric]
    assert difference is not None
    return difference.baseline / 1000, difference.experiment / 1000


def table_of(baseline: Profile, experiment: Profile, **options: Any) -> list[dict[str, str]]:
    text = format_csv(build(experiment, options, baseline)).split("\n\n")[0]
    return list(csv.DictReader(io.StringIO(text.split("\n", 1)[1])))


# Joining.


def test_operators_are_joined_on_their_names_and_compared_by_iteration() -> None:
    rows = rows_of(diff_of(run_of(TYPES, FIRST), run_of(TYPES, SECOND)))
    assert [row.side for row in rows.values()] == ["both"] * 3
    assert figures_of(rows["a"]) == (62, 41)
    assert figures_of(rows["c"]) == (3, 4)
    calls = rows["a"].values["calls"]
    assert calls is not None
    assert (calls.baseline, calls.experiment) == (1, 1)


def test_operators_of_other_names_are_not_joined_without_a_graph() -> None:
    one = run_of({"x": "Conv", "y": "Conv", "z": "Conv"}, [{"x": 1, "y": 2, "z": 3}] * 2)
    two = run_of({"p": "Conv", "y": "Conv", "q": "Pool"}, [{"p": 7, "y": 8, "q": 9}] * 2)
    rows = rows_of(diff_of(one, two))
    assert list(rows) == ["x", "y", "z", "p", "q"]
    assert (rows["x"].side, rows["p"].side) == ("baseline", "experiment")
    assert figures_of(rows["x"]) == (1, 0)
    assert figures_of(rows["y"]) == (2, 8)
    assert (rows["z"].side, rows["q"].side) == ("baseline", "experiment")
    assert figures_of(rows["z"]) == (3, 0)
    assert figures_of(rows["q"]) == (0, 9)


def test_types_are_sums_of_their_operators() -> None:
    one = run_of({"x": "Conv", "y": "Conv"}, [{"x": 1, "y": 2}] * 2)
    two = run_of({"p": "Conv", "q": "Pool"}, [{"p": 7, "q": 9}] * 2)
    rows = rows_of(diff_of(one, two, "type"))
    assert figures_of(rows["Conv"]) == (3, 7)
    assert figures_of(rows["Pool"]) == (0, 9)
    calls = rows["Conv"].values["calls"]
    assert calls is not None
    assert (calls.baseline, calls.experiment) == (2, 1)


def test_the_total_is_that_of_all_rows() -> None:
    diff = diff_of(run_of(TYPES, FIRST), run_of({"a": "Conv", "d": "Softmax"}, [{"a": 5, "d": 6}]))
    for metric in ("calls", "host", "self_host"):
        for side in (0, 1):
            total = figures_of(diff.total, metric)[side]
            assert total == pytest.approx(sum(figures_of(r, metric)[side] for r in diff.rows))


def test_operators_that_never_ran_are_left_out() -> None:
    one = run_of(TYPES, [{"a": 1, "b": 2}] * 2)
    assert list(rows_of(diff_of(one, one))) == ["a", "b"]


def test_warmup_is_left_out() -> None:
    slow = run_of(TYPES, [{"a": 90}, {"a": 10}, {"a": 12}], warmup=1)
    assert figures_of(rows_of(diff_of(slow, slow))["a"]) == (11, 11)


def test_self_time_leaves_out_what_other_operators_took_within() -> None:
    run = profile_of(
        [operator_of("loop", "Loop"), operator_of("conv", "Conv")],
        [step_of(0, 0, 100)],
        [execution_of(0, 5, 90, dispatch=(0, 95)), execution_of(1, 10, 30)],
    )
    rows = rows_of(diff_of(run, run))
    assert figures_of(rows["loop"], "host") == (95, 95)
    assert figures_of(rows["loop"], "self_host") == (75, 75)
    assert figures_of(rows["conv"], "self_host") == (20, 20)


TIMES = st.integers(0, 60)
RUNS = st.lists(
    st.tuples(TIMES, TIMES, st.none() | st.tuples(TIMES, TIMES), st.sampled_from([1, 2])),
    max_size=5,
)


@given(RUNS, st.sampled_from(["cpu", "cuda0"]))
def test_what_is_apart_needs_no_look_at_what_nests(runs: list[Any], device: str) -> None:
    executions = [
        execution_of(
            place,
            *sorted((start, end)),
            thread=thread,
            dispatch=None if dispatch is None else (min(dispatch), max(dispatch)),
        )
        for place, (start, end, dispatch, thread) in enumerate(runs)
    ]
    operators = [operator_of(f"conv{place}", "Conv") for place in range(len(runs))]
    run = profile_of(operators, [step_of(0, 0, 60)], executions, device=device)
    if are_apart(run):
        activities = host_activities_of(run)
        around = [activities[each.parent] for each in activities if each.parent >= 0]
        within = [each for each in activities if each.parent >= 0]
        assert [each.operator for each in within] == [each.operator for each in around]


# Verdicts.


def many_operators(slower: Sequence[str] = (), factor: float = 1.0) -> Profile:
    """A run of twenty operators, of which some take twice as long, and all that factor."""
    types = {f"op{number}": "Conv" for number in range(20)}
    times = [
        {
            name: round((100 + number + step % 3) * factor * (1 + (name in slower)))
            for number, name in enumerate(types)
        }
        for step in range(12)
    ]
    return run_of(types, times, step_us=10_000)


def few_operators(factor: float, slower: float = 1.0) -> Profile:
    """A run of three operators, in a process that takes that many times as long as others."""
    names = {"a": 60.0 * slower, "b": 20.0, "c": 6.0}
    times = [
        {name: round(us * factor) + step % 2 for name, us in names.items()} for step in range(8)
    ]
    return run_of(TYPES, times, step_us=1000)


def shown_in(diff: Diff) -> dict[str, str]:
    """The verdicts on operators that are shown to differ."""
    found = {row.name: row.values["host"] for row in diff.rows}
    return {
        name: change.verdict
        for name, change in found.items()
        if change and change.difference and change.difference.is_shown
    }


IN_TURNS = ((1, 1.1), (1.1, 1), (1, 1.1), (1.1, 1.05))


def diff_of_pairs(slower: float, factors: Sequence[tuple[float, float]] = IN_TURNS) -> Diff:
    pairs = [(few_operators(one), few_operators(two, slower)) for one, two in factors]
    return diff_of(*pairs[0], more=pairs[1:])


def test_one_pair_of_runs_is_not_judged() -> None:
    diff = diff_of(many_operators(), many_operators(["op7"]))
    changes = [row.values["host"] for row in diff.rows] + [diff.iteration]
    assert {change.verdict for change in changes if change} == {"not judged"}
    report = build(many_operators(["op7"]), {}, many_operators())
    assert "not judged (1 pair of processes, and 3 are needed)" in report.text
    assert "Verdict" not in report.text
    assert {row[-1] for row in report.tables[0].records} == {None}


def test_pairs_of_runs_are_compared() -> None:
    assert shown_in(diff_of_pairs(8)) == {"a": "slower"}
    assert shown_in(diff_of_pairs(1)) == {}
    assert shown_in(diff_of_pairs(8, IN_TURNS[:2])) == {}
    assert diff_of_pairs(1).iteration.verdict == "no difference shown"


def test_operators_show_together_by_how_much_one_may_differ() -> None:
    """Of three pairs alone an operator shows a difference by a half at best."""
    source = random.Random(1)
    names = [f"op{number}" for number in range(20)]

    def run(slower: float) -> Profile:
        noise = {name: 1 + source.gauss(0, 0.02) for name in names}
        factor = {**noise, "op7": slower * noise["op7"]}
        times = [
            {name: round(1000 * factor[name] * (1 + source.gauss(0, 0.02))) for name in names}
            for _ in range(9)
        ]
        return run_of(dict.fromkeys(names, "Conv"), times, step_us=50_000)

    pairs = [(run(1), run(1.2)) for _ in range(3)]
    assert shown_in(diff_of(*pairs[0], more=pairs[1:])) == {"op7": "slower"}


def test_the_same_run_twice_differs_nowhere() -> None:
    run = run_of(TYPES, FIRST)
    diff = diff_of(run, run, more=[(run, run)] * 2)
    for row in (*diff.rows, diff.total):
        assert {change.delta for change in row.values.values() if change} == {0}
    assert shown_in(diff) == {}


# The report.


def test_the_text() -> None:
    one, two = (
        run_of({"a": "Conv", "x": "Relu"}, [{"a": 60, "x": 5}] * 2),
        run_of({"a": "Conv"}, [{"a": 45}] * 3, step_us=80),
    )
    lines = [line.rstrip() for line in build(two, {}, one).text.splitlines()]
    assert lines[2].endswith(
        "-20.000 us (-20.00%); not judged (1 pair of processes, and 3 are needed)"
    )
    lines = [line[:80].rstrip() for line in lines]
    assert lines[:11] == [
        "baseline -> exp",
        "  iterations: 2 -> 3",
        "iteration: 100.000 -> 80.000 us, -20.000 us (-20.00%); not judged (1 pair of pro",
        "",
        "                         Calls                        Host Duration (us)",
        "Operator     Baseline  Exp  Delta    Delta%  Baseline     Exp    Delta    Delta%",
        "-" * 80,
        "a                   1    1      0     0.00%    60.000  45.000  -15.000   -25.00%",
        "x (removed)         1    0     -1  -100.00%     5.000   0.000   -5.000  -100.00%",
        "-" * 80,
        "Total               2    1     -1   -50.00%    65.000  45.000  -20.000   -30.77%",
    ]


def test_text_of_any_width_has_all_figures_of_either_run() -> None:
    times = [{"a": 60}, {"a": 50}, *[{"a": 40}] * 8]
    text = build(run_of({"a": "Conv"}, times), {}, run_of({"a": "Conv"}, [{"a": 30}] * 2)).text
    row = next(line for line in text.splitlines() if line.startswith("a "))
    # p90, mean, min, max and sum of iterations: two are too few for a p90.
    assert row.split()[-10:] == [
        *("N/A", "30.000", "30.000", "30.000", "60.000"),
        *("51.000", "43.000", "40.000", "60.000", "430.000"),
    ]


def test_a_narrow_screen_names_the_figures_that_it_leaves_out() -> None:
    lines = build(run_of(TYPES, FIRST), {}, run_of(TYPES, FIRST)).lines_for(Screen(80))
    left_out = " ".join(lines).partition("(too narrow to show: ")[2].partition(")")[0]
    assert {"Baseline P90", "Exp P90", "Exp Total"} <= {*left_out.split(", ")}
    assert any("Baseline" in line and "Delta%" in line for line in lines)


def waiting(profile: Profile, disturbed: range) -> Profile:
    """The run, of which other work disturbed those iterations."""
    noise = tuple(
        StepNoise(it.number, 0, ("queue delay",) * (it.number in disturbed))
        for it in profile.timed_steps()
    )
    return replace(profile, facts=structs.replace(profile.facts, noise=noise))


@pytest.mark.parametrize(
    ("count", "baseline_us", "words"),
    [
        (0, 145, ""),
        (4, 150, "medians of the undisturbed iterations: 6 of 10 -> 10 of 10"),
        (5, 145, "medians of all iterations, since too few were undisturbed: 5 of 10 -> 10 of 10"),
    ],
)
def test_iterations_are_compared_by_those_that_nothing_disturbed(
    count: int, baseline_us: int, words: str
) -> None:
    one, two = (run_of({"a": "Conv"}, [{"a": 20}] * 10, step_us=us) for us in (100, 200))
    steps = tuple(
        structs.replace(step, end_ns=step.start_ns + 100_000 + 10_000 * min(place, 5))
        for place, step in enumerate(one.steps)
    )
    one = waiting(replace(one, steps=steps), range(count))
    report = build(waiting(two, range(0)), {}, one)
    line, after = report.text.partition("iteration: ")[2].split("\n")[:2]
    assert after.strip() == words
    found = report.tables[1].records[0]
    assert found[-1] == ("undisturbed" if "of the undisturbed" in words else "all")
    assert line.startswith(f"{baseline_us}.000 -> 200.000 us")


def test_what_is_new_has_no_percentage() -> None:
    rows = table_of(run_of({"a": "Conv"}, FIRST), run_of(TYPES, SECOND))
    new = next(row for row in rows if row["Operator"] == "c")
    assert (new["In"], new["Delta Host Duration%"], new["Baseline Calls"]) == (
        "added",
        "",
        "0.0",
    )


def test_a_cpu_has_no_durations_of_a_device() -> None:
    run = run_of(TYPES, FIRST)
    assert {row["Baseline Device Duration (us)"] for row in table_of(run, run)} == {""}
    assert "N/A" in build(run, {"view": ["device"]}, run).text


def test_on_devices_the_devices_durations_matter() -> None:
    one = run_of(TYPES, FIRST, device="cuda0", dispatch_us=5)
    two = run_of(TYPES, SECOND, device="cuda0", dispatch_us=5)
    report = build(two, {}, one)
    assert "Device Duration (us)" in report.text
    assert "Host Duration" not in report.text
    rows = {row["Operator"]: row for row in table_of(one, two)}
    assert (rows["a"]["Baseline Device Duration (us)"], rows["a"]["Exp Host Duration (us)"]) == (
        "62.0",
        "5.0",
    )


def test_a_cpu_against_a_device_says_what_is_compared() -> None:
    one, two = run_of(TYPES, FIRST), run_of(TYPES, SECOND, device="cuda0", dispatch_us=5)
    report = build(two, {}, one)
    assert "Host Duration (us)" in report.text
    assert "one run was on a device and the other was not" in report.text


@pytest.mark.parametrize("nothing", [0, 1])
def test_without_timed_iterations_there_is_nothing_to_compare(nothing: int) -> None:
    runs = [run_of(TYPES, FIRST), run_of(TYPES, FIRST)]
    runs[nothing] = run_of(TYPES, FIRST, warmup=3)
    with pytest.raises(UsageError, match=f"the {('first', 'second')[nothing]} profile has no"):
        build(runs[1], {}, runs[0])


# The options.


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (None, "abc"),
        ("delta", "abc"),
        ("+delta", "cba"),
        ("percent", "acb"),
        ("baseline", "abc"),
        ("+exp", "cba"),
        ("name", "abc"),
        ("-name", "cba"),
    ],
)
def test_sort(sort: str | None, order: str) -> None:
    # Differences of 21, 2 and 1 microseconds; 34, 9 and 33 percent.
    two = [{"a": 41, "b": 24, "c": 4}] * 2
    options = {} if sort is None else {"sort": sort}
    rows = table_of(run_of(TYPES, FIRST), run_of(TYPES, two), **options)
    assert "".join(row["Operator"] for row in rows[:-1]) == order


def test_every_key_of_the_styles_row_is_honoured() -> None:
    style, run = STYLES["diff"], run_of(TYPES, FIRST)
    assert style.views == METRICS
    for sort in style.sorts:
        assert len(table_of(run, run, sort=sort)) == 4
    for group in style.groups:
        assert len(table_of(run, run, group_by=group)) == (2 if group == "module" else 4)


def test_top_cuts_rows_but_not_the_total() -> None:
    one, two = run_of(TYPES, FIRST), run_of(TYPES, SECOND)
    rows = table_of(one, two, top=1)
    assert [row["Operator"] for row in rows] == ["a", "Total"]
    assert rows[-1] == table_of(one, two)[-1]


def test_filter_takes_names_and_types() -> None:
    run = run_of(TYPES, FIRST)
    assert [row["Operator"] for row in table_of(run, run, filter="^a$|Pool")] == ["a", "b", "Total"]
    none = table_of(run, run, filter="nothing")
    assert [row["Operator"] for row in none] == ["Total"]


def test_view_and_time_unit() -> None:
    run = run_of(TYPES, FIRST)
    text = build(run, {"view": ["self_host"], "time_unit": "ms"}, run).text
    assert "Self Host Duration (ms)" in text
    assert "Calls" not in text
    assert text.splitlines()[7].split()[:3] == ["a", "0.062", "0.062"]
    assert table_of(run, run, time_unit="ns")[0]["Baseline Host Duration (ns)"] == "62000.0"


def test_times_of_the_iteration_have_six_decimals() -> None:
    one, other = (
        profile_of([operator_of("a", "Conv")], [step_of(0, 0, 100), step_of(1, 200, end)])
        for end in (300, 305)
    )
    (row,) = build(other, {"time_unit": "s"}, one).tables[1].records
    assert row[:4] == (0.0001, 0.000102, 0.000003, 2.5)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    write_profile(run_of(TYPES, FIRST), paths[0])
    write_profile(run_of(TYPES, SECOND), paths[1])
    words = ["report", *map(str, paths)]
    assert main([*words, "--top", "1", "--group-by", "type"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("baseline -> exp\n  iterations: 3 -> 2\n")
    assert "\nConv " in out
    assert main([*words, "--json", "-"]) == 0
    assert '"added"' not in capsys.readouterr().out
    assert main([*words, "--sort", "size"]) == 2
    assert "it sorts by delta, percent" in capsys.readouterr().err


@pytest.mark.parametrize("metric", METRICS)
def test_on_a_narrow_screen_the_two_figures_go_together_before_their_difference(
    metric: Metric,
) -> None:
    baseline, experiment, delta, percent = (column.rank for column in metric_columns(metric, "us"))
    assert baseline == experiment > max(delta, percent)
    calls = [column.rank for column in metric_columns("calls", "us")]
    assert metric == "calls" or min(calls) > max(baseline, delta)  # calls go first


def test_more_pairs_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = []
    for number in range(3):
        for side, profile in (("a", many_operators()), ("b", many_operators(["op7"], 1.5))):
            places.append(str(tmp_path / f"{side}{number}.json"))
            write_profile(profile, places[-1])
    assert main(["report", *places, "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert "times are medians of 3 runs of each command, made in turns" in out
    assert re.search(r"\nop7 .* slower ", out)
    assert "\n1 of 20 operators are shown to differ in host duration" in out
    assert main(["report", *places[:5]]) == 2
    assert f"{places[4]}: has no partner" in capsys.readouterr().err
    other = str(tmp_path / "other.json")
    write_profile(run_of(TYPES, FIRST, device="cuda0", dispatch_us=5), other)
    assert main(["report", *places[:2], other, other]) == 2
    assert "is of another command than the first of its side" in capsys.readouterr().err


@pytest.mark.parametrize(("other", "is_said"), [("b", True), ("a", False)])
def test_profiles_of_two_model_files_are_said_to_be_so(other: str, is_said: bool) -> None:
    one, two = run_of(TYPES, FIRST), run_of(TYPES, SECOND)
    one, two = (
        replace(it, facts=structs.replace(it.facts, model=ModelFacts("m.mge", sha256, "mge")))
        for it, sha256 in ((one, "a"), (two, other))
    )
    assert ("the model files differ" in build(two, {}, one).text) == is_said


def with_graph(profile: Profile, scale: int = 1, **facts: Any) -> Profile:
    """A profile whose operators read each other, in tensors of so many items."""
    operators, given = [], "data"
    for each in profile.operators:
        fact = TensorFact((scale, 16, 8, 8), "float32")
        operators.append(
            structs.replace(
                each,
                reads=(given,),
                writes=(each.name,),
                inputs=(fact,),
                outputs=(fact,),
                flops=scale * 1000 * len(profile.operators) ** 2,
            )
        )
        given = each.name
    return replace(
        profile, operators=tuple(operators), facts=structs.replace(profile.facts, **facts)
    )


def judgements_of(report: Report) -> set[object]:
    return {
        row[place]
        for table in report.tables[:2]
        for place, column in enumerate(table.columns)
        if column.title == "Verdict"
        for row in [[each.value(row) for each in table.columns] for row in table.rows]
    }


def test_two_models_are_said_to_be_so_first_and_nothing_is_judged() -> None:
    one = with_graph(run_of({"a": "Conv"}, [{"a": 60}] * 6), model=ModelFacts("m.mge", "a", "mge"))
    two = with_graph(many_operators(), model=ModelFacts("n.mge", "b", "mge"))
    report = build(two, {}, one)
    assert report.text.startswith(
        "these look like two different models: 0% of the time is in operators that do the same "
        "work in both, and nothing is judged\n"
    )
    assert judgements_of(report) == {"not judged"}
    assert "the model files differ" not in report.text
    assert "a (removed)" in report.text


def test_two_batches_stand_side_by_side_and_nothing_is_judged() -> None:
    one = with_graph(many_operators(), 2, batch=2)
    two = with_graph(many_operators(factor=3), 8, batch=8)
    report = build(two, {}, one)
    assert report.text.startswith(
        "one run has a batch of 2 and the other of 8: times of whole iterations stand side by "
        "side, and nothing is judged; an item takes 5000.000 -> 1250.000 us\n"
    )
    assert "(added)" not in report.text
    assert judgements_of(report) == {"not judged"}
    assert "look like two" not in report.text
