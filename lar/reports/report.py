"""What a command or a style has to say: lines, tables and plots in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lar.errors import printable
from lar.reports.model import AnyTable, Plot
from lar.reports.text import PAPER, Screen, format_table

Part = str | AnyTable | Plot


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report that a command or a style makes of a record.

    `body` is the text, in lines and tables; `tables` become CSV, JSON and HTML. `document`, where
    it is not None, is what JSON is made of instead. With `page_of_text` the page has the parts of
    the text, and the plots among them; without it the page has the lines, the tables and then
    `plots`. `title` is the page's, where it is not that of a profile's report. On a terminal lines
    are wrapped, but those for another program are not.
    `footer` is the line below the text, but not of a text for programs. `corrected` says by how
    much the times of operators were scaled, empty where they are as recorded; it stands in JSON, as
    other documents have no room.
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
        """Return the text as wide as a terminal, or of any width for paper."""
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
