"""The counters of the processor joined to the operators that ran: counts for each type of operator.

Between two samples of a thread its counters grow by some. What grows while an operator runs is that
operator's; where several ran between the two, or none, each gets as much as its part of the time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lar.errors import count_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.records.profile import (
    Execution,
    Hardware,
    HardwareCounts,
    Interval,
    Profile,
    ProfiledOperator,
    Step,
)

BETWEEN = ""  # the type of what is in a step, and in no operator


class Sample(Protocol):
    """The counters of a thread at one time (`lar.measurement.hardware_counters`)."""

    @property
    def at_ns(self) -> int: ...
    @property
    def running_ns(self) -> int: ...
    @property
    def values(self) -> tuple[int, ...]: ...


class TypedIntervals(NamedTuple):
    """When operators of each type ran, and the timed steps; each merged."""

    types: Mapping[str, list[Interval]]
    steps: list[Interval]


def hardware_of(
    names: Sequence[str],
    pairs: Mapping[int, Sequence[tuple[Sample, Sample]]],
    t0_ns: int,
    steps: Sequence[Step],
    executions: Sequence[Execution],
    operators: Sequence[ProfiledOperator],
) -> Hardware:
    """Return the counts by type, the most cycles first.

    `names` are those of the values in a sample; `pairs` has by thread each sample with the one
    before it, whose clock has the profile's zero at `t0_ns`.
    """
    timed = TypedIntervals(intervals_by_type(executions, operators), timed_intervals(steps))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * (1 + len(names)))
    used = 0
    for own in pairs.values():
        for before, after in own:
            parts = parts_of((before.at_ns - t0_ns, after.at_ns - t0_ns), timed)
            used += bool(parts)
            grown = [after.running_ns - before.running_ns]
            grown += [new - old for new, old in zip(after.values, before.values, strict=True)]
            for kind, part in parts.items():
                row = sums[kind]
                for index, value in enumerate(grown):
                    row[index] += part * value
    counts = [
        HardwareCounts(
            type=kind,
            running_ns=round(row[0]),
            **{name: round(value) for name, value in zip(names, row[1:], strict=True)},
        )
        for kind, row in sums.items()
    ]
    return Hardware(tuple(sorted(counts, key=lambda each: -(each.cycles or 0))), used)


def timed_intervals(steps: Sequence[Step]) -> list[Interval]:
    return merge_intervals(step.interval for step in steps if not step.warmup)


def intervals_by_type(
    executions: Sequence[Execution], operators: Sequence[ProfiledOperator]
) -> dict[str, list[Interval]]:
    """Return when operators of each type computed in timed iterations."""
    found: dict[str, list[Interval]] = defaultdict(list)
    for each in executions:
        if not each.warmup:
            found[operators[each.operator].type].append(each.computation)
    return {kind: merge_intervals(intervals) for kind, intervals in found.items()}


def parts_of(interval: Interval, timed: TypedIntervals) -> dict[str, float]:
    """Return the parts of an interval in which operators of each type ran, and the rest of what is
    in timed steps; empty where it is in none."""
    length = interval[1] - interval[0]
    within = time_in(interval, timed.steps)
    if length <= 0 or within <= 0:
        return {}
    times = {kind: time_in(interval, intervals) for kind, intervals in timed.types.items()}
    ran = sum(times.values())
    # Operators that ran at once share the time.
    scale = min(1.0, within / ran) if ran else 1.0
    parts = {kind: time * scale / length for kind, time in times.items() if time}
    between = within - ran
    if between > 0:
        parts[BETWEEN] = between / length
    return parts


def time_in(interval: Interval, intervals: Sequence[Interval]) -> int:
    """Return how much of an interval lies within merged ones."""
    first = bisect_right(intervals, interval[0], key=lambda each: each[1])
    last = bisect_left(intervals, interval[1], key=lambda each: each[0])
    return total_of(
        (max(start, interval[0]), min(end, interval[1])) for start, end in intervals[first:last]
    )


def counts_of(profile: Profile, kind: str) -> HardwareCounts | None:
    """Return the counts of a type of operator, with nothing known where the system counted nothing
    for it; None where they were not asked for."""
    hardware = profile.facts.hardware
    if hardware is None:
        return None
    found = (each for each in hardware.counts if each.type == kind)
    return next(found, HardwareCounts(type=kind))


def describe_hardware(profile: Profile) -> str:
    """Return what there is of the counters in one sentence; empty where none were asked for."""
    hardware = profile.facts.hardware
    if hardware is None:
        return ""
    if hardware.missing:
        return f"Hardware counters: {hardware.missing}."
    return (
        f"Hardware counters: {count_of(hardware.samples, 'sample')} in timed iterations; "
        "--group-by type shows what was counted."
    )
