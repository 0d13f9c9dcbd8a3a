"""The diff of two runs in the tensorboard style."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import Profile
from lar.reports.csv import format_csv
from lar.reports.styles.tensorboard import LINES, VIEWS, build
from tests.profiles.synthetic import profile_of_times

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
FIRST = [{"conv1": 300, "conv2": 500, "relu": 8}] * 2
SECOND = [{"conv1": 200, "conv2": 400, "relu": 9}] * 2
DEVICE: dict[str, Any] = {"device": "cuda0", "dispatch_us": 5}


def run_of(
    times: Sequence[Mapping[str, int]] = FIRST, types: Mapping[str, str] = TYPES, **fields: Any
) -> Profile:
    return profile_of_times(types, times, **{"step_us": 1000, **fields})


def diff_of(baseline: Profile, experiment: Profile, **options: Any) -> Any:
    return build(experiment, {"view": ["diff"], **options}, baseline).document["diff"]


def rows_of(view: Any) -> dict[str, dict[str, Any]]:
    names = [column["name"] for column in view["table"]["columns"]]
    return {row[0]: dict(zip(names, row, strict=True)) for row in view["table"]["rows"]}


def test_the_columns_are_those_of_the_plugins_page() -> None:
    view = diff_of(run_of(**DEVICE), run_of(SECOND, **DEVICE))
    expected = ["Operator", "Baseline Calls", "Exp Calls", "Delta Calls", "Delta Calls%"]
    for title in ("Host", "Self Host", "Device", "Self Device"):
        expected += [f"{side} {title} Duration (us)" for side in ("Baseline", "Exp", "Delta")]
        expected.append(f"Delta {title} Duration%")
    assert [column["name"] for column in view["table"]["columns"]] == expected


def test_percentages_have_two_digits() -> None:
    rows = rows_of(diff_of(run_of(), run_of(SECOND)))
    row = rows["Convolution"]
    assert [row[f"{side} Host Duration (us)"] for side in ("Baseline", "Exp", "Delta")] == [
        1600,
        1200,
        -400,
    ]
    assert (row["Delta Host Duration%"], row["Delta Calls%"]) == ("-25.00%", "0.00%")
    assert rows["Elemwise"]["Delta Self Host Duration%"] == "12.50%"


def test_an_operator_of_one_run_took_nothing_in_the_other() -> None:
    types = {"conv1": "Convolution", "new": "Softmax"}
    view = diff_of(run_of(), run_of([{"conv1": 300, "new": 7}], types))
    rows = rows_of(view)
    softmax, elemwise = rows["Softmax"], rows["Elemwise"]
    assert (softmax["Baseline Calls"], softmax["Exp Calls"]) == (0, 1)
    assert (softmax["Delta Host Duration (us)"], softmax["Delta Host Duration%"]) == (
        7,
        "Infinity%",
    )
    assert (elemwise["Exp Host Duration (us)"], elemwise["Delta Host Duration%"]) == (0, "-100.00%")
    assert [each["name"] for each in view["left"]["aggs"]] == ["Convolution", "Elemwise"]
    assert [each["name"] for each in view["right"]["aggs"]] == ["Convolution", "Softmax"]


def test_nothing_of_nothing_is_no_percentage() -> None:
    none = run_of([{"conv1": 0, "conv2": 0, "relu": 0}])
    assert rows_of(diff_of(none, none))["Elemwise"]["Delta Host Duration%"] == "N/A"


def test_a_cpu_has_no_columns_of_a_device() -> None:
    view = diff_of(run_of(), run_of(SECOND))
    assert not any("Device" in column["name"] for column in view["table"]["columns"])
    assert view["left"]["device_duration"] is None
    assert {each["device_duration"] for each in view["right"]["aggs"]} == {None}


def test_of_a_cpu_against_a_device_half_is_known() -> None:
    row = rows_of(diff_of(run_of(), run_of(SECOND, **DEVICE)))["Convolution"]
    names = [f"{side} Device Duration (us)" for side in ("Baseline", "Exp", "Delta")]
    assert [row[name] for name in names] == [None, 1200, None]
    assert row["Delta Device Duration%"] == "N/A"


def test_the_sides_are_the_sums_of_their_operators() -> None:
    view = diff_of(run_of(**DEVICE), run_of(SECOND, **DEVICE))
    for side, self_ns in (("left", 1616), ("right", 1218)):
        node = view[side]
        assert node["device_duration"] == self_ns == node["total_duration"]
        assert sum(each["self_device_duration"] for each in node["aggs"]) == self_ns
        assert node["duration"] == sum(each["host_duration"] for each in node["aggs"]) == 30
    assert (view["path"], view["children"]) == ("0", [])


def test_what_the_filter_leaves_out_is_in_no_sum() -> None:
    view = diff_of(run_of(), run_of(SECOND), filter="^relu$")
    assert list(rows_of(view)) == ["Elemwise"]
    assert (view["left"]["duration"], view["right"]["duration"]) == (16, 18)
    nothing = diff_of(run_of(), run_of(), filter="nothing")
    assert nothing["left"] == {
        "name": "Blank",
        "duration": 0,
        "device_duration": None,
        "total_duration": 0,
        "aggs": [],
    }
    assert nothing["table"]["rows"] == []


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["Convolution", "Elemwise"]),
        ({"sort": "+host_total_duration"}, ["Elemwise", "Convolution"]),
        ({"sort": "-name"}, ["Elemwise", "Convolution"]),
        ({"top": 1}, ["Convolution"]),
        ({"group_by": "name"}, ["conv2", "conv1", "relu"]),
        (
            {"group_by": "input_shape"},
            ["Convolution [[1, 4, 4, 4]]", "Elemwise [[1, 4, 4, 4]]"],
        ),
    ],
)
def test_options(options: dict[str, Any], names: list[str]) -> None:
    view = diff_of(run_of(), run_of(SECOND), **options)
    assert list(rows_of(view)) == names
    assert {each["name"] for each in view["left"]["aggs"]} == set(names)


def test_a_cpu_is_not_sorted_by_a_device() -> None:
    with pytest.raises(UsageError, match="device_self_duration: this profile is of a CPU"):
        diff_of(run_of(**DEVICE), run_of(), sort="device_self_duration")


def test_the_other_views_are_those_of_the_second_profile() -> None:
    one, two = run_of(), run_of(SECOND)
    document = build(two, {}, one).document
    assert list(document) == list(VIEWS)
    alone = build(two, {})
    others = {name: view for name, view in document.items() if name != "diff"}
    traces = [each.pop("trace").encode() for each in (others, alone.document)]
    assert others == alone.document
    assert traces[0] == traces[1]
    lines = build(two, {}, one).text.splitlines()
    assert lines[:-1] == alone.text.splitlines()
    assert json.loads(lines[-1]) == json.loads(json.dumps(document["diff"]))
    assert len(lines) == len(LINES) + 1


def test_the_table_says_of_how_many_iterations_its_sums_are() -> None:
    report = build(run_of(SECOND), {"view": ["diff"]}, run_of([*FIRST, *FIRST], warmup=1))
    (table,) = report.tables
    assert table.notes == (
        "sums of all timed iterations: 3 of the baseline, 2 of exp",
        "runs of different length: --style diff compares means of an iteration",
    )
    rows = list(csv.DictReader(io.StringIO(format_csv(report))))
    assert [row["Baseline Host Duration (us)"] for row in rows] == ["2400", "24"]


@pytest.mark.parametrize("nothing", [0, 1])
def test_without_timed_iterations_there_is_nothing_to_compare(nothing: int) -> None:
    runs = [run_of(), run_of()]
    runs[nothing] = run_of(warmup=2)
    with pytest.raises(UsageError, match=f"the {('first', 'second')[nothing]} profile has no"):
        diff_of(*runs)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    write_profile(run_of(), paths[0])
    write_profile(run_of(SECOND), paths[1])
    words = ["report", *map(str, paths), "--style", "tensorboard", "--view", "diff"]
    assert main(words) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["right"]["duration"] - view["left"]["duration"] == -398
    assert main([*words[:1], *words[2:]]) == 2
    assert capsys.readouterr().err == (
        "lar: error: --view diff: compares two profiles\nhint: give its baseline before it\n"
    )
