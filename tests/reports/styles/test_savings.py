"""What an operator could save, in every style that lists operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.errors import UsageError
from lar.profiles.costs import correct
from lar.profiles.roofline import savings_of
from lar.records.profile import Cost, Profile
from lar.reports.model import AnyTable
from lar.reports.report import Report
from lar.reports.styles import STYLES
from tests.profiles.figures import paddle_figures, torch_figures
from tests.profiles.layers import PEAK, profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times

# Of each style the options that give a row to each operator, and the columns of name and saving.
STYLES_OF_OPERATORS: Mapping[str, tuple[dict[str, Any], str, str, float]] = {
    "megengine": ({"top": 99}, "name", "could_save_seconds", 1e9),
    "torch": ({"group_by": "instance", "time_unit": "ns"}, "Name", "Could save (ns)", 1),
    "paddle": (
        {"group_by": "name", "view": ["operator"], "time_unit": "ns"},
        *("Name", "Could Save (ns)", 1),
    ),
}


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of_layers(layers=3, iterations=4)


def report_of(profile: Profile, style: str, **options: Any) -> Report:
    return STYLES[style].build(profile, {**STYLES_OF_OPERATORS[style][0], **options})


def table_of(report: Report, column: str) -> AnyTable:
    return next(table for table in report.tables if column in table.headings)


def savings_in(profile: Profile, style: str, **options: Any) -> dict[str, float]:
    """The nanoseconds that the operators of a report save, in its order, without unknown ones."""
    _, name, saving, unit = STYLES_OF_OPERATORS[style]
    table = table_of(report_of(profile, style, **options), saving)
    names, savings = (table.headings.index(each) for each in (name, saving))
    return {
        str(row[names]): float(row[savings] or 0) * unit
        for row in table.records
        if row[savings] is not None
    }


@pytest.mark.parametrize("style", STYLES_OF_OPERATORS)
def test_every_style_has_the_same_savings(profile: Profile, style: str) -> None:
    expected = {profile.operators[place].name: ns for place, ns in savings_of(profile).items()}
    assert len(expected) == 9  # the work of relayouts is not known
    assert savings_in(profile, style) == pytest.approx(expected)


@pytest.mark.parametrize("style", STYLES_OF_OPERATORS)
def test_operators_are_sorted_by_what_they_save(profile: Profile, style: str) -> None:
    largest = [*savings_in(profile, style, sort="saving").values()]
    assert largest == sorted(largest, reverse=True)
    smallest = [*savings_in(profile, style, sort="+saving").values()]
    assert smallest == sorted(smallest)
    text = report_of(profile, style, sort="saving").text
    assert "could save" in text.lower()
    assert "of an iteration" in text or "of one iteration" in text


@pytest.mark.parametrize("style", ["torch", "paddle"])
def test_a_table_of_another_tool_has_the_column_only_where_it_is_asked_for(
    profile: Profile, style: str
) -> None:
    assert "could save" not in report_of(profile, style).text.lower()


@pytest.mark.parametrize("style", STYLES_OF_OPERATORS)
def test_types_save_what_their_operators_save(profile: Profile, style: str) -> None:
    options: dict[str, Any] = {"group_by": "type" if style == "paddle" else "name"}
    if style == "megengine":
        options = {"aggregate_by": "type", "aggregate": "sum"}
    _, _, saving, unit = STYLES_OF_OPERATORS[style]
    table = table_of(report_of(profile, style, **options), saving)
    at = table.headings.index(saving)
    total = sum(float(row[at] or 0) * unit for row in table.records)
    assert total == pytest.approx(sum(savings_of(profile).values()))


def test_the_columns_of_ncu_agree_with_them(profile: Profile) -> None:
    report = STYLES["ncu"].build(profile, {"sort": "saving", "time_unit": "ns", "top": 99})
    rows = [row for row in report.document["rows"] if row["kind"] == "operator"]
    found = {
        row["name"]: row["metrics"]["cpu__roofline_saving.per_iteration"]["value"] for row in rows
    }
    known = {name: ns for name, ns in found.items() if ns is not None}
    expected = {profile.operators[place].name: ns for place, ns in savings_of(profile).items()}
    assert known == pytest.approx(expected, abs=1)
    assert [*known.values()] == sorted(known.values(), reverse=True)


@pytest.mark.parametrize("style", STYLES_OF_OPERATORS)
def test_without_a_peak_nothing_is_said_of_savings(profile: Profile, style: str) -> None:
    facts = msgspec.structs.replace(profile.facts, peak=None)
    unknown = replace(profile, facts=facts)
    assert savings_in(unknown, style) == {}
    assert "could save" not in report_of(unknown, style).text.lower()
    if style == "torch":
        with pytest.raises(UsageError, match="does not know this"):
            report_of(unknown, style, sort="saving")


@pytest.fixture(scope="module")
def estimated() -> Profile:
    """Estimates without what profiling cost, of 4.5 us, of nothing and of 2 us."""
    types = {"conv": "Conv", "relu": "Relu", "fc": "Gemm"}
    made = profile_of_times(types, [{"conv": 12, "relu": 3, "fc": 7}] * 4, step_us=28)
    facts = msgspec.structs.replace(made.facts, cost=Cost(27.5e-6, 8.125e-6, 4, 4), peak=PEAK)
    operators = (operator_of(*each, flops=2000, size_bytes=1000) for each in types.items())
    return correct(replace(made, facts=facts, operators=tuple(operators)))


@pytest.mark.parametrize("style", STYLES_OF_OPERATORS)
def test_what_an_estimate_near_the_clocks_step_saves_is_not_known(
    estimated: Profile, style: str
) -> None:
    assert [*savings_in(estimated, style)] == ["conv"]


def test_it_has_no_part_of_a_roof(estimated: Profile) -> None:
    document = STYLES["ncu"].build(estimated, {}).document
    rates = ("compute_throughput.pct_of_measured_peak", "flops.sum.per_second", "roofline_bound")
    for row in document["rows"]:
        known = [row["metrics"][f"cpu__{each}"]["value"] is not None for each in rates]
        assert known == [row["name"] == "conv"] * 3
    page = next(it for it in STYLES["html"].build(estimated, {}).tables if it.name == "operators")
    columns = (
        "name",
        "median (µs)",
        "could save (µs/iteration)",
        "of peak compute (%)",
        "bound by",
    )
    places = [page.headings.index(each) for each in columns]
    rows = {row[0]: [value is not None for value in row[1:]] for row in chosen(page, places)}
    assert rows == {"conv": [True] * 4, "relu": [False] * 4, "fc": [True, False, False, False]}
    speeds = table_of(report_of(estimated, "megengine"), "flo_per_second")
    places = [speeds.headings.index(each) for each in ("name", "flo_per_second")]
    assert [name for name, speed in chosen(speeds, places) if speed is not None] == ["conv"]


def chosen(table: AnyTable, places: list[int]) -> list[list[Any]]:
    """The values of some columns."""
    return [[row[place] for place in places] for row in table.records]


@pytest.mark.parametrize(
    ("style", "mark"), [("megengine", "<1e-06"), ("torch", "<1.000us"), ("ncu", "<1.00 us")]
)
def test_of_what_nothing_is_left_a_step_of_the_clock_is_printed(
    estimated: Profile, style: str, mark: str
) -> None:
    assert mark in STYLES[style].build(estimated, {}).text
    recorded = replace(estimated, correction=None)
    assert mark not in STYLES[style].build(recorded, {}).text


@pytest.mark.parametrize(
    ("style", "name", "figures"),
    [
        ("paddle", "Relu", ("CPU Avg (ms)", "CPU Min (ms)", "CPU Median (ms)")),
        ("tensorboard", "Relu", ("host_self_median_us", "host_self_min_us")),
    ],
)
def test_of_what_nothing_is_left_no_call_has_a_time_of_0(
    estimated: Profile, style: str, name: str, figures: tuple[str, ...]
) -> None:
    for profile, is_estimate in ((estimated, True), (replace(estimated, correction=None), False)):
        report = STYLES[style].build(profile, {})
        tables = [it for it in report.tables if {*figures} <= {*it.headings}]
        assert tables
        for table in tables:
            (row,) = (row for row in table.records if name in row)
            values = {row[table.headings.index(each)] for each in figures}
            assert (values == {None}) == is_estimate


@pytest.mark.parametrize("style", ["paddle", "torch"])
def test_it_counts_in_sums(estimated: Profile, style: str) -> None:
    """Operators have 22 of 27.5 us, and so 6.5 of 8.125."""
    told = {"paddle": paddle_figures, "torch": torch_figures}[style](estimated, "CPU")
    assert sum(each.time_ns for each in told.values()) == 4 * 6500
