"""The common parts of Paddle's tables: layout, columns of times, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """The five parts of a cell: times in nanoseconds, and a ratio to 1; None prints as `-`. The
    others have columns of their own, but the last, which rows are ranked by."""

    total_ns: float | None
    average_ns: float | None = None
    max_ns: float | None = None
    min_ns: float | None = None
    ratio: float | None = None
    median_ns: float | None = None
    p90_ns: float | None = None
    typical_ns: float | None = None

    def without_nothing(self) -> Times:
        """Return them without times of calls that are 0; the sum stays, and what rows are ranked
        by."""
        return self._replace(
            average_ns=self.average_ns or None,
            max_ns=self.max_ns or None,
            min_ns=self.min_ns or None,
            median_ns=self.median_ns or None,
            p90_ns=self.p90_ns or None,
        )


class TimeRow(NamedTuple):
    """A row with the times of a host and of a device; of a cell that is None nothing is known.

    `level` is how deep it stands below its parent, `thread` the title that it stands under.
    `saving_ns` is how much of an iteration it would save at its roof, `disturbed` how many of its
    calls something else on the machine made longer.
    """

    name: str
    calls: int | None
    cpu: Times | None
    gpu: Times | None
    level: int = 0
    flops: int | None = None
    thread: str = ""
    saving_ns: float | None = None
    disturbed: int = 0


def without_nothing(rows: Iterable[TimeRow], *, are_estimates: bool) -> list[TimeRow]:
    """Return rows of operators on the host; of times that are estimates without what profiling
    cost, that of a call of which nothing is left is not known."""
    if not are_estimates:
        return [*rows]
    return [row._replace(cpu=row.cpu and row.cpu.without_nothing()) for row in rows]


def times_of(totals: Totals, whole_ns: int) -> Times:
    """Return the cell of some calls; its ratio is to `whole_ns`, or 0 if that is 0."""
    ratio = totals.total_ns / whole_ns if whole_ns else 0.0
    return Times(
        *(totals.total_ns, totals.average_ns, totals.max_ns, totals.min_ns, ratio),
        *(totals.median_ns, totals.p90_ns, totals.ranking_ns),
    )


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


def name_column(
    width: int,
    text: Callable[[TimeRow], str] | None = None,
) -> Column[TimeRow]:
    """Return the column of names; without a width it is as wide as the longest."""
    return Column(
        *("Name", lambda row: row.name, text),
        width=width or 4,
        is_fixed=width > 0,
        rank=0,
    )


CALLS = Column[TimeRow](
    *("Calls", lambda row: row.calls, lambda row: format_count(row.calls)),
    width=CALLS_WIDTH,
    rank=0,
)
THREAD = Column[TimeRow]("Thread", lambda row: row.thread, in_text=False)


def times_column(
    side: Literal["CPU", "GPU"],
    unit: str,
    times_of_row: Callable[[TimeRow], Times | None],
    *,
    is_main: bool,
) -> Column[TimeRow]:
    """Return the column of times: one cell of five parts, which are columns of records. That of
    the host or of the device, whichever computes, `is_main`: it stays on a narrow screen."""

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

    parts = tuple(map(part, range(len(PARTS) + 1)))
    return Column(
        f"{side} Total / Avg / Max / Min / Ratio(%)",
        text=lambda row: " / ".join(part.cell(row) for part in parts),
        parts=parts,
        width=TIMES_WIDTH,
        rank=0 if is_main else 6,
    )


def both_times(unit: str, *, on_device: bool) -> tuple[Column[TimeRow], Column[TimeRow]]:
    """Return the columns of the host's times and of the device's."""
    return (
        times_column("CPU", unit, lambda row: row.cpu, is_main=not on_device),
        times_column("GPU", unit, lambda row: row.gpu, is_main=on_device),
    )


def median_column(
    side: Literal["CPU", "GPU"],
    unit: str,
    times_of_row: Callable[[TimeRow], Times | None],
    *,
    in_text: bool,
) -> Column[TimeRow]:
    """Return a column that Paddle has not: what a call takes usually, and nine of ten at most."""

    def part(title: str, time_ns: Callable[[Times], float | None]) -> Column[TimeRow]:
        def value(row: TimeRow) -> float | None:
            return time_ns(times_of_row(row) or Times(None))

        return Column(
            f"{side} {title}",
            lambda row: None if (time := value(row)) is None else time / UNITS_NS[unit],
            lambda row: format_time(value(row), unit),
            unit,
        )

    parts = (part("Median", lambda it: it.median_ns), part("P90", lambda it: it.p90_ns))
    return Column(
        f"{side} Median / P90",
        text=lambda row: " / ".join(each.cell(row) for each in parts),
        parts=parts,
        width=18,
        in_text=in_text,
        rank=0,
    )


def disturbed_column(rows: Sequence[TimeRow], *, is_recorded: bool) -> Column[TimeRow]:
    """Return the column of how many calls were disturbed, which text has where some were."""
    return Column(
        "Disturbed",
        lambda row: row.disturbed if is_recorded else None,
        lambda row: str(row.disturbed or ""),
        width=9,
        in_text=any(row.disturbed for row in rows),
        rank=3,
    )


T = TypeVar("T")
# Where they stand in `Times`.
METRICS = {"total": 0, "avg": 1, "max": 2, "min": 3, "median": 5, "p90": 6, "typical": 7}
SAVING = "saving"  # the sort key which shows a column that Paddle has not


def sort_by_time(rows: Sequence[T], key: str, row_of: Callable[[T], TimeRow]) -> list[T]:
    """Sort by a key such as `cpu_total`: the largest first, but the smallest of a minimum.

    `cpu_typical` is the median of the calls times their number.
    """
    if key.lstrip("+-") == SAVING:
        return sort_rows(rows, key, lambda row: row_of(row).saving_ns)
    where, _, metric = key.lstrip("+-").partition("_")

    def value(row: T) -> float | None:
        times: Times | None = getattr(row_of(row), where)
        return None if times is None else times[METRICS[metric]]

    return sort_rows(rows, key, value, smallest_first=metric == "min")
