"""Sets of time intervals: sorted, apart from each other, as pairs of start and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from lar.records.profile import Interval

FOREVER = 1 << 63  # later than any time


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union, sorted; intervals that touch become one, empty ones vanish."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def total_of(intervals: Iterable[Interval]) -> int:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in intervals)


def intersect_intervals(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the times that two merged sets have in common."""
    common, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            common.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract_intervals(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the times of the first merged set that the second does not have."""
    edges = [-FOREVER, *chain.from_iterable(second), FOREVER]
    return intersect_intervals(first, [*zip(edges[::2], edges[1::2], strict=True)])
