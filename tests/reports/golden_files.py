"""Files with every byte that a report must have.

After a change that is meant to be seen, `LAR_GOLDEN=write` writes them anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lar.reports.html import figures_of_table
from lar.reports.model import Plot, Table
from lar.reports.report import Report
from lar.reports.text import Drawing, Screen

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, content: str) -> None:
    file = GOLDEN / name
    if os.environ.get("LAR_GOLDEN") == "write":
        file.write_text(content)
    assert file.exists(), f"run the test with LAR_GOLDEN=write, then read and commit {file}"
    assert content == file.read_text()


def describe_columns(report: Report) -> Iterator[str]:
    """Yield lines about the columns of a report, and about its plots.

    For each table of the text: the columns in the order in which they leave a terminal that becomes
    narrower, then those that stay. For each table of the page: its columns, with their decimals and
    the rank by which they leave a narrow page.
    """
    for table in (it for it in report.body if isinstance(it, Table)):
        columns = [replace(it, width=0, is_fixed=False) for it in table.text_columns]
        empty = replace(table, rows=(), shown=tuple(columns))
        frame = len(table.layout.start) + len(table.layout.end.rstrip())
        width, left, shown = 9999, list[int](), [*range(len(columns))]
        while (drawing := Drawing(empty, Screen(width))).length + frame <= width:
            left += [it for it in shown if it not in drawing.shown]
            width, shown = drawing.length + frame - 1, drawing.shown
        titles = ([columns[place].title for place in places] for places in (left, shown))
        yield " | ".join([table.title, *map(", ".join, titles)])
    for table in report.tables:
        yield from ("", table.title, *map(json.dumps, figures_of_table(table)["columns"]))
    for plot in (it for it in (*report.body, *report.plots) if isinstance(it, Plot)):
        figures = plot.figures if plot.kind != "download" else plot.figures["name"]
        yield json.dumps([plot.kind, plot.title, figures, plot.about])
