"""The cost of profiling, and the times of operators without it.

To record an operator takes an engine a few microseconds, part of them within the time that it
records. A profiled run is preceded by a plain one, so that the cost of an iteration is known, but
not how much of it lies in which operator. What is sure is that the operators of a plain iteration
take no more than it does. The estimate here:

    - operators have the part of a plain iteration that they, with the time between them, have of a
      profiled one;
    - so much of their recorded time as does not fit into that is the cost. Each record cost the
      same, but no more than the shortest operator was recorded to take: those with more tensors
      really cost more, and no operator can have cost more than it took;
    - if that is not enough, what is left is shortened in proportion: after each record caches are
      colder, and a machine may have been slower in one run than in the other.

Up to `LIMIT` of a plain iteration the times of operators stay as they were recorded. They also stay
where too few iterations were calm: then it is not known what the cost is.

What is left of a short operator may be less than a few steps of the clock that it was recorded
with, or nothing. It counts in every sum, and says no more than that the operator is short
(`lar.profiles.times.LEAST_ESTIMATE_NS`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.ranges import OPERATOR_RANGE, patterns_of, spans_of_patterns
from lar.profiles.times import LEAST_ESTIMATE_NS
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Correction,
    Cost,
    Execution,
    Interval,
    Profile,
    Shortening,
    Span,
)

if TYPE_CHECKING:
    from lar.records.run import Samples

# A higher cost, as a part of a plain iteration, is taken out of the times of operators.
LIMIT = 0.10

# What is left is shortened in proportion where a part of it that is not negligible is too much.
LEAST_PART = 0.995

# So many times as long is more than what two runs differ by of themselves.
SURELY_SLOWER = 1.1


def cost_of(profiled: Samples, plain: Samples) -> Cost | None:
    """Return what profiling costs: the medians of the timed iterations with it and without.

    Where too few were undisturbed, the fastest of these does, if it took surely longer than most
    without: other work makes no iteration faster. Where none was, the cost is not known.
    """
    # A report does not need them.
    from lar.measurement.statistics import disturbed_in
    from lar.measurement.summary import calm_median, in_turn

    times, without = profiled.end_to_end, plain.end_to_end
    if not times or not without:
        return None
    calm, calm_without = calm_median(profiled), calm_median(plain)
    if calm is None or calm_without is None:
        undisturbed = in_turn(profiled, disturbed_in(profiled))
        fastest = min(undisturbed, default=0.0)
        if fastest > SURELY_SLOWER * median(without):
            calm, calm_without = fastest, median(without)
    return Cost(
        median(times),
        median(without),
        len(times),
        len(without),
        calm,
        calm_without,
        disturbed=calm is None or calm_without is None,
    )


def seconds_of(profile: Profile) -> tuple[float, float] | None:
    """Return the median iteration with profiling and without, None where the cost is not known."""
    cost = profile.facts.cost
    if cost is None or cost.disturbed or not cost.calm[1]:
        return None
    return cost.calm


def extra_share(profile: Profile) -> float | None:
    """Return the cost of profiling as a part of a plain iteration: 0.1 is 10 %; None if unknown."""
    seconds = seconds_of(profile)
    return None if seconds is None else seconds[0] / seconds[1] - 1


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
    own_ns = own_times(profile.executions)
    compute = Shortening() if profile.on_device else shortening_of(profile, own_ns)
    dispatch = shortening_of(profile)
    seconds = seconds_of(profile)
    assert seconds is not None
    extra_ns = round((seconds[0] - seconds[1]) * 1e9)
    correction = Correction(compute=compute, dispatch=dispatch, between_ns=extra_ns)
    if compute == dispatch == Shortening():
        return replace(profile, correction=correction)
    executions = [*profile.executions]
    if compute != Shortening():
        executions = shorten_computations(executions, own_ns, compute)
    if dispatch != Shortening():
        executions = [shorten_dispatch(each, dispatch) for each in executions]
    corrected = replace(profile, executions=tuple(executions))
    removed: dict[int, list[Interval]] = defaultdict(list)  # by copy
    for copy, interval in removed_of(profile.executions, executions):
        removed[copy].append(interval)
    by_copy = [tuple(merge_intervals(removed[copy])) for copy in range(1 + max(removed))]
    within_ns = sum(map(total_of, by_copy)) // (len(profile.steps) or 1)
    # Where only dispatches are shorter, computations are as recorded.
    short, emptied = count_short(executions) if compute != Shortening() else (0, 0)
    return replace(
        corrected,
        spans=spans_with(profile, corrected),
        correction=msgspec.structs.replace(
            correction,
            removed=by_copy[0]
            if len(by_copy) == 1
            else tuple(merge_intervals(each for own in by_copy for each in own)),
            by_copy=tuple(by_copy),
            short=short,
            emptied=emptied,
            between_ns=max(0, extra_ns - within_ns),
        ),
    )


def spans_with(recorded: Profile, corrected: Profile) -> tuple[Span, ...]:
    """Return the spans of a profile whose executions were corrected: ranges that are made of
    operators, and those spans that stand for one, last as long as these."""
    standing = {span.operator for span in recorded.spans if span.operator is not None}
    places = {
        (old.operator, old.thread, old.start_ns, old.end_ns): new.interval
        for old, new in zip(recorded.executions, corrected.executions, strict=True)
        if old.operator in standing
    }
    patterns, spans = patterns_of(recorded.facts.options), []
    for span in recorded.spans:
        if patterns and span.category == "user_annotation" and span.style == OPERATOR_RANGE:
            continue
        times = None
        if span.operator is not None:
            times = places.get((span.operator, span.thread, span.start_ns, span.end_ns))
        if times is None:
            spans.append(span)
        else:
            spans.append(msgspec.structs.replace(span, start_ns=times[0], end_ns=times[1]))
    spans += spans_of_patterns(corrected, patterns)
    return tuple(sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)))


def shortening_of(profile: Profile, own_ns: Sequence[int] = ()) -> Shortening:
    """Return how the times of operators' computations are shortened, of which `own_ns` is each
    one's; without those, how their dispatches are."""
    seconds = seconds_of(profile)
    assert seconds is not None
    recorded: dict[int, list[Interval]] = defaultdict(list)  # by step
    lengths: dict[int, list[int]] = defaultdict(list)  # by operator
    for place, each in enumerate(profile.executions):
        times = each.computation if own_ns else each.dispatch
        if each.warmup or times is None:
            continue
        recorded[each.step].append(times)
        lengths[each.operator].append(own_ns[place] if own_ns else times[1] - times[0])
    if not recorded:
        return Shortening()
    # The operators of a typical iteration: how often each is executed, and how long.
    typical = [(len(each) / len(recorded), median(each)) for each in lengths.values()]
    busy_ns = sum(times * length for times, length in typical)
    spans_ns = [
        max(end for _, end in own) - min(start for start, _ in own) for own in recorded.values()
    ]
    part = min(1.0, median(spans_ns) / (seconds[0] * 1e9))
    room_ns = seconds[1] * 1e9 * part
    if busy_ns <= room_ns:
        return Shortening()
    shortest = min((length for _, length in typical if length), default=0.0)
    by_ns = round(min(shortest, (busy_ns - room_ns) / sum(times for times, _ in typical)))
    left_ns = sum(times * max(0, length - by_ns) for times, length in typical)
    to_part = room_ns / left_ns if left_ns else 1.0
    return Shortening(by_ns, to_part if to_part < LEAST_PART else 1.0)


def nested_groups(executions: Sequence[Execution]) -> list[list[int]]:
    """Return the places of each execution within which others begin on its thread, as the body of a
    loop does, with those of the others; nearly all executions are alone."""
    found: list[list[int]] = []
    order = sorted((each.start_ns, -each.end_ns, place) for place, each in enumerate(executions))
    groups: dict[int, list[int]] = {}  # by thread
    untils: dict[int, int] = {}
    for start_ns, minus_end_ns, place in order:
        thread = executions[place].thread
        if start_ns >= untils.get(thread, -1 << 62):
            groups[thread] = [place]
            untils[thread] = -minus_end_ns
            continue
        group = groups[thread]
        if len(group) == 1:
            found.append(group)
        group.append(place)
        untils[thread] = max(untils[thread], -minus_end_ns)
    return found


def own_times(executions: Sequence[Execution]) -> list[int]:
    """Return how long each computed, without what others within it took."""
    own = [each.compute_ns for each in executions]
    for group in nested_groups(executions):
        is_open: list[int] = []
        for index in group:
            each = executions[index]
            while is_open and executions[is_open[-1]].end_ns <= each.start_ns:
                is_open.pop()
            if is_open:
                own[is_open[-1]] = max(0, own[is_open[-1]] - each.duration_ns)
            is_open.append(index)
    return own


def shorten_computations(
    executions: Sequence[Execution], own_ns: Sequence[int], shortening: Shortening
) -> list[Execution]:
    """Return executions that are shorter; their waits stay.

    What lies within another, as the body of a loop does, still lies within it: the other ends
    earlier by what was taken off all of these, which begin earlier by what was taken off those
    before them.
    """
    removed = [shortening.removed_of(own) for own in own_ns]
    shorter = [moved(each, 0, by_ns) for each, by_ns in zip(executions, removed, strict=True)]
    for group in nested_groups(executions):
        ended = sorted((executions[index].end_ns, removed[index]) for index in group)
        ends = [end for end, _ in ended]
        taken = [0, *accumulate(taken for _, taken in ended)]
        for index in group:
            each = executions[index]
            before_start = taken[bisect_right(ends, each.start_ns)]
            before_end = taken[bisect_right(ends, each.end_ns)]
            shorter[index] = moved(each, before_start, before_end)
    return shorter


# To make a struct is faster than to change one: all of its fields are given here.
assert len(Execution.__struct_fields__) == 10


def moved(each: Execution, start_by: int, end_by: int) -> Execution:
    """Return an execution that begins and ends earlier."""
    return Execution(
        each.operator,
        each.step,
        each.thread,
        each.start_ns - start_by if start_by else each.start_ns,  # else one more number in memory
        each.end_ns - end_by,
        each.wait_ns,
        each.dispatch_start_ns,
        each.dispatch_end_ns,
        each.dispatch_thread,
        each.warmup,
    )


def shorten_dispatch(each: Execution, shortening: Shortening) -> Execution:
    """Return an execution whose dispatch is shortened."""
    if each.dispatch_start_ns is None or each.dispatch_end_ns is None:
        return each
    removed_ns = shortening.removed_of(each.dispatch_end_ns - each.dispatch_start_ns)
    end_ns = each.dispatch_end_ns - removed_ns
    return msgspec.structs.replace(each, dispatch_end_ns=end_ns)


def removed_of(
    before: Iterable[Execution], after: Iterable[Execution]
) -> Iterator[tuple[int, Interval]]:
    """Yield the times that were taken off executions and off dispatches, with the copy of the model
    whose they were."""
    for old, new in zip(before, after, strict=True):
        copy = old.thread // THREADS_OF_A_COPY
        yield copy, (new.end_ns, old.end_ns)
        if old.dispatch is not None and new.dispatch is not None:
            yield copy, (new.dispatch[1], old.dispatch[1])


def count_short(executions: Iterable[Execution]) -> tuple[int, int]:
    """Return of how many operators an execution is estimated to take less than the clock can say,
    and of how many of these nothing is left; by their medians."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for each in executions:
        if not each.warmup:
            lengths[each.operator].append(each.compute_ns)
    usual = [median(each) for each in lengths.values()]
    return sum(each < LEAST_ESTIMATE_NS for each in usual), usual.count(0)


def describe_cost(profile: Profile) -> str:
    """Return what profiling cost, and what that means for the times of operators; empty where there
    was no plain run. `profile` is as it is shown: as `correct` returns it, or as recorded."""
    cost, seconds, share = profile.facts.cost, seconds_of(profile), extra_share(profile)
    if cost is None or not cost.unprofiled_seconds:
        return ""
    if seconds is None or share is None:
        return (
            "What profiling cost is not known, as other work disturbed the runs: a median "
            f"iteration took {format_time(cost.profiled_seconds)} with it, "
            f"{format_time(cost.unprofiled_seconds)} without."
        )
    is_median = seconds == (cost.profiled_seconds, cost.unprofiled_seconds)
    text = (
        f"Profiling cost {f'{100 * share:+.1f}%' if share >= 0 else 'nothing that shows'}: "
        f"{'a median' if is_median else 'an undisturbed'} iteration took "
        f"{format_time(seconds[0])} with it, {format_time(seconds[1])} without."
    )
    correction = profile.correction
    if correction is None:
        return (
            f"{text} The times of operators are as recorded, with it." if is_high(profile) else text
        )
    parts = [
        *describe_shortening("execution", correction.compute),
        *describe_shortening("dispatch", correction.dispatch),
    ]
    if not parts:
        return f"{text} It lies outside of operators, whose times are as recorded."
    return (
        f"{text} The times of operators are estimates without it: {', and '.join(parts)}."
        f"{describe_short(correction)}"
    )


def describe_short(correction: Correction) -> str:
    """Return of how many operators too little is left, after a space; empty where of none."""
    count, emptied = correction.short, correction.emptied
    if not count:
        return ""
    nothing = f", of {emptied} of them nothing" if emptied else ""
    return (
        f" Of {count} operator{'s' * (count > 1)} less than {LEAST_ESTIMATE_NS / 1e3:.0f} us is "
        f"left{nothing}: too little for the clock to say a rate, a bound or a saving."
    )


def describe_shortening(what: str, shortening: Shortening) -> Iterator[str]:
    """Yield what is taken off each, of what is left then; nothing where it is as recorded."""
    amounts = []
    if shortening.by_ns:
        amounts.append(f"{shortening.by_ns / 1e3:.2f} us")
    if shortening.to_part < 1:
        share = f"{100 * (1 - shortening.to_part):.0f}%"
        amounts.append(f"then {share}" if amounts else share)
    if amounts:
        yield f"each {what} less {', '.join(amounts)}"


def format_time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
