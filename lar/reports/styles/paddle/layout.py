"""The tables of Paddle's profiler as text: titles amid dashes, cells, truncated names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lar.profiles.totals import Totals
from lar.profiles.units import UNITS_NS
from lar.reports.document import Cell, ReportTable

GAP = "  "
TIMES_WIDTH, CALLS_WIDTH = 40, 6
CPU_TIMES = "CPU Total / Avg / Max / Min / Ratio(%)"
GPU_TIMES = "GPU Total / Avg / Max / Min / Ratio(%)"
PARTS = ("Total", "Avg", "Max", "Min")


class Section(NamedTuple):
    """One table: as lines, and as plain values."""

    lines: tuple[str, ...]
    table: ReportTable


class Block(NamedTuple):
    """Rows under a header; a row that is a text alone becomes a title within the table."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str] | str]


class Times(NamedTuple):
    """The five parts of a cell: times in nanoseconds, and a ratio to 1; None prints as `-`."""

    total_ns: float | None
    average_ns: float | None = None
    max_ns: float | None = None
    min_ns: float | None = None
    ratio: float | None = None


class TimeRow(NamedTuple):
    """A row with the times of a host and of a device; of a cell that is None nothing is known.

    `level` is how deep it stands below its parent.
    """

    name: str
    calls: int | None
    cpu: Times | None
    gpu: Times | None
    level: int = 0
    flops: int | None = None


def times_of(totals: Totals, whole_ns: int) -> Times:
    """Return the cell of some calls; its ratio is that to `whole_ns`, 0 where that is 0."""
    ratio = totals.total_ns / whole_ns if whole_ns else 0.0
    return Times(totals.total_ns, totals.average_ns, totals.max_ns, totals.min_ns, ratio)


def format_time(time_ns: float | None, unit: str) -> str:
    return "-" if time_ns is None else f"{time_ns / UNITS_NS[unit]:.2f}"


def format_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f}"


def format_times(times: Times | None, unit: str) -> str:
    """Return a cell: total, average, maximum, minimum, ratio."""
    *parts, ratio = times or Times(None)
    return " / ".join([*(format_time(part, unit) for part in parts), format_ratio(ratio)])


def format_count(count: int | None) -> str:
    return "-" if count is None else str(count)


def truncate_name(name: str, level: int, width: int) -> str:
    """Return a name indented to its level; below the first level it is cut to the width."""
    indent = 2 * level
    if level and len(name) + indent > width:
        name = name[: width - indent - 3] + "..."
    return " " * indent + name


def widths_of(columns: Sequence[tuple[int, int]], rows: Sequence[Sequence[str] | str]) -> list[int]:
    """Return the widths of columns that are at least that wide: (column, width)."""
    return [
        max([least, *(len(row[column]) for row in rows if not isinstance(row, str))])
        for column, least in columns
    ]


def centre_title(title: str, length: int, fill: str = "-") -> str:
    """Return a title amid dashes, of which the right side takes the odd one."""
    left = max(length - len(title), 0) // 2
    return fill * left + title + fill * max(length - len(title) - left, 0)


def format_table(
    title: str,
    widths: Sequence[int],
    blocks: Sequence[Block],
    *,
    above: Sequence[str] = (),
    notes: Sequence[str] = (),
    closed: bool = True,
) -> tuple[str, ...]:
    """Return a table's lines and the two empty ones after it.

    `above` stands under the title, `notes` below the table, with dashes after them. A table that
    is not closed has no dashes after its last row.
    """
    length = sum(widths) + len(GAP) * (len(widths) - 1)
    dashes = "".join("-" * width + GAP for width in widths)

    def line(cells: Sequence[str]) -> str:
        return "".join(cell.ljust(w) + GAP for cell, w in zip(cells, widths, strict=True))

    lines = [centre_title(title, length), *above]
    for block in blocks:
        lines += [dashes, line(block.headers), dashes]
        for row in block.rows:
            lines.append(centre_title(row, length) if isinstance(row, str) else line(row))
    if closed:
        lines.append(dashes)
    if notes:
        lines += ["Note:", *notes, "-" * length]
    return (*lines, "", "")


def format_unit(unit: str) -> str:
    return f"Time unit: {unit}"


def time_columns(kind: str, unit: str) -> tuple[str, ...]:
    """Return the names of the five parts of a cell, as columns of their own."""
    return (*(f"{kind} {part} ({unit})" for part in PARTS), f"{kind} Ratio (%)")


def time_cells(times: Times | None, unit: str) -> tuple[Cell, ...]:
    """Return the values of the five parts of a cell."""
    *parts, ratio = times or Times(None)
    scaled = (None if part is None else part / UNITS_NS[unit] for part in parts)
    return (*scaled, None if ratio is None else 100 * ratio)
