"""The zero that a profile's times count from.

A profile's own is when its worker began to record; a range of the program around the run began
before that. Trace viewers drop events before 0, so the zero of a file is the earliest time in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from lar.records.profile import Execution, Profile, ProfileFacts, Span, Step

R = TypeVar("R", bound=msgspec.Struct)


def earliest_ns(profile: Profile) -> int:
    """Return the earliest time of a profile if that is before its zero, else 0."""
    return min(times_of(profile))


def times_of(profile: Profile) -> Iterator[int]:
    """Yield 0, and when each record begins: a profile has too many for a list of them."""
    yield 0
    parts: tuple[Sequence[Step | Span | Execution], ...]
    parts = profile.steps, profile.spans, profile.executions
    for part in parts:
        for each in part:
            yield each.start_ns
    for execution in profile.executions:
        if execution.dispatch_start_ns is not None:
            yield execution.dispatch_start_ns
    for sample in profile.counters:
        yield sample.at_ns
    for allocation in profile.allocations:
        yield allocation.at_ns


def with_zero_at(profile: Profile, zero_ns: int) -> Profile:
    """Return a profile whose zero is at `zero_ns` of its clock, with all its times from there."""
    if not zero_ns:
        return profile
    return replace(
        profile,
        facts=facts_with_zero_at(profile.facts, zero_ns),
        steps=tuple(moved(each, -zero_ns, "start_ns", "end_ns") for each in profile.steps),
        executions=tuple(
            moved(each, -zero_ns, "start_ns", "end_ns", "dispatch_start_ns", "dispatch_end_ns")
            for each in profile.executions
        ),
        spans=tuple(moved(each, -zero_ns, "start_ns", "end_ns") for each in profile.spans),
        counters=tuple(moved(each, -zero_ns, "at_ns") for each in profile.counters),
        allocations=tuple(moved(each, -zero_ns, "at_ns") for each in profile.allocations),
    )


def facts_with_zero_at(facts: ProfileFacts, zero_ns: int) -> ProfileFacts:
    """Return a profile's facts with the clock that has its zero at `zero_ns` of the one there."""
    clock = moved(facts.clock, zero_ns, "t0_ns", "unix_ns")
    align = tuple(moved(each, -zero_ns, "offset_ns") for each in clock.align)
    return msgspec.structs.replace(facts, clock=msgspec.structs.replace(clock, align=align))


def moved(record: R, by_ns: int, *fields: str) -> R:
    """Return a record with the times in some fields moved; one that is not known stays None."""
    times = {field: getattr(record, field) for field in fields}
    return msgspec.structs.replace(
        record, **{field: at + by_ns for field, at in times.items() if at is not None}
    )
