"""The tables of a report as HTML."""

from __future__ import annotations

import html

from lar.reports.model import AnyTable, Cell
from lar.reports.report import Report

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


def format_html(report: Report) -> str:
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


def format_table_html(table: AnyTable) -> str:
    """Return one table with its title and notes."""
    records = table.records
    texts = [False] * len(table.headings)
    if records:
        texts = [
            any(isinstance(value, str) for value in values) for values in zip(*records, strict=True)
        ]

    def cell(tag: str, value: Cell, text: bool) -> str:
        shown = html.escape(format_cell(value))
        return f"<{tag}{' class=text' if text else ''}>{shown}</{tag}>"

    def row(tag: str, values: tuple[Cell, ...]) -> str:
        cells = "".join(cell(tag, value, text) for value, text in zip(values, texts, strict=True))
        return f"<tr>{cells}</tr>"

    notes = "".join(f"<p class=notes>{html.escape(note)}</p>" for note in table.notes)
    rows = "\n".join(row("td", values) for values in records)
    return (
        f"<h2>{html.escape(table.title)}</h2>\n<table><thead>{row('th', table.headings)}</thead>\n"
        f"<tbody>{rows}</tbody></table>{notes}"
    )


def format_cell(value: Cell) -> str:
    """Return a value for a person: six digits of a fraction, but a whole part in full."""
    if value is None:
        return "N/A"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return str(value)
