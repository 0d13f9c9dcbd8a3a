"""Reports as MegEngine's tool `profile_analyze` prints them.

For MegEngine's own file the text is the tool's, byte for byte, unless the tool fails: it does so
with --copy-time without copies, and when unknown figures are sorted or aggregated. What took no
time is infinitely fast only in a report of the engine's own file; in a profile of lar's its speed
is not known. The device is what the engine computes on, which may be a CPU; the host is what
dispatches to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lar.profiles.breakdown import steps_of
from lar.records.profile import Profile
from lar.reports.model import AnyTable, Column, Layout, Rule, Table
from lar.reports.report import Report
from lar.reports.styles.megengine.table import (
    CONFLUENCE,
    Place,
    Record,
    TimeKey,
    aggregate,
    filter_records,
    operators_table_of,
    records_of,
    select_records,
)

# The types of a copy from one device to another, of MegEngine and of ONNX Runtime.
COPY_TYPES = frozenset({"Copy", "MemcpyFromHost", "MemcpyToHost"})
LINES = Layout(over=Rule(), closing=Rule(), has_header=False, is_stripped=True)
ON_CPU = "the device is what the engine computes on: here the CPU"
ON_HOST = (
    "the engine reports no times of the device: these are of the host, which has it do the work"
)


class SummaryRow(NamedTuple):
    """A line of the summary, in seconds; only copies have an average."""

    name: str
    total: float | None
    average: float | None = None


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Make the summary and the tables of the slowest operators.

    Raises:
        UsageError: the options do not go together, or the engine's own profile in it is damaged.
    """
    records = records_of(profile)
    chosen = filter_records(records, options)
    iterations = len(steps_of(profile))
    means = f"times, computation and memory are the mean of {iterations} iterations"
    lines = [means] if iterations > 1 else []
    if profile.facts.dispatch_only:
        lines.append(ON_HOST)
    notes = (*lines, *((ON_CPU,) if profile.facts.device.startswith("cpu") else ()))
    has_names = bool(options.get("dump_only_opr"))
    parts: list[list[str | AnyTable]] = [[*lines]] if lines and not has_names else []
    tables: list[AnyTable] = []
    only = options.get("print_only")
    layout = CONFLUENCE if options.get("confluence") else LINES
    if only in (None, "summary"):
        summary = summary_of(profile, summary_rows_of(records, chosen, options), notes, layout)
        parts.append([summary])
        tables.append(summary)
    places: tuple[Place, ...] = ("device", "host") if options.get("show_host") else ("device",)
    for place in places if only is None else (only,) if only != "summary" else ():
        key: TimeKey = place, options.get("top_end_key", "end")
        selected = select_records(chosen, key, options)
        total = total_seconds(records, (place, "end"))
        table = operators_table_of(
            selected, place, total, notes, in_confluence=layout is CONFLUENCE
        )
        names = [" ".join(each.info.values()) for each in selected] or [""]
        parts.append([*names] if has_names else [table])
        tables.append(table)
    return Report(
        style="megengine",
        body=tuple(it for n, part in enumerate(parts) for it in ([""] if n else []) + part),
        tables=tuple(tables),
        is_for_programs=has_names,
    )


def total_seconds(records: Sequence[Record], key: TimeKey) -> float | None:
    """Return the sum of a time in seconds, None if no operator has it."""
    return aggregate([record.times[key] for record in records if key in record.times], "sum")


def summary_rows_of(
    records: Sequence[Record], chosen: Sequence[Record], options: Mapping[str, Any]
) -> list[SummaryRow]:
    """Return the totals of all operators and, if asked for, of the chosen copies."""
    rows = [
        SummaryRow("total device time", total_seconds(records, ("device", "end"))),
        SummaryRow("total host time", total_seconds(records, ("host", "end"))),
    ]
    if options.get("copy_time"):
        copies = [record for record in chosen if record.info["type"] in COPY_TYPES]
        for name, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [each.times["device", key] for each in copies if ("device", key) in each.times]
            rows.append(SummaryRow(name, aggregate(times, "sum"), aggregate(times, "mean")))
    return rows


def summary_of(
    profile: Profile, rows: Sequence[SummaryRow], notes: tuple[str, ...], layout: Layout
) -> Table[SummaryRow]:
    """Return the table of totals; in text, the cell of a copy has its average too.

    If a total is not known, the tool prints all digits, and so does the text of the engine's own
    file.
    """

    def text(row: SummaryRow) -> str:
        if row.total is None:
            return "N/A"
        if row.average is not None:
            return f"tot={row.total:.4f} avg={row.average:.4f}"
        return f"{row.total:g}" if profile.facts.lar_version else str(row.total)

    return Table(
        name="summary",
        title="Summary",
        columns=(
            Column("name", lambda row: row.name, align="point"),
            Column("value", lambda row: row.total, text, key="total_seconds", align="point"),
            Column("average_seconds", lambda row: row.average, in_text=False),
        ),
        rows=tuple(rows),
        notes=notes,
        layout=layout,
    )
