"""The zero from which a profile's times count.

A profile's own zero is when its worker began to record. A range of the program around the run began
before that. Trace viewers drop events before 0, so the zero of a file is the earliest time in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

from lar.records.profile import Profile, ProfileFacts

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
