"""Reports as HTML pages: the style's own, or one with its tables."""

from __future__ import annotations

from html import escape
from operator import itemgetter
from typing import Any

from lar.errors import printable
from lar.reports.model import ANY_DIGITS, AnyTable, Column
from lar.reports.pages import Section, format_page
from lar.reports.pages.tables import page_table
from lar.reports.report import Report

SCRIPT = """
for (const { section, notes, table } of figures.tables)
  drawSection(section, () => [makeTable(table, "rows"), ...notes.map((text) =>
    makeElement("p", { class: "note lines" }, text))]);
finishPage();
"""


def format_html(report: Report) -> str:
    """Return the style's own page, or one of the tables."""
    if report.page:
        return report.page
    title = report.title or f"lar report: {report.style}"
    sections = [Section(f"table{n}", table.title) for n, table in enumerate(report.tables)]
    figures = {
        "tables": [
            {"section": section.name, "notes": table.notes, "table": figures_of(table)}
            for section, table in zip(sections, report.tables, strict=True)
        ]
    }
    paragraphs = [*report.summary, *([report.footer] if report.footer else ())]
    words = "".join(f"<p>{escape(printable(text))}</p>" for text in paragraphs)
    summary = [Section("summary", "Summary", words=words)] if words else []
    return format_page(title, title, [*summary, *sections], figures, [SCRIPT])


def figures_of(table: AnyTable) -> dict[str, Any]:
    """Return a table as the page's script reads it; a column with text in one row is a column of
    text."""
    records = table.records
    columns = [
        Column[Any](
            heading,
            itemgetter(place),
            digits=None if any(isinstance(row[place], str) for row in records) else ANY_DIGITS,
        )
        for place, heading in enumerate(table.headings)
    ]
    return page_table(table.name, columns, records, is_rounded=False).figures()
