"""The report of a command or a style: lines, tables and plots in order."""

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

    `body` is the text, as lines and tables; `tables` become CSV, JSON and HTML. JSON is made of
    `document` instead, if it is not None. With `page_of_text` the page has the parts of the text,
    with the plots among them; otherwise it has the lines, the tables and then `plots`. `title` is
    the page's, if it is not a profile's. On a terminal, lines are wrapped, except those for another
    program. `footer` is the line below the text, which texts for programs do not have. `corrected`
    says by how much operators' times were scaled, empty if they are as recorded; only JSON has it.
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
        """Return the text for a terminal of some width, or for paper."""
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
