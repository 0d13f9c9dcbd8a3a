"""A report of one style: the parts of its text in order, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lar.records.profile import Profile
from lar.reports.model import AnyTable, Plot
from lar.reports.text import PAPER, Screen, format_table, printable_text

Part = str | AnyTable | Plot

# What two profiles that are compared are called.
ROLES = ("baseline", "exp")


class LateJson:
    """A part of a document that takes much memory: its JSON is made of the profile only where it is
    asked for. No dataclass, whose fields would become JSON."""

    def __init__(self, make: Callable[[Profile], Iterable[bytes]], profile: Profile) -> None:
        self.make, self.profile = make, profile

    def encode(self) -> bytes:
        return b"".join(self.make(self.profile))


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report that a command or a style makes of a record.

    `body` is the text, in lines and tables; `tables` become CSV, JSON and HTML. `document`, where
    it is not None, is what JSON is made of instead, some parts of it late (`LateJson`), and `page`
    a whole HTML page. With `page_of_text` the page has the parts of the text, and the plots among
    them; without it the page has the lines, the tables and then `plots`. `title` is the page's,
    where it is not that of a profile's report. On a terminal lines are wrapped, but those for
    another program are not.
    `summary` are the paragraphs on top of the text and of the page, and `footer` is the line below
    the text, but not of a text for programs. `corrected` says what was taken off the times of
    operators, empty where they are as recorded; it stands in JSON, as other documents have no room.
    """

    style: str
    body: tuple[Part, ...] = ()
    tables: tuple[AnyTable, ...] = ()
    document: Any = None
    page: str = ""
    page_of_text: bool = False
    plots: tuple[Plot, ...] = ()
    title: str = ""
    is_for_programs: bool = False
    summary: tuple[str, ...] = ()
    footer: str = ""
    corrected: str = ""

    @property
    def text(self) -> str:
        return self.text_for(PAPER)

    def text_for(self, screen: Screen) -> str:
        """Return the text as wide as a terminal, or of any width for paper."""
        return "".join(f"{line}\n" for line in self.lines_for(screen))

    def lines_for(self, screen: Screen) -> list[str]:
        lines: list[str] = []
        for text in () if self.is_for_programs else self.summary:
            lines += [*screen.wrap(printable_text(text)), ""]
        for part in self.body:
            if isinstance(part, Plot):
                continue
            if not isinstance(part, str):
                lines += format_table(part, screen)
            elif self.is_for_programs:
                lines.append(printable_text(part))
            else:
                lines += screen.wrap(printable_text(part))
        if self.footer and not self.is_for_programs:
            lines += ["", *screen.wrap(self.footer)]
        return lines


def paragraphs_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the paragraphs about profiles, with names where there are two; empty ones are none."""
    if len(texts) > 1:
        texts = [f"{name}: {text}" if text else "" for name, text in zip(ROLES, texts, strict=True)]
    return tuple(filter(None, texts))
