"""What a report style makes of a profile: text, tables, and what only that style has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table with plain values; a column's name says its unit. None is what is not available."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProfileReport:
    """A report of one style.

    `text` goes to the terminal as it is; `tables` become CSV, JSON and HTML. `document`, where it
    is not None, is what JSON is made of instead, and `page` a whole HTML page.
    """

    style: str
    text: str
    tables: tuple[ReportTable, ...] = ()
    document: Any = None
    page: str = ""
