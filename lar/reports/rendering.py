"""The tables of a report as CSV, JSON and HTML."""

from __future__ import annotations

import csv
import html
import io
from typing import Any

import msgspec

from lar.reports.document import Cell, ProfileReport, ReportTable

STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "th,td{border-bottom:1px solid #ddd;padding:3px 10px;text-align:right;"
    "font-variant-numeric:tabular-nums}"
    "th{background:#f4f4f4;cursor:pointer}td.text,th.text{text-align:left}"
    "tbody tr:hover{background:#f8f8f8}.notes{color:#666;margin:.2em 0;white-space:pre-wrap}"
)

# A click on a header sorts by its column, the largest first, another click the other way round;
# what is not known stays last.
SCRIPT = """
for (const header of document.querySelectorAll("th")) {
  header.onclick = () => {
    const body = header.closest("table").tBodies[0];
    const sign = header.dataset.sign = header.dataset.sign === "-1" ? 1 : -1;
    const valueOf = (row) => {
      const text = row.cells[header.cellIndex].textContent;
      return text === "N/A" ? null : header.className ? text : Number(text);
    };
    const keyed = [...body.rows].map((row) => [valueOf(row), row]);
    keyed.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
      : sign * (a > b ? 1 : a < b ? -1 : 0));
    body.append(...keyed.map(([, row]) => row));
  };
}
"""


def format_csv(report: ProfileReport) -> str:
    """Return each table with a line of its name before and an empty line after it, where there
    are several; an empty cell is a value that is not available."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for number, table in enumerate(report.tables):
        if len(report.tables) > 1:
            if number:
                stream.write("\n")
            writer.writerow([f"# {table.title}"])
        writer.writerow(table.columns)
        writer.writerows(table.rows)
    return stream.getvalue()


def format_json(report: ProfileReport) -> str:
    """Return the style's own document, or the tables: name, title, columns, rows, notes."""
    document: Any = report.document
    if document is None:
        document = {"style": report.style, "tables": list(report.tables)}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def format_html(report: ProfileReport) -> str:
    """Return the style's own page, or one of the tables."""
    if report.page:
        return report.page
    body = "\n".join(format_table_html(table) for table in report.tables)
    title = html.escape(f"lar report: {report.style}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}\n"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def format_table_html(table: ReportTable) -> str:
    """Return one table with its title and notes."""
    texts = [
        any(isinstance(row[index], str) for row in table.rows)
        for index in range(len(table.columns))
    ]

    def cell(tag: str, value: Cell, text: bool) -> str:
        shown = html.escape(format_cell(value))
        return f"<{tag}{' class=text' if text else ''}>{shown}</{tag}>"

    def row(tag: str, values: tuple[Cell, ...]) -> str:
        cells = "".join(cell(tag, value, text) for value, text in zip(values, texts, strict=True))
        return f"<tr>{cells}</tr>"

    notes = "".join(f"<p class=notes>{html.escape(note)}</p>" for note in table.notes)
    rows = "\n".join(row("td", values) for values in table.rows)
    return (
        f"<h2>{html.escape(table.title)}</h2>\n<table><thead>{row('th', table.columns)}</thead>\n"
        f"<tbody>{rows}</tbody></table>{notes}"
    )


def format_cell(value: Cell) -> str:
    """Return a value for a person: six digits of a fraction, but a whole part in full."""
    if value is None:
        return "N/A"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return str(value)
