"""Activities of the host and of devices, and how long each execution kept a device busy.

Activities are as trace viewers take them: intervals that nest on each thread of the host,
and kernels and copies on a device.

On a CPU an operator's computation is an activity of the host, named by the operator's type, and its
dispatch, where that is recorded, is another, named `TYPE dispatch`. With operators on a device,
the host only dispatches: that is the activity named by the type, and the device's kernels belong
to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

import msgspec

from lar.profiles.breakdown import device_copies
from lar.profiles.devices import kernel_name_of
from lar.profiles.range_members import Starts, starts_of
from lar.records.profile import Execution, Interval, Profile, Span, keep_with_profile


class Nested(NamedTuple):
    """The place of an interval on its thread: its track, and the position of the interval around
    it, or -1."""

    track: int
    parent: int


class HostActivity(msgspec.Struct, frozen=True, gc=False):
    """An operator on the host; `parent` is the position of the activity around it, -1 for none.

    `self_ns` leaves out what other activities took within it.
    """

    name: str
    operator: int
    step: int
    thread: int
    track: int
    start_ns: int
    end_ns: int
    self_ns: int
    parent: int
    is_dispatch: bool

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class DeviceActivity(NamedTuple):
    """A kernel, copy or fill on a device; `operator` is None if unknown.

    `execution` is the place of its execution among the timed ones. `launch_ns` is when the host had
    it begun as far as that is known, else when it began; `starts` is on which threads it began
    when.
    """

    kind: Literal["kernel", "memcpy", "memset"]
    name: str
    operator: int | None
    step: int
    start_ns: int
    end_ns: int
    stream: int
    device: str
    execution: int | None
    launch_ns: int
    starts: Starts

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.end_ns

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def nest_intervals(intervals: Sequence[Interval]) -> list[Nested]:
    """Put intervals onto as few tracks as they need to nest: on one track, two are either apart or
    one contains the other. An interval of length 0 lies within no other: with a coarse clock it is
    more likely before or after. The result is in the order of the intervals."""
    places: list[Nested] = [Nested(0, -1)] * len(intervals)
    if all(one[0] < other[0] >= one[1] for one, other in pairwise(intervals)):
        return places
    tracks: list[list[tuple[int, int]]] = []  # of each: end and position of what is open
    for index in sorted(range(len(intervals)), key=lambda i: (intervals[i][0], -intervals[i][1])):
        start, end = intervals[index]
        number = 0
        while number < len(tracks) and not can_open(tracks[number], start, end):
            number += 1
        if number == len(tracks):
            tracks.append([])
        is_open = tracks[number]
        places[index] = Nested(number, is_open[-1][1] if is_open else -1)
        is_open.append((end, index))
    return places


def can_open(is_open: list[tuple[int, int]], start: int, end: int) -> bool:
    """Close what has ended on a track, and return whether an interval fits into what is open."""
    while is_open and is_open[-1][0] <= start:
        is_open.pop()
    return not is_open or start < end <= is_open[-1][0]


def host_activities_of(profile: Profile) -> list[HostActivity]:
    """Return the timed operators' activities on the host, by thread."""
    drafts: dict[int, list[tuple[Execution, bool, int, int]]] = {}
    for each in profile.executions:
        if each.warmup:
            continue
        if (dispatch := each.dispatch) is not None:
            drafts.setdefault(each.host_thread, []).append((each, True, *dispatch))
        if not profile.on_device:
            drafts.setdefault(each.thread, []).append((each, False, *each.work))
    activities: list[HostActivity] = []
    for thread, own in drafts.items():
        places = nest_intervals([(start, end) for _, _, start, end in own])
        inner = [0] * len(own)
        for (_, _, start, end), place in zip(own, places, strict=True):
            if place.parent >= 0:
                inner[place.parent] += end - start
        first = len(activities)
        for index, (each, is_dispatch, start, end) in enumerate(own):
            track, parent = places[index]
            name = profile.operators[each.operator].type
            if is_dispatch and not profile.on_device:
                name += " dispatch"
            activities.append(
                HostActivity(
                    name,
                    each.operator,
                    each.step,
                    thread,
                    track,
                    start,
                    end,
                    end - start - inner[index],
                    parent + first if parent >= 0 else -1,
                    is_dispatch,
                )
            )
    return activities


@keep_with_profile
def device_activities_of(profile: Profile) -> Sequence[DeviceActivity]:
    """Return the timed kernels, copies and fills of a device; empty on a CPU.

    Where the engine reports no kernels, the computation of an operator is one.
    """
    if not profile.on_device:
        return []
    spans = [*profile.spans_of("kernel"), *device_copies(profile)]
    places = places_of(profile.timed_executions, on_device=True)
    activities = [
        activity_of(profile, span, execution_of(span, places))
        for span in spans
        if span.step is not None and not span.warmup
    ]
    if not any(each.kind == "kernel" for each in activities):
        for place, each in enumerate(profile.timed_executions):
            start, end = each.computation
            kernel = Span(
                category="kernel",
                name=kernel_name_of(profile.operators[each.operator]),
                start_ns=start,
                end_ns=end,
                thread=each.thread,
                step=each.step,
                operator=each.operator,
            )
            activities.append(activity_of(profile, kernel, place))
    return activities


def activity_of(profile: Profile, span: Span, place: int | None) -> DeviceActivity:
    """Return a span on a device, which is part of the timed execution at `place`."""
    execution = None if place is None else profile.timed_executions[place]
    dispatch = None if execution is None else execution.dispatch_start_ns
    return DeviceActivity(
        span.category,  # type: ignore[arg-type]
        span.name,
        span.operator,
        -1 if span.step is None else span.step,
        *span.interval,
        span.thread if span.stream is None else span.stream,
        span.device or profile.facts.device,
        place,
        span.start_ns if dispatch is None else dispatch,
        ((span.thread, span.start_ns), *(starts_of(execution)[1:] if execution else ())),
    )


# By operator and step: when each execution began, and where it is among those given.
Places = dict[tuple[int, int], list[tuple[int, int]]]


class Placed(Protocol):
    """A record of an operator: a span, or an activity of a device."""

    @property
    def operator(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def start_ns(self) -> int: ...


def device_times_of(profile: Profile) -> list[int]:
    """Return the nanoseconds of each timed execution's kernels, copies and fills on a device: 0 on
    a CPU."""
    times = [0] * len(profile.timed_executions)
    for each in device_activities_of(profile):
        if each.execution is not None:
            times[each.execution] += each.duration_ns
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
    """Return the execution that a record of an operator is part of: the last that had begun."""
    if part.operator is None or part.step is None:
        return None
    found = places.get((part.operator, part.step))
    if not found:
        return None
    begun = bisect_right(found, part.start_ns, key=itemgetter(0))
    return found[max(begun - 1, 0)][1]


def began_ns(execution: Execution) -> int:
    """Return when an execution's dispatch began; without a dispatch, when the execution did."""
    dispatch = execution.dispatch_start_ns
    return execution.start_ns if dispatch is None else min(dispatch, execution.start_ns)
