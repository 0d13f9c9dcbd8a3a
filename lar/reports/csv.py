"""Tables as CSV: plain values, empty where a value is not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lar.reports.model import AnyTable

if TYPE_CHECKING:  # the text renderer would be imported with it
    from lar.reports.report import Report


def format_csv(report: Report) -> str:
    """Return the tables of a report; of several, each has a line with its title before it and an
    empty line between it and the next."""
    if len(report.tables) == 1:
        return format_table(report.tables[0])
    return "\n".join(f"{format_title(table)}{format_table(table)}" for table in report.tables)


def format_title(table: AnyTable) -> str:
    return format_row([f"# {table.title}"])


def format_table(table: AnyTable) -> str:
    """Return the headings and the rows of a table."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows(table.records)
    return stream.getvalue()


def format_row(cells: Iterable[object]) -> str:
    """Return a line of cells, quoted if they need it."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(cells)
    return stream.getvalue()
