"""Two commands side by side: the plain iteration and each operator, and what pairs of profiles
show of them.

Operators of both are joined by what they compute; one without a partner is of A or of B alone. An
operator's time is its own, of a plain iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.engines import operator_kinds_of_both
from lar.profiles.differences import ComparedProfiles, ComparedTimes, compare_profiles
from lar.profiles.run_contrast import Contrast, contrasts_of
from lar.profiles.totals import UNITS_NS
from lar.records.profile import Profile
from lar.records.summary import Interval
from lar.reports.model import Column, Layout, Rule, Table, number
from lar.reports.report import Report
from lar.reports.sorting import sort_rows
from lar.reports.verdicts import (
    color_of_verdict,
    describe_difference,
    format_interval,
    high_of,
    low_of,
)

RULE = Rule(middle="--")
LAYOUT = Layout(under=RULE, total=RULE)
CONTRAST_COLUMNS: tuple[Column[Contrast], ...] = (
    Column("What", lambda it: it.what),
    Column("A", lambda it: it.a),
    Column("B", lambda it: it.b),
)
TimeColumn = Column[ComparedTimes]
HOW_TO_JUDGE = "three pairs of profiles or more are judged: lar report A1 B1 A2 B2 A3 B3"

# From nothing to something is the largest change.
SORTS: Mapping[str, Callable[[ComparedTimes], float | str]] = {
    "change": lambda it: abs(it.change_ns),
    "percent": lambda it: float("inf") if it.change_percent is None else abs(it.change_percent),
    "a": lambda it: it.a_ns,
    "b": lambda it: it.b_ns,
    "calls": lambda it: max(it.calls),
    "name": lambda it: it.name,
}


def build(b: Profile, options: Mapping[str, Any], a: Profile, *more: Profile) -> Report:
    """Compare two profiles; `more` are more of the same two commands, by turns.

    Raises:
        UsageError: one of them has no timed iterations, or is of another command.
    """
    pairs = [(a, b), *zip(more[::2], more[1::2], strict=True)]
    found = compare_profiles(
        pairs,
        operator_kinds_of_both(a, b),
        options.get("group_by") or "name",
        options.get("filter") or "",
    )
    unit = options.get("time_unit") or "us"
    contrasts = contrasts_of(a, b)
    sort = options.get("sort") or "change"
    key = sort.lstrip("+-")
    rows = sort_rows(found.operators, sort, SORTS[key], smallest_first=key == "name")
    table = operator_table(found, rows[: options.get("top")], unit)
    lines = [describe_iteration(found, unit)]
    lines += ["what differs:"] if contrasts else ["nothing else differs that is recorded"]
    lines += [f"  {each.what}: {each.a} -> {each.b}" for each in contrasts]
    after = [describe_shared(found), *([] if found.is_judged else [HOW_TO_JUDGE])]
    return Report(
        style="diff",
        body=(*lines, "", table, "", *after),
        tables=(
            iteration_table(found, unit),
            table,
            Table(
                name="differs",
                title="What differs",
                columns=CONTRAST_COLUMNS,
                rows=tuple(contrasts),
            ),
        ),
    )


def describe_iteration(found: ComparedProfiles, unit: str) -> str:
    """Return the headline: the iterations of A and B, and what is shown of them."""
    it, scale = found.iteration, UNITS_NS[unit]
    percent = "" if it.change_percent is None else f" ({it.change_percent:+.1f}%)"
    interval = format_interval(interval_of(it))
    return (
        f"{name_of_iteration(found)}: A {it.a_ns / scale:.3f} {unit}, "
        f"B {it.b_ns / scale:.3f} {unit}, {it.change_ns / scale:+.3f} {unit}{percent}: "
        f"{describe_difference(it.difference)}{f' (ratio {interval})' if interval else ''}"
    )


def name_of_iteration(found: ComparedProfiles) -> str:
    return "plain iteration" if found.is_plain else "profiled iteration (not each has a plain one)"


def describe_shared(found: ComparedProfiles) -> str:
    """Return how much of the operators' time is in those that both have."""
    both = [row for row in found.operators if row.is_of_both]
    a, b = (
        f"{sum(times) / whole:.0%}" if whole else "all"
        for times, whole in (
            ([row.a_ns for row in both], sum(row.a_ns for row in found.operators)),
            ([row.b_ns for row in both], sum(row.b_ns for row in found.operators)),
        )
    )
    return f"operators that both have take {a} of the operators' time in A, {b} in B"


def interval_of(row: ComparedTimes) -> Interval | None:
    return row.difference.interval if row.difference else None


def verdict_of(row: ComparedTimes) -> str:
    if not row.is_of_both:
        return "only in A" if row.times_ns[0] else "only in B"
    return row.difference.verdict if row.difference else ""


def columns_of_times(unit: str) -> tuple[TimeColumn, ...]:
    """Return the columns of A, of B, of the change and of what is shown."""
    scale = UNITS_NS[unit]
    ratio: TimeColumn = Column(
        "ratio",
        text=lambda row: format_interval(interval_of(row)) or "-",
        parts=(
            Column("low", lambda row: low_of(interval_of(row)), key="ratio_low"),
            Column("high", lambda row: high_of(interval_of(row)), key="ratio_high"),
        ),
        align="right",
        rank=4,
    )

    def time(title: str, time_ns: Callable[[ComparedTimes], float | None], rank: int) -> TimeColumn:
        def value(row: ComparedTimes) -> float | None:
            found = time_ns(row)
            return None if found is None else round(found / scale, 6)

        return number(f"{title} {unit}", value, 3, key=f"{title} ({unit})", unknown="-", rank=rank)

    return (
        time("A", lambda row: row.a_ns if row.times_ns[0] else None, 2),
        time("B", lambda row: row.b_ns if row.times_ns[1] else None, 2),
        time("change", lambda row: row.change_ns, 0),
        number("change %", lambda row: row.change_percent, 1, unknown="new", rank=1),
        ratio,
        Column("verdict", verdict_of, rank=1),
    )


def iteration_table(found: ComparedProfiles, unit: str) -> Table[ComparedTimes]:
    return Table(
        name="iteration",
        title="Iteration",
        columns=(Column("iteration", lambda it: name_of_iteration(found)), *columns_of_times(unit)),
        rows=(found.iteration,),
    )


def operator_table(
    found: ComparedProfiles, rows: Sequence[ComparedTimes], unit: str
) -> Table[ComparedTimes]:
    """Return the rows and the sum of all operators; the text says what is shown of them if anything
    is judged."""
    *times, ratio, verdict = columns_of_times(unit)
    columns = (
        TimeColumn("name", lambda it: it.name, rank=0),
        TimeColumn("type", lambda it: it.type, rank=3),
        *times,
        TimeColumn(
            "calls",
            text=lambda it: " -> ".join(dict.fromkeys(f"{calls:g}" for calls in it.calls)),
            parts=(
                Column("A", lambda it: it.calls[0], key="A calls"),
                Column("B", lambda it: it.calls[1], key="B calls"),
            ),
            rank=5,
        ),
        ratio,
        verdict,
    )
    return Table(
        name="operators",
        title="Operators of an iteration",
        columns=columns,
        shown=tuple(it for it in columns if it is not ratio or found.is_judged),
        rows=(*rows, found.total),
        color=lambda it: color_of_verdict(it.difference),
        layout=LAYOUT,
    )
