"""What a device did in the timed iterations, and which execution of an operator began it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from lar.profiling.profile import Execution, Profile, Span

KINDS = {"kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"}
# By operator and step: when each execution began, and where it is among the timed ones.
Places = dict[tuple[int, int], list[tuple[int, int]]]


class Activity(NamedTuple):
    """A kernel, copy or fill on a device; `execution` counts in the timed executions.

    `launch_ns` is when the host had it begun as far as that is known, else when it began.
    """

    kind: str
    name: str
    start_ns: int
    end_ns: int
    launch_ns: int
    device: int
    step: int
    execution: int | None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class WorkSums:
    """Tells how much work began between two times, of intervals (begin, duration)."""

    def __init__(self, work: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(work)
        self._begins = [begin for begin, _ in ordered]
        self._sums = [0, *accumulate(duration for _, duration in ordered)]

    def total_between(self, start_ns: int, end_ns: int) -> int:
        """Return the sum of the durations of what began from `start_ns` to before `end_ns`."""
        if not self._begins:
            return 0
        first, last = bisect_left(self._begins, start_ns), bisect_left(self._begins, end_ns)
        return self._sums[max(first, last)] - self._sums[first]


def is_on_device(profile: Profile, span: Span) -> bool:
    """Tell what a device did from a copy within the host's memory."""
    if not profile.on_device or span.category not in KINDS:
        return False
    within_host = span.source_kind == span.destination_kind == "host"
    return not within_host and not (span.device or "").startswith("cpu")


def algorithm_of(profile: Profile, execution: Execution) -> str:
    """Return what stands for an execution's kernel: its algorithm, else its type, after the
    provider that ran it."""
    operator = profile.operators[execution.operator]
    if operator.algorithm:
        return operator.algorithm
    return f"{operator.provider}::{operator.type}" if operator.provider else operator.type


def device_number(profile: Profile, name: str | None) -> int:
    """Return the number in a device's name, such as 1 in `cuda:1`; 0 where it has none."""
    found = re.search(r"\d+", name or profile.facts.device)
    return int(found.group()) if found else 0


def activities_of(profile: Profile, executions: Sequence[Execution]) -> list[Activity]:
    """Return what the device did, in the order recorded.

    Where the engine tells of no kernels, the computation of each operator stands for one.
    """
    if not profile.on_device:
        return []
    places = places_of(executions)
    activities = []
    for span in profile.spans_of("kernel", "memcpy", "memset"):
        if not is_on_device(profile, span) or span.step is None:
            continue
        index = execution_of(span, places)
        launch = span.start_ns
        if index is not None and executions[index].dispatch_start_ns is not None:
            launch = executions[index].dispatch_start_ns or 0
        number = device_number(profile, span.device)
        times = span.start_ns, span.end_ns, launch
        activities.append(
            Activity(KINDS[span.category], span.name, *times, number, span.step, index)
        )
    if not any(activity.kind == "Kernel" for activity in activities):
        number = device_number(profile, None)
        for index, each in enumerate(executions):
            start = each.start_ns + (each.wait_ns or 0)
            launch = start if each.dispatch_start_ns is None else each.dispatch_start_ns
            times = start, each.end_ns, launch
            name = algorithm_of(profile, each)
            activities.append(Activity("Kernel", name, *times, number, each.step, index))
    return activities


def places_of(executions: Sequence[Execution]) -> Places:
    """Return where the executions of each operator in each step are, in the order of time."""
    places: Places = {}
    for index, execution in enumerate(executions):
        places.setdefault((execution.operator, execution.step), []).append(
            (began_ns(execution), index)
        )
    for found in places.values():
        found.sort()
    return places


def execution_of(span: Span, places: Places) -> int | None:
    """Return which execution a span of an operator is part of: the last that had begun."""
    if span.operator is None or span.step is None:
        return None
    found = places.get((span.operator, span.step))
    if not found:
        return None
    begun = bisect_right(found, span.start_ns, key=itemgetter(0))
    return found[max(begun - 1, 0)][1]


def began_ns(execution: Execution) -> int:
    """Return when an execution's dispatch began, or itself."""
    dispatch = execution.dispatch_start_ns
    return execution.start_ns if dispatch is None else min(dispatch, execution.start_ns)
