"""Two runs side by side, as the Diff view of the TensorBoard plugin has them, and whether what
differs is more than the iterations scatter.

Calls and durations are those of one iteration on the average. The text shows the calls and the
durations that matter, those of the device where both runs have one; CSV, JSON and HTML have all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lar.profiles.differences import Difference
from lar.profiles.run_differences import (
    CONFIDENCE,
    METRICS,
    Diff,
    DiffRow,
    Metric,
    caveats_of,
    check_timed,
    describe_run,
    diff_of,
    main_metric_of,
)
from lar.profiles.units import UNITS_NS
from lar.records.profile import Profile
from lar.reports.document import Cell, ProfileReport, ReportTable

TITLES: dict[Metric, str] = {
    "calls": "Calls",
    "host": "Host Duration",
    "self_host": "Self Host Duration",
    "device": "Device Duration",
    "self_device": "Self Device Duration",
}
SIDES = {"both": "", "baseline": "baseline only", "experiment": "exp only"}


def build(experiment: Profile, options: Mapping[str, Any], baseline: Profile) -> ProfileReport:
    """Compare two runs.

    Raises:
        UsageError: one of them has no timed iterations.
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
    )
    main = main_metric_of(baseline, experiment)
    rows = sort_rows(diff.rows, options.get("sort") or "delta", main)[: options.get("top")]
    unit = options.get("time_unit") or "us"
    return ProfileReport(
        style="diff",
        text=format_text(baseline, experiment, diff, rows, main, unit, options.get("view") or ()),
        tables=(operator_table(diff, rows, main, unit), iteration_table(diff, unit)),
    )


def sort_rows(rows: Sequence[DiffRow], sort: str, main: Metric) -> list[DiffRow]:
    """Order rows by the figures of the metric that matters, the largest first but for names; a +
    before the key turns that to ascending, a - to descending. Unknown figures come last."""
    key = sort.lstrip("+-")
    if key == "name":
        return sorted(rows, key=lambda row: row.name, reverse=sort.startswith("-"))

    def figure(row: DiffRow) -> float | None:
        found = row.values["calls" if key == "calls" else main]
        if found is None:
            return None
        figures = {
            "delta": abs(found.delta),
            # From nothing to something is the largest change.
            "percent": abs(found.percent) if found.percent is not None else float("inf"),
            "baseline": found.baseline,
            "exp": found.experiment,
            "calls": max(found.baseline, found.experiment),
        }
        return figures[key]

    sign = 1 if sort.startswith("+") else -1
    known = [(row, value) for row in rows if (value := figure(row)) is not None]
    ordered = [row for row, _ in sorted(known, key=lambda each: sign * each[1])]
    return ordered + [row for row in rows if figure(row) is None]


def scaled(value: float, metric: Metric, unit: str) -> float:
    return value if metric == "calls" else value / UNITS_NS[unit]


def title_of(metric: Metric, unit: str) -> str:
    return TITLES[metric] + ("" if metric == "calls" else f" ({unit})")


def format_text(
    baseline: Profile,
    experiment: Profile,
    diff: Diff,
    rows: Sequence[DiffRow],
    main: Metric,
    unit: str,
    views: Sequence[str],
) -> str:
    """Return what is compared, the iterations' difference, the table, and what it rests on."""
    metrics = [metric for metric in METRICS if metric in (views or ("calls", main))]
    lines = [
        f"baseline: {describe_run(baseline)}",
        f"exp:      {describe_run(experiment)}",
        f"iteration: {format_change(diff.iteration, unit)}",
        "",
        *format_rows(diff, rows, metrics, main, unit),
        "",
    ]
    known = [row.values[main] for row in diff.rows]
    judged = [each.exceeds_noise for each in known if each and each.exceeds_noise is not None]
    if judged:
        lines.append(
            f"{sum(judged)} of {len(judged)} differences of the {TITLES[main].lower()} exceed the "
            f"noise of the iterations: the intervals (+-) hold all of them together with "
            f"{CONFIDENCE:.0%} confidence; that of the total and of the iteration each on its own"
        )
    else:
        lines.append("noise: not known, which takes two timed iterations of each run")
    lines += caveats_of(baseline, experiment)
    return "\n".join(lines) + "\n"


def format_change(change: Difference, unit: str) -> str:
    """Return one difference as words."""
    scale = UNITS_NS[unit]
    percent = "" if change.percent is None else f" ({change.percent:+.2f}%)"
    words = f"{change.baseline / scale:.3f} -> {change.experiment / scale:.3f} {unit}, "
    words += f"{change.delta / scale:+.3f} {unit}{percent}"
    if change.error is None:
        return words + "; noise not known"
    judgement = "more than noise" if change.exceeds_noise else "within noise"
    return words + f" +- {change.error / scale:.3f}: {judgement}"


def format_rows(
    diff: Diff, rows: Sequence[DiffRow], metrics: Sequence[Metric], main: Metric, unit: str
) -> list[str]:
    """Return the lines of the table: two of header, the rows, the total."""
    names = [f"{row.name} ({SIDES[row.side]})" if SIDES[row.side] else row.name for row in rows]
    cells = [
        [text for metric in metrics for text in format_difference(row.values[metric], metric, unit)]
        for row in (*rows, diff.total)
    ]
    header = ["Baseline", "Exp", "Delta", "Delta%"] * len(metrics)
    notes = [format_noise(row.values[main], main, unit) for row in (*rows, diff.total)]
    cells = [[*own, *note] for own, note in zip(cells, notes, strict=True)]
    header += [f"+- {unit}", "Noise"]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    first = max(map(len, ("Operator", *names, "Total")))
    groups = [" " * first]
    for index, metric in enumerate(metrics):
        width = sum(widths[index * 4 : index * 4 + 4]) + 6
        groups.append(title_of(metric, unit).center(width))
    lines = ["  ".join(groups).rstrip()]
    for name, own in zip(("Operator", *names, "Total"), (header, *cells), strict=True):
        aligned = (cell.rjust(width) for cell, width in zip(own, widths, strict=True))
        lines.append("  ".join((name.ljust(first), *aligned)))
    rule = "-" * max(map(len, lines))
    return [*lines[:2], rule, *lines[2:-1], rule, lines[-1]]


def format_difference(difference: Difference | None, metric: Metric, unit: str) -> list[str]:
    """Return the four cells of a metric."""
    if difference is None:
        return ["N/A"] * 4
    figures = (difference.baseline, difference.experiment, difference.delta)
    texts = [f"{scaled(figure, metric, unit):.3f}" for figure in figures]
    if metric == "calls":
        texts = [f"{figure:g}" for figure in figures]
    percent = difference.percent
    return [*texts, "N/A" if percent is None else f"{percent:.2f}%"]


def format_noise(difference: Difference | None, metric: Metric, unit: str) -> list[str]:
    """Return half the width of the interval, and the judgement."""
    if difference is None or difference.error is None:
        return ["N/A", "N/A"]
    judgement = "exceeds" if difference.exceeds_noise else "within"
    return [f"{scaled(difference.error, metric, unit):.3f}", judgement]


def operator_table(diff: Diff, rows: Sequence[DiffRow], main: Metric, unit: str) -> ReportTable:
    """Return all metrics of the rows and of the total."""
    columns = ["Operator", "Type", "In"]
    for metric in METRICS:
        title, _, of_unit = title_of(metric, unit).partition(" (")
        suffix = f" ({of_unit}" if of_unit else ""
        columns += [f"{side} {title}{suffix}" for side in ("Baseline", "Exp", "Delta")]
        columns.append(f"Delta {title}%")
    columns += [f"{TITLES[main]} +- ({unit})", "Exceeds noise"]
    cells: list[tuple[Cell, ...]] = []
    for row in (*rows, diff.total):
        own: list[Cell] = [row.name, row.type, SIDES[row.side] or "both"]
        for metric in METRICS:
            own += plain_difference(row.values[metric], metric, unit)
        chief = row.values[main]
        error = None if chief is None or chief.error is None else chief.error / UNITS_NS[unit]
        exceeds = None if chief is None else chief.exceeds_noise
        own += [error, exceeds if exceeds is None else ("yes" if exceeds else "no")]
        cells.append(tuple(own))
    return ReportTable(
        name="operators",
        title="Operators, mean of an iteration",
        columns=tuple(columns),
        rows=tuple(cells),
        notes=(f"+-: all rows together with {CONFIDENCE:.0%} confidence, the total on its own",),
    )


def plain_difference(difference: Difference | None, metric: Metric, unit: str) -> list[Cell]:
    if difference is None:
        return [None] * 4
    figures = (difference.baseline, difference.experiment, difference.delta)
    percent = difference.percent
    return [
        *(round(scaled(figure, metric, unit), 6) for figure in figures),
        None if percent is None else round(percent, 2),
    ]


def iteration_table(diff: Diff, unit: str) -> ReportTable:
    change, scale = diff.iteration, UNITS_NS[unit]
    return ReportTable(
        name="iteration",
        title="Iteration",
        columns=(
            *(f"{side} ({unit})" for side in ("Baseline", "Exp", "Delta")),
            *("Delta%", f"+- ({unit})", "Exceeds noise"),
        ),
        rows=(
            (
                *(
                    round(figure / scale, 6)
                    for figure in (change.baseline, change.experiment, change.delta)
                ),
                None if change.percent is None else round(change.percent, 2),
                None if change.error is None else round(change.error / scale, 6),
                {True: "yes", False: "no", None: None}[change.exceeds_noise],
            ),
        ),
    )
