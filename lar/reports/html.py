"""Reports as HTML pages of lines, tables and plots.

A page needs no other files: its text is HTML, and its scripts draw tables and plots from JSON in
the page. `page.js` has the functions that all scripts use. `names.js` shortens names. `tables.js`
draws tables that can be sorted and filtered. `plots.js` and `report.js` draw the plots. Pictures
and tables fit the width of the page, and are drawn again when the width changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape as escape_html
from importlib import resources
from itertools import groupby, takewhile
from string import Template
from typing import Any

import msgspec

from lar.errors import printable, printable_lines
from lar.reports.model import ANY_DIGITS, AnyTable, Cell, Column, Plot
from lar.reports.report import Part, Report

SCRIPTS = ("page.js", "names.js", "tables.js", "plots.js", "report.js")
LONGEST_NAME = 24  # a longer string before a colon is not the name of a fact, but a sentence
RANK_BESIDE_TEXT = 9  # the rank, on a page, of columns that the text does not have


def format_html(report: Report) -> str:
    """Return the HTML page of a report.

    Each plot is a section. Lines and tables between two empty lines are a section too. Groups of
    lines without a table all go to the first section.
    """
    parts = report.body if report.page_of_text else tuple(parts_of_style(report))
    words: list[str] = []
    links: list[str] = []
    sections: list[str] = []
    figures = []
    for group in groups_of(parts):
        drawn = [part for part in group if not isinstance(part, str)]
        lines = [part for part in group if isinstance(part, str)]
        if not drawn:
            words += lines
            continue
        name, title = f"part{len(sections)}", drawn[0].title
        said = format_lines(line for line in lines if line.lower() != f"{title}:".lower())
        abouts = [part.about for part in drawn if isinstance(part, Plot) and part.about]
        about = "".join(f"<p class=about>{escape(text)}</p>" for text in abouts)
        links.append(link_to(name, title))
        sections.append(format_section(name, title, about + said))
        figures.append({"section": name, "parts": [*map(figures_of, drawn)]})
    if words:
        links.insert(0, link_to("result", "Result"))
        sections.insert(0, format_section("result", "Result", format_lines(words)))
    return Template(read_page_file("page.html")).substitute(
        title=escape(report.title or f"lar report: {report.style}"),
        style=read_page_file("page.css"),
        links="".join(links),
        sections="\n".join(sections),
        figures=format_figures({"sections": figures}),
        code="\n".join(map(read_page_file, SCRIPTS)),
    )


def read_page_file(name: str) -> str:
    """Return the content of a file that is part of all pages."""
    return (resources.files("lar.reports") / "pages" / name).read_text(encoding="utf-8")


def link_to(name: str, title: str) -> str:
    return f'<a href="#{name}">{escape(title)}</a>'


def format_section(name: str, title: str, words: str) -> str:
    """Return the HTML of a section; a script draws the tables and plots below the text."""
    heading = f"<h2>{escape(title)}</h2>"
    return f'<section id="{name}">{heading}{words}<div class=body></div></section>'


def format_figures(figures: Mapping[str, Any]) -> str:
    """Return figures as JSON for a page, escaped so that no name can end the script element."""
    text = msgspec.json.encode(figures).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Any) -> Any:
    """Return figures with all strings made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {key: shown(it) for key, it in value.items()}
    return [*map(shown, value)] if isinstance(value, (list, tuple)) else value


def escape(text: str) -> str:
    """Escape a string for a page, so that it has no markup and no invisible characters."""
    return escape_html(printable(text))


def parts_of_style(report: Report) -> Iterator[Part]:
    """Yield the parts of a profile's page: lines above the first table, all tables, the plots."""
    yield from takewhile(lambda part: isinstance(part, str), report.body)
    yield report.footer
    for table in report.tables:
        yield from ("", table)
    yield from report.plots


def groups_of(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts between empty lines as groups; each plot is a separate group."""
    for kind, group in groupby(parts, lambda it: id(it) if isinstance(it, Plot) else it != ""):
        if kind:
            yield [*group]


def format_lines(lines: Iterable[str]) -> str:
    """Return lines as paragraphs; a line such as `name: text` becomes a row of a table."""

    def is_fact(line: str) -> bool:
        return 0 < line.find(": ") <= LONGEST_NAME

    texts = []
    for are_facts, group in groupby(lines, key=is_fact):
        if are_facts:
            texts.append(
                f"<table class=facts aria-label=facts>{''.join(map(fact_row, group))}</table>"
            )
        else:
            texts += [f"<p>{escape(line.strip())}</p>" for line in group]
    return "".join(texts)


def fact_row(line: str) -> str:
    name, text = map(escape, line.strip().split(": ", 1))
    return f"<tr><th scope=row>{name}</th><td>{text}</td></tr>"


def figures_of(part: AnyTable | Plot) -> dict[str, Any]:
    """Return the data of a table or a plot, from which the page's script draws it."""
    if isinstance(part, Plot):
        return {"plot": part.kind, "figures": shown(part.figures)}
    return {"table": figures_of_table(part), "notes": [*map(printable_lines, part.notes)]}


def figures_of_table(table: AnyTable) -> dict[str, Any]:
    """Return the data of a table for the page's script; columns without any value are left out.

    On a narrow page, the columns that the printed table does not have are dropped first.
    """
    columns = [(column, *cells_of(column, table.rows)) for column in table.record_columns]
    missing = [it.heading for it, cells, _ in columns if cells.count(None) == len(cells) > 0]
    known = [it for it in columns if it[0].heading not in missing]
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
        "marks": [*(map(table.color, table.rows) if table.color else ())],
    }


def cells_of(column: Column[Any], rows: Sequence[Any]) -> tuple[list[Cell], int | None]:
    """Return the values of a column, and their number of decimals.

    Numbers have the unit of the printed table. For a column with strings, the number of decimals is
    None.
    """
    cells: list[Cell] = [column.value(row) for row in rows]
    if any(isinstance(cell, str) for cell in cells):
        return shown(cells), None
    if column.scale != 1:
        cells = [None if cell is None else column.scale * float(cell) for cell in cells]
    return cells, ANY_DIGITS if column.digits is None else column.digits
