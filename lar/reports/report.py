"""The report of a command or a style: lines, tables and plots in order."""

from __future__ import annotations

from typing import Any

from lar.errors import printable
from lar.records.record import Record
from lar.records.summary import Difference, Interval
from lar.reports.model import AnyTable, Plot
from lar.reports.text import PAPER, Screen, format_table

Part = str | AnyTable | Plot


class Report(Record):
    """The report that a command or a style makes from a record.

    `body` has the lines and tables of the text. `tables` become CSV, JSON and HTML. If `document`
    is not None, JSON is made from `document` and not from `tables`. With `page_of_text`, the page
    has the parts of `body`. Without `page_of_text`, the page has the first lines, the tables and
    then `plots`. `title` is the title of the page; if `title` is empty, the page is named after the
    style. Lines are wrapped to the terminal's width, except in a report that `is_for_programs`.
    `footer` is the last line of the text; a report for programs is printed without this line. In
    JSON, `corrected` describes how operators' times were scaled. `corrected` is empty if the times
    are as recorded.
    """

    style: str
    body: tuple[Part, ...] = ()
    tables: tuple[AnyTable, ...] = ()
    document: Any = None
    page_of_text: bool = False
    plots: tuple[Plot, ...] = ()
    title: str = ""
    is_for_programs: bool = False
    footer: str = ""
    corrected: str = ""

    @property
    def text(self) -> str:
        return self.text_for(PAPER)

    def text_for(self, screen: Screen) -> str:
        """Return the text, wrapped for a screen; for `PAPER` no line is wrapped."""
        return "".join(f"{line}\n" for line in self.lines_for(screen))

    def lines_for(self, screen: Screen = PAPER) -> list[str]:
        lines: list[str] = []
        for part in self.body:
            if isinstance(part, Plot):
                continue
            if not isinstance(part, str):
                lines += format_table(part, screen)
            elif self.is_for_programs:
                lines.append(printable(part))
            else:
                lines += screen.wrap(printable(part))
        if self.footer and not self.is_for_programs:
            lines += ["", *screen.wrap(printable(self.footer))]
        return lines


# Verdicts on times in words, and their cells in tables


# A larger change is shown as a factor: `12 times` is clearer than `1100.0%`.
LARGEST_SHARE = 2.0


def describe_difference(difference: Difference | None, reason: str = "") -> str:
    """Return a verdict in words; `reason` explains a missing difference."""
    if difference is None or difference.verdict == "not judged":
        why = reason if difference is None else difference.reason
        return f"not judged ({why})" if why else "not judged"
    if difference.smallest_detectable is None or difference.is_shown:
        return difference.verdict
    smallest = difference.smallest_detectable
    text = f"{smallest:.1%}" if smallest < LARGEST_SHARE else f"{1 + smallest:.0f} times"
    return f"{difference.verdict} (smallest detectable: {text})"


def format_interval(interval: Interval | None, scale: float = 1.0) -> str:
    """Return an interval as text; empty if the interval is None."""
    if interval is None:
        return ""
    return f"{scale * interval.low:.3f} to {scale * interval.high:.3f}"


def color_of_verdict(difference: Difference | None) -> str:
    """Return the color of a row with a difference; empty for no color."""
    return {"faster": "green", "slower": "red"}.get(difference.verdict if difference else "", "")
