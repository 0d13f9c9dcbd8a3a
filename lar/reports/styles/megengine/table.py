"""The table of operators in MegEngine's style: as text, in Confluence markup, as plain values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lar.reports.model import Cell, Column, Layout, Rule, Table
from lar.reports.styles.megengine.records import Record, Shapes

# Two layouts of the `tabulate` package, which makes the tables of MegEngine's tool.
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


class Unit(NamedTuple):
    """The unit of an amount, alone and after a prefix; `base` is the step between prefixes."""

    base: int
    name: str
    prefixed: str


FLO, FLOPS = Unit(1000, "FLO", "FLO"), Unit(1000, "FLOPS", "FLOPS")
BYTES, BANDWIDTH = Unit(1024, "byte", "iB"), Unit(1024, "byte/s", "iB/s")


class Row(NamedTuple):
    """A record and its place.

    `cumulative` is the time in seconds of all records up to it; percentages are of the total.
    """

    place: int
    record: Record
    percent: float | None
    cumulative: float
    cumulative_percent: float | None


def rows_of(selected: Sequence[Record], total: float | None) -> Iterator[Row]:
    """Yield the records in order, with their shares."""
    cumulative = 0.0
    for place, each in enumerate(selected):
        cumulative += each.time
        shares = (each.time / total * 100, cumulative / total * 100) if total else (None, None)
        yield Row(place, each, shares[0], cumulative, shares[1])


def operators_table_of(
    selected: Sequence[Record],
    place: str,
    total: float | None,
    notes: tuple[str, ...],
    *,
    in_confluence: bool,
) -> Table[Row]:
    """Return the table of operators; `place` is device or host.

    The text has cells of several lines, or is Confluence markup with bars. On a narrow terminal
    names give way first.
    """
    time = column_of(
        f"{place} self time",
        Column("", text=lambda row: f"#{row.place}"),
        Column("time_seconds", lambda row: row.record.time, lambda it: f"{it.record.time:.3}"),
        Column("time_percent", lambda row: row.percent, lambda it: format_percent(it.percent)),
    )
    cumulative = column_of(
        "cumulative",
        Column("cumulative_seconds", lambda it: it.cumulative, lambda it: f"{it.cumulative:.3}"),
        Column(
            "cumulative_percent",
            lambda it: it.cumulative_percent,
            lambda it: format_percent(it.cumulative_percent),
        ),
        rank=6,
    )
    keys = tuple(selected[0].info) if selected else ("name", "type", "id")
    info = column_of("operator info", *map(info_column, keys))
    others = (
        amount_column("computation", "computation_flo", lambda it: it.computation, FLO, rank=4),
        amount_column("FLOPS", "flo_per_second", lambda it: it.flops, FLOPS, rank=2),
        amount_column("memory", "memory_bytes", lambda it: it.memory, BYTES, rank=4),
        amount_column("bandwidth", "bytes_per_second", lambda it: it.bandwidth, BANDWIDTH, rank=2),
        shapes_column("in_shapes", format_inputs, lambda record: record.in_shapes),
        shapes_column("out_shapes", format_outputs, lambda record: record.out_shapes),
    )
    return Table(
        name=place,
        title=f"Operators: {place} time",
        columns=(info, time, cumulative, *others),
        shown=(
            confluence_columns(selected, total, keys)
            if in_confluence
            else (time, cumulative, info, *others)
        ),
        rows=tuple(rows_of(selected, total)),
        notes=notes,
        layout=CONFLUENCE if in_confluence else FANCY,
    )


def column_of(title: str, *parts: Column[Row], rank: int = 0) -> Column[Row]:
    """Return a column whose cells have several lines."""
    return Column(title, parts=parts, align="point", rank=rank)


def info_column(key: str) -> Column[Row]:
    """Return the column of one fact of a record; aggregated operators have no id."""

    def value(row: Row) -> Cell:
        record = row.record
        if key == "count":
            return record.count
        return None if key == "id" and record.count is not None else record.info[key]

    return Column(key, value, lambda row: "\n-  ".join(textwrap.wrap(row.record.info[key], 30)))


def amount_column(
    title: str, key: str, amount: Callable[[Record], float | None], unit: Unit, rank: int
) -> Column[Row]:
    return Column(
        title,
        lambda row: finite(amount(row.record)),
        lambda row: format_amount(amount(row.record), unit),
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
    """Return the shapes of the inputs, with their layouts if the engine reports them."""
    return format_shapes(record, record.in_shapes, separator, record.in_layouts or ())


def format_outputs(record: Record, separator: str) -> str:
    return format_shapes(record, record.out_shapes, separator)


def format_shapes(
    record: Record,
    shapes: Shapes | None,
    separator: str,
    layouts: Sequence[Sequence[int | str] | None] = (),
) -> str:
    """Return shapes, empty for aggregated operators."""
    if shapes is None:
        return "N/A" if record.count is None else "None"
    texts = ["{" + ",".join(map(str, shape)) + "}" for shape in shapes]
    for index, layout in enumerate(layouts[: len(texts)]):
        if layout:
            texts[index] += "\n -[" + ",".join(map(str, layout)) + "]"
    return separator.join(texts)


def confluence_columns(
    selected: Sequence[Record], total: float | None, keys: Sequence[str]
) -> tuple[Column[Row], ...]:
    """Return the columns of the text in Confluence markup."""

    def column(title: str, text: Callable[[Row], str]) -> Column[Row]:
        return Column(title, text=lambda row: text(row).strip(), align="point")

    def info(key: str) -> Column[Row]:
        return column(f"opr {key}", lambda row: row.record.info[key])

    def amount(title: str, value: Callable[[Record], float | None], scale: int) -> Column[Row]:
        def text(row: Row) -> str:
            known = value(row.record)
            return "N/A" if known is None else f"{known / scale:.1f}"

        return column(title, text)

    def bar(title: str, value: Callable[[Record], float | None]) -> Column[Row]:
        known = [each for each in map(finite, map(value, selected)) if each is not None]
        longest = max(known, default=0.0)

        def text(row: Row) -> str:
            own = finite(value(row.record))
            return "#" * int(own / longest * BAR_LENGTH) if own and longest else ""

        return column(title, text)

    return (
        column("#", lambda row: str(row.place)),
        column("time", lambda row: f"{row.record.time:.3}"),
        column("ratio", lambda row: format_percent(row.percent)),
        bar("time bar", lambda it: it.time),
        column("cum-time", lambda row: str(row.cumulative)),
        column("cum-time ratio", lambda row: str(row.cumulative / total) if total else "N/A"),
        *map(info, keys),
        amount("computation (MFLO)", lambda it: it.computation, 10**6),
        amount("MFLOPS", lambda it: it.flops, 10**6),
        bar("MFLOPS-bar", lambda it: it.flops),
        amount("memory (MB)", lambda it: it.memory, 2**20),
        amount("bandwidth (MiB/s)", lambda it: it.bandwidth, 2**20),
        bar("bandwidth bar", lambda it: it.bandwidth),
        column("in_shapes", lambda row: format_inputs(row.record, ", ")),
        column("out_shapes", lambda row: format_outputs(row.record, ", ")),
    )


def finite(value: float | None) -> float | None:
    """Return a value, None if it is not known or not finite, such as a speed without time."""
    return value if value is not None and math.isfinite(value) else None
