"""How long each execution of an operator kept a device busy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Protocol

from lar.profiles.activities import device_activities_of
from lar.records.profile import Execution, Profile

# By operator and step: when each execution began, and where it is among those given.
Places = dict[tuple[int, int], list[tuple[int, int]]]


class Placed(Protocol):
    """What is told to be of an operator: a span, or what a device did."""

    @property
    def operator(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def start_ns(self) -> int: ...


def device_times_of(profile: Profile) -> list[int]:
    """Return, for each timed execution, the nanoseconds of the kernels, copies and fills that it
    had a device do: 0 on a CPU, which is none."""
    executions = profile.timed_executions()
    times = [0] * len(executions)
    places = places_of(executions, on_device=True) if profile.on_device else {}
    for each in device_activities_of(profile):
        if (index := execution_of(each, places)) is not None:
            times[index] += each.duration_ns
    return times


def places_of(executions: Sequence[Execution], *, on_device: bool) -> Places:
    """Return where the executions of each operator in each step are, in the order of time: of when
    a device began them, else of when the host did, which may dispatch several before."""
    places: Places = {}
    for index, execution in enumerate(executions):
        places.setdefault((execution.operator, execution.step), []).append(
            (execution.start_ns if on_device else began_ns(execution), index)
        )
    for found in places.values():
        found.sort()
    return places


def execution_of(part: Placed, places: Places) -> int | None:
    """Return which execution something of an operator is part of: the last that had begun."""
    if part.operator is None or part.step is None:
        return None
    found = places.get((part.operator, part.step))
    if not found:
        return None
    begun = bisect_right(found, part.start_ns, key=itemgetter(0))
    return found[max(begun - 1, 0)][1]


def began_ns(execution: Execution) -> int:
    """Return when an execution's dispatch began, or itself."""
    dispatch = execution.dispatch_start_ns
    return execution.start_ns if dispatch is None else min(dispatch, execution.start_ns)
