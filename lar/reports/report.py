"""A report of one style: the parts of its text in order, and the tables that it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lar.reports.model import AnyTable
from lar.reports.text import PAPER, Screen, format_table, printable_text


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report that a style makes of a profile.

    `body` is the text, in lines and tables; `tables` become CSV, JSON and HTML. `document`, where
    it is not None, is what JSON is made of instead, and `page` a whole HTML page.
    """

    style: str
    body: tuple[str | AnyTable, ...] = ()
    tables: tuple[AnyTable, ...] = ()
    document: Any = None
    page: str = ""

    @property
    def text(self) -> str:
        return self.text_for(PAPER)

    def text_for(self, screen: Screen) -> str:
        """Return the text for a terminal of that width, or for paper of any."""
        lines: list[str] = []
        for part in self.body:
            lines += [printable_text(part)] if isinstance(part, str) else format_table(part, screen)
        return "".join(f"{line}\n" for line in lines)
