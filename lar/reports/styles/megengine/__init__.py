"""Reports as MegEngine's tool `profile_analyze` prints them.

Of MegEngine's own file the text is the tool's, byte for byte, wherever the tool does not fail: it
does on --copy-time without copies and where unknown figures are sorted or put together.
But what took no time is infinitely fast only where the engine's own file is read: in a profile of
lar's its speed is not known.
The device is what the engine computes on, which may be a CPU; the host is what dispatches to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lar.records.profile import Profile
from lar.reports.model import AnyTable, Column, Layout, Rule, Table
from lar.reports.report import Report
from lar.reports.styles.megengine.records import (
    Record,
    TimeKey,
    aggregate,
    filter_records,
    iterations_of,
    records_of,
    select_records,
)
from lar.reports.styles.megengine.table import CONFLUENCE, names_of, operators_table_of

# What is a copy from one device to another, for MegEngine and for ONNX Runtime.
COPY_TYPES = frozenset({"Copy", "MemcpyFromHost", "MemcpyToHost"})
LINES = Layout(over=Rule(), closing=Rule(), has_header=False, is_stripped=True)
ON_CPU = "the device is what the engine computes on: here the CPU"
ON_HOST = (
    "the engine reports no times of the device: these are of the host, which has it do the work"
)
SAVES = "could save: seconds of an iteration, with the operator at its roof (--style ncu)"


class SummaryRow(NamedTuple):
    """A line of the summary, in seconds; only copies have an average."""

    name: str
    total: float | None
    average: float | None = None
    is_copy: bool = False


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Make the summary and the tables of the slowest operators.

    Raises:
        UsageError: the options do not go together, or the engine's own profile in it is damaged.
    """
    records = records_of(profile)
    chosen = filter_records(records, options)
    totals = {place: total_seconds(records, (place, "end")) for place in ("device", "host")}
    iterations = iterations_of(profile)
    means = f"times, computation and memory are the mean of {iterations} iterations"
    has_savings = any(record.saving is not None for record in records)
    lines = [means] if iterations > 1 else []
    if has_savings and "device" in parts_of(options):
        lines.append(SAVES)
    if profile.facts.dispatch_only:
        lines.append(ON_HOST)
    on_cpu = profile.facts.device.startswith("cpu")
    notes = (*lines, *((ON_CPU,) if on_cpu else ()))
    body: list[list[str | AnyTable]] = [[*lines]] if lines else []
    if options.get("dump_only_opr"):
        body = []
    tables: list[AnyTable] = []
    in_confluence = bool(options.get("confluence"))
    for part in parts_of(options):
        if part == "summary":
            rows = summary_rows_of(chosen, totals, bool(options.get("copy_time")))
            table = summary_table_of(
                rows, notes, in_confluence, is_rounded=bool(profile.facts.lar_version)
            )
            body.append([table])
            tables.append(table)
        else:
            key: TimeKey = part, options.get("top_end_key", "end")
            # Of the engine's own file the text is the tool's; in a profile of lar's unknown is N/A.
            is_infinite = not profile.facts.lar_version
            selected = select_records(chosen, key, options, is_infinite=is_infinite)
            operators = operators_table_of(
                selected, part, totals[part], notes, in_confluence=in_confluence
            )
            body.append([*names_of(selected)] if options.get("dump_only_opr") else [operators])
            tables.append(operators)
    joined = [part for place, each in enumerate(body) for part in ([""] if place else []) + each]
    return Report(
        style="megengine",
        body=tuple(joined),
        tables=tuple(tables),
        is_for_programs=bool(options.get("dump_only_opr")),
    )


def parts_of(options: Mapping[str, Any]) -> tuple[Literal["summary", "device", "host"], ...]:
    """Return the parts of the report, in their order."""
    if only := options.get("print_only"):
        return (only,)
    return ("summary", "device", "host") if options.get("show_host") else ("summary", "device")


def total_seconds(records: Sequence[Record], key: TimeKey) -> float | None:
    """Return the sum of a time; None if no operator has it."""
    return aggregate([record.times[key] for record in records if key in record.times], "sum")


def summary_rows_of(
    chosen: Sequence[Record], totals: Mapping[str, float | None], with_copies: bool
) -> list[SummaryRow]:
    """Return the totals of all operators and, if asked for, of the chosen copies."""
    rows = [
        SummaryRow("total device time", totals["device"]),
        SummaryRow("total host time", totals["host"]),
    ]
    if with_copies:
        copies = [record for record in chosen if record.info["type"] in COPY_TYPES]
        for name, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [each.times["device", key] for each in copies if ("device", key) in each.times]
            total, average = aggregate(times, "sum"), aggregate(times, "mean")
            rows.append(SummaryRow(name, total, average, is_copy=True))
    return rows


def summary_table_of(
    rows: Sequence[SummaryRow], notes: tuple[str, ...], in_confluence: bool, *, is_rounded: bool
) -> Table[SummaryRow]:
    """Return the totals; in the text, the cell of a copy has its average too. The tool prints all
    digits where a total is not known, and so does the text of the engine's own file."""

    def text(row: SummaryRow) -> str:
        if row.is_copy and row.total is not None:
            return f"tot={row.total:.4f} avg={row.average:.4f}"
        if row.total is None:
            return "N/A"
        return f"{row.total:g}" if is_rounded else str(row.total)

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
        layout=CONFLUENCE if in_confluence else LINES,
    )
