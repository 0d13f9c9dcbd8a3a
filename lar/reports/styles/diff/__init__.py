"""Two runs side by side, as the Diff view of the TensorBoard plugin has them, and what several
pairs of runs show of each operator.

Operators of both runs are joined by what they compute (`lar.profiles.pairing`); one without a
partner was added or removed, and is not judged. Calls are means, durations medians of the
iterations. The text shows the calls and the durations that matter, those of the device where both
runs have one, with all their figures as far as there is room; CSV, JSON and HTML have all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.engines import operator_kinds_of_both
from lar.profiles.differences import Change
from lar.profiles.run_contrast import Contrast, contrasts_of
from lar.profiles.run_differences import (
    METRICS,
    Diff,
    DiffRow,
    Metric,
    caveats_of,
    check_timed,
    describe_contrasts,
    describe_iterations,
    describe_unlike,
    diff_of,
    main_metric_of,
)
from lar.profiles.totals import FIGURES, UNITS_NS, Totals
from lar.records.profile import Profile
from lar.records.summary import Interval
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table
from lar.reports.report import Report
from lar.reports.sorting import sort_rows
from lar.reports.verdicts import describe_difference, format_interval, high_of, low_of

TITLES: dict[Metric, str] = {
    "calls": "Calls",
    "host": "Host Duration",
    "self_host": "Self Host Duration",
    "device": "Device Duration",
    "self_device": "Self Device Duration",
}
HEADS = ("Baseline", "Exp")
SIDES = {"both": "", "baseline": "removed", "experiment": "added"}
# On a narrow screen the figures beside the medians go before all else, the sum of iterations first.
LEAST_FIGURE_RANK = 8
RULE = Rule(middle="--")
LAYOUT = Layout(under=RULE, total=RULE)


def build(
    experiment: Profile, options: Mapping[str, Any], baseline: Profile, *more: Profile
) -> Report:
    """Compare two runs; `more` are more runs of the same two commands, by turns.

    Raises:
        UsageError: one of them has no timed iterations, or is of another command.
    """
    check_timed(baseline, experiment)
    pattern = options.get("filter")
    diff = diff_of(
        baseline,
        experiment,
        options.get("group_by") or "name",
        lambda name, type: (
            pattern is None or bool(re.search(pattern, name) or re.search(pattern, type))
        ),
        operator_kinds_of_both(baseline, experiment),
        [*zip(more[::2], more[1::2], strict=True)],
    )
    main = main_metric_of(baseline, experiment)
    rows = sort_operators(diff.rows, options.get("sort") or "delta", main)[: options.get("top")]
    unit = options.get("time_unit") or "us"
    views = options.get("view") or ("calls", main)
    shown = [metric for metric in METRICS if metric in views]
    table = operator_table(diff, rows, main, unit, shown)
    return Report(
        style="diff",
        body=body_of(baseline, experiment, diff, table, main, unit),
        tables=(table, iteration_table(diff, unit), contrast_table(baseline, experiment)),
    )


def sort_operators(rows: Sequence[DiffRow], sort: str, main: Metric) -> list[DiffRow]:
    """Sort by a figure of the metric that matters, or by name."""
    key = sort.lstrip("+-")

    def value(row: DiffRow) -> float | str | None:
        found = row.values["calls" if key == "calls" else main]
        if key == "name" or found is None:
            return row.name if key == "name" else None
        figures = {
            "delta": abs(found.delta),
            # From nothing to something is the largest change.
            "percent": abs(found.percent) if found.percent is not None else float("inf"),
            "baseline": found.baseline,
            "exp": found.experiment,
            "calls": max(found.baseline, found.experiment),
        }
        return figures[key]

    return sort_rows(rows, sort, value, smallest_first=key == "name")


def scaled(value: float, metric: Metric, unit: str) -> float:
    return value if metric == "calls" else value / UNITS_NS[unit]


def title_of(metric: Metric, unit: str) -> str:
    return TITLES[metric] + ("" if metric == "calls" else f" ({unit})")


def body_of(
    baseline: Profile,
    experiment: Profile,
    diff: Diff,
    table: Table[DiffRow],
    main: Metric,
    unit: str,
) -> tuple[str | AnyTable, ...]:
    """Return the text: the two runs, the difference of their iterations, the table, and how certain
    it is."""
    unlike = describe_unlike(baseline, experiment, diff)
    which = describe_iterations(diff)
    lines: list[str | AnyTable] = [
        *([unlike, ""] if unlike else []),
        "baseline -> exp",
        *(f"  {line}" for line in describe_contrasts(baseline, experiment)),
        f"iteration: {format_change(diff.iteration, unit, judged=not unlike)}",
        *([f"  {which}"] if which else []),
        "",
        table,
    ]
    after = [*describe_judged(diff, main), *caveats_of(baseline, experiment, diff)]
    return (*lines, *(["", *after] if after else []))


def describe_judged(diff: Diff, main: Metric) -> list[str]:
    """Return how many operators are shown to differ, or what would show it."""
    if diff.unlike:
        return []
    known = [change for row in diff.rows if (change := row.values[main])]
    judged = [each for each in known if each.verdict != "not judged"]
    if not judged:
        return ["operators are judged by three pairs of profiles or more, made in turns"]
    shown = sum(each.difference is not None and each.difference.is_shown for each in judged)
    return [
        f"{shown} of {len(judged)} operators are shown to differ in {TITLES[main].lower()}, all "
        "together with 95 % confidence"
    ]


def format_change(change: Change, unit: str, *, judged: bool = True) -> str:
    """Return one change as words, with what is shown of it unless nothing is judged."""
    scale = UNITS_NS[unit]
    percent = "" if change.percent is None else f" ({change.percent:+.2f}%)"
    words = f"{change.baseline / scale:.3f} -> {change.experiment / scale:.3f} {unit}, "
    words += f"{change.delta / scale:+.3f} {unit}{percent}"
    if not judged:
        return words
    interval = format_interval(change.difference.interval if change.difference else None)
    ratio = f" (ratio {interval})" if interval else ""
    return f"{words}; {describe_difference(change.difference)}{ratio}"


def operator_table(
    diff: Diff, rows: Sequence[DiffRow], main: Metric, unit: str, shown: Sequence[Metric] = METRICS
) -> Table[DiffRow]:
    """Return all metrics of the rows and of the total; the text shows those of `shown`."""

    def name(row: DiffRow) -> str:
        side = SIDES[row.side]
        return "Total" if row is diff.total else f"{row.name} ({side})" if side else row.name

    operator: Column[DiffRow] = Column("Operator", lambda row: row.name, name, rank=0)
    columns = {metric: metric_columns(metric, unit) for metric in METRICS}
    verdicts = verdict_columns(main)
    is_judged = any(is_judged_in(row, main) for row in rows)
    figures = figure_columns(main, unit)
    disturbed = [disturbed_column(side, head) for side, head in enumerate(HEADS)]
    return Table(
        name="operators",
        title="Operators, median of an iteration",
        columns=(
            operator,
            Column("Type", lambda row: row.type),
            Column("In", lambda row: SIDES[row.side] or "both"),
            *(column for each in columns.values() for column in each),
            *verdicts,
            *figures,
            *disturbed,
        ),
        shown=(
            operator,
            *(column for metric in shown for column in columns[metric]),
            *(verdicts if is_judged else ()),
            *(figures if any(any(row.times) for row in rows) else ()),
            *(disturbed if any(any(row.disturbed) for row in rows) else ()),
        ),
        rows=(*rows, diff.total),
        notes=("ratios: all rows together with 95 % confidence",) if is_judged else (),
        layout=LAYOUT,
    )


def metric_columns(metric: Metric, unit: str) -> tuple[Column[DiffRow], ...]:
    """Return the four columns of a metric."""
    title, _, of_unit = title_of(metric, unit).partition(" (")
    suffix = f" ({of_unit}" if of_unit else ""

    def figure(head: str, take: Callable[[Change], float], rank: int) -> Column[DiffRow]:
        def value(row: DiffRow) -> Cell:
            change = row.values[metric]
            return None if change is None else round(scaled(take(change), metric, unit), 6)

        def text(row: DiffRow) -> str:
            change = row.values[metric]
            if change is None:
                return "N/A"
            number = scaled(take(change), metric, unit)
            return f"{number:g}" if metric == "calls" else f"{number:.3f}"

        return metric_column(head, f"{head} {title}{suffix}", value, text, rank)

    def percent(row: DiffRow) -> float | None:
        change = row.values[metric]
        return None if change is None else change.percent

    def metric_column(
        head: str,
        key: str,
        value: Callable[[DiffRow], Cell],
        text: Callable[[DiffRow], str],
        rank: int,
    ) -> Column[DiffRow]:
        group = title_of(metric, unit)
        return Column(head, value, text, key=key, align="right", group=group, rank=rank)

    return (
        figure("Baseline", lambda it: it.baseline, 7 if metric == "calls" else 4),
        figure("Exp", lambda it: it.experiment, 7 if metric == "calls" else 4),
        figure("Delta", lambda it: it.delta, 6 if metric == "calls" else 1),
        metric_column(
            "Delta%",
            f"Delta {title}%",
            lambda row: rounded(percent(row), 2),
            lambda row: "N/A" if (share := percent(row)) is None else f"{share:.2f}%",
            6 if metric == "calls" else 3,
        ),
    )


def is_judged_in(row: DiffRow, metric: Metric) -> bool:
    change = row.values[metric]
    return change is not None and change.verdict != "not judged"


def verdict_columns(main: Metric) -> tuple[Column[DiffRow], ...]:
    """Return the interval of the ratio, and what it shows."""

    def interval(row: DiffRow) -> Interval | None:
        change = row.values[main]
        return change.difference.interval if change and change.difference else None

    def verdict(row: DiffRow) -> str:
        change = row.values[main]
        return change.verdict if change else "not judged"

    return (
        Column(
            "Ratio",
            text=lambda row: format_interval(interval(row)) or "N/A",
            parts=(
                Column("low", lambda row: low_of(interval(row)), key="Ratio Low"),
                Column("high", lambda row: high_of(interval(row)), key="Ratio High"),
            ),
            align="right",
            rank=4,
        ),
        Column("Verdict", verdict, rank=2),
    )


def figure_columns(main: Metric, unit: str) -> list[Column[DiffRow]]:
    """Return the figures of the iterations of either run, beside their medians. Where text has no
    room they go first, in pairs."""

    def column(
        side: int, name: str, figure: Callable[[Totals], float | None], rank: int
    ) -> Column[DiffRow]:
        def value(row: DiffRow) -> float | None:
            own = row.times[side]
            found = None if own is None else figure(own)
            return None if found is None else round(scaled(found, main, unit), 6)

        def text(row: DiffRow) -> str:
            found = value(row)
            return "N/A" if found is None else f"{found:.3f}"

        head = f"{HEADS[side]} {name.capitalize()}"
        title = title_of(main, unit)
        group = f"{title} of iterations"
        key = f"{head} {title}"
        return Column(head, value, text, key=key, align="right", group=group, rank=rank)

    return [
        column(side, name, figure, LEAST_FIGURE_RANK + place)
        for side in range(len(HEADS))
        for place, (name, figure) in enumerate(FIGURES.items())
    ]


def disturbed_column(side: int, head: str) -> Column[DiffRow]:
    """Return the column of how many executions of a run something else made longer."""
    return Column(
        head,
        lambda row: row.disturbed[side],
        lambda row: str(row.disturbed[side] or ""),
        key=f"{head} Disturbed",
        align="right",
        group="Disturbed",
        rank=5,
    )


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def iteration_table(diff: Diff, unit: str) -> Table[Change]:
    scale = UNITS_NS[unit]
    return Table(
        name="iteration",
        title="Iteration",
        columns=(
            Column("Baseline", lambda it: round(it.baseline / scale, 6), unit=unit),
            Column("Exp", lambda it: round(it.experiment / scale, 6), unit=unit),
            Column("Delta", lambda it: round(it.delta / scale, 6), unit=unit),
            Column("Delta%", lambda it: rounded(it.percent, 2)),
            Column("Verdict", lambda it: it.verdict),
            Column("Iterations", lambda it: "undisturbed" if diff.is_calm else "all"),
        ),
        rows=(diff.iteration,),
    )


CONTRAST_COLUMNS: tuple[Column[Contrast], ...] = (
    Column("What", lambda it: it.what),
    Column("Baseline", lambda it: it.baseline),
    Column("Exp", lambda it: it.experiment),
)


def contrast_table(baseline: Profile, experiment: Profile) -> Table[Contrast]:
    """Return what differs between the runs besides their times."""
    return Table(
        name="differs",
        title="What differs",
        columns=CONTRAST_COLUMNS,
        rows=tuple(contrasts_of(baseline, experiment)),
    )
