"""The cost of profiling, and the times of operators without it.

To record an operator takes an engine a few microseconds, part of them within the time that it
records. A profiled run is preceded by a plain one, so that the cost of an iteration is known, but
not how much of it lies in which operator. The estimate here is the least that must: the operators
of an iteration, one after the other, must fit into what is left of their time without the cost.

    cost of one record = (profiled iteration - plain iteration - time between operators) / records

Each record costs the same in this estimate; those of operators with more tensors really cost more.
An operator cannot have cost more than the shortest takes as recorded, which keeps the estimate
small where it is another program that made the profiled run slower.

Up to `LIMIT` of a plain iteration the times of operators stay as they were recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import NamedTuple

import msgspec

from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.ranges import OPERATOR_RANGE, patterns_of, spans_of_patterns
from lar.profiles.totals import group_by
from lar.records.profile import Correction, Execution, Interval, Profile, Span

# A higher cost, as a part of a plain iteration, is taken out of the times of operators.
LIMIT = 0.10

# Engines record whole microseconds: the shortest operator may take so much more than recorded.
RESOLUTION_NS = 1000


class StepLoad(NamedTuple):
    """The records of one iteration: how many, when they are busy in all, and the time between."""

    records: int
    between_ns: int


def extra_share(profile: Profile) -> float | None:
    """Return the cost of profiling as a part of a plain iteration: 0.1 is 10 %; None if unknown."""
    cost = profile.facts.cost
    if cost is None or not cost.unprofiled_seconds:
        return None
    return cost.ratio - 1


def is_high(profile: Profile) -> bool:
    """Return whether profiling cost so much that the times of operators are corrected."""
    share = extra_share(profile)
    return share is not None and share > LIMIT


def correct(profile: Profile) -> Profile:
    """Return the profile with the times that operators take without profiling, as estimated; the
    same profile where the cost is low or unknown, or was taken out before.

    Executions begin when they were recorded to begin and end earlier; spans that stand for
    operators go with them. Steps, calls and phases stay as recorded.
    """
    if not is_high(profile) or profile.correction is not None or not profile.executions:
        return profile
    on_host = not profile.on_device
    compute_ns = event_cost_ns(profile, dispatch=False) if on_host else 0
    dispatch_ns = event_cost_ns(profile, dispatch=True)
    correction = Correction(compute_ns=compute_ns, dispatch_ns=dispatch_ns)
    if not compute_ns and not dispatch_ns:
        return replace(profile, correction=correction)
    executions = [*profile.executions]
    if compute_ns:
        shorten_computations(executions, compute_ns)
    if dispatch_ns:
        executions = [shorten_dispatch(each, dispatch_ns) for each in executions]
    corrected = replace(profile, executions=tuple(executions))
    return replace(
        corrected,
        spans=spans_with(profile, corrected),
        correction=msgspec.structs.replace(
            correction,
            removed=tuple(merge_intervals(removed_of(profile.executions, executions))),
            emptied=count_emptied(profile, executions),
        ),
    )


def spans_with(recorded: Profile, corrected: Profile) -> tuple[Span, ...]:
    """Return the spans of a profile whose executions were corrected: ranges that are made of
    operators, and those spans that stand for one, last as long as these."""
    places = {
        (old.operator, old.thread, old.start_ns, old.end_ns): new.interval
        for old, new in zip(recorded.executions, corrected.executions, strict=True)
    }
    patterns, spans = patterns_of(recorded.facts.options), []
    for span in recorded.spans:
        if patterns and span.category == "user_annotation" and span.style == OPERATOR_RANGE:
            continue
        if span.operator is not None:
            times = places.get((span.operator, span.thread, span.start_ns, span.end_ns))
            start_ns, end_ns = times or span.interval
            span = msgspec.structs.replace(span, start_ns=start_ns, end_ns=end_ns)
        spans.append(span)
    spans += spans_of_patterns(corrected, patterns)
    return tuple(sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)))


def event_cost_ns(profile: Profile, *, dispatch: bool) -> int:
    """Return the estimate of what one record costs within the time that it records, of operators'
    computations or of their dispatches; 0 where the cost may lie between them."""
    cost = profile.facts.cost
    assert cost is not None
    recorded: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by step
    lengths: dict[int, list[int]] = defaultdict(list)  # by operator
    for each in profile.executions:
        if each.warmup:
            continue
        times, length = each.interval, each.compute_ns
        if dispatch:
            if each.dispatch is None:
                continue
            times, length = each.dispatch, each.dispatch[1] - each.dispatch[0]
        recorded[each.step].append(times)
        lengths[each.operator].append(length)
    typical = [middle for values in lengths.values() if (middle := median(values)) > 0]
    if not typical:
        return 0
    extra_ns = (cost.profiled_seconds - cost.unprofiled_seconds) * 1e9
    loads = [load_of(intervals) for intervals in recorded.values()]
    between_ns = median(load.between_ns for load in loads)
    records = median(load.records for load in loads)
    least = (extra_ns - between_ns) / records
    return max(0, round(min(least, min(typical) + RESOLUTION_NS)))


def load_of(intervals: Iterable[Interval]) -> StepLoad:
    listed = list(intervals)
    merged = merge_intervals(listed)
    whole_ns = merged[-1][1] - merged[0][0] if merged else 0
    return StepLoad(len(listed), whole_ns - total_of(merged))


def shorten_computations(executions: list[Execution], by_ns: int) -> None:
    """Take so much off each execution, in place: its wait stays, and it takes no less than 0.

    What lies within another, as the body of a loop does, still lies within it: the other ends
    earlier by what was taken off all of these.
    """
    threads = group_by(range(len(executions)), lambda index: executions[index].thread)
    for places in threads.values():
        places.sort(key=lambda index: (executions[index].start_ns, -executions[index].end_ns))
        group: list[int] = []  # one execution, and those within it
        until = -1
        for index in places:
            if group and executions[index].start_ns >= until:
                shorten_group(executions, group, by_ns)
                group = []
            group.append(index)
            until = (
                max(until, executions[index].end_ns)
                if len(group) > 1
                else (executions[index].end_ns)
            )
        if group:
            shorten_group(executions, group, by_ns)


def shorten_group(executions: list[Execution], group: Sequence[int], by_ns: int) -> None:
    """Shorten an execution and those within it, which begin earlier by what was taken off those
    before them."""
    if len(group) == 1:
        each = executions[group[0]]
        executions[group[0]] = moved(each, 0, min(by_ns, each.compute_ns))
        return
    own = {index: executions[index].compute_ns for index in group}
    is_open: list[int] = []
    for index in group:
        each = executions[index]
        while is_open and executions[is_open[-1]].end_ns <= each.start_ns:
            is_open.pop()
        if is_open:
            own[is_open[-1]] -= each.duration_ns
        is_open.append(index)
    ended = sorted((executions[index].end_ns, max(0, min(by_ns, own[index]))) for index in group)
    ends = [end for end, _ in ended]
    taken = [0, *accumulate(taken for _, taken in ended)]
    for index in group:
        each = executions[index]
        executions[index] = moved(
            each,
            taken[bisect_right(ends, each.start_ns)],
            taken[bisect_right(ends, each.end_ns)],
        )


def moved(each: Execution, start_by: int, end_by: int) -> Execution:
    """Return an execution that begins and ends earlier."""
    return msgspec.structs.replace(
        each, start_ns=each.start_ns - start_by, end_ns=each.end_ns - end_by
    )


def shorten_dispatch(each: Execution, by_ns: int) -> Execution:
    """Return an execution whose dispatch takes so much less, and no less than 0."""
    if each.dispatch_start_ns is None or each.dispatch_end_ns is None:
        return each
    end_ns = max(each.dispatch_start_ns, each.dispatch_end_ns - by_ns)
    return msgspec.structs.replace(each, dispatch_end_ns=end_ns)


def removed_of(before: Iterable[Execution], after: Iterable[Execution]) -> Iterator[Interval]:
    """Yield the times that were taken off executions and off dispatches."""
    for old, new in zip(before, after, strict=True):
        yield new.end_ns, old.end_ns
        if old.dispatch is not None and new.dispatch is not None:
            yield new.dispatch[1], old.dispatch[1]


def count_emptied(profile: Profile, executions: Sequence[Execution]) -> int:
    """Return how many operators took some time as recorded and take none as corrected."""
    left: dict[int, int] = defaultdict(int)
    before: dict[int, int] = defaultdict(int)
    for old, new in zip(profile.executions, executions, strict=True):
        if not old.warmup:
            before[old.operator] += old.compute_ns
            left[new.operator] += new.compute_ns
    return sum(before[operator] > 0 and left[operator] == 0 for operator in before)


def describe_cost(profile: Profile) -> str:
    """Return what profiling cost, and what that means for the times of operators; empty where it is
    not known. `profile` is as `correct` returns it."""
    cost, share = profile.facts.cost, extra_share(profile)
    if cost is None or share is None:
        return ""
    text = (
        f"Profiling cost {100 * share:+.1f} %: a median iteration took "
        f"{milliseconds(cost.profiled_seconds)} ms with it, "
        f"{milliseconds(cost.unprofiled_seconds)} ms without."
    )
    correction = profile.correction
    if correction is None:
        return text
    parts = []
    if correction.compute_ns:
        parts.append(f"each execution is {microseconds(correction.compute_ns)} us shorter")
    if correction.dispatch_ns:
        parts.append(f"each dispatch is {microseconds(correction.dispatch_ns)} us shorter")
    if not parts:
        return f"{text} It lies between operators, whose times are as recorded."
    emptied = correction.emptied
    none_left = (
        f" {emptied} operator{' takes' if emptied == 1 else 's take'} less than that and "
        f"stand{'s' * (emptied == 1)} as 0."
        if emptied
        else ""
    )
    return (
        f"{text} The times of operators are estimates without it: "
        f"{' and '.join(parts)} than recorded.{none_left}"
    )


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e3:.1f}"
