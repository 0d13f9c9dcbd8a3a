"""Reports as HTML pages: the style's own, or one of lines, tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby, takewhile
from typing import Any

from lar.reports.model import ANY_DIGITS, AnyTable, Cell, Column, Plot
from lar.reports.pages import Section, format_facts, format_page, read_resource
from lar.reports.report import Part, Report
from lar.reports.text import printable_text

LONGEST_NAME = 24  # of a fact: what stands before a colon behind more letters is a sentence
RANK_BESIDE_TEXT = 9  # on a page, of columns that the text does not have


def format_html(report: Report) -> str:
    """Return the style's own page, or one of its parts.

    A plot is a section, and so are lines and tables between two empty lines. Lines alone are those
    of the first section, whatever comes between them.
    """
    if report.page:
        return report.page
    title = report.title or f"lar report: {report.style}"
    parts = report.body if report.page_of_text else tuple(parts_of_style(report))
    words: list[str] = []
    sections: list[Section] = []
    figures = []
    for group in groups_of(parts):
        drawn = [part for part in group if not isinstance(part, str)]
        lines = [part for part in group if isinstance(part, str)]
        if not drawn:
            words += lines
            continue
        name = f"part{len(sections)}"
        about = " ".join(part.about for part in drawn if isinstance(part, Plot))
        title_line = f"{drawn[0].title}:".lower()
        said = format_lines(line for line in lines if line.lower() != title_line)
        sections.append(Section(name, drawn[0].title, about, said))
        figures.append({"section": name, "parts": [*map(figures_of, drawn)]})
    if words:
        sections.insert(0, Section("result", "Result", words=format_lines(words)))
    script = read_resource("lar.reports.pages", "report.js")
    return format_page(title, title, sections, {"sections": figures}, [script])


def parts_of_style(report: Report) -> Iterator[Part]:
    """Yield the parts of the page of a profile: the lines above its first table, all of the tables,
    and the plots."""
    yield from report.summary
    yield from takewhile(lambda part: isinstance(part, str), report.body)
    yield report.footer
    for table in report.tables:
        yield from ("", table)
    yield from report.plots


def groups_of(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts between empty lines; a plot stands alone."""
    for kind, group in groupby(parts, lambda it: id(it) if isinstance(it, Plot) else it != ""):
        if kind:
            yield [*group]


def format_lines(lines: Iterable[str]) -> str:
    """Return lines as paragraphs; those that give facts, as `name: text`, are rows of a table."""

    def is_fact(line: str) -> bool:
        return 0 < line.find(": ") <= LONGEST_NAME

    texts = []
    for are_facts, group in groupby(map(printable_text, lines), key=is_fact):
        if are_facts:
            pairs = (line.strip().split(": ", 1) for line in group)
            texts.append(format_facts((name, text) for name, text in pairs))
        else:
            texts += [f"<p>{escape(line.strip())}</p>" for line in group]
    return "".join(texts)


def figures_of(part: AnyTable | Plot) -> dict[str, Any]:
    """Return what the page's script draws."""
    if isinstance(part, Plot):
        return {"plot": part.kind, "figures": part.figures}
    return {"table": figures_of_table(part), "notes": part.notes}


def figures_of_table(table: AnyTable) -> dict[str, Any]:
    """Return a table as the page's script reads it: the columns of its records that have a value.
    Columns that the text does not have are the first to go."""
    columns = [(column, *cells_of(column, table.rows)) for column in table.record_columns]
    missing = [it.heading for it, cells, _ in columns if cells.count(None) == len(cells) > 0]
    known = [it for it in columns if it[0].heading not in missing]
    marks = map(table.color, table.rows) if table.color else ()
    return {
        "columns": [
            (
                column.heading if column.digits is None else column.title,
                *("", digits, column.rank if column.in_text else RANK_BESIDE_TEXT),
            )
            for column, _, digits in known
        ],
        "rows": [*zip(*(cells for _, cells, _ in known), strict=True)],
        "missing": missing,
        "marks": [*marks],
    }


def cells_of(column: Column[Any], rows: Sequence[Any]) -> tuple[list[Cell], int | None]:
    """Return the values of a column, numbers in the unit of the text, and how many digits they
    have behind the point: None for a column with a text in a row."""
    cells: list[Cell] = [column.value(row) for row in rows]
    if any(isinstance(cell, str) for cell in cells):
        return cells, None
    if column.scale != 1:
        cells = [None if cell is None else column.scale * float(cell) for cell in cells]
    return cells, ANY_DIGITS if column.digits is None else column.digits
