"""The table of operators in MegEngine's style: as text, in Confluence markup, as plain values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lar.errors import count_of
from lar.profiles.times import CLOCK_STEP_NS
from lar.profiles.totals import Totals
from lar.reports.model import Cell, Column, Layout, Rule, Table
from lar.reports.styles.megengine.records import Record, Shapes, TimedRecord

# Two layouts of the `tabulate` package, which MegEngine's tool has its tables made by.
FANCY = Layout(
    start="│ ",
    gap=" │ ",
    end=" │",
    over=Rule("═", "╤", "╒", "╕", added=2),
    under=Rule("═", "╪", "╞", "╡", added=2),
    between=Rule("─", "┼", "├", "┤", added=2),
    closing=Rule("═", "╧", "╘", "╛", added=2),
    header_room=2,
    has_lines=True,
)
CONFLUENCE = Layout(
    start="| ",
    gap=" | ",
    end=" |",
    under=Rule("-", "|", "|", "|", added=2),
    header_room=2,
    has_lines=True,
)
PREFIXES = ("", "K", "M", "G", "T", "P")
BAR_LENGTH = 15
# The time of an operator of which nothing is left without what profiling cost.
EMPTIED = f"<{CLOCK_STEP_NS / 1e9:.3}"


class Unit(NamedTuple):
    """The unit of an amount, alone and after a prefix; `base` is the step between prefixes."""

    base: int
    name: str
    prefixed: str


FLO, FLOPS = Unit(1000, "FLO", "FLO"), Unit(1000, "FLOPS", "FLOPS")
BYTES, BANDWIDTH = Unit(1024, "byte", "iB"), Unit(1024, "byte/s", "iB/s")


class Row(NamedTuple):
    """A record at its place; `cumulative` is the time of all up to it in seconds, the percentages
    are of the total."""

    place: int
    timed: TimedRecord
    percent: float | None
    cumulative: float
    cumulative_percent: float | None

    @property
    def record(self) -> Record:
        return self.timed.record


def rows_of(selected: Sequence[TimedRecord], total: float | None) -> Iterator[Row]:
    """Yield the records with their shares, one after the other."""
    cumulative = 0.0
    for place, each in enumerate(selected):
        cumulative += each.time
        if total:
            yield Row(*(place, each, each.time / total * 100, cumulative, cumulative / total * 100))
        else:
            yield Row(place, each, None, cumulative, None)


def operators_table_of(
    selected: Sequence[TimedRecord],
    place: str,
    total: float | None,
    notes: tuple[str, ...],
    *,
    in_confluence: bool,
) -> Table[Row]:
    """Return the operators; `place` is device or host. The text has several lines a cell, or is
    for a page in Confluence markup, with bars."""
    time = Column[Row](
        f"{place} self time",
        parts=(
            Column("", text=lambda row: f"#{row.place}"),
            Column("time_seconds", lambda row: row.timed.time, format_seconds),
            Column("time_percent", lambda row: row.percent, format_ratio),
        ),
        align="point",
        rank=0,
    )
    cumulative = Column[Row](
        "cumulative",
        parts=(
            Column(
                "cumulative_seconds", lambda row: row.cumulative, lambda row: f"{row.cumulative:.3}"
            ),
            Column(
                "cumulative_percent",
                lambda row: row.cumulative_percent,
                lambda row: format_percent(row.cumulative_percent),
            ),
        ),
        align="point",
        rank=4,
    )
    info = Column[Row](
        "operator info", parts=tuple(map(info_column, keys_of(selected))), align="point", rank=0
    )
    amounts = (
        amount_column(
            "computation", "computation_flo", lambda row: row.record.computation, FLO, rank=4
        ),
        amount_column("FLOPS", "flo_per_second", lambda row: row.timed.flops, FLOPS, rank=2),
        amount_column("memory", "memory_bytes", lambda row: row.record.memory, BYTES, rank=4),
        amount_column(
            "bandwidth", "bytes_per_second", lambda row: row.timed.bandwidth, BANDWIDTH, rank=2
        ),
    )
    runs = runs_column(selected)
    # The roofs are those of computing: what the host takes to dispatch has none.
    saving = () if place == "host" else (SAVING,)
    shown = saving if has_savings(selected) else ()
    several = (runs,) if any(each.runs for each in selected) else ()
    shapes = (
        shapes_column("in_shapes", format_inputs, lambda record: record.in_shapes),
        shapes_column("out_shapes", format_outputs, lambda record: record.out_shapes),
    )
    return Table(
        name=place,
        title=f"Operators: {place} time",
        columns=(info, time, cumulative, runs, *amounts, *saving, *shapes),
        shown=(
            confluence_columns(selected, total, shown, several)
            if in_confluence
            else (time, *several, cumulative, info, *amounts, *shown, *shapes)
        ),
        rows=tuple(rows_of(selected, total)),
        notes=notes,
        layout=CONFLUENCE if in_confluence else FANCY,
    )


def runs_column(selected: Sequence[TimedRecord]) -> Column[Row]:
    """Return the column of single runs, which a report of several iterations has: their figures,
    and how many something else on the machine made longer."""

    def part(title: str, name: str, figure: Callable[[Totals], float | None]) -> Column[Row]:
        def value(row: Row) -> float | None:
            time = figure(row.timed.runs) if row.timed.runs else None
            return None if time is None else time / 1e9

        def text(row: Row) -> str:
            time = value(row)
            return f"{title} {'N/A' if time is None else format_time(row, time)}"

        return Column(f"{name}_seconds", value, text)

    def disturbed(row: Row) -> int | None:
        return row.timed.record.disturbed

    marked = any(each.record.disturbed for each in selected)
    return Column(
        "runs",
        parts=(
            Column(
                "runs",
                lambda row: row.timed.runs.calls if row.timed.runs else None,
                lambda row: count_of(row.timed.runs.calls, "run") if row.timed.runs else "N/A runs",
            ),
            part("med", "median", lambda it: it.median_ns),
            part("p90", "p90", lambda it: it.p90_ns),
            part("mean", "mean", lambda it: it.average_ns),
            part("min", "minimum", lambda it: it.min_ns),
            part("max", "maximum", lambda it: it.max_ns),
            part("sum", "total", lambda it: it.total_ns),
            Column(
                "disturbed",
                disturbed,
                lambda row: f"{disturbed(row)} disturbed" if disturbed(row) else "",
                in_text=marked,
            ),
        ),
        align="point",
        rank=0,
    )


def keys_of(selected: Sequence[TimedRecord]) -> tuple[str, ...]:
    """Return the keys of the facts of each record: of an operator its name, type and id."""
    return tuple(selected[0].record.info) if selected else ("name", "type", "id")


def info_column(key: str) -> Column[Row]:
    """Return the column of one fact of a record; operators put together have no id."""

    def value(row: Row) -> Cell:
        record = row.record
        if key == "count":
            return record.count
        return None if key == "id" and record.count is not None else record.info[key]

    return Column(key, value, lambda row: "\n-  ".join(textwrap.wrap(row.record.info[key], 30)))


SAVING = Column[Row](
    "could save",
    lambda row: row.record.saving,
    lambda row: "N/A" if row.record.saving is None else f"{row.record.saving:.3}",
    key="could_save_seconds",
    align="point",
    rank=1,
)


def has_savings(selected: Sequence[TimedRecord]) -> bool:
    return any(each.record.saving is not None for each in selected)


def amount_column(
    title: str, key: str, amount: Callable[[Row], float | None], unit: Unit, rank: int
) -> Column[Row]:
    return Column(
        title,
        lambda row: finite(amount(row)),
        lambda row: format_amount(amount(row), unit),
        key=key,
        align="point",
        rank=rank,
    )


def shapes_column(
    title: str, text: Callable[[Record, str], str], shapes: Callable[[Record], Shapes | None]
) -> Column[Row]:
    return Column(
        title,
        lambda row: None if shapes(row.record) is None else text(row.record, ", "),
        lambda row: text(row.record, "\n").replace("\n ", "\n"),
        align="point",
    )


def names_of(selected: Sequence[TimedRecord]) -> list[str]:
    """Return the operators' names, types and ids alone, a line each."""
    return [" ".join(each.record.info.values()) for each in selected] or [""]


def format_seconds(row: Row) -> str:
    return format_time(row, row.timed.time)


def format_time(row: Row, seconds: float) -> str:
    """Format a time; an operator of which nothing is left took less than a step of the clock."""
    is_nothing = row.timed.is_emptied and seconds < CLOCK_STEP_NS / 1e9
    return EMPTIED if is_nothing else f"{seconds:.3}"


def format_ratio(row: Row) -> str:
    return format_percent(row.percent)


def format_percent(percent: float | None) -> str:
    return "N/A" if percent is None else f"{percent:.1f}%"


def format_amount(amount: float | None, unit: Unit) -> str:
    """Return an amount and, on a line of its own, its unit with the prefix that fits."""
    if amount is None:
        return f"N/A\n{unit.name}"
    prefix = 0
    while math.isfinite(amount) and amount >= unit.base and prefix + 1 < len(PREFIXES):
        amount /= unit.base
        prefix += 1
    return f"{amount:.2f}\n{PREFIXES[prefix]}{unit.prefixed if prefix else unit.name}"


def format_inputs(record: Record, separator: str) -> str:
    """Return the shapes of the inputs, with their layouts where the engine reports them."""
    return format_shapes(record, record.in_shapes, separator, record.in_layouts or ())


def format_outputs(record: Record, separator: str) -> str:
    return format_shapes(record, record.out_shapes, separator)


def format_shapes(
    record: Record,
    shapes: Shapes | None,
    separator: str,
    layouts: Sequence[Sequence[int | str] | None] = (),
) -> str:
    """Return shapes; operators that are put together have none."""
    if shapes is None:
        return "N/A" if record.count is None else "None"
    texts = ["{" + ",".join(map(str, shape)) + "}" for shape in shapes]
    for index, layout in enumerate(layouts[: len(texts)]):
        if layout:
            texts[index] += "\n -[" + ",".join(map(str, layout)) + "]"
    return separator.join(texts)


def one_line(column: Column[Row]) -> Callable[[Row], str]:
    """Return what gives the lines of a cell as one."""
    return lambda row: ", ".join(filter(None, column.cell(row).split("\n")))


def confluence_columns(
    selected: Sequence[TimedRecord],
    total: float | None,
    savings: tuple[Column[Row], ...],
    several: tuple[Column[Row], ...],
) -> tuple[Column[Row], ...]:
    """Return the columns of the text in Confluence markup."""
    longest = greatest([each.time for each in selected])
    fastest = greatest([each.flops for each in selected])
    widest = greatest([each.bandwidth for each in selected])

    def column(title: str, text: Callable[[Row], str]) -> Column[Row]:
        return Column(title, text=lambda row: text(row).strip(), align="point")

    def share(row: Row) -> str:
        return str(row.cumulative / total) if total else "N/A"

    def info(key: str) -> Column[Row]:
        return column(f"opr {key}", lambda row: row.record.info[key])

    return (
        column("#", lambda row: str(row.place)),
        column("time", format_seconds),
        column("ratio", format_ratio),
        column("time bar", lambda row: bar_of(row.timed.time, longest)),
        *(column(each.title, one_line(each)) for each in several),
        column("cum-time", lambda row: str(row.cumulative)),
        column("cum-time ratio", share),
        *map(info, keys_of(selected)),
        column("computation (MFLO)", lambda row: format_scaled(row.record.computation, 10**6)),
        column("MFLOPS", lambda row: format_scaled(row.timed.flops, 10**6)),
        column("MFLOPS-bar", lambda row: bar_of(row.timed.flops, fastest)),
        column("memory (MB)", lambda row: format_scaled(row.record.memory, 2**20)),
        column("bandwidth (MiB/s)", lambda row: format_scaled(row.timed.bandwidth, 2**20)),
        column("bandwidth bar", lambda row: bar_of(row.timed.bandwidth, widest)),
        *(column(each.title, each.cell) for each in savings),
        column("in_shapes", lambda row: format_inputs(row.record, ", ")),
        column("out_shapes", lambda row: format_outputs(row.record, ", ")),
    )


def format_scaled(amount: float | None, scale: int) -> str:
    return "N/A" if amount is None else f"{amount / scale:.1f}"


def greatest(values: Sequence[float | None]) -> float:
    """Return the greatest value that is known and finite, which has the longest bar."""
    return max((value for value in map(finite, values) if value is not None), default=0.0)


def finite(value: float | None) -> float | None:
    """Return a value if it is known and finite; the speed of what took no time is not."""
    return value if value is not None and math.isfinite(value) else None


def bar_of(value: float | None, longest: float) -> str:
    value = finite(value)
    return "#" * int(value / longest * BAR_LENGTH) if value and longest else ""
