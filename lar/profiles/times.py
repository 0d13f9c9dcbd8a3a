"""The times in reports: what an operator takes, and what a step consists of.

An operator has three times. While it waits, nobody works for it: only `wall` includes the wait. If
one thread both dispatches and computes, there is no wait.

    dispatch   wait      compute
    |--------|........|-----------|
             [------ wall --------]

A step is an iteration with what comes before it, if each iteration has its own: the loading of its
item and the copy of its input, as with a data set. The iteration is what a run prints.

Sets of time intervals: sorted, apart from each other, as pairs of start and end.

The zero from which a profile's times count.

A profile's own zero is when its worker began to record. A range of the program around the run began
before that. Trace viewers drop events before 0, so the zero of a file is the earliest time in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from lar.records.profile import Allocation, Interval, Profile, ProfileFacts, keep_with_profile

R = TypeVar("R", bound=msgspec.Struct)

# The records of a profile that have times, and the names of their times.
KINDS = ("steps", "spans", "executions", "counters", "allocations")
TIMES = ("start_ns", "end_ns", "dispatch_start_ns", "dispatch_end_ns", "at_ns")


def earliest_ns(profile: Profile) -> int:
    """Return the earliest time of a profile if that is before its zero, else 0."""
    records = (each for kind in KINDS for each in getattr(profile, kind))
    begins = ("start_ns", "at_ns", "dispatch_start_ns")
    times = (getattr(each, name, None) or 0 for each in records for name in begins)
    return min(0, min(times, default=0))


def with_zero_at(profile: Profile, zero_ns: int) -> Profile:
    """Return a profile whose zero is at `zero_ns` of its clock, with all times moved."""
    if not zero_ns:
        return profile
    moved: dict[str, Any] = {
        kind: tuple(with_times_at(each, zero_ns) for each in getattr(profile, kind))
        for kind in KINDS
    }
    return dataclasses.replace(profile, facts=facts_with_zero_at(profile.facts, zero_ns), **moved)


def facts_with_zero_at(facts: ProfileFacts, zero_ns: int) -> ProfileFacts:
    """Return a profile's facts with a clock whose zero is at `zero_ns` of the present one."""
    replace, old = msgspec.structs.replace, facts.clock
    align = tuple(replace(each, offset_ns=each.offset_ns - zero_ns) for each in old.align)
    clock = replace(old, t0_ns=old.t0_ns + zero_ns, unix_ns=old.unix_ns + zero_ns, align=align)
    return replace(facts, clock=clock)


def with_times_at(record: R, zero_ns: int) -> R:
    """Return a record with its times counted from `zero_ns`."""
    times = {name: at - zero_ns for name, at in times_in(record).items()}
    return msgspec.structs.replace(record, **times)


def times_in(record: msgspec.Struct) -> dict[str, int]:
    """Return the known times of a record, by name."""
    times = {name: getattr(record, name, None) for name in TIMES}
    return {name: at for name, at in times.items() if at is not None}


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


# Engines record times in whole microseconds.
CLOCK_STEP_NS = 1_000


def iterations_of(profile: Profile) -> dict[int, Interval]:
    """Return the begin and the end of each timed iteration by its number, in their order.

    It begins when the engine is started. If that is not recorded, the whole step is the iteration.
    """
    phases = profile.spans_of("phase")
    begins = {span.step: span.start_ns for span in phases if span.name == "forward"}
    return {
        step.number: (max(step.start_ns, begins.get(step.number, step.start_ns)), step.end_ns)
        for step in profile.timed_steps()
    }


def iteration_times_of(profile: Profile) -> list[int]:
    """Return how long each timed iteration took, in nanoseconds, as the run prints it."""
    return [end - begin for begin, end in iterations_of(profile).values()]


def waiting_calls(profile: Profile) -> frozenset[int]:
    """Return the engine's calls that only wait for an iteration, by `id()` of their spans."""
    waits = {
        (span.thread, span.step, *span.interval)
        for span in profile.spans
        if span.category == "phase" and span.name == "wait"
    }
    return frozenset(
        id(span)
        for span in profile.spans
        if span.category == "runtime" and (span.thread, span.step, *span.interval) in waits
    )


def parents_of(timed: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return for each call the position of the innermost one around it on its thread, else -1.

    `timed` has thread, begin and end of each. If two are equal, the first is around the other.
    """
    parents = [-1] * len(timed)
    around: list[int] = []
    for place in sorted(range(len(timed)), key=lambda at: (*timed[at][:2], -timed[at][2])):
        thread, _, end = timed[place]
        while around and (timed[around[-1]][0] != thread or timed[around[-1]][2] < end):
            around.pop()
        if around:
            parents[place] = around[-1]
        around.append(place)
    return parents


def own_times(timed: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return how long each call took without those within it on its thread, in nanoseconds.

    The sum is that of the outermost ones. `timed` has thread, begin and end of each.
    """
    own = [end - start for _, start, end in timed]
    for (_, start, end), parent in zip(timed, parents_of(timed), strict=True):
        if parent >= 0:
            own[parent] -= end - start
    return [max(0, each) for each in own]


@keep_with_profile
def self_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each timed execution computed itself, in nanoseconds.

    This leaves out its waiting and the operators within it, such as the body of a loop.
    """
    executions = profile.timed_executions
    own = own_times([(each.thread, *each.interval) for each in executions])
    return [max(0, ns - (each.wait_ns or 0)) for ns, each in zip(own, executions, strict=True)]


@keep_with_profile
def self_host_times_of(profile: Profile) -> Sequence[int]:
    """Return how long each timed execution kept the host busy itself, in nanoseconds.

    This is its dispatch and, on a CPU, its computation without the operators within it.
    """
    if profile.on_device:
        return profile.host_times_ns
    timed = zip(
        profile.timed_executions, profile.host_times_ns, self_times_of(profile), strict=True
    )
    return [max(0, host_ns - each.compute_ns + own_ns) for each, host_ns, own_ns in timed]


def timed_allocations(profile: Profile) -> tuple[Allocation, ...]:
    """Return the memory taken and given back outside of the warm-up; an iteration includes what it
    gives back at its very end."""
    warmup = [step.interval for step in profile.steps if step.warmup]
    return tuple(
        each
        for each in profile.allocations
        if not any(start <= each.at_ns < end + (each.size_bytes < 0) for start, end in warmup)
    )
