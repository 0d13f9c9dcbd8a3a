"""Tables as CSV: plain values, empty where a value is not known."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from lar.reports.model import AnyTable, Cell

if TYPE_CHECKING:  # the text renderer would be imported with it
    from lar.reports.report import Report


# Formulas begin with these, or spreadsheets skip them before a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def format_csv(report: Report) -> str:
    """Return the tables of a report.

    If there are several, each has its title in a line before it, and an empty line behind it.
    """
    if len(report.tables) == 1:
        return format_table(report.tables[0])
    return "\n".join(format_table(table, f"# {table.title}") for table in report.tables)


def format_table(table: AnyTable, *titles: str) -> str:
    """Return titles in lines of their own, the headings and the rows of a table."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([title] for title in titles)
    writer.writerow(table.headings)
    values = [column.value for column in table.record_columns]
    writer.writerows([cell_of(value(row)) for value in values] for row in table.rows)
    return stream.getvalue()


def cell_of(value: Cell) -> Cell:
    """Return a value as a cell. A text that a spreadsheet would compute has an apostrophe before
    it, which says that it is a text."""
    if not isinstance(value, str) or not value.startswith(FORMULA) or is_number(value):
        return value
    return value if value == "-" else f"'{value}"  # standard input, which is no formula


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
