"""A view: the plugin's answer, and its tables for CSV, which have their columns in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lar.reports.model import AnyRow, AnyTable, Column


class View(NamedTuple):
    """A view; the answer is None if nothing is known of it."""

    answer: Any
    tables: tuple[AnyTable, ...] = ()


@dataclass(frozen=True)
class ViewColumn(Column[AnyRow]):
    """A column of an answer: `type` is string or number, `field` its key where rows are objects."""

    type: str = "number"
    tooltip: str | None = None
    field: str = ""


def text_column(
    title: str, value: Callable[[AnyRow], str | None], **more: Any
) -> ViewColumn[AnyRow]:
    return ViewColumn(title, value, type="string", **more)


def describe_columns(
    columns: Iterable[ViewColumn[Any]], *parts: str
) -> list[dict[str, str | None]]:
    """Return columns as an answer lists them: `parts` of each, the tooltip if it has one."""
    described = []
    for column in columns:
        known = {"type": column.type, "name": column.title, "tooltip": column.tooltip}
        known["key"] = column.field
        wanted = parts or ("type", "name", "tooltip")
        described.append({part: known[part] for part in wanted if known[part] is not None})
    return described


def rows_of(columns: Iterable[ViewColumn[AnyRow]], rows: Iterable[AnyRow]) -> list[list[Any]]:
    """Return the values of rows as an answer has them."""
    values = [column.value for column in columns]
    return [[value(row) for value in values] for row in rows]


def microseconds(duration_ns: int) -> int | float:
    """Return microseconds, whole where they are, so that sums stay exact."""
    return duration_ns / 1000 if duration_ns % 1000 else duration_ns // 1000


def known_microseconds(duration_ns: int | None) -> int | float | None:
    return None if duration_ns is None else microseconds(duration_ns)


def whole_microseconds(duration_ns: int | None) -> int | None:
    return None if duration_ns is None else round(duration_ns / 1000)
