"""Tables in pages: which columns have values, how many rows, and what the page's script reads."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from lar.reports.model import Cell, Column, Table

Row = TypeVar("Row")


class PageTable(NamedTuple):
    """A table of a page.

    `missing` are the columns of which nothing is known: those are left out. `total` counts the
    rows that there are, of which the table has the first by `order`. `marks` are the classes of
    rows that stand out.
    """

    table: Table[Sequence[Cell]]
    total: int
    missing: tuple[str, ...] = ()
    order: str = "time"
    marks: tuple[str, ...] = ()

    def figures(self) -> dict[str, Any]:
        """Return the table as the page's script reads it."""
        return {
            "columns": [(it.title, it.unit, it.digits, it.rank) for it in self.table.columns],
            "rows": self.table.rows,
            "total": self.total,
            "missing": self.missing,
            "order": self.order,
            "marks": self.marks,
        }


def page_table(
    name: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    top: int | None = None,
    order: str = "time",
    *,
    is_rounded: bool = True,
) -> PageTable:
    """Return the first rows in the order given, without columns that have no values."""
    values = [tuple(column.value(row) for column in columns) for row in rows[:top]]
    if is_rounded:
        values = [tuple(map(rounded, row)) for row in values]
    known = [
        place for place in range(len(columns)) if any(row[place] is not None for row in values)
    ]
    missing = [] if not values else [it for n, it in enumerate(columns) if n not in known]
    chosen = (column_at(n, columns[place]) for n, place in enumerate(known))
    table: Table[Sequence[Cell]] = Table(
        name=name,
        title=name.capitalize(),
        columns=tuple(chosen),
        rows=tuple(tuple(row[place] for place in known) for row in values),
    )
    return PageTable(table, len(rows), tuple(column.heading for column in missing), order)


def column_at(place: int, column: Column[Row]) -> Column[Sequence[Cell]]:
    """Return a column of rows that are values already."""
    return Column(
        column.title,
        itemgetter(place),
        unit=column.unit,
        key=column.key,
        digits=column.digits,
        rank=column.rank,
    )


def rounded(value: Cell) -> Cell:
    """Return a number with the digits that anybody reads, to keep the page small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
