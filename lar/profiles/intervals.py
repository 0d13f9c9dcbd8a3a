"""Sets of time intervals: sorted, apart from each other, as pairs of start and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lar.records.profile import Interval


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
    left, j = [], 0
    for start, end in first:
        while j < len(second) and second[j][1] <= start:
            j += 1
        k = j
        while k < len(second) and second[k][0] < end:
            if second[k][0] > start:
                left.append((start, second[k][0]))
            start = max(start, second[k][1])
            k += 1
        if start < end:
            left.append((start, end))
    return left
