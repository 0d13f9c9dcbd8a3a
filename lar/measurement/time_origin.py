"""The zero that a profile's times count from.

A profile's own is when its worker began to record; a range of the program around the run began
before that. Trace viewers drop events before 0, so the zero of a file is the earliest time in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

from lar.records.profile import Profile, ProfileFacts

R = TypeVar("R", bound=msgspec.Struct)

# The times in each kind of a profile's records; the first is when it began.
TIMES: dict[str, tuple[str, ...]] = {
    "steps": ("start_ns", "end_ns"),
    "spans": ("start_ns", "end_ns"),
    "executions": ("start_ns", "end_ns", "dispatch_start_ns", "dispatch_end_ns"),
    "counters": ("at_ns",),
    "allocations": ("at_ns",),
}


def earliest_ns(profile: Profile) -> int:
    """Return the earliest time of a profile if that is before its zero, else 0."""
    begins = (
        getattr(each, times[0]) for kind, times in TIMES.items() for each in getattr(profile, kind)
    )
    dispatches = (each.dispatch_start_ns or 0 for each in profile.executions)
    return min(0, min(begins, default=0), min(dispatches, default=0))


def with_zero_at(profile: Profile, zero_ns: int) -> Profile:
    """Return a profile whose zero is at `zero_ns` of its clock, with all its times from there."""
    if not zero_ns:
        return profile
    records: dict[str, Any] = {
        kind: tuple(moved(each, -zero_ns, *times) for each in getattr(profile, kind))
        for kind, times in TIMES.items()
    }
    return dataclasses.replace(profile, facts=facts_with_zero_at(profile.facts, zero_ns), **records)


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
