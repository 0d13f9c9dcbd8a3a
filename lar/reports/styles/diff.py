"""The style `diff`: compares the iterations and operators of two commands by pairs of profiles.

Operators of A and B that compute the same values are joined. An operator without a partner on the
other side belongs to A alone or to B alone. The time of an operator excludes the operators inside
it. It is scaled to an iteration without the profiler, if the cost of profiling is known for all
profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lar.engines import operator_kinds_of_both
from lar.profiles.costs import describe_cost, extra_share
from lar.profiles.differences import ComparedProfiles, ComparedTimes, compare_profiles, contrasts_of
from lar.profiles.times import UNITS_NS
from lar.records.profile import Profile
from lar.records.summary import Interval
from lar.reports.model import (
    Column,
    Layout,
    Rule,
    Table,
    number,
    sort_rows,
    table_of_values,
    value_at,
)
from lar.reports.report import Report, color_of_verdict, describe_difference, format_interval

TimeColumn = Column[ComparedTimes]
RULE = Rule(middle="--")
LAYOUT = Layout(under=RULE, total=RULE)
HOW_TO_JUDGE = "three pairs of profiles or more are judged: lar report A1 B1 A2 B2 A3 B3"

# In percent, a change from no time to some time counts as infinite.
SORTS: Mapping[str, Callable[[ComparedTimes], float | str]] = {
    "change": lambda it: abs(it.change_ns),
    "percent": lambda it: float("inf") if it.change_percent is None else abs(it.change_percent),
    "a": lambda it: it.a_ns,
    "b": lambda it: it.b_ns,
    "calls": lambda it: max(it.calls),
    "name": lambda it: it.name,
}


def build(b: Profile, options: Mapping[str, Any], a: Profile, *more: Profile) -> Report:
    """Return the report on the differences between two profiles.

    `more` has further profiles, which alternate between the same two commands.

    Raises:
        UsageError: a profile has no timed iterations, or is of another command.
    """
    found = compare_profiles(
        [(a, b), *zip(more[::2], more[1::2], strict=True)],
        operator_kinds_of_both(a, b),
        options.get("group_by") or "name",
        options.get("filter") or "",
    )
    unit, sort = options.get("time_unit") or "us", options.get("sort") or "change"
    key = sort.lstrip("+-")
    rows = sort_rows(found.operators, sort, SORTS[key], smallest_first=key == "name")
    table: Table[ComparedTimes] = Table(
        name="operators",
        title="Operators of an iteration",
        columns=columns_of(found, unit),
        rows=(*rows[: options.get("top")], found.total, found.iteration),
        color=lambda it: color_of_verdict(it.difference),
        layout=LAYOUT,
    )
    contrasts = contrasts_of(a, b)
    about = [f"  {each.what}: {each.a} -> {each.b}" for each in contrasts]
    head = "what differs:" if contrasts else "model, options, versions and machine are the same"
    costs = describe_costs((a, b, *more))
    after = [describe_shared(found), *costs, *([] if found.is_judged else [HOW_TO_JUDGE])]
    return Report(
        style="diff",
        body=(describe_iteration(found.iteration, unit), head, *about, "", table, "", *after),
        page_of_text=True,
        title="lar report: A and B",
        tables=(table, table_of_values("differs", "What differs", ("what", "A", "B"), contrasts)),
    )


def describe_iteration(it: ComparedTimes, unit: str) -> str:
    """Return the headline: the iterations of A and B, and the verdict on these iterations."""
    scale, interval = UNITS_NS[unit], format_interval(interval_of(it))
    percent = "" if it.change_percent is None else f" ({it.change_percent:+.1f}%)"
    return (
        f"{it.name}: A {it.a_ns / scale:.3f} {unit}, B {it.b_ns / scale:.3f} {unit}, "
        f"{it.change_ns / scale:+.3f} {unit}{percent}: {describe_difference(it.difference)}"
        f"{f' (ratio {interval})' if interval else ''}"
    )


def verdict_of(row: ComparedTimes) -> str:
    if not row.is_of_both:
        return "only in A" if row.times_ns[0] else "only in B"
    return row.difference.verdict if row.difference else ""


def interval_of(row: ComparedTimes) -> Interval | None:
    return row.difference.interval if row.difference else None


def describe_shared(found: ComparedProfiles) -> str:
    """Return a line on the share of time that is spent in operators that both sides have."""
    both, total = found.shared, found.total
    a, b = both.a_ns / (total.a_ns or 1), both.b_ns / (total.b_ns or 1)
    return f"operators that both have take {a:.0%} of the operators' time in A, {b:.0%} in B"


def describe_costs(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield lines on the cost of profiling of A and B, and which profiles have no known cost."""
    for side, profile in zip("AB", profiles, strict=False):
        if cost := describe_cost(profile):
            yield f"{side}: {cost}"
    turns = [f"{'AB'[place % 2]}{place // 2 + 1}" for place in range(len(profiles))]
    names = turns if len(turns) > 2 else ["A", "B"]
    unknown = [it for it, each in zip(names, profiles, strict=True) if extra_share(each) is None]
    if 0 < len(unknown) < len(profiles):
        about = f"The cost of profiling is not known for {', '.join(unknown)}"
        yield f"{about}. So times of operators are as recorded in all profiles."


def columns_of(found: ComparedProfiles, unit: str) -> tuple[TimeColumn, ...]:
    """Return the columns of the table; the text has ratios only if pairs of profiles are judged."""

    def figure(
        title: str, figure_of: Callable[[ComparedTimes], float | None], rank: int, digits: int = 3
    ) -> TimeColumn:
        def value(row: ComparedTimes) -> float | None:
            return None if (known := figure_of(row)) is None else round(known, 6)

        return number(title, value, digits, unknown="-", rank=rank)

    scale = UNITS_NS[unit]
    return (
        Column("name", lambda it: it.name, rank=0),
        Column("type", lambda it: it.type, rank=3),
        figure(f"A {unit}", lambda it: it.a_ns / scale if it.times_ns[0] else None, 2),
        figure(f"B {unit}", lambda it: it.b_ns / scale if it.times_ns[1] else None, 2),
        figure(f"change {unit}", lambda it: it.change_ns / scale, 0),
        figure("change %", lambda it: it.change_percent, 1, digits=1),
        Column(
            "calls",
            text=lambda it: " -> ".join(dict.fromkeys(f"{calls:g}" for calls in it.calls)),
            parts=(
                Column("calls A", lambda it: it.calls[0]),
                Column("calls B", lambda it: it.calls[1]),
            ),
        ),
        Column(
            "ratio",
            text=lambda it: format_interval(interval_of(it)) or "-",
            parts=(
                Column("ratio low", value_at("difference.interval.low"), digits=3),
                Column("ratio high", value_at("difference.interval.high"), digits=3),
            ),
            in_text=found.is_judged,
        ),
        Column(
            "verdict",
            text=lambda it: verdict_of(it) if found.is_judged or not it.is_of_both else "",
            parts=(Column("verdict", verdict_of),),
            rank=1,
        ),
    )
