"""The activities of a device in the timed iterations, and the execution that began each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from lar.profiles.activities import execution_of, places_of
from lar.profiles.devices import device_number, is_of_device, kernel_name_of
from lar.profiles.range_members import Starts, starts_of
from lar.records.profile import Execution, Profile

KINDS = {"kernel": "Kernel", "memcpy": "Memcpy", "memset": "Memset"}


class Activity(NamedTuple):
    """A kernel, copy or fill on a device; `execution` counts in the timed executions.

    `launch_ns` is when the host had it begun as far as that is known, else when it began; `starts`
    is on which threads it began when.
    """

    kind: str
    name: str
    start_ns: int
    end_ns: int
    launch_ns: int
    device: int
    step: int
    execution: int | None
    starts: Starts

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class WorkSums:
    """Says how much work began between two times, of intervals (begin, duration)."""

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


def activities_of(profile: Profile, executions: Sequence[Execution]) -> list[Activity]:
    """Return what the device did, in the order recorded.

    Where the engine reports no kernels, the computation of each operator stands for one.
    """
    if not profile.on_device:
        return []
    places = places_of(executions, on_device=True)
    activities = []
    for span in profile.spans_of("kernel", "memcpy", "memset"):
        if not is_of_device(profile, span) or span.step is None:
            continue
        index = execution_of(span, places)
        dispatch = None if index is None else executions[index].dispatch_start_ns
        launch = span.start_ns if dispatch is None else dispatch
        starts: Starts = ((span.thread, span.start_ns),)
        if index is not None:
            starts += starts_of(executions[index])[1:]
        number = device_number(span.device or profile.facts.device)
        times = *span.interval, launch
        activities.append(
            Activity(KINDS[span.category], span.name, *times, number, span.step, index, starts)
        )
    if not any(activity.kind == "Kernel" for activity in activities):
        number = device_number(profile.facts.device)
        for index, each in enumerate(executions):
            begin_ns, _ = each.computation
            launch = begin_ns if each.dispatch_start_ns is None else each.dispatch_start_ns
            times = *each.computation, launch
            name = kernel_name_of(profile.operators[each.operator])
            activities.append(
                Activity("Kernel", name, *times, number, each.step, index, starts_of(each))
            )
    return activities
