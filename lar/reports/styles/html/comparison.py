"""What the page says of two runs: how the iterations differ, and each operator's part in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lar.errors import printable
from lar.profiles.differences import FEWEST_FOR_MEDIANS, Difference, median_difference_of
from lar.profiles.run_differences import (
    CONFIDENCE,
    Diff,
    DiffRow,
    Metric,
    caveats_of,
    check_timed,
    describe_run,
    diff_of,
    durations_of,
    main_metric_of,
)
from lar.records.profile import Profile
from lar.reports.styles.html.tables import Column, Table, known_table, rounded

MOST_BARS = 15
SIDES = {"both": "both", "baseline": "baseline only", "experiment": "this run only"}
JUDGEMENTS = {True: "exceeds", False: "within", None: None}


def columns_of(unit: str) -> tuple[Column, ...]:
    """Return the columns of a difference."""
    return (
        *(Column("baseline", unit, 3), Column("this run", unit, 3)),
        *(Column("delta", unit, 3), Column("delta", "%", 2), Column("±", unit, 3)),
        Column("noise"),
    )


ITERATION_COLUMNS = (Column("of an iteration"), *columns_of("ms"))
OPERATOR_COLUMNS = (Column("name"), Column("type"), Column("in"), *columns_of("µs"))


class Comparison(NamedTuple):
    """What the view shows: its tables by name, and what its script draws besides."""

    tables: dict[str, Table]
    figures: dict[str, Any]


def comparison_of(baseline: Profile, experiment: Profile, top: int) -> Comparison:
    """Compare two runs. `bars` of the figures are the largest differences, each
    `[name, side, delta, error, judgement]` in microseconds.

    Raises:
        UsageError: one of them has no timed iterations.
    """
    check_timed(baseline, experiment)
    diff = diff_of(baseline, experiment)
    main = main_metric_of(baseline, experiment)
    rows = known_rows(diff, main)
    bars = [
        [
            printable(row.name),
            SIDES[row.side],
            rounded(change.delta / 1e3),
            None if change.error is None else rounded(change.error / 1e3),
            JUDGEMENTS[change.exceeds_noise],
        ]
        for row, change in rows[:MOST_BARS]
        if change.delta
    ]
    about = [
        f"Baseline: {printable(describe_run(baseline))}.",
        f"This run: {printable(describe_run(experiment))}.",
    ]
    return Comparison(
        tables={
            "compared iterations": iteration_table(baseline, experiment, diff),
            "compared operators": operator_table(rows, top),
        },
        figures={"about": about, "bars": bars, "notes": notes_of(baseline, experiment, main)},
    )


def known_rows(diff: Diff, main: Metric) -> list[tuple[DiffRow, Difference]]:
    """Return the operators, that with the largest difference first."""
    rows = [(row, change) for row in diff.rows if (change := row.values[main]) is not None]
    return sorted(rows, key=lambda each: -abs(each[1].delta))


def notes_of(baseline: Profile, experiment: Profile, main: Metric) -> list[str]:
    """Return what the figures are and what they do not tell."""
    where = "the device" if main == "device" else "the host, dispatch, wait and computation"
    notes = [
        f"Times of operators are means of an iteration, on {where}; an operator that one run does "
        f"not have took 0 there. A difference that exceeds the noise is larger than ±, half the "
        f"width of its interval; the intervals of the operators hold all together with "
        f"{CONFIDENCE:.0%} confidence, those of the iterations each on its own."
    ]
    if min(len(each.timed_steps()) for each in (baseline, experiment)) < FEWEST_FOR_MEDIANS:
        notes.append(
            f"± takes 2 timed iterations of each run, that of the median {FEWEST_FOR_MEDIANS}."
        )
    return notes + [f"{each[0].upper()}{each[1:]}." for each in caveats_of(baseline, experiment)]


def iteration_table(baseline: Profile, experiment: Profile, diff: Diff) -> Table:
    """Return how the median and the mean iteration differ."""
    medians = median_difference_of(durations_of(baseline), durations_of(experiment), CONFIDENCE)
    rows = [
        (name, *cells_of(change, 1e6))
        for name, change in (("median", medians), ("mean", diff.iteration))
    ]
    return known_table(ITERATION_COLUMNS, rows, len(rows))


def operator_table(rows: Sequence[tuple[DiffRow, Difference]], top: int) -> Table:
    """Return a row for each operator, that with the largest difference first."""
    cells = [(row.name, row.type, SIDES[row.side], *cells_of(change, 1e3)) for row, change in rows]
    return known_table(OPERATOR_COLUMNS, cells[:top], len(cells), order="difference")


def cells_of(change: Difference, unit_ns: float) -> tuple[Any, ...]:
    """Return the values of the columns of a difference."""
    figures = (change.baseline, change.experiment, change.delta)
    return (
        *(figure / unit_ns for figure in figures),
        change.percent,
        None if change.error is None else change.error / unit_ns,
        JUDGEMENTS[change.exceeds_noise],
    )
