"""Sorting as Paddle's profiler does: by a total, average, maximum or minimum on host or device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lar.reports.styles.paddle.layout import TimeRow, Times

T = TypeVar("T")
METRICS = {"total": 0, "avg": 1, "max": 2, "min": 3}  # where they stand in `Times`


def sort_rows(rows: Sequence[T], key: str, row_of: Callable[[T], TimeRow]) -> list[T]:
    """Sort by a key such as `cpu_total`: the largest first, but the smallest of a minimum.

    A + before the key says the smallest first, a - the largest. What has no such time comes last,
    equals stay in their order.
    """
    where, _, metric = key.lstrip("+-").partition("_")
    ascending = key.startswith("+") or (metric == "min" and not key.startswith("-"))

    def place(row: T) -> tuple[bool, float]:
        times: Times | None = getattr(row_of(row), where)
        value = None if times is None else times[METRICS[metric]]
        if value is None:
            return True, 0.0
        return False, value if ascending else -value

    return sorted(rows, key=place)
