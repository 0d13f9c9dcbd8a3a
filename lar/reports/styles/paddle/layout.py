"""The common parts of Paddle's tables: layout, columns of times, names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from lar.profiles.totals import UNITS_NS, Totals
from lar.reports.model import AnyTable, Column, Layout, Rule
from lar.reports.sorting import sort_rows

TIMES_WIDTH, CALLS_WIDTH = 40, 6
DASHES = Rule(right="  ")
# The layout of every table, that of those without dashes after the last
# row, and that of those with an empty line after the notes.
LAYOUT = Layout(
    end="  ", over=DASHES, under=DASHES, closing=DASHES, fill="-", note="Note:", empty_lines=2
)
OPEN = replace(LAYOUT, closing=None)
SPACED = replace(LAYOUT, note_lines=1)
PARTS = ("Total", "Avg", "Max", "Min")


class Section(NamedTuple):
    """One table, and the lines that text prints instead of the table alone."""

    table: AnyTable
    body: tuple[str | AnyTable, ...] = ()


class Times(NamedTuple):
    """The five parts of a cell: times in nanoseconds, and a ratio to 1; None prints as `-`."""

    total_ns: float | None
    average_ns: float | None = None
    max_ns: float | None = None
    min_ns: float | None = None
    ratio: float | None = None


class TimeRow(NamedTuple):
    """A row with the times of a host and of a device; of a cell that is None nothing is known.

    `level` is how deep it stands below its parent, `thread` the title that it stands under.
    `saving_ns` is how much of an iteration it would save at its roof.
    """

    name: str
    calls: int | None
    cpu: Times | None
    gpu: Times | None
    level: int = 0
    flops: int | None = None
    thread: str = ""
    saving_ns: float | None = None


def times_of(totals: Totals, whole_ns: int) -> Times:
    """Return the cell of some calls; its ratio is to `whole_ns`, or 0 if that is 0."""
    ratio = totals.total_ns / whole_ns if whole_ns else 0.0
    return Times(totals.total_ns, totals.average_ns, totals.max_ns, totals.min_ns, ratio)


def format_time(time_ns: float | None, unit: str) -> str:
    return "-" if time_ns is None else f"{time_ns / UNITS_NS[unit]:.2f}"


def format_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f}"


def format_count(count: int | None) -> str:
    return "-" if count is None else str(count)


def truncate_name(name: str, level: int, width: int) -> str:
    """Return a name indented to its level; below the first level it is cut to the column's
    width."""
    indent = 2 * level
    if level and len(name) + indent > width:
        name = name[: width - indent - 3] + "..."
    return " " * indent + name


def format_unit(unit: str) -> str:
    return f"Time unit: {unit}"


def name_column(width: int, text: Callable[[TimeRow], str] | None = None) -> Column[TimeRow]:
    """Return the column of names; without a width it is as wide as the longest."""
    return Column("Name", lambda row: row.name, text, width=width or 4, is_fixed=width > 0, rank=0)


CALLS = Column[TimeRow](
    "Calls", lambda row: row.calls, lambda row: format_count(row.calls), width=CALLS_WIDTH
)
THREAD = Column[TimeRow]("Thread", lambda row: row.thread, in_text=False)


def times_column(
    side: Literal["CPU", "GPU"], unit: str, times_of_row: Callable[[TimeRow], Times | None]
) -> Column[TimeRow]:
    """Return the column of times: one cell of five parts, which are columns of records."""

    def part(place: int) -> Column[TimeRow]:
        def value(row: TimeRow) -> float | None:
            return (times_of_row(row) or Times(None))[place]

        if place == len(PARTS):
            return Column(
                f"{side} Ratio (%)",
                lambda row: None if (ratio := value(row)) is None else 100 * ratio,
                lambda row: format_ratio(value(row)),
            )
        return Column(
            f"{side} {PARTS[place]}",
            lambda row: None if (time := value(row)) is None else time / UNITS_NS[unit],
            lambda row: format_time(value(row), unit),
            unit,
        )

    return Column(
        f"{side} Total / Avg / Max / Min / Ratio(%)",
        parts=tuple(map(part, range(len(PARTS) + 1))),
        joint=" / ",
        width=TIMES_WIDTH,
        shortest=TIMES_WIDTH,
        rank=6 if side == "CPU" else 5,
    )


def both_times(unit: str) -> tuple[Column[TimeRow], Column[TimeRow]]:
    """Return the columns of the host's times and of the device's."""
    return (
        times_column("CPU", unit, lambda row: row.cpu),
        times_column("GPU", unit, lambda row: row.gpu),
    )


T = TypeVar("T")
METRICS = {"total": 0, "avg": 1, "max": 2, "min": 3}  # where they stand in `Times`
SAVING = "saving"  # the sort key which shows a column that Paddle has not


def sort_by_time(rows: Sequence[T], key: str, row_of: Callable[[T], TimeRow]) -> list[T]:
    """Sort by a key such as `cpu_total`: the largest first, but the smallest of a minimum."""
    if key.lstrip("+-") == SAVING:
        return sort_rows(rows, key, lambda row: row_of(row).saving_ns)
    where, _, metric = key.lstrip("+-").partition("_")

    def value(row: T) -> float | None:
        times: Times | None = getattr(row_of(row), where)
        return None if times is None else times[METRICS[metric]]

    return sort_rows(rows, key, value, smallest_first=metric == "min")
