"""Computes the times of operators and of steps that reports show.

An operator has three times: dispatch, wait and compute. While an operator waits, no thread works
for it, and only its `wall` time includes the wait. If one thread both dispatches and computes, the
operator does not wait. The `wall` time is the sum of the wait and the computation.

A step is an iteration together with the work before it that belongs to this iteration alone. With a
data set, a step includes the loading of an item and the copying to the input. A run prints the time
of the iteration, not of the step.

A set of time intervals is a sorted list of pairs of start and end; the intervals do not touch.

Times of a profile are counted from its zero, the moment when its worker began to record. If the
user's program opened a range before the run, the range begins before the profile's zero. Trace
viewers drop events whose time is negative. If the earliest time of a profile is before the
profile's zero, the times in the profile's file are counted from this earliest time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce, wraps
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from lar.measurement.statistics import percentile_of, samples_for
from lar.records.profile import (
    Allocation,
    Interval,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    ThreadUse,
    Times,
)

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")

# The records of a profile that have times, and the names of their times.
KINDS = ("steps", "spans", "executions", "counters", "allocations")
TIMES = ("start_ns", "end_ns", "dispatch_start_ns", "dispatch_end_ns", "at_ns")


def keep_with_profile(compute: Callable[[Profile], T]) -> Callable[[Profile], T]:
    """Return a function that computes its result only once for each profile.

    The computed result is stored as an attribute of the profile. A profile never changes, and
    several parts of a report need the same result. All callers get the same object as the result,
    so no caller may change this object.
    """
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def computed_or_kept(profile: Profile) -> T:
        kept: dict[str, T] = vars(profile)
        if name not in kept:
            kept[name] = compute(profile)
        return kept[name]

    return computed_or_kept


def earliest_ns(profile: Profile) -> int:
    """Return the earliest time of a profile if it is before the profile's zero, else 0."""
    records = (each for kind in KINDS for each in getattr(profile, kind))
    begins = ("start_ns", "at_ns", "dispatch_start_ns")
    times: Iterable[int | None]
    times = (getattr(each, name, None) for each in records for name in begins)
    return min(chain([0], filter(None, times)))


def with_zero_at(profile: Profile, zero_ns: int) -> Profile:
    """Return a profile with all times counted from `zero_ns` of its old clock."""
    if not zero_ns:
        return profile
    moved: dict[str, Any] = {
        kind: tuple(with_times_at(each, zero_ns) for each in getattr(profile, kind))
        for kind in KINDS
    }
    return dataclasses.replace(profile, facts=facts_with_zero_at(profile.facts, zero_ns), **moved)


def facts_with_zero_at(facts: ProfileFacts, zero_ns: int) -> ProfileFacts:
    """Return a profile's facts with a clock that counts from `zero_ns` of the old clock."""
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
    """Return the sorted union of intervals; join touching intervals, leave out empty intervals."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def total_of(intervals: Iterable[Interval]) -> int:
    """Return the sum of the lengths of intervals."""
    return sum(end - start for start, end in intervals)


def intersect_intervals(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two merged sets of intervals."""
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
    """Return the parts of the first merged set of intervals that the second set does not cover."""
    edges = [-FOREVER, *chain.from_iterable(second), FOREVER]
    return intersect_intervals(first, [*zip(edges[::2], edges[1::2], strict=True)])


# Engines record times in whole microseconds.
CLOCK_STEP_NS = 1_000


def iterations_of(profile: Profile) -> dict[int, Interval]:
    """Return the start and the end of each timed iteration, by its number, in order of time.

    An iteration begins when the engine's call starts. If the start of the engine's call is not
    recorded, the whole step counts as the iteration.
    """
    phases = profile.spans_of("phase")
    begins = {span.step: span.start_ns for span in phases if span.name == "forward"}
    return {
        step.number: (max(step.start_ns, begins.get(step.number, step.start_ns)), step.end_ns)
        for step in profile.timed_steps()
    }


def iteration_times_of(profile: Profile) -> list[int]:
    """Return the durations of the timed iterations in nanoseconds, as the run prints them."""
    return [end - begin for begin, end in iterations_of(profile).values()]


def waiting_calls(profile: Profile) -> frozenset[int]:
    """Return the `id()` of each span that is a call of the engine and only waits."""
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
    """Return for each call the index of the innermost call around it on its thread, or -1.

    `timed` has the thread, begin and end of each call. If two calls have equal times, the first
    call is treated as the outer call.
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
    """Return the own time of each call in nanoseconds, without inner calls on the same thread.

    The sum of own times is the time of the outermost calls. `timed` has the thread, begin and end
    of each call.
    """
    own = [end - start for _, start, end in timed]
    for (_, start, end), parent in zip(timed, parents_of(timed), strict=True):
        if parent >= 0:
            own[parent] -= end - start
    return [max(0, each) for each in own]


@keep_with_profile
def self_times_of(profile: Profile) -> Sequence[int]:
    """Return the own computing time of each timed execution, in nanoseconds.

    The own computing time includes neither the execution's waiting nor inner operators, such as the
    operators in the body of a Loop.
    """
    executions = profile.timed_executions
    own = own_times([(each.thread, *each.interval) for each in executions])
    return [max(0, ns - (each.wait_ns or 0)) for ns, each in zip(own, executions, strict=True)]


@keep_with_profile
def self_host_times_of(profile: Profile) -> Sequence[int]:
    """Return the own host time of each timed execution, in nanoseconds.

    The own host time is the time of the execution's dispatch. On a CPU, the own host time also
    includes the time of the computation, without inner operators.
    """
    if profile.on_device:
        return profile.host_times_ns
    timed = zip(
        profile.timed_executions, profile.host_times_ns, self_times_of(profile), strict=True
    )
    return [max(0, host_ns - each.compute_ns + own_ns) for each, host_ns, own_ns in timed]


def timed_allocations(profile: Profile) -> tuple[Allocation, ...]:
    """Return the allocations and releases of memory outside of the warm-up.

    A release exactly at the end of an iteration belongs to this iteration.
    """
    warmup = [step.interval for step in profile.steps if step.warmup]
    return tuple(
        each
        for each in profile.allocations
        if not any(start <= each.at_ns < end + (each.size_bytes < 0) for start, end in warmup)
    )


# Filters of operators, groups and sums for all reports, and units of time


MOVING_TYPES = re.compile(
    r"(Host2DeviceCopy|Copy|RelayoutFormat|Dimshuffle|Reshape|Concat|MemcpyToHost|MemcpyFromHost"
    r"|ReorderInput|ReorderOutput|Transpose)(Forward|V\d+)?"
)


def only_moves(type: str) -> bool:
    """Return whether operators of a type only move values to other memory or to another layout."""
    return MOVING_TYPES.fullmatch(type) is not None


def operators_matching(profile: Profile, pattern: str) -> frozenset[int]:
    """Return the indexes of the operators whose name or type matches `pattern`."""
    search = re.compile(pattern).search
    return frozenset(
        place
        for place, operator in enumerate(profile.operators)
        if search(operator.name) or search(operator.type)
    )


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The nanoseconds in each unit, the smallest first.
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class Totals(NamedTuple):
    """Figures of calls and of their durations; figures that are not known are None.

    `p90_ns` is None if there are too few calls for this percentile. If only the mean of calls is
    known, the maximum, minimum, median and p90 are None. `disturbed` counts the calls that other
    work on the machine made longer. Rows are ranked by `ranking_ns`: for each operator of a row,
    the median time is multiplied by the number of calls, and the products are added. Since medians
    are used, a few disturbed calls hardly change the ranking of rows.
    """

    calls: int
    total_ns: int
    max_ns: int | None
    min_ns: int | None
    median_ns: float | None = None
    p90_ns: float | None = None
    disturbed: int = 0
    ranking_ns: float = 0.0

    @property
    def average_ns(self) -> float | None:
        return self.total_ns / self.calls if self.calls else None


# The figures of a row besides the number and the median of its calls.
FIGURES: Mapping[str, Callable[[Totals], float | None]] = {
    "p90": lambda it: it.p90_ns,
    "mean": lambda it: it.average_ns,
    "min": lambda it: it.min_ns,
    "max": lambda it: it.max_ns,
    "total": lambda it: it.total_ns,
}


def totals_of(
    durations_ns: Iterable[int],
    owners: Iterable[Hashable] | None = None,
    disturbed: int = 0,
    times: Times = "each",
) -> Totals:
    """Return the number, the sum, the extremes and the percentiles of durations.

    `owners` has the operator of each duration. If all durations belong to one operator, `owners`
    may be None. If `times` is "mean", durations are means, so that figures of single calls are
    unknown.
    """
    values = list(durations_ns)
    if not values:
        return Totals(0, 0, None, None)
    ordered, of_owners = sorted(values), [values]
    if owners is not None:
        owned = group_by(zip(owners, values, strict=True), itemgetter(0)).values()
        of_owners = [[ns for _, ns in own] for own in owned]
    count, total, median = len(values), sum(values), percentile_of(ordered, 50)
    ranking_ns = sum(percentile_of(sorted(own), 50) * len(own) for own in of_owners)
    if times == "mean":
        return Totals(count, total, None, None, ranking_ns=ranking_ns)
    p90 = percentile_of(ordered, 90) if len(values) >= samples_for(90) else None
    return Totals(count, total, ordered[-1], ordered[0], median, p90, disturbed, ranking_ns)


def group_by(items: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Return values grouped by a key; groups keep the order of their first values."""
    groups: dict[K, list[V]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def use_of(operators: Iterable[ProfiledOperator]) -> ThreadUse | None:
    """Return how operators together used the engine's threads, or None if this is not recorded."""
    uses = [each.threads for each in operators if each.threads is not None]
    return reduce(ThreadUse.with_that_of, uses) if uses else None
