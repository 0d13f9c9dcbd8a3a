"""Intervals that nest, and what the host and a device did."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.activities import (
    Nested,
    device_activities_of,
    host_activities_of,
    nest_intervals,
)
from lar.profiles.intervals import merge_intervals, total_of
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import (
    HOST,
    STREAM,
    WORKER,
    execution_of,
    profile_of,
    span_of,
    step_of,
)

LOOP, CONV = operator_of("loop", "Loop"), operator_of("conv", "Conv", algorithm="winograd")
STEPS = (step_of(0, 0, 100),)


def test_what_is_contained_nests_and_what_overlaps_gets_a_track_of_its_own() -> None:
    places = nest_intervals([(0, 10), (2, 5), (2, 3), (8, 12), (10, 20)])
    assert [place.parent for place in places] == [-1, 0, 1, -1, -1]
    assert [place.track for place in places] == [0, 0, 0, 1, 0]


def test_what_lasts_no_time_is_in_nothing() -> None:
    places = nest_intervals([(5, 10), (5, 5), (10, 10)])
    assert [place.parent for place in places] == [-1, -1, -1]
    assert [place.track for place in places] == [0, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), st.randoms())
def test_what_is_apart_takes_one_track_in_any_order(
    drawn: list[tuple[int, int]], chance: random.Random
) -> None:
    at, intervals = 0, []
    for pause, length in drawn:
        intervals.append((at + pause, at + pause + length))
        at += pause + max(1, length)
    for _ in range(2):
        assert {*nest_intervals(intervals)} <= {Nested(0, -1)}
        chance.shuffle(intervals)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=15))
def test_intervals_on_a_track_are_apart_or_one_contains_the_other(
    drawn: list[tuple[int, int]],
) -> None:
    intervals = [(start, start + length) for start, length in drawn]
    places = nest_intervals(intervals)
    for i, (a, b) in enumerate(intervals):
        for j, (c, d) in enumerate(intervals):
            if i != j and places[i].track == places[j].track:
                assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)
        parent = places[i].parent
        if parent >= 0:
            assert places[parent].track == places[i].track
            assert intervals[parent][0] <= a < b <= intervals[parent][1]


def test_on_a_cpu_a_dispatch_is_an_activity_of_its_own() -> None:
    apart = execution_of(1, 20, 50, thread=WORKER, dispatch=(5, 10))
    dispatch, execution = host_activities_of(profile_of([LOOP, CONV], STEPS, [apart]))
    assert (dispatch.name, dispatch.thread, dispatch.self_ns) == ("Conv dispatch", HOST, 5000)
    assert (execution.name, execution.thread, execution.self_ns) == ("Conv", WORKER, 30_000)


def test_self_time_leaves_out_what_is_within() -> None:
    nested = [execution_of(0, 0, 90), execution_of(1, 10, 30), execution_of(1, 40, 50)]
    loop, first, second = host_activities_of(profile_of([LOOP, CONV], STEPS, nested))
    assert (loop.self_ns, loop.parent) == (60_000, -1)
    assert (first.parent, second.parent) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_self_times_of_a_track_sum_to_their_union(drawn: list[tuple[int, int]]) -> None:
    executions = [execution_of(0, start, start + length) for start, length in drawn]
    activities = host_activities_of(profile_of([LOOP], STEPS, executions))
    for track in {each.track for each in activities}:
        own = [each for each in activities if each.track == track]
        union = total_of(merge_intervals((each.start_ns, each.end_ns) for each in own))
        assert sum(each.self_ns for each in own) == union
        assert all(0 <= each.self_ns <= each.duration_ns for each in own)


def test_on_a_device_the_host_only_dispatches() -> None:
    executed = execution_of(1, 20, 50, thread=STREAM, wait=4, dispatch=(5, 10))
    profile = profile_of([LOOP, CONV], STEPS, [executed], device="cuda:1")
    (activity,) = host_activities_of(profile)
    assert (activity.name, activity.duration_ns) == ("Conv", 5000)
    (kernel,) = device_activities_of(profile)
    assert (kernel.name, kernel.duration_ns, kernel.stream) == ("winograd", 26_000, STREAM)


def test_kernels_stand_for_the_operators_that_they_belong_to() -> None:
    spans = [
        span_of("kernel", "gemm", 20, 30, operator=1, device="cuda0", stream=3),
        span_of("memcpy", "HtoD", 0, 5, device="cuda0", size_bytes=64),
        span_of("memcpy", "HtoH", 0, 5),
        span_of("kernel", "before", 0, 1, step=None),
    ]
    profile = profile_of([LOOP, CONV], STEPS, [execution_of(1, 10, 50)], spans, device="cuda0")
    found = [(each.kind, each.name, each.operator) for each in device_activities_of(profile)]
    assert sorted(found, key=str) == [("kernel", "gemm", 1), ("memcpy", "HtoD", None)]


def test_a_cpu_is_no_device() -> None:
    profile = profile_of([CONV], STEPS, [execution_of(0, 10, 50)])
    assert device_activities_of(profile) == []
