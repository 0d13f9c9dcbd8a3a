"""The page's comparison of two runs: how the iterations differ, and each operator's part in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from lar.engines import operator_kinds_of_both
from lar.errors import printable
from lar.profiles.differences import Change
from lar.profiles.run_contrast import Contrast, contrasts_of
from lar.profiles.run_differences import (
    Diff,
    DiffRow,
    Metric,
    caveats_of,
    check_timed,
    describe_iterations,
    describe_unlike,
    diff_of,
    main_metric_of,
)
from lar.profiles.totals import FIGURES
from lar.records.profile import Profile
from lar.reports.model import ANY_DIGITS, Column
from lar.reports.pages.tables import PageTable, page_table, rounded

Row = TypeVar("Row")

MOST_BARS = 15
RUNS = ("baseline", "this run")
SIDES = {"both": "both", "baseline": "removed", "experiment": "added"}


def difference_columns(
    unit: str, unit_ns: float, change: Callable[[Row], Change]
) -> tuple[Column[Row], ...]:
    """Return the columns of a change."""
    return (
        Column("baseline", lambda row: change(row).baseline / unit_ns, unit=unit, digits=3, rank=3),
        Column(
            "this run", lambda row: change(row).experiment / unit_ns, unit=unit, digits=3, rank=3
        ),
        Column("delta", lambda row: change(row).delta / unit_ns, unit=unit, digits=3, rank=1),
        Column("delta", lambda row: change(row).percent, unit="%", digits=2, rank=2),
    )


OF_ITERATION: tuple[Column[tuple[str, Change]], ...] = difference_columns(
    "ms", 1e6, lambda row: row[1]
)
ITERATION_COLUMNS: tuple[Column[tuple[str, Change]], ...] = (
    Column("of an iteration", lambda row: row[0]),
    *OF_ITERATION,
)


def figure_column(side: int, run: str, name: str) -> Column[tuple[DiffRow, Change]]:
    """Return a column of either run, beside the medians: the calls of an iteration, a figure of its
    iterations, or how many executions were disturbed."""

    def value(row: tuple[DiffRow, Change]) -> float | None:
        own = row[0].times[side]
        if name == "calls":
            calls = row[0].values["calls"]
            return None if calls is None else (calls.experiment if side else calls.baseline)
        if name == "disturbed":
            return row[0].disturbed[side]
        found = None if own is None else FIGURES[name](own)
        return None if found is None else found / 1e3

    unit, digits = ("µs", 3) if name in FIGURES else ("", ANY_DIGITS)
    rank = 6 if name == "disturbed" else 9
    return Column(f"{name}, {run}", value, unit=unit, digits=digits, rank=rank)


OF_OPERATOR: tuple[Column[tuple[DiffRow, Change]], ...] = difference_columns(
    "µs", 1e3, lambda row: row[1]
)
OPERATOR_COLUMNS: tuple[Column[tuple[DiffRow, Change]], ...] = (
    Column("name", lambda row: row[0].name, rank=0),
    Column("type", lambda row: row[0].type, rank=5),
    Column("in", lambda row: SIDES[row[0].side], rank=4),
    *OF_OPERATOR,
    *(
        figure_column(side, run, name)
        for side, run in enumerate(RUNS)
        for name in ("calls", *FIGURES, "disturbed")
    ),
)


CONTRAST_COLUMNS: tuple[Column[Contrast], ...] = (
    Column("what differs", lambda row: row.what),
    Column("baseline", lambda row: printable(row.baseline)),
    Column("this run", lambda row: printable(row.experiment)),
)


class Comparison(NamedTuple):
    """The content of the view: its tables by name, and what its script draws beside them."""

    tables: dict[str, PageTable]
    figures: dict[str, Any]


def comparison_of(baseline: Profile, experiment: Profile, top: int) -> Comparison:
    """Compare two runs. `bars` of the figures are the largest differences, each
    `[name, side, delta]` in microseconds.

    Raises:
        UsageError: one of them has no timed iterations.
    """
    check_timed(baseline, experiment)
    kinds = operator_kinds_of_both(baseline, experiment)
    diff = diff_of(baseline, experiment, kinds=kinds)
    main = main_metric_of(baseline, experiment)
    rows = known_rows(diff, main)
    bars = [
        [
            printable(row.name),
            SIDES[row.side],
            rounded(change.delta / 1e3),
        ]
        for row, change in rows[:MOST_BARS]
        if change.delta
    ]
    contrasts = contrasts_of(baseline, experiment)
    about = [] if contrasts else ["Model, options, versions and machine are the same."]
    if unlike := describe_unlike(baseline, experiment, diff):
        about.append(f"{unlike[0].upper()}{unlike[1:]}.")
    return Comparison(
        tables={
            "what differs": page_table("what differs", CONTRAST_COLUMNS, contrasts, order="place"),
            "compared iterations": iteration_table(diff),
            "compared operators": operator_table(rows, top),
        },
        figures={"about": about, "bars": bars, "notes": notes_of(baseline, experiment, main, diff)},
    )


def operator_table(rows: Sequence[tuple[DiffRow, Change]], top: int) -> PageTable:
    """Return the operators; those with disturbed executions in either run stand out."""
    table = page_table("compared operators", OPERATOR_COLUMNS, rows, top, "difference")
    marks = ("disturbed" if any(row.disturbed) else "" for row, _ in rows)
    return table._replace(marks=tuple(marks)[: len(table.table.rows)])


def known_rows(diff: Diff, main: Metric) -> list[tuple[DiffRow, Change]]:
    """Return the operators, that with the largest difference first."""
    rows = [(row, change) for row in diff.rows if (change := row.values[main]) is not None]
    return sorted(rows, key=lambda each: -abs(each[1].delta))


def notes_of(baseline: Profile, experiment: Profile, main: Metric, diff: Diff) -> list[str]:
    """Return notes on what the figures are and what they leave open."""
    where = "the device"
    if main != "device":
        where = "the host: dispatch and computation, without what they wait"
    notes = [
        f"Times of operators are medians of the iterations, on {where}. Operators of both runs are "
        f"joined by what they compute; one that was added or removed has no partner. Two processes "
        f"of one command differ too, and of one pair of runs nothing is judged: `lar report A1 B1 "
        f"A2 B2 A3 B3 --style diff` does."
    ]
    lines = [line for line in (describe_iterations(diff),) if line]
    lines += caveats_of(baseline, experiment, diff)
    return notes + [f"{each[0].upper()}{each[1:]}." for each in lines]


def iteration_table(diff: Diff) -> PageTable:
    """Return how the median iteration differs."""
    rows = [("median of the undisturbed" if diff.is_calm else "median", diff.iteration)]
    return page_table("compared iterations", ITERATION_COLUMNS, rows)
