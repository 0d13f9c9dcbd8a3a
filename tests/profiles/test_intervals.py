"""Intervals behave as the sets of nanoseconds that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.intervals import (
    intersect_intervals,
    merge_intervals,
    subtract_intervals,
    total_of,
)
from lar.records.profile import Interval

intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def points_of(chosen: list[Interval]) -> set[int]:
    return {point for start, end in chosen for point in range(start, end)}


def is_apart(chosen: list[Interval]) -> bool:
    ends = [-1, *(edge for pair in chosen for edge in pair)]
    return all(a < b for a, b in pairwise(ends))


@given(intervals, intervals)
def test_sets_of_intervals_are_sets_of_points(one: list[Interval], other: list[Interval]) -> None:
    first, second = merge_intervals(one), merge_intervals(other)
    assert points_of(first) == points_of(one)
    both, left = intersect_intervals(first, second), subtract_intervals(first, second)
    assert points_of(both) == points_of(one) & points_of(other)
    assert points_of(left) == points_of(one) - points_of(other)
    assert is_apart(first)
    assert is_apart(left)
    assert total_of(both) + total_of(left) == total_of(first) == len(points_of(one))
