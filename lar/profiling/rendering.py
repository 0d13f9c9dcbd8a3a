"""The tables of a report as CSV, JSON and HTML."""

from __future__ import annotations

import csv
import html
import io
from typing import Any

import msgspec

from lar.profiling.document import Cell, ProfileReport, ReportTable

STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "th,td{border-bottom:1px solid #ddd;padding:3px 10px;text-align:right;"
    "font-variant-numeric:tabular-nums}"
    "th{background:#f4f4f4}td.text,th.text{text-align:left}"
    "pre{overflow-x:auto}.notes{color:#666}"
)


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
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def format_table_html(table: ReportTable) -> str:
    """Return one table with its title and notes."""
    texts = [
        any(isinstance(row[index], str) for row in table.rows)
        for index in range(len(table.columns))
    ]

    def cell(tag: str, value: Cell, text: bool) -> str:
        shown = "N/A" if value is None else str(value)
        return f"<{tag}{' class=text' if text else ''}>{html.escape(shown)}</{tag}>"

    def row(tag: str, values: tuple[Cell, ...]) -> str:
        cells = "".join(cell(tag, value, text) for value, text in zip(values, texts, strict=True))
        return f"<tr>{cells}</tr>"

    notes = "".join(f"<p class=notes>{html.escape(note)}</p>" for note in table.notes)
    rows = "\n".join(row("td", values) for values in table.rows)
    return (
        f"<h2>{html.escape(table.title)}</h2>\n<table><thead>{row('th', table.columns)}</thead>\n"
        f"<tbody>{rows}</tbody></table>{notes}"
    )
