"""The times of operators, of iterations and of calls."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.times import (
    Totals,
    intersect_intervals,
    merge_intervals,
    parents_of,
    self_host_times_of,
    self_times_of,
    subtract_intervals,
    timed_allocations,
    total_of,
    totals_of,
)
from lar.records.profile import Allocation, Interval, Profile, Step
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import WORKER, execution_of, profile_of


def profile_of_one(device: str = "cpu", **fields: Any) -> Profile:
    """An operator that begins after 1 us, waits for 3 and computes for 10."""
    execution = execution_of(0, 1, 14, wait=3, **fields)
    return profile_of([operator_of("conv", "Convolution")], (), [execution], device=device)


def test_an_operator_computes_and_keeps_the_host_busy_without_what_it_waits() -> None:
    profile = profile_of_one(thread=WORKER, dispatch=(0, 2))
    assert self_times_of(profile) == [10_000]
    assert self_host_times_of(profile) == [12_000]


def test_a_device_takes_of_the_host_the_dispatch_alone() -> None:
    profile = profile_of_one("cuda0", thread=WORKER, dispatch=(0, 2))
    assert self_host_times_of(profile) == [2000]
    assert self_times_of(profile) == [10_000]


def test_what_is_both_dispatched_and_computed_counts_once() -> None:
    assert self_host_times_of(profile_of_one(dispatch=(0, 6))) == [14_000]


def test_what_stands_before_the_computation_of_the_thread_that_dispatches_is_no_wait() -> None:
    assert self_host_times_of(profile_of_one()) == [13_000]
    assert self_times_of(profile_of_one()) == [10_000]


def test_what_only_waits_takes_no_time_of_its_own() -> None:
    waits = [execution_of(0, 1, 4, wait=3), execution_of(0, 5, 9)]
    assert self_times_of(profile_of([operator_of("conv", "Convolution")], (), waits)) == [0, 4000]


def test_a_call_is_within_the_innermost_call_on_its_thread() -> None:
    timed = [(0, 0, 10), (0, 0, 10), (0, 5, 10), (0, 6, 7), (1, 6, 7), (0, 9, 12)]
    assert parents_of(timed) == [-1, 0, 1, 2, -1, -1]


def test_sums_of_calls_have_percentiles_where_there_are_enough() -> None:
    assert totals_of([]) == Totals(0, 0, None, None)
    assert totals_of(range(1, 10)) == Totals(9, 45, 9, 1, 5, None, 0, 45)
    ten = range(0, 100, 10)
    assert totals_of(ten, [0, 0, *[1] * 8], 3) == pytest.approx(
        Totals(10, 450, 90, 0, 45, 81, 3, 2 * 5 + 8 * 55)
    )
    assert totals_of(ten, times="mean") == Totals(10, 450, None, None, ranking_ns=450)


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


def test_what_the_warm_up_takes_and_gives_back_is_not_timed() -> None:
    steps = (Step(0, 100, 200, True), Step(1, 200, 300))
    times = {
        99: (64, -64),
        100: (),
        199: (),
        200: (64,),  # given back at the very end of the warm-up, it is part of it
        201: (64, -64),
        300: (64, -64),
    }
    allocations = tuple(Allocation(at, size) for at in times for size in (64, -64))
    profile = Profile(steps=steps, allocations=allocations)
    found = [(each.at_ns, each.size_bytes) for each in timed_allocations(profile)]
    assert found == [(at, size) for at, sizes in times.items() for size in sizes]
