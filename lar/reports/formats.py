"""Reports as Markdown (GitHub's tables, with lists around them), as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from lar.errors import printable
from lar.records.record import record_to_json
from lar.reports.model import MARKDOWN, AnyTable, Cell, Plot
from lar.reports.report import Report
from lar.reports.text import escape, format_table

# Characters that have a meaning for Markdown within a paragraph.
SIGNS = "\\`*_<>#|"


def format_markdown(report: Report) -> str:
    """Return a report as Markdown: lines become lists, and tables have empty lines around them."""
    lines: list[str] = []
    for part in report.body:
        if isinstance(part, str):
            # Without an empty line, a line after a table would become a row of the table.
            lines += [""] * bool(part and lines and lines[-1].startswith("|"))
            lines.append(f"- {escape(printable(part.strip()), SIGNS)}" if part else "")
        elif not isinstance(part, Plot):
            lines += [""] * bool(lines and lines[-1])
            lines += format_table(replace(part, layout=MARKDOWN))
    return "".join(f"{line}\n" for line in lines)


# Tables as CSV: plain values; a cell with an unknown value is empty


# Spreadsheets take a cell that begins with one of these characters, some of them of full width, for
# a formula.
FORMULA = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20", "\t", "\r")


def format_csv(report: Report) -> str:
    """Return the tables of a report as CSV.

    If there are several tables, a line with the title stands before each table, and empty lines
    separate the tables.
    """
    if len(report.tables) == 1:
        return format_rows(report.tables[0])
    return "\n".join(format_rows(table, f"# {table.title}") for table in report.tables)


def format_rows(table: AnyTable, *titles: str) -> str:
    """Return a table as CSV: a line for each title, the headings, and the rows."""
    values = [column.value for column in table.record_columns]
    rows = ([cell_of(value(row)) for value in values] for row in table.rows)
    return "".join(map(format_row, [*([title] for title in titles), table.headings, *rows]))


def format_row(cells: Iterable[Cell]) -> str:
    """Return cells as a line of CSV; each cell that contains a line end of any kind is quoted."""
    stream = io.StringIO()
    csv.writer(stream).writerow(cells)  # ends lines with \r\n, and so quotes both characters
    return stream.getvalue().removesuffix("\r\n") + "\n"


def cell_of(value: Cell) -> Cell:
    """Return a value as a cell of CSV.

    A string that a spreadsheet would take for a formula gets an apostrophe at its beginning.
    """
    if not isinstance(value, str) or not value.startswith(FORMULA) or is_number(value):
        return value
    return value if value == "-" else f"'{value}"  # "-" alone is standard input, and no formula


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# Reports as JSON


def format_json(report: Report) -> str:
    """Return a report as JSON: its record in one line, its style's own document, or its tables.

    A table has name, title, columns, rows and notes. A document in lar's own form also describes
    how operators' times were corrected; in the form of another program, a document has no place for
    this description.
    """
    document: Any = report.document
    if document is None:
        document = {"style": report.style, "tables": [*map(document_of, report.tables)]}
    if report.corrected and isinstance(document, dict) and "style" in document:
        document = {**document, "cost_of_profiling": report.corrected}
    is_record = not isinstance(document, (dict, list, tuple))
    try:
        encoded = record_to_json(document)
    except UnicodeEncodeError:  # the name of a file may not be UTF-8
        return json.dumps(msgspec.to_builtins(document, enc_hook=list), indent=1) + "\n"
    return (encoded if is_record else msgspec.json.format(encoded, indent=1)).decode() + "\n"


def document_of(table: AnyTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": table.headings,
        "rows": table.records,
        "notes": table.notes,
    }
