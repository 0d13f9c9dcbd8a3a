"""Rows in the order that --sort asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Row = TypeVar("Row")


def sort_rows(
    rows: Iterable[Row], sort: str, value_of: Callable[[Row], Any], *, smallest_first: bool = False
) -> list[Row]:
    """Sort rows: `+KEY` puts the smallest first, `-KEY` the largest.

    KEY alone puts the largest first, unless `smallest_first`. Rows with None come last; equal rows
    keep their order.
    """
    rows = [*rows]
    ascending = sort.startswith("+") or (smallest_first and not sort.startswith("-"))
    known = (row for row in rows if value_of(row) is not None)
    unknown = (row for row in rows if value_of(row) is None)
    return [*sorted(known, key=value_of, reverse=not ascending), *unknown]
