"""The figures that tables of other tools lack: records have them, text where --columns asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lar.records.profile import Profile, StepNoise
from lar.reports.report import Report
from lar.reports.styles import STYLES
from tests.profiles.synthetic import profile_of_times, rows_in, with_facts

# Of each table of operators how it is asked for, its column of names, and the unit of its times.
TABLES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "operators": ("operators", {"group_by": "type"}, "type", "us"),
    "operator": ("paddle", {"view": ["operator"]}, "Name", "us"),
    "kernel": ("paddle", {"view": ["kernel"]}, "Name", "us"),
    "memory_manipulation": ("paddle", {"view": ["memory"]}, "Name", "us"),
    "key_averages": ("torch", {}, "Name", "us"),
}
FIGURES = {"median": 30.0, "p90": 830.0}


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Ten iterations, one of which waited with Concat on the CPU: its sum is the higher."""
    times = [{"conv": 500, "pool": 30} for _ in range(10)]
    times[4] = {"conv": 500, "pool": 8030}
    made = profile_of_times({"conv": "Convolution", "pool": "Concat"}, times, step_us=9000)
    noise = [StepNoise(number) for number in range(10)]
    noise[4] = StepNoise(4, 8_000_000, ("queue delay",))
    return with_facts(made, noise=tuple(noise), lar_version="0.1.0")


def report_of(profile: Profile, table: str, **options: Any) -> Report:
    style, given, _, unit = TABLES[table]
    return STYLES[style].build(profile, {"time_unit": unit, **given, **options})


@pytest.mark.parametrize("name", TABLES)
def test_records_have_them(profile: Profile, name: str) -> None:
    (table,) = (it for it in report_of(profile, name).tables if it.name in (name, "types"))
    rows = ({key.lower(): value for key, value in row.items()} for row in rows_in(table))
    (own,) = (row for row in rows if row[TABLES[name][2].lower()] == "Concat")
    assert {it: own[f"{it} (us)"] for it in FIGURES} == pytest.approx(FIGURES)
    assert own["disturbed"] == 1


@pytest.mark.parametrize("name", [name for name in TABLES if name != "memory_manipulation"])
def test_the_column_that_sorts_is_shown(profile: Profile, name: str) -> None:
    def first(sort: str) -> object:
        report = report_of(profile, name, sort=sort)
        table = next(it for it in report.tables if it.name in (name, "types"))
        names = [row[TABLES[name][2]] for row in rows_in(table)]
        return min(("Convolution", "Concat"), key=names.index)

    by_sum = {"operators": "total", "torch": "cpu_time_total", "paddle": "cpu_total"}
    assert first("median") == "Convolution"
    assert first(by_sum[TABLES[name][0]]) == "Concat"
    assert "median" in report_of(profile, name, sort="median").text.lower()


def test_too_few_calls_have_no_percentile(profile: Profile) -> None:
    executions = tuple(each for each in profile.executions if each.step < 9)
    (table,) = report_of(replace(profile, executions=executions), "operator").tables
    assert {row["P90 (us)"] for row in rows_in(table)} == {None}


def test_a_disturbed_execution_puts_no_operator_first_in_the_roofline(profile: Profile) -> None:
    def names(**options: Any) -> list[Any]:
        (table,) = STYLES["ncu"].build(profile, options).tables
        return [row["Name"] for row in rows_in(table)]

    assert (names(), names(sort="total")) == (["conv", "pool"], ["pool", "conv"])


@pytest.mark.parametrize("style", ["operators", "paddle", "torch", "nsys", "ncu"])
def test_a_filter_changes_no_figure_of_a_row(profile: Profile, style: str) -> None:
    """Shares are of all operators."""
    whole, some = (
        [
            {**row, "ID": 0}
            for table in STYLES[style].build(profile, it).tables
            for row in rows_in(table)
        ]
        for it in ({}, {"filter": "pool"})
    )
    assert some
    assert all(row in whole for row in some)


def test_text_marks_what_was_disturbed(profile: Profile) -> None:
    calm = with_facts(profile, noise=())
    assert "disturbed" in STYLES["ncu"].build(profile, {}).text.lower()
    assert "disturbed" not in STYLES["ncu"].build(calm, {}).text.lower()


def test_the_metrics_have_all_figures(profile: Profile) -> None:
    (table,) = STYLES["ncu"].build(profile, {"view": ["metrics"], "filter": "pool"}).tables
    found = {row[-3]: row[-1] for row in table.records}
    names = ("median", "p90", "avg", "min", "max", "sum")
    figures = [found[f"cpu__time_duration.{name}"] for name in names]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert found["cpu__launch_count"] == 10
    assert found["cpu__launch_count.disturbed"] == 1
