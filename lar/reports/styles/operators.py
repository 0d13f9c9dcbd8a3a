"""The style `operators`: a summary of a profile in a few lines, then a line for each operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from lar.errors import UsageError, count_of
from lar.profiles.activities import launches_of
from lar.profiles.breakdown import describe_disturbance, steps_of
from lar.profiles.costs import describe_cost, format_time
from lar.profiles.roofline import Bound
from lar.profiles.rows import FIGURES, Figure, Key, Row, asked_for, figure_columns, rows_of
from lar.profiles.times import UNITS_NS, iteration_times_of, operators_matching, use_of
from lar.records.profile import Profile
from lar.reports.bench_report import describe_advice
from lar.reports.model import Column, Table, number, sort_rows
from lar.reports.profile_plots import plots_of
from lar.reports.report import Report

# Each bound in words that follow "71% of its time is".
BOUNDS: Mapping[Bound, str] = {
    "compute": "bound by computing",
    "memory": "bound by memory",
    "cache": "served by the caches",
    "far": "far from both roofs",
}
# Smaller parts of the time are not mentioned.
LEAST_SHARE = 0.10


def summary_lines(profile: Profile, advice: str = "") -> list[str]:
    """Return the lines of a profile's summary; each line begins with a word for its subject.

    The list is empty if nothing was timed. `advice` says which setting to try; `describe_advice`
    makes this text.
    """
    rows = rows_of(profile)
    if not rows and not profile.timed_steps():
        return []
    trust = [describe_dispatches(profile), describe_means(profile), describe_cost(profile)]
    if disturbed := describe_disturbance(profile):
        trust.append(f"{disturbed}.")
    lines = {
        "time": describe_iteration(profile),
        "slowest": describe_slowest(profile, rows) if rows else "",
        "try": advice,
        "trust": " ".join(filter(None, trust)),
    }
    return [f"{about}: {text}" for about, text in lines.items() if text]


def profiled_seconds_of(profile: Profile) -> float | None:
    """Return the median seconds of an iteration with profiling, or None if nothing was timed."""
    times = iteration_times_of(profile) or [step.duration_ns for step in steps_of(profile)]
    return median(times) / 1e9 if times else None


def describe_iteration(profile: Profile) -> str:
    """Describe how long an iteration takes, without the profiler if this time is known."""
    cost, count = profile.facts.cost, len(profile.timed_steps())
    if cost is None or not cost.unprofiled_seconds:
        # Without a plain run, the cost of the profiler is not known.
        profiled = format_time(profiled_seconds_of(profile) or 0)
        return f"{profiled} an iteration with the profiler (median of {count})"
    plain = format_time(cost.unprofiled_seconds if cost.disturbed else cost.calm[1])
    own = f"median of {cost.unprofiled_iterations} without the profiler"
    return f"{plain} an iteration ({own}{', disturbed' if cost.disturbed else ''})"


def describe_slowest(profile: Profile, rows: Sequence[Row]) -> str:
    """Describe the slowest type of operators, its slowest operator, and the likely reasons."""
    kind = max(rows_of(profile, "type"), key=lambda row: row.iteration_ns)
    own = [row for row in rows if row.type == kind.type]
    name = "" if len(own) > 1 else f" {own[0].name}"
    text = f"{kind.name or 'kernels'}{name}, {kind.share:.0%} of the operators' time"
    if len(own) > 1:
        first = own[0]
        text += f" in {count_of(len(own), 'operator')}, above all {first.name} ({first.share:.0%})"
    reasons = [describe_bounds(kind), describe_balance(profile), describe_far(profile, kind, own)]
    return "; ".join(filter(None, (text, *reasons)))


def describe_bounds(kind: Row) -> str:
    """Describe what limits an operator type, and for what share of its time; empty if unknown."""
    named = [
        f"{share:.0%} is {BOUNDS[bound]}"
        for bound, share in kind.bounds.items()
        if bound is not None and share >= LEAST_SHARE
    ]
    return f"of its time {', '.join(named)}" if named else ""


def describe_balance(profile: Profile) -> str:
    """Describe how long operators waited for threads.

    The text is empty if the operators waited little, or if the engine does not report waiting.
    """
    use = use_of(profile.operators)
    share = None if use is None else use.share_of("waiting")
    if share is None or share < LEAST_SHARE:
        return ""
    return f"the calling thread waits {share:.0%} of the time for other threads"


def describe_dispatches(profile: Profile) -> str:
    """Return a warning if a device's operators have only times of the host; else an empty text."""
    if not profile.facts.dispatch_only:
        return ""
    return (
        f"The times of operators on {profile.facts.device} are not known: the times shown are of "
        "the host, which starts the operators."
    )


def describe_means(profile: Profile) -> str:
    """Return a note if the times of operators are means over all iterations; else empty."""
    if profile.facts.times == "each":
        return ""
    return f"Operator times are means over all iterations: {profile.facts.engine} has no others."


def describe_far(profile: Profile, kind: Row, rows: Sequence[Row]) -> str:
    """Return a likely cause if operators of a type are far from both roofs; else empty.

    The cause is the operator's layout if other operators of the type have another layout, and the
    operator's kernel if not.
    """
    if kind.bounds.get("far", 0.0) < LEAST_SHARE:
        return ""
    first = next(row for row in rows if row.bound == "far")
    plain, others = layout_of(profile, first), {layout_of(profile, row) for row in rows}
    blocked = sorted(others - {plain, ""})
    if plain and blocked:
        shape = profile.operators[first.operators[0]].inputs[0].shape
        channels = f" ({count_of(shape[1], 'input channel')})" if len(shape) == 4 else ""
        return f"{first.name} runs in {plain}{channels}, others in {', '.join(blocked)}"
    return f"kernel {first.kernel}" if first.kernel != first.type else ""


def layout_of(profile: Profile, row: Row) -> str:
    """Return the layout of an operator's input; empty if the engine reports no layout."""
    inputs = profile.operators[row.operators[0]].inputs if row.operators else ()
    return next((fact.layout for fact in inputs if fact.layout), "")


# How many rows are printed without --top.
ROWS = 20
GROUPS: tuple[Key, ...] = ("operator", "type", "module", "shape", "kernel")
SORTS: Mapping[str, Callable[[Row], Any]] = {
    "time": lambda row: row.iteration_ns,
    **{name: FIGURES[name].value for name in ("median", "p90", "mean", "min", "max", "calls")},
    "total": lambda row: row.total_ns,
    "flops": lambda row: row.work.flops,
    "bytes": lambda row: row.work.size_bytes,
    "saving": FIGURES["saving"].value,
    "name": lambda row: row.name,
}


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the report with the summary and the table of operators.

    Raises:
        UsageError: nothing was timed, or nothing matches --filter.
    """
    if not profile.timed_executions and not profile.timed_steps():
        raise UsageError("the profile has no timed iterations", "run again with --iter 1 or more")
    group: Key = options.get("group_by", "operator")
    launches = None
    if pattern := options.get("filter"):
        matching = operators_matching(profile, pattern)
        launches = [it for it in launches_of(profile) if it.place in matching]
        if not launches:
            raise UsageError(
                "nothing matches", "leave --filter out to see all rows", flag=f"--filter {pattern}"
            )
    sort = options.get("sort", "time")
    key = sort.lstrip("+-")
    rows = sort_rows(
        rows_of(profile, group, launches), sort, SORTS[key], smallest_first=key == "name"
    )
    table = table_of(profile, rows, group, options.get("time_unit", "us"), asked_for(options))
    top = options.get("top", ROWS)
    # Rows without time, such as constants and views, are only shown if all rows are.
    shown = rows if top >= len(rows) else [row for row in rows if row.iteration_ns][:top]
    left = len(rows) - len(shown)
    lines = summary_lines(profile, describe_advice(profile))
    more = (f"({left} more: --top 0 shows all)",) if left else ()
    lacking = (f"not recorded: {text}" for text in profile.facts.dropped)
    return Report(
        style="operators",
        body=(*lines, "", replace(table, rows=tuple(shown)), *more, *lacking),
        tables=(table if "top" not in options else replace(table, rows=tuple(shown)),),
        plots=plots_of(profile),
        title=" on ".join(filter(None, (profile.facts.model.path, profile.facts.engine))),
    )


def table_of(
    profile: Profile, rows: list[Row], group: Key, unit: str, asked: Collection[str]
) -> Table[Row]:
    """Return the table; only the main columns and the columns that --columns names are printed."""

    def time(
        title: str, value: Callable[[Row], float | None], *, in_text: bool = False, rank: int = 3
    ) -> Column[Row]:
        def cell(row: Row) -> float | None:
            ns = value(row)
            return None if ns is None else ns / UNITS_NS[unit]

        def text(row: Row) -> str:
            number = cell(row)
            return "" if number is None else f"{number:,.1f}"

        return Column(
            *(f"{title} {unit}", cell, text),
            key=f"{title} ({unit})",
            align="right",
            in_text=in_text,
            rank=rank,
            digits=3,
        )

    def added(name: str, figure: Figure) -> Column[Row]:
        if figure.is_time:
            return time(figure.title, figure.value)
        return number(figure.title, figure.value, rank=6, in_text=False)

    name: Column[Row] = Column(
        group if group != "operator" else "name", lambda row: row.name, rank=0
    )
    kind: Column[Row] = Column("type", lambda row: row.type, rank=1)
    share: Column[Row] = number("share %", lambda row: row.share, 1, key="share", scale=100, rank=0)
    spent = time("time", lambda row: row.iteration_ns, in_text=True, rank=0)
    kernel: Column[Row] = Column("kernel", lambda row: row.kernel, rank=3)
    columns: tuple[Column[Row], ...] = (
        *((name, kind) if group in ("operator", "kernel") else (name,)),
        *(share, spent, *((kernel,) if group != "kernel" else ())),
        Column("layout", lambda row: layout_of(profile, row), rank=4),
        Column("bound", lambda row: row.describe_bounds(), rank=2),
        time("could save", FIGURES["saving"].value, in_text=True),
        *figure_columns(("calls",), added),
        time("total", lambda row: row.total_ns),
        *figure_columns(("median", "p90", "mean", "min", "max", "disturbed"), added),
        number("flops", lambda row: row.work.flops, in_text=False),
        number("bytes", lambda row: row.work.size_bytes, in_text=False),
    )
    known = [it for it in columns[columns.index(spent) + 1 :] if any(map(it.value, rows))]
    return Table(
        name="operators" if group == "operator" else f"{group}s",
        title="Operators",
        columns=columns,
        shown=(
            *(share, spent, *({kind} & {*columns}), name),
            *(it for it in known if it.in_text or it.title.split()[0] in asked),
        ),
        rows=tuple(rows),
    )
