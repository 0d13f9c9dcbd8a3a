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

WAITED_STEP = 4
# Each style's table of operators, its columns of names, and the others by what they have.
TABLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "tensorboard": (
        *("operators", "name"),
        {
            **{"count": "calls", "median": "host_self_median_us", "p90": "host_self_p90_us"},
            **{"mean": "host_self_mean_us", "min": "host_self_min_us"},
            **{"max": "host_self_max_us", "total": "host_self_duration_us"},
            **{"disturbed": "disturbed"},
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
        **{"tensorboard": "host_total_duration"},
    }[style]
    assert rows_of(profile, style)[0][column] in ("conv", "Convolution")
    assert rows_of(profile, style, sort="typical")[0][column] in ("conv", "Convolution")
    assert rows_of(profile, style, sort=by_total)[0][column] in ("pool", "Pooling")


def test_the_roofline_ranks_in_the_same_way(profile: Profile) -> None:
    def names(**options: Any) -> list[Any]:
        (table,) = STYLES["ncu"].build(profile, options).tables
        return [row[table.headings.index("Name")] for row in table.records]

    assert names() == ["conv", "pool"]
    assert names(sort="total") == ["pool", "conv"]


def test_text_marks_what_was_disturbed(profile: Profile) -> None:
    calm = replace(profile, facts=msgspec.structs.replace(profile.facts, noise=()))
    assert "disturbed" in STYLES["ncu"].build(profile, {}).text.lower()
    assert "disturbed" not in STYLES["ncu"].build(calm, {}).text.lower()


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
        *("diff", {}, "operators", "Operator"),
        headings_of(
            *("Exp {} Host Duration (us)", "Median P90 Mean Min Max Total"),
            **{"count": "Exp Calls", "median": "Exp Host Duration (us)"},
            disturbed="Exp Disturbed",
        ),
        calls=1,
    ),
    Listing(
        *("tensorboard", {"view": ["diff"]}, "diff", "Operator"),
        headings_of(
            *("Exp host_self_{}_us", "median p90 mean min max total"),
            **{"count": "Exp Calls", "total": "Exp Self Host Duration (us)"},
            disturbed="Exp disturbed",
        ),
    ),
)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda it: f"{it.style} {it.table}")
def test_every_table_of_operators_has_all_figures_and_the_mark(
    profile: Profile, listing: Listing
) -> None:
    pair = "diff" in listing.table or listing.style == "diff" or "compared" in listing.table
    report = STYLES[listing.style].build(profile, listing.options, *([profile] if pair else []))
    table: AnyTable = next(table for table in report.tables if table.name == listing.table)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.records]
    (own,) = (row for row in rows if row[listing.name] in ("pool", "Pooling"))
    count, *headings, disturbed = listing.headings
    assert (own[count], own[disturbed]) == (listing.calls, 1)
    figures = [float(own[each] or 0) * UNITS_US[UNIT.findall(each)[-1]] for each in headings]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert "disturbed" in report.text.lower() or listing.style == "tensorboard"


def test_the_metrics_of_the_roofline_have_all_figures(profile: Profile) -> None:
    (table,) = STYLES["ncu"].build(profile, {"view": ["metrics"], "filter": "pool"}).tables
    found = {row[-3]: row[-1] for row in table.records}
    names = ("median", "p90", "avg", "min", "max", "sum")
    figures = [found[f"cpu__time_duration.{name}"] for name in names]
    assert figures == pytest.approx([30, 830, 830, 30, 8030, 8300])
    assert found["cpu__launch_count"] == 10
    assert found["cpu__launch_count.disturbed"] == 1
