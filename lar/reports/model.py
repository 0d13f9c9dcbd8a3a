"""The model of every table that lar prints or writes: columns, rows, and a layout for the text.

A column is declared once, with its heading, its value for CSV, JSON and HTML, and its text for a
person. A layout defines the rules, gaps and frames of a table's text. The modules `text`, `formats`
and `html` of `lar.reports` render tables. `sort_rows` sorts rows for --sort.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from operator import itemgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from lar.records.record import Record, ShortRecord


def sort_rows(
    rows: Iterable[Row], sort: str, value_of: Callable[[Row], Any], *, smallest_first: bool = False
) -> list[Row]:
    """Return rows sorted by a key.

    The form `+KEY` puts the smallest value first, and `-KEY` puts the largest value first. KEY
    without a sign puts the largest value first, unless `smallest_first`. Rows with None come last.
    Equal rows keep their order.
    """
    rows = [*rows]
    ascending = sort.startswith("+") or (smallest_first and not sort.startswith("-"))
    known = (row for row in rows if value_of(row) is not None)
    unknown = (row for row in rows if value_of(row) is None)
    return [*sorted(known, key=value_of, reverse=not ascending), *unknown]


Cell = str | int | float | None
Row = TypeVar("Row")
AnyRow = TypeVar("AnyRow", contravariant=True)
ANY_DIGITS = -1  # as many digits as a number needs

# `centre` pads like `str.center`, `middle` like `format`: they differ in the side of an odd space.
# `point` aligns numbers at their decimal points, and other cells to the left.
Align = Literal["left", "right", "centre", "middle", "point"]


def no_value(row: object) -> Cell:
    """Return None, the value of a column without plain values."""
    return None


class Column(ShortRecord, Generic[AnyRow]):
    """A column of a table.

    `title` is the column's heading in text, and `value` returns the plain value of a row.

    In CSV, JSON and pages the heading is `key`, or the title with `unit`. A cell in text shows the
    result of `text` or, without `text`, the plain value. A column with `parts` shows several values
    in one cell of text, one in each line. In CSV, JSON and pages, a column with `parts` becomes a
    column for each part. On a narrow terminal, cells whose plain value is a string may be shortened
    in the middle.
    """

    title: str
    value: Callable[[AnyRow], Cell] = no_value
    text: Callable[[AnyRow], str] | None = None
    unit: str = ""
    key: str = ""
    align: Align = "left"
    width: int = 0  # the least width
    is_fixed: bool = False  # `width` is the exact width, even if a cell is longer
    parts: tuple[Column[AnyRow], ...] = ()
    in_text: bool = True
    digits: int | None = None  # decimals in pages, or None for a column of strings
    scale: float = 1.0  # factor for numbers in text and pages: 1e3 shows seconds as milliseconds
    rank: int = 5  # a narrow terminal or page drops the highest rank first, and never rank 0

    @property
    def is_for_text(self) -> bool:
        """Whether the column has a text and no plain value."""
        return self.value is no_value and self.text is not None

    @property
    def heading(self) -> str:
        """The heading in CSV and JSON."""
        return self.key or (f"{self.title} ({self.unit})" if self.unit else self.title)

    def cell(self, row: AnyRow) -> str:
        """Return the text of a row's cell."""
        if self.text is not None:
            return self.text(row)
        if self.parts:
            return "\n".join(part.cell(row) for part in self.parts if part.in_text)
        value = self.value(row)
        return "" if value is None else str(value)

    def is_name(self, row: AnyRow) -> bool:
        """Return whether the row's plain value in this column is a string."""
        return any(isinstance(part.value(row), str) for part in self.parts or (self,))

    def is_empty(self, row: AnyRow) -> bool:
        """Return whether the row's cell in this column is empty, unknown or zero."""
        if self.parts:
            return all(part.is_empty(row) for part in self.parts if part.in_text)
        value = self.value(row)
        if isinstance(value, (int, float)):
            return not value
        return is_nothing(value or (self.text(row) if self.text is not None else ""))


NOTHING = frozenset({"", "-", "--", "N/A", "n/a", "NaN"})


def is_nothing(text: str) -> bool:
    """Return whether the first line of a cell's text is empty, zero or a sign for unknown."""
    first = text.partition("\n")[0].strip()
    return first in NOTHING or re.fullmatch(r"-?0(\.0*)?%?", first) is not None


class Rule(NamedTuple):
    """A line across a table.

    `fill` is repeated over each column, and `middle` stands between columns.

    By default, the part of the rule over a column is `added` characters longer than the column. If
    `longest` is not 0, the part over each column is as wide as the column, but has at most
    `longest` characters. If `fixed` is not 0, the part over each column has `fixed` characters.
    """

    fill: str = "-"
    middle: str = "  "
    left: str = ""
    right: str = ""
    added: int = 0
    longest: int = 0
    fixed: int = 0


class Layout(Record):
    """The layout of a table as text."""

    start: str = ""
    gap: str = "  "
    end: str = ""
    over: Rule | None = None  # above the header
    under: Rule | None = None  # below the header
    between: Rule | None = None  # between rows
    total: Rule | None = None  # before the last row
    closing: Rule | None = None  # after the last row
    has_header: bool = True
    header_align: Align | None = None  # None for the alignment of the column
    header_room: int = 0  # a column is at least this much wider than its header
    is_stripped: bool = False  # no spaces at the ends of lines
    is_padded: bool = True
    has_lines: bool = False  # cells may have several lines
    is_wrapped: bool = False  # on a narrow terminal, cells are wrapped and not cut
    escaped: str = ""  # these characters get a backslash in cells
    fill: str = ""  # if given, the title stands above the table in a line of these characters
    note: str = ""  # the line before the notes; a line of `fill` ends them
    note_lines: int = 0  # empty lines after the notes
    empty_lines: int = 0  # after the table


PLAIN = Layout(is_stripped=True)
INDENTED = Layout(start="  ", is_stripped=True)
WRAPPED = Layout(is_stripped=True, is_wrapped=True)

MARKDOWN = Layout(
    start="| ",
    gap=" | ",
    end=" |",
    under=Rule("-", "|", "|", "|", fixed=3),
    is_padded=False,
    escaped="\\`<[|",
)


class Table(Record, Generic[Row]):
    """A table: its rows, and the columns that read values from the rows.

    `shown` has the columns of the text, if these differ from `columns`. `above` are lines between
    the title and the header. `breaks` maps the number of a row to the line before this row: a
    string is a title across the table, and a tuple is another header. `color` returns the color of
    a row's line, or an empty string.
    """

    name: str
    title: str
    columns: tuple[Column[Row], ...]
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    layout: Layout = PLAIN
    shown: tuple[Column[Row], ...] = ()
    above: tuple[str, ...] = ()
    breaks: Mapping[int, str | tuple[str, ...]] = field(default_factory=dict)
    color: Callable[[Row], str] | None = None

    @property
    def text_columns(self) -> tuple[Column[Row], ...]:
        return self.shown or tuple(column for column in self.columns if column.in_text)

    @property
    def record_columns(self) -> tuple[Column[Row], ...]:
        """The columns in CSV, JSON and pages; a column with `parts` becomes several columns."""
        return tuple(
            part
            for column in self.columns
            for part in column.parts or (column,)
            if not part.is_for_text
        )

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.heading for column in self.record_columns)

    @property
    def records(self) -> tuple[tuple[Cell, ...], ...]:
        """The plain values of each row; an unknown value is None."""
        values = [column.value for column in self.record_columns]
        return tuple(tuple(value(row) for value in values) for row in self.rows)


AnyTable = Table[Any]


class Plot(ShortRecord):
    """A part of a page for which the text has nothing: a picture, or a button that saves a file.

    `kind` names the function in `pages/report.js` that draws the plot. `figures` are its data.
    """

    kind: Literal["iterations", "depth", "curve", "download"]
    title: str
    figures: Any
    about: str = ""


def value_at(path: str) -> Callable[[Any], Any]:
    """Return a function that reads the value at a path of names, such as `difference.ratio`.

    The function returns None if a record on the path is None.
    """
    names = path.split(".")

    def take(row: Any) -> Any:
        for name in names:
            row = None if row is None else getattr(row, name)
        return row

    return take


def number(
    title: str,
    value: Callable[[AnyRow], float | None] | str,
    digits: int = 0,
    *,
    key: str = "",
    scale: float = 1.0,
    unknown: str | Callable[[AnyRow], str] = "N/A",
    rank: int = 5,
    in_text: bool = True,
) -> Column[AnyRow]:
    """Return a column of numbers with a given number of decimals.

    `value` may be a path of names. `unknown` is the text of an unknown number.
    """
    take = value_at(value) if isinstance(value, str) else value

    def text(row: AnyRow) -> str:
        found = take(row)
        if found is not None:
            return f"{scale * found:.{digits}f}"
        return unknown if isinstance(unknown, str) else unknown(row)

    return Column(
        title,
        take,
        text,
        key=key,
        align="right",
        digits=digits,
        scale=scale,
        rank=rank,
        in_text=in_text,
    )


def milliseconds(
    title: str,
    value: Callable[[AnyRow], float | None] | str,
    key: str,
    rank: int = 5,
    *,
    in_text: bool = True,
) -> Column[AnyRow]:
    """Return a column that shows times in milliseconds; CSV and JSON have seconds under `key`."""
    return number(title, value, 3, key=key, scale=1e3, rank=rank, in_text=in_text)


def table_of_values(
    name: str,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    notes: Iterable[str] = (),
) -> Table[Sequence[Cell]]:
    """Return a table whose rows are tuples of values."""
    columns = (Column[Sequence[Cell]](it, itemgetter(at)) for at, it in enumerate(headings))
    return Table(
        name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=tuple(notes)
    )
