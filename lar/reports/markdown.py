"""Reports as Markdown: GitHub's tables, with lists around them."""

from __future__ import annotations

from dataclasses import replace

from lar.errors import printable
from lar.reports.model import MARKDOWN, Plot
from lar.reports.report import Report
from lar.reports.text import escape, format_table

# Markdown would take these for its own signs within a paragraph.
SIGNS = "\\`*_<>#|"


def format_markdown(report: Report) -> str:
    """Return the text of a report: lines as lists, and tables, with empty lines between."""
    lines: list[str] = []
    for part in report.body:
        if isinstance(part, str):
            # A line right behind a table would be a row of it.
            lines += [""] * bool(part and lines and lines[-1].startswith("|"))
            lines.append(f"- {escape(printable(part.strip()), SIGNS)}" if part else "")
        elif not isinstance(part, Plot):
            lines += [""] * bool(lines and lines[-1])
            lines += format_table(replace(part, layout=MARKDOWN))
    return "".join(f"{line}\n" for line in lines)
