"""The figures of operators in every style: counts, medians, percentiles, means, extremes and sums;
what they are ranked by; which of them something disturbed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pytest

from lar.records.profile import Profile, StepNoise
from lar.reports.model import AnyTable
from lar.reports.styles import STYLES
from tests.profiles.synthetic import profile_of_times
from tests.profiles.timelines import span_of

WAITED_STEP = 4
# Each style's table of operators, its columns of names, and the others by what they have.
TABLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "megengine": (
        *("device", "name"),
        {
            **{"count": "runs", "median": "median_seconds", "p90": "p90_seconds"},
            **{"mean": "mean_seconds", "min": "minimum_seconds", "max": "maximum_seconds"},
            **{"total": "total_seconds", "disturbed": "disturbed"},
        },
    ),
    "nsys": (
        *("computation", "Name"),
        {
            **{"count": "Instances", "median": "Median (ns)", "p90": "P90 (ns)"},
            **{"mean": "Average (ns)", "min": "Minimum (ns)", "max": "Maximum (ns)"},
            **{"total": "Total Time (ns)", "disturbed": "Disturbed"},
        },
    ),
}
UNITS_US = {"seconds": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "ns": 1e-3}
UNIT = re.compile("|".join(UNITS_US))


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Ten iterations: the mean of Pooling is the higher, since one of its executions waited."""
    times = [{"conv": 500, "pool": 30} for _ in range(10)]
    times[WAITED_STEP] = {"conv": 500, "pool": 8030}
    times[9] = {"conv": 540, "pool": 30}
    made = profile_of_times({"conv": "Convolution", "pool": "Pooling"}, times, step_us=9000)
    noise = tuple(
        StepNoise(number, 8_000_000, ("queue delay",))
        if number == WAITED_STEP
        else StepNoise(number, 0)
        for number in range(10)
    )
    facts = msgspec.structs.replace(made.facts, noise=noise, lar_version="0.1.0")
    return Profile(**{**vars(made), "facts": facts})


def rows_of(profile: Profile, style: str, **options: Any) -> list[dict[str, Any]]:
    report = STYLES[style].build(profile, options)
    name, column, _ = TABLES[style]
    table: AnyTable = next(table for table in report.tables if table.name == name)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.records]
    return [row for row in rows if row[column] in ("conv", "pool", "Convolution", "Pooling")]


@pytest.mark.parametrize("style", TABLES)
def test_every_row_of_an_operator_has_all_figures(profile: Profile, style: str) -> None:
    _, column, columns = TABLES[style]
    rows = rows_of(profile, style)
    own = next(row for row in rows if row[column] in ("pool", "Pooling"))

    def microseconds(figure: str) -> float:
        heading = columns[figure]
        return float(own[heading]) * UNITS_US[UNIT.findall(heading)[-1]]

    assert (own[columns["count"]], own[columns["disturbed"]]) == (10, 1)
    figures = {name: microseconds(name) for name in columns if name not in ("count", "disturbed")}
    assert figures == pytest.approx(
        {"median": 30, "p90": 830, "mean": 830, "min": 30, "max": 8030, "total": 8300}
    )


@pytest.mark.parametrize("style", TABLES)
def test_a_disturbed_execution_puts_no_operator_first(profile: Profile, style: str) -> None:
    _, column, _ = TABLES[style]
    by_total = {
        "megengine": "time",
        "nsys": "total",
    }[style]
    assert rows_of(profile, style)[0][column] in ("conv", "Convolution")
    assert rows_of(profile, style, sort="typical")[0][column] in ("conv", "Convolution")
    assert rows_of(profile, style, sort=by_total)[0][column] in ("pool", "Pooling")


def test_the_roofline_ranks_in_the_same_way(profile: Profile) -> None:
    def names(**options: Any) -> list[str]:
        return [row["name"] for row in STYLES["ncu"].build(profile, options).document["rows"]]

    assert names() == ["conv", "pool"]
    assert names(sort="total") == ["pool", "conv"]
    (_, pool) = STYLES["ncu"].build(profile, {}).document["rows"]
    metrics = {name: metric["value"] for name, metric in pool["metrics"].items()}
    assert metrics["cpu__launch_count.disturbed"] == 1
    assert metrics["cpu__time_duration.median"] == pytest.approx(30_000)
    assert metrics["cpu__time_duration.max"] == pytest.approx(8_030_000)


@pytest.mark.parametrize("style", ["megengine", "nsys", "ncu"])
def test_text_marks_what_was_disturbed(profile: Profile, style: str) -> None:
    calm = replace(profile, facts=msgspec.structs.replace(profile.facts, noise=()))
    assert "disturbed" in STYLES[style].build(profile, {}).text.lower()
    assert "disturbed" not in STYLES[style].build(calm, {}).text.lower()


class Listing(NamedTuple):
    """A table that lists operators: what makes it, its column of names, and those of the seven
    figures and of the disturbed calls. `calls` is what the first has."""

    style: str
    options: Mapping[str, Any]
    table: str
    name: str
    headings: tuple[str, ...]
    calls: int = 10


ORDER = ("count", "median", "p90", "mean", "min", "max", "total", "disturbed")


def headings_of(pattern: str, names: str, **others: str) -> tuple[str, ...]:
    """Headings of one pattern, of the names of figures in their order, but for some others."""
    made = dict(zip(ORDER[1:7], (pattern.format(name) for name in names.split()), strict=True))
    return tuple({**made, **others}[name] for name in ORDER)


MARK = "Disturbed"
LISTINGS = (
    Listing(
        *("nsys", {"view": ["algorithm_sum"]}, "algorithm_sum", "Name"),
        headings_of(
            *("{} (ns)", "Med P90 Avg Min Max Total"),
            **{"count": "Instances", "total": "Total Time (ns)", "disturbed": MARK},
        ),
    ),
    Listing(
        *("nsys", {"view": ["operator_exec_sum"]}, "operator_exec_sum", "Kernel Name"),
        headings_of("K{} (ns)", "Med P90 Avg Min Max Total", count="Count", disturbed=MARK),
    ),
    Listing(
        *("nsys", {"view": ["nvtx_algorithm_sum"]}, "nvtx_algorithm_sum", "Kernel Name"),
        headings_of(
            *("{} (ns)", "Med P90 Avg Min Max Total"),
            **{"count": "Kern Inst", "total": "Total Time (ns)", "disturbed": MARK},
        ),
    ),
)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda it: f"{it.style} {it.table}")
def test_every_table_of_operators_has_all_figures_and_the_mark(
    profile: Profile, listing: Listing
) -> None:
    made = profile
    if listing.table == "operator_exec_sum":
        executions = (
            msgspec.structs.replace(
                it, dispatch_start_ns=it.start_ns - 7000, dispatch_end_ns=it.start_ns
            )
            for it in profile.executions
        )
        made = replace(profile, executions=tuple(executions))
    if listing.table == "nvtx_algorithm_sum":
        around = span_of("user_annotation", "all", 0, 1e6, step=None)
        made = replace(profile, spans=(*profile.spans, around))
    report = STYLES[listing.style].build(made, listing.options)
    table: AnyTable = next(table for table in report.tables if table.name == listing.table)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.records]
    (own,) = (row for row in rows if row[listing.name] in ("pool", "Pooling"))
    count, *headings, disturbed = listing.headings
    assert (own[count], own[disturbed]) == (listing.calls, 1)
    figures = [float(own[each] or 0) * UNITS_US[UNIT.findall(each)[-1]] for each in headings]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert "disturbed" in report.text.lower()


def test_the_metrics_of_the_roofline_have_all_figures(profile: Profile) -> None:
    (_, pool) = STYLES["ncu"].build(profile, {"time_unit": "us"}).document["rows"]
    names = ("median", "p90", "sum", "min", "max", "total")  # that of ncu's "sum" is the mean
    figures = [pool["metrics"][f"cpu__time_duration.{name}"]["value"] for name in names]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert pool["metrics"]["cpu__launch_count"]["value"] == 10
