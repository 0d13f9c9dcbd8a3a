"""The table of key averages, laid out as torch's profiler prints it.

Columns are 12 wide and the name at most 55, all right-aligned and each followed by two spaces. A
header of 13 characters shifts those after it. Sums and percentages are over all rows, also over
those that are not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lar.profiles.units import UNITS_NS
from lar.reports.styles.torch.averages import KeyAverage

WIDTH = 12
NAME_WIDTH = 55
SHAPES_WIDTH = 80
UNKNOWN = "--"
FLOP_PREFIXES = ("", "K", "M", "G", "T", "P")


@dataclass(frozen=True, kw_only=True)
class TableTotals:
    """What is written below the table and what percentages are of, in nanoseconds.

    `device_ns` is the time of device rows alone, since those of operators have it again.
    """

    self_cpu_ns: int
    device_ns: int


class Column(NamedTuple):
    """A column: what is in a row's cell, and how wide it is at least."""

    header: str
    cell: Callable[[KeyAverage], str]
    width: int = WIDTH


def totals_of_rows(rows: Sequence[KeyAverage]) -> TableTotals:
    """Sum up all rows; one whose time is not known adds nothing."""
    return TableTotals(
        self_cpu_ns=sum(row.self_cpu_ns or 0 for row in rows),
        device_ns=sum(row.self_device_ns for row in rows if row.kind == "kernel"),
    )


def format_table(
    rows: Sequence[KeyAverage],
    totals: TableTotals,
    *,
    device: str = "",
    unit: str | None = None,
    limit: int | None = None,
) -> str:
    """Return the table; without the name of a `device`, such as CUDA, the columns of its times
    and its memory vanish, and those of what no row knows.

    `unit` fixes the unit of times, one of UNITS_NS; `limit` is how many rows are shown.
    """
    columns = [
        name_column(rows),
        *cpu_columns(totals, unit),
        *(device_columns(device, totals, unit) if device else []),
        *memory_columns(rows, device),
        Column("# of Calls", lambda row: str(row.count)),
        *shapes_columns(rows),
        *flops_columns(rows),
    ]
    rule = "".join("-" * column.width + "  " for column in columns)
    lines = [rule, format_line([column.header for column in columns], columns), rule]
    lines += [
        format_line([column.cell(row) for column in columns], columns) for row in rows[:limit]
    ]
    lines += [rule, f"Self CPU time total: {format_time(totals.self_cpu_ns, unit)}"]
    if device:
        lines.append(f"Self {device} time total: {format_time(totals.device_ns, unit)}")
    return "\n".join(lines) + "\n"


def name_column(rows: Sequence[KeyAverage]) -> Column:
    def cell(row: KeyAverage) -> str:
        cut = len(row.name) >= NAME_WIDTH - 3
        return row.name[: NAME_WIDTH - 3] + "..." if cut else row.name

    longest = max((len(row.name) for row in rows), default=0)
    return Column("Name", cell, min(longest + 4, NAME_WIDTH))


def cpu_columns(totals: TableTotals, unit: str | None) -> list[Column]:
    return [
        Column("Self CPU %", lambda row: format_share(row.self_cpu_ns, totals.self_cpu_ns)),
        Column("Self CPU", lambda row: format_time(row.self_cpu_ns, unit)),
        Column("CPU total %", lambda row: format_share(row.cpu_ns, totals.self_cpu_ns)),
        Column("CPU total", lambda row: format_time(row.cpu_ns, unit)),
        Column("CPU time avg", lambda row: format_time(row.average_cpu_ns, unit)),
    ]


def device_columns(device: str, totals: TableTotals, unit: str | None) -> list[Column]:
    return [
        Column(f"Self {device}", lambda row: format_time(row.self_device_ns, unit)),
        Column(f"Self {device} %", lambda row: format_share(row.self_device_ns, totals.device_ns)),
        Column(f"{device} total", lambda row: format_time(row.device_ns, unit)),
        Column(f"{device} time avg", lambda row: format_time(row.average_device_ns, unit)),
    ]


def memory_columns(rows: Sequence[KeyAverage], device: str) -> list[Column]:
    """Return those of what is known; that a device's rows take none says nothing."""
    known = [row for row in rows if row.kind != "kernel"]
    columns = []
    if any(row.cpu_memory_bytes is not None for row in known):
        columns += [
            Column("CPU Mem", lambda row: format_memory(row.cpu_memory_bytes)),
            Column("Self CPU Mem", lambda row: format_memory(row.self_cpu_memory_bytes)),
        ]
        if device and any(row.device_memory_bytes for row in known):
            columns += [
                Column(f"{device} Mem", lambda row: format_memory(row.device_memory_bytes)),
                Column(
                    f"Self {device} Mem", lambda row: format_memory(row.self_device_memory_bytes)
                ),
            ]
    return columns


def shapes_columns(rows: Sequence[KeyAverage]) -> list[Column]:
    longest = max((len(row.shapes) for row in rows), default=0)
    width = min(longest + 4, SHAPES_WIDTH)
    return [Column("Input Shapes", lambda row: row.shapes[:width], width)] if longest else []


def flops_columns(rows: Sequence[KeyAverage]) -> list[Column]:
    """Return the column of FLOPs in the unit in which the smallest count is readable."""
    counts = [row.flops for row in rows if row.flops]
    if not counts:
        return []
    power = min(int(math.log10(min(counts)) / 3), len(FLOP_PREFIXES) - 1)
    return [
        Column(
            f"Total {FLOP_PREFIXES[power]}FLOPs",
            lambda row: f"{row.flops / 1000**power:8.3f}" if row.flops else UNKNOWN,
        )
    ]


def format_line(cells: Sequence[str], columns: Sequence[Column]) -> str:
    return "".join(f"{cell:>{column.width}}  " for cell, column in zip(cells, columns, strict=True))


def format_time(time_ns: float | None, unit: str | None = None) -> str:
    """Format a time in `unit`, by default in that which fits."""
    if time_ns is None:
        return UNKNOWN
    if unit is None:
        unit = "s" if time_ns >= UNITS_NS["s"] else "ms" if time_ns >= UNITS_NS["ms"] else "us"
    return f"{time_ns / UNITS_NS[unit]:.3f}{unit}"


def format_share(part_ns: int | None, total_ns: int) -> str:
    """Format a part in percent, NaN of nothing."""
    if part_ns is None:
        return UNKNOWN
    return f"{part_ns * 100 / total_ns:.2f}%" if total_ns else "NaN"


def format_memory(size_bytes: int | None) -> str:
    """Format a size in the largest binary unit below it."""
    if size_bytes is None:
        return UNKNOWN
    for power, unit in ((3, "Gb"), (2, "Mb"), (1, "Kb")):
        if abs(size_bytes) >= 1024**power:
            return f"{size_bytes / 1024**power:.2f} {unit}"
    return f"{size_bytes} b"
