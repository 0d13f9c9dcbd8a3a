"""What a device did, and which execution each record of an operator is part of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

from lar.profiles.breakdown import device_copies
from lar.profiles.devices import kernel_name_of
from lar.profiles.range_members import Starts, starts_of
from lar.records.profile import Execution, Interval, Profile, Span, keep_with_profile


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
