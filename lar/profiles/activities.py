"""Finds the launches, the activities of devices and the system calls in the profile of a run.

A launch is one execution of an operator or, on a device, of a kernel. An activity is a kernel, a
copy or a fill on a device. Launches and activities belong to an execution of an operator, if this
execution is known.

A CPU is the host and does not count as a device. If an engine reports no kernels, each operator is
treated as a kernel that has the name of the operator's algorithm.

Between iterations, the thread that runs the model also stores the profiler's records, reads the
machine's noise and writes files. System calls that the model's thread makes between iterations are
assigned to the profiler, except while the engine loads or prepares the model. The system calls of
the engine's own threads are not assigned to the profiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from lar.profiles.ranges import Starts, members_of_ranges, starts_of
from lar.profiles.roofline import Piece, piece_of
from lar.profiles.times import group_by, keep_with_profile, merge_intervals, self_times_of
from lar.records.profile import Execution, Profile, ProfiledOperator, Span

Part = Literal["iterations", "rest", "warm-up", "profiler"]


def calls_by_part(profile: Profile) -> dict[Part, list[Span]]:
    """Return the system calls, grouped by part of the run; parts without system calls are left out.

    The parts are the timed iterations, the warm-up, the profiler together with lar itself, and the
    rest, such as the loading of the model.
    """
    phases = [
        span
        for span in profile.spans
        if span.category == "phase" and span.step is None and span.name != "warmup"
    ]
    around = merge_intervals(span.interval for span in phases)
    starts = [start for start, _ in around]
    hosts = {span.thread for span in profile.spans if span.category == "phase"}

    def part_of(span: Span) -> Part:
        if span.warmup:
            return "warm-up"
        if span.step is not None:
            return "iterations"
        place = bisect_right(starts, span.start_ns) - 1
        is_in_phase = place >= 0 and span.start_ns < around[place][1]
        return "profiler" if span.thread in hosts and not is_in_phase else "rest"

    return group_by((span for span in profile.spans if span.category == "osrt"), part_of)


def device_kind(device: str) -> str:
    """Return a device's name without its number, such as `cuda` for `cuda:1`."""
    return device.rstrip(":0123456789") or "cpu"


def device_title(device: str) -> str:
    """Return the kind of a device in capitals, such as `CPU`, but `GPU` for `cuda0`."""
    kind = device_kind(device)
    return "GPU" if kind == "cuda" else kind.upper()


def device_number(device: str) -> int:
    """Return the number of a device, such as 1 for `cuda1` or `cuda:1`."""
    number = re.search(r"[0-9]{1,9}$", device)
    return int(number[0]) if number else 0


def is_of_device(profile: Profile, span: Span) -> bool:
    """Return whether a span ran on a device: a kernel, or a copy that a device made."""
    if not profile.on_device:
        return False
    if span.device is None:
        return span.category == "kernel"
    return not span.device.startswith("cpu")


def streams_of(profile: Profile) -> frozenset[int]:
    """Return the threads that stand for streams of a device: threads that dispatch no operator."""
    if not profile.on_device:
        return frozenset()
    hosts = {execution.dispatch_thread for execution in profile.executions}
    return frozenset({execution.thread for execution in profile.executions} - hosts)


def kernel_name_of(operator: ProfiledOperator) -> str:
    """Return an operator's kernel name: its algorithm or, if unknown, its provider and type."""
    if operator.algorithm:
        return operator.algorithm
    return f"{operator.provider}::{operator.type}" if operator.provider else operator.type


# Stands for the operator of a kernel that belongs to no operator.
NO_OPERATOR = ProfiledOperator(id="", type="", name="")


class DeviceActivity(NamedTuple):
    """A kernel, copy or fill on a device.

    `execution` is the index of the operator's execution in the timed executions. `starts` has pairs
    of a thread and a time: first where and when the activity ran, then, if known, where and when
    the activity was dispatched.
    """

    span: Span
    execution: int | None
    starts: Starts


class Launch(NamedTuple):
    """One execution of an operator or, on a device that reports kernels, of a kernel.

    `place` is the operator's index in `Profile.operators`, or None for a kernel without an
    operator. The index and not the name is stored, since several operators may have the same name.
    `kernel` is the algorithm or, if no kernel is known, the provider and the type. `piece` has the
    launch's own duration, while `total_ns` includes inner operators. `span` is the span of the
    kernel. `ranges` are the user's ranges to which the launch belongs.
    """

    place: int | None
    operator: ProfiledOperator
    kernel: str
    piece: Piece
    total_ns: int
    execution: int | None
    starts: Starts
    span: Span | None = None
    ranges: tuple[str, ...] = ()


@keep_with_profile
def device_activities_of(profile: Profile) -> Sequence[DeviceActivity]:
    """Return the timed kernels, copies and fills of a device; empty on a CPU.

    If the engine reports no kernels, the computation of each operator is treated as a kernel.
    """
    if not profile.on_device:
        return []
    executions = profile.timed_executions
    places = places_of(executions, on_device=True)
    kernels, moves = profile.spans_of("kernel"), profile.spans_of("memcpy", "memset")
    spans = *kernels, *(span for span in moves if is_of_device(profile, span))
    found = [(span, execution_of(span, places)) for span in spans]
    if not kernels:
        found += [(kernel_of(profile, each), place) for place, each in enumerate(executions)]
    activities = []
    for span, place in found:
        dispatched = () if place is None else starts_of(executions[place])[1:]
        activities.append(DeviceActivity(span, place, ((span.thread, span.start_ns), *dispatched)))
    return activities


def kernel_of(profile: Profile, execution: Execution) -> Span:
    """Return the execution of an operator on a device as a kernel."""
    start, end = execution.computation
    return Span(
        category="kernel",
        name=kernel_name_of(profile.operators[execution.operator]),
        start_ns=start,
        end_ns=end,
        thread=execution.thread,
        step=execution.step,
        operator=execution.operator,
    )


def launches_of(profile: Profile) -> list[Launch]:
    """Return the timed iterations' launches: kernels, and executions that run only on the host.

    If no kernels are recorded, each execution is a launch.
    """
    kernels = profile.on_device and profile.spans_of("kernel")
    launches = [*launches_of_kernels(profile)] if kernels else []
    of_device = profile.spans_of("kernel", "memcpy", "memset") if kernels else ()
    reported = {(span.operator, span.step) for span in of_device}
    timed = zip(profile.timed_executions, self_times_of(profile), strict=True)
    for place, (each, self_ns) in enumerate(timed):
        if kernels and (each.dispatch is not None or (each.operator, each.step) in reported):
            continue
        operator = profile.operators[each.operator]
        what = each.operator, operator, kernel_name_of(operator)
        times = piece_of(profile, each.operator, self_ns), each.compute_ns
        launches.append(Launch(*what, *times, place, starts_of(each)))
    return launches


def launches_of_kernels(profile: Profile) -> Iterator[Launch]:
    """Yield the launches of kernels.

    The work of a kernel is known only if its operator has no other kernel in the iteration.
    """
    kernels = [it for it in device_activities_of(profile) if it.span.category == "kernel"]
    counts = Counter((it.span.operator, it.span.step) for it in kernels)
    for span, execution, starts in kernels:
        place, ns = span.operator, span.duration_ns
        operator, piece = NO_OPERATOR, Piece(ns, None, None, operator=place)
        if place is not None:
            operator = profile.operators[place]
            piece = piece_of(profile, place, ns) if counts[place, span.step] == 1 else piece
        yield Launch(place, operator, span.name, piece, ns, execution, starts, span)


def put_in_ranges(profile: Profile, launches: Sequence[Launch]) -> list[Launch]:
    """Return launches with the names of their ranges, in the same order in all launches."""
    members: dict[str, set[int]] = {}
    begun = ((launch.execution, launch.starts) for launch in launches)
    for span, places in members_of_ranges(profile, begun):
        members.setdefault(span.name, set()).update(places)
    return [
        launch._replace(ranges=tuple(name for name in members if place in members[name]))
        for place, launch in enumerate(launches)
    ]


def device_times_of(profile: Profile) -> list[int]:
    """Return the device time of each timed execution in nanoseconds; 0 on a CPU.

    The device time is the time of the execution's kernels, copies and fills.
    """
    times = [0] * len(profile.timed_executions)
    for span, execution, _ in device_activities_of(profile):
        if execution is not None:
            times[execution] += span.duration_ns
    return times


# By operator and step: the begin of each execution, and its place among the given executions.
Places = dict[tuple["int | None", "int | None"], list[tuple[int, int]]]


def places_of(executions: Sequence[Execution], *, on_device: bool) -> Places:
    """Return the indexes of each operator's executions in each step, in the order of time.

    With `on_device`, executions are ordered by the start of the execution. Without `on_device`,
    executions are ordered by the start of the dispatch, since the host may dispatch several
    executions before the first execution runs.
    """
    places: Places = {}
    for index, each in enumerate(executions):
        dispatch = None if on_device else each.dispatch_start_ns
        began = each.start_ns if dispatch is None else min(dispatch, each.start_ns)
        places.setdefault((each.operator, each.step), []).append((began, index))
    for found in places.values():
        found.sort()
    return places


def execution_of(span: Span, places: Places) -> int | None:
    """Return the index of the execution to which a span belongs.

    A span belongs to an execution of the same operator in the same step: to the last execution that
    began before the span.

    Return None if the span has no operator or step, or if its operator has no execution in this
    step.
    """
    if not (found := places.get((span.operator, span.step))):
        return None
    return found[max(bisect_right(found, span.start_ns, key=itemgetter(0)) - 1, 0)][1]
