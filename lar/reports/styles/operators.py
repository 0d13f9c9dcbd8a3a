"""The style `operators`: a profile in four lines, then a line for each operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from lar.errors import UsageError
from lar.profiles.activities import launches_of
from lar.profiles.rows import Key, Row, rows_of
from lar.profiles.summary import layout_of, summary_lines
from lar.profiles.times import UNITS_NS, operators_matching
from lar.records.profile import Profile
from lar.reports.bench_report import describe_advice
from lar.reports.model import Column, Table, number, sort_rows
from lar.reports.profile_plots import plots_of
from lar.reports.report import Report
from lar.reports.styles.figures import FIGURES, Figure, asked_for, figure_columns

# So many rows are printed without --top.
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
    """Make the lines and the table.

    Raises:
        UsageError: nothing was timed, or nothing matches --filter.
    """
    if not profile.timed_executions and not profile.timed_steps():
        raise UsageError("the profile has no timed iterations", "make it with --iter 1 or more")
    group: Key = options.get("group_by", "operator")
    launches = launches_of(profile)
    if pattern := options.get("filter"):
        matching = operators_matching(profile, pattern)
        launches = [it for it in launches if it.place in matching]
        if not launches:
            raise UsageError(
                "nothing matches", "leave it out to see all", flag=f"--filter {pattern}"
            )
    sort = options.get("sort", "time")
    key = sort.lstrip("+-")
    rows = sort_rows(
        rows_of(profile, group, launches), sort, SORTS[key], smallest_first=key == "name"
    )
    table = table_of(profile, rows, group, options.get("time_unit", "us"), asked_for(options))
    top = options.get("top", ROWS)
    # Constants and views take no time.
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
    """Return the table; its text has fewer columns than its records, plus those asked for."""

    def time(
        title: str, value: Callable[[Row], float | None], *, in_text: bool = False, rank: int = 3
    ) -> Column[Row]:
        def cell(row: Row) -> float | None:
            ns = value(row)
            return None if ns is None else ns / UNITS_NS[unit]

        def text(row: Row) -> str:
            number = cell(row)
            return "" if number is None else f"{number:,.1f}"

        key = f"{title} ({unit})"
        return Column(
            *(f"{title} {unit}", cell, text),
            key=key,
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
    columns: tuple[Column[Row], ...] = (
        *((name, kind) if group in ("operator", "kernel") else (name,)),
        *(share, spent),
        Column("kernel", lambda row: row.kernel, rank=3, in_text=group != "kernel"),
        Column("layout", lambda row: layout_of(profile, row), rank=4),
        Column("bound", lambda row: row.describe_bounds(), rank=2),
        time("could save", FIGURES["saving"].value, in_text=True),
        *figure_columns(("calls",), added),
        time("total", lambda row: row.total_ns),
        *figure_columns(("median", "p90", "mean", "min", "max", "disturbed"), added),
        number("flops", lambda row: row.work.flops, in_text=False),
        number("bytes", lambda row: row.work.size_bytes, in_text=False),
    )
    known = {column.title for column in columns if any(column.value(row) for row in rows)}
    in_text = {it.title for it in columns if it.in_text or it.title.split()[0] in asked}
    return Table(
        name="operators" if group == "operator" else f"{group}s",
        title="Operators",
        columns=columns,
        shown=(
            *(share, spent, *({kind} & {*columns}), name),
            *(it for it in columns[columns.index(spent) + 1 :] if it.title in known & in_text),
        ),
        rows=tuple(rows),
    )
