"""The timed iterations of one profile, from which all of Paddle's tables are made."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from lar.profiles.activities import execution_of, places_of
from lar.profiles.breakdown import WAITING, breakdown_of
from lar.profiles.copies import split_copies
from lar.profiles.devices import device_number, is_of_device, kernel_name_of, streams_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.range_members import Begun, Starts, members_of_ranges, starts_of
from lar.records.profile import Execution, Profile, Span, Step


class Settings(NamedTuple):
    """The settings of a report; `views` were asked for by name, an empty one stands for the
    usual."""

    unit: str = "ms"
    sort: str = "cpu_total"
    group_by: str = "type"
    filter: str | None = None
    top: int | None = None
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedRun:
    """A profile, and what several tables need of it."""

    profile: Profile

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return self.profile.timed_steps()

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        return self.profile.timed_executions

    @cached_property
    def step_ns(self) -> int:
        """The sum of all steps, which most ratios are of: those of several copies overlap."""
        return sum(step.duration_ns for step in self.steps)

    @cached_property
    def elapsed_ns(self) -> int:
        """The time in which any step ran."""
        return total_of(merge_intervals(step.interval for step in self.steps))

    @cached_property
    def copies(self) -> list[TimedRun]:
        """Each copy of the model that ran, of several at once."""
        profiles = split_copies(self.profile)
        return [TimedRun(each) for each in profiles] if len(profiles) > 1 else [self]

    @property
    def has_copies(self) -> bool:
        """True if copies of the model ran at once."""
        return len(self.copies) > 1

    @cached_property
    def waits_ns(self) -> Mapping[int, int]:
        """How long timed steps waited for a CPU, by their numbers, where that is known."""
        return {
            step.number: step.buckets_ns[WAITING]
            for step in breakdown_of(self.profile).steps
            if WAITING in step.buckets_ns
        }

    @cached_property
    def activities(self) -> list[Activity]:
        return activities_of(self.profile, self.executions)

    @property
    def reports_kernels(self) -> bool:
        """True if the kernels are those that a device reported."""
        return self.profile.on_device and bool(self.profile.spans_of("kernel"))

    @cached_property
    def device_ns(self) -> int:
        """The sum of all that a device did: kernels, copies, fills."""
        return sum(activity.duration_ns for activity in self.activities)

    @cached_property
    def by_execution(self) -> dict[int, list[Activity]]:
        """The device's work for each execution."""
        groups: dict[int, list[Activity]] = {}
        for activity in self.activities:
            if activity.execution is not None:
                groups.setdefault(activity.execution, []).append(activity)
        return groups

    @cached_property
    def streams(self) -> frozenset[int]:
        """The threads that stand for a device's streams."""
        return streams_of(self.profile)

    @cached_property
    def host_copies(self) -> tuple[Span, ...]:
        """The copies, fills and conversions of layout within the host's memory."""
        spans = self.profile.spans_of("memcpy", "memset", "relayout")
        return tuple(span for span in spans if not is_of_device(self.profile, span))

    @cached_property
    def user_ranges(self) -> tuple[Span, ...]:
        """The ranges that the user has named, without those of the warm-up; a range around several
        steps belongs to no step."""
        ranges = self.profile.spans_of("user_annotation", timed=False)
        return tuple(span for span in ranges if not span.warmup)

    @cached_property
    def _launched(self) -> WorkSums:
        return WorkSums((each.launch_ns, each.duration_ns) for each in self.activities)

    @cached_property
    def _begun(self) -> WorkSums:
        return WorkSums((each.start_ns, each.duration_ns) for each in self.activities)

    def host_ns_of(self, span: Span) -> int | None:
        """Return how long a span kept the host busy; None for one on a device's stream."""
        return None if span.thread in self.streams else span.duration_ns

    @cached_property
    def _range_ns(self) -> dict[int, int]:
        """The device's work of each of the user's ranges, by its identity."""
        begun = [Begun(each.execution, each.starts) for each in self.activities]
        return {
            id(span): sum(self.activities[place].duration_ns for place in places)
            for span, places in members_of_ranges(self.profile, begun)
        }

    def device_ns_of(self, span: Span) -> int:
        """Return the device's work of a span: of a range of the user, the work that belongs to it;
        of a span on a stream, the work that began in it; of any other span, the work that it
        launched."""
        if span.category == "user_annotation":
            return self._range_ns[id(span)]
        work = self._begun if span.thread in self.streams else self._launched
        return work.total_between(*span.interval)


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
