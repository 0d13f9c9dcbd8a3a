"""A report in the form that is asked for, on standard output or for a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lar.cli.screen import screen_of_output
from lar.errors import printable
from lar.reports.report import Report
from lar.reports.text import PAPER, Screen

if TYPE_CHECKING:
    from lar.results.side_by_side import SideBySide


def render(report: Report, form: str, *, to_stdout: bool) -> str:
    """Return a report in the form that is asked for."""
    if form == "markdown":
        from lar.reports.markdown import format_markdown

        return format_markdown(report)
    if form == "csv":
        from lar.reports.csv import format_csv

        return format_csv(report)
    if form == "json":
        from lar.reports.json import format_json

        return format_json(report)
    if form == "html":
        from lar.reports.html import format_html

        return format_html(report)
    screen: Screen = screen_of_output() if to_stdout else PAPER
    return report.text_for(screen)


def warn_of(compared: SideBySide, form: str) -> None:
    """Print the warnings of a table in CSV; the other forms have them beside it."""
    if form == "csv":
        from lar.reports.results_report import warnings_of  # the other commands have no use for it

        for text in warnings_of(compared):
            print(printable(f"lar: warning: {text}"), file=sys.stderr)
