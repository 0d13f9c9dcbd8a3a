"""Launches of kernels: within which ranges and calls, and how long each took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lar.profiles.devices import kernel_name_of
from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.range_members import executions_in_ranges
from lar.records.profile import Execution, Profile, Span
from lar.reports.styles.nsys.groups import range_style_of, spans_without_warmup


class Launch(NamedTuple):
    """One execution and when it, or its dispatch, was on a thread; `disturbed` says that something
    else on the machine made it longer, None if that is not known."""

    thread: int
    start_ns: int
    end_ns: int
    execution: Execution
    disturbed: bool | None = None


class LaunchTimes(NamedTuple):
    """The phases of a launch in nanoseconds; `queue_ns` is None if computing began before the call
    had returned.

    The total lasts from the start of the call to the end of the call or of the computation,
    whichever is later: it is not a sum. `disturbed` is that of its `Launch`.
    """

    thread: int
    api_name: str | None
    kernel_name: str
    operator: int
    total_ns: int
    api_ns: int
    queue_ns: int | None
    kernel_ns: int
    disturbed: bool | None = None


class RangeLaunches(NamedTuple):
    """A range and what was launched within it; `level` counts the ranges around it on its thread,
    `children` those directly within, and `places` is where its executions are among the timed."""

    span: Span
    style: str
    level: int
    children: int
    executions: list[Execution]
    places: Sequence[int]


@dataclass
class OpenRange:
    """A range around others while these are gone through."""

    span: Span
    level: int
    children: int = field(default=0)


def launch_times(profile: Profile) -> list[LaunchTimes]:
    """Return the phases of every launch whose dispatch is known."""
    launches = dispatches_of(profile)
    times = []
    for launch, api_name in zip(launches, calls_around(profile, launches), strict=True):
        each = launch.execution
        computes, _ = each.computation
        times.append(
            LaunchTimes(
                launch.thread,
                api_name,
                kernel_name_of(profile.operators[each.operator]),
                each.operator,
                max(launch.end_ns, each.end_ns) - launch.start_ns,
                launch.end_ns - launch.start_ns,
                computes - launch.end_ns if computes > launch.end_ns else None,
                each.compute_ns,
                launch.disturbed,
            )
        )
    return times


def dispatches_of(profile: Profile) -> list[Launch]:
    """Return the dispatches of timed iterations by thread, in the order of time."""
    disturbed = disturbed_executions(profile) if is_recorded(profile) else None
    launches = [
        Launch(each.host_thread, *times, each, None if disturbed is None else place in disturbed)
        for place, each in enumerate(profile.timed_executions)
        if (times := each.dispatch) is not None
    ]
    return sorted(launches, key=lambda launch: (launch.thread, launch.start_ns))


def calls_around(profile: Profile, launches: Iterable[Launch]) -> list[str | None]:
    """Return for each launch, in their order, the innermost call of the engine's API around it."""
    calls = sorted(
        profile.spans_of("runtime"), key=lambda span: (span.thread, span.start_ns, -span.end_ns)
    )
    coming = deque(calls)
    around: list[Span] = []
    names = []
    for launch in launches:
        place = (launch.thread, launch.start_ns)
        while coming and (coming[0].thread, coming[0].start_ns) <= place:
            around.append(coming.popleft())
        while around and (around[-1].thread != launch.thread or around[-1].end_ns < launch.end_ns):
            around.pop()
        names.append(around[-1].name if around else None)
    return names


def launches_in_ranges(profile: Profile) -> list[RangeLaunches]:
    """Return the user's ranges, each with what was launched within."""
    executions = profile.timed_executions
    members = {id(span): places for span, places in executions_in_ranges(profile)}
    return [
        RangeLaunches(
            each.span,
            range_style_of(each.span),
            each.level,
            each.children,
            [executions[place] for place in members[id(each.span)]],
            members[id(each.span)],
        )
        for each in nest_ranges(spans_without_warmup(profile, "user_annotation"))
    ]


def nest_ranges(spans: Iterable[Span]) -> list[OpenRange]:
    """Return the ranges with their level and their number of children, thread by thread."""
    ranges: list[OpenRange] = []
    around: list[OpenRange] = []
    for span in sorted(spans, key=lambda span: (span.thread, span.start_ns, -span.end_ns)):
        while around and (
            around[-1].span.thread != span.thread
            or span.start_ns >= around[-1].span.end_ns
            or span.end_ns > around[-1].span.end_ns
        ):
            around.pop()
        if around:
            around[-1].children += 1
        each = OpenRange(span, len(around))
        ranges.append(each)
        around.append(each)
    return ranges
