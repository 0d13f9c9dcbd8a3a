"""The work of the host and of a device in timed iterations, as nested calls.

A call is an execution of an operator, a call of the engine's API, a range of the user, an activity
of a device, or the cost of profiling an iteration. Calls on the same thread are nested. A call that
only waits has no CPU time of its own. The cost of profiling is subtracted from the times of the
engine's calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lar.profiles.activities import device_activities_of, device_times_of, streams_of
from lar.profiles.breakdown import PROFILING, breakdown_of, disturbed_executions
from lar.profiles.ranges import Begun, members_of_ranges, starts_of
from lar.profiles.times import (
    group_by,
    intersect_intervals,
    keep_with_profile,
    merge_intervals,
    parents_of,
    total_of,
    waiting_calls,
)
from lar.records.profile import Profile, Span

Kind = Literal["range", "runtime", "operator", "kernel", "profiling"]


class Memory(NamedTuple):
    """Allocated bytes minus released bytes, on the CPU and on a device."""

    cpu_bytes: int = 0
    device_bytes: int = 0

    def plus(self, other: Memory | None) -> Memory:
        if other is None:
            return self
        return Memory(self.cpu_bytes + other.cpu_bytes, self.device_bytes + other.device_bytes)


@dataclass(slots=True)
class Call:
    """A call with its times and memory; unknown figures are None.

    The fields that begin with `self_` exclude the calls within the call; the other fields include
    these calls. `operator` is an index in `Profile.operators`, or None if the call belongs to no
    operator. `disturbed` means that other work on the machine made the call longer.
    """

    kind: Kind
    name: str
    operator: int | None
    thread: int
    step: int | None
    start_ns: int
    end_ns: int
    cpu_ns: int | None
    self_cpu_ns: int | None
    device_ns: int = 0
    self_device_ns: int = 0
    memory: Memory | None = None
    self_memory: Memory | None = None
    disturbed: bool = False

    def add_work(self, within: Call) -> None:
        """Add to this call the device time and the memory of `within`, a call within this call."""
        self.device_ns += within.self_device_ns
        if within.self_memory is not None:
            self.memory = within.self_memory.plus(self.memory)

    def take_out(self, most_ns: int) -> int:
        """Subtract at most `most_ns` from the call's own time; return the subtracted time."""
        taken = min(most_ns, self.self_cpu_ns or 0)
        if self.cpu_ns is not None and self.self_cpu_ns is not None:
            self.cpu_ns, self.self_cpu_ns = self.cpu_ns - taken, self.self_cpu_ns - taken
        return taken


class Piece(NamedTuple):
    """A time interval in which a call runs on a thread of the host.

    A call may have several pieces. Only the `main` piece of a call stands for the device time and
    the memory of the call.
    """

    thread: int
    start_ns: int
    end_ns: int
    call: Call
    main: bool = True


@keep_with_profile
def calls_of(profile: Profile) -> Sequence[Call]:
    """Return the calls of the timed iterations.

    In the returned list, ranges come first, then calls of the engine, then operators, each group in
    the order of time. Ranges around iterations, activities of a device, and the cost of profiling
    come last in the returned list.
    """
    streams, operators = streams_of(profile), operator_calls(profile)
    ranges, spans = range_calls(profile, operators), profile.spans_of("runtime")
    runtime = [call_of_span(it, "runtime", on_device=it.thread in streams) for it in spans]
    # A range around iterations is not on a thread of the engine.
    within = [call for call in ranges if call.step is not None]
    pieces = [
        Piece(call.thread, call.start_ns, call.end_ns, call)
        for call in (*within, *runtime)
        if call.thread not in streams
    ]
    pieces += pieces_of_operators(profile, operators)
    nest(pieces)
    waiting = waiting_calls(profile)
    for span, call in zip(spans, runtime, strict=True):
        if id(span) in waiting:
            call.take_out(call.self_cpu_ns or 0)
    spent = [*take_out_profiling(profile, runtime)]
    around = clip_to_steps(profile, [call for call in ranges if call.step is None], pieces)
    return [*within, *runtime, *operators, *around, *device_calls(profile), *spent]


def operator_calls(profile: Profile) -> list[Call]:
    """Return the calls of the timed executions, with their times and memory."""
    memory, disturbed = memory_by_step(profile), disturbed_executions(profile)
    calls = []
    times = zip(profile.host_times_ns, device_times_of(profile), strict=True)
    for place, (each, ns) in enumerate(zip(profile.timed_executions, times, strict=True)):
        is_known = each.dispatch is not None or not profile.on_device
        # Of several executions in a step, the first gets all memory: reports only show sums.
        taken = memory.get(each.step)
        own = None if taken is None else taken.pop(each.operator, Memory())
        where = each.thread, each.step, *each.interval
        cpu_ns = ns[0] if is_known else None
        type = profile.operators[each.operator].type
        call = Call("operator", type, each.operator, *where, cpu_ns, cpu_ns)
        call.device_ns = call.self_device_ns = ns[1]
        call.memory = call.self_memory = own
        call.disturbed = place in disturbed
        calls.append(call)
    return calls


def range_calls(profile: Profile, operators: Sequence[Call]) -> list[Call]:
    """Return the calls of the user's ranges, without ranges of the warm-up.

    If a range is on a stream of a device, its device time is its duration. A range that is not on a
    stream has the device time and the memory of all operators and activities that belong to the
    range.
    """
    streams, activities = streams_of(profile), device_activities_of(profile)
    records: list[Begun] = [(each.execution, each.starts) for each in activities]
    records += [(place, starts_of(it)) for place, it in enumerate(profile.timed_executions)]
    calls = []
    for span, members in members_of_ranges(profile, records):
        call = call_of_span(span, "range", on_device=span.thread in streams)
        if span.thread not in streams:
            for place in members:
                if place < len(activities):
                    call.device_ns += activities[place].span.duration_ns
                elif (own := operators[place - len(activities)].self_memory) is not None:
                    call.memory = own.plus(call.memory)
        calls.append(call)
    return calls


def call_of_span(span: Span, kind: Kind, *, on_device: bool) -> Call:
    ns = span.duration_ns
    times = (0, 0, ns, ns) if on_device else (ns, ns, 0, 0)
    return Call(kind, span.name, span.operator, span.thread, span.step, *span.interval, *times)


def pieces_of_operators(profile: Profile, calls: Sequence[Call]) -> Iterator[Piece]:
    """Yield the time intervals in which operators keep the host busy.

    An operator keeps the host busy while it is dispatched and, on a CPU, while it computes.
    """
    on_device = profile.on_device
    for execution, call in zip(profile.timed_executions, calls, strict=True):
        if (dispatch := execution.dispatch) is not None:
            yield Piece(execution.host_thread, *dispatch, call, on_device)
        if not on_device:
            yield Piece(execution.thread, *execution.work, call)


def nest(pieces: Sequence[Piece]) -> None:
    """Make the own times and the memory of calls consistent with the calls inside them.

    Subtract the duration of each piece from the own time of the call around the piece. Add an
    operator's device time and memory to all calls around it, except to ranges, which already
    include both.
    """
    parents = parents_of([piece[:3] for piece in pieces])
    for piece, parent in zip(pieces, parents, strict=True):
        around = pieces[parent].call if parent >= 0 else piece.call
        if around is not piece.call and around.self_cpu_ns is not None:
            around.self_cpu_ns = max(0, around.self_cpu_ns - (piece.end_ns - piece.start_ns))
        found = {id(piece.call)}
        while piece.main and parent >= 0:
            outer, parent = pieces[parent], parents[parent]
            if id(outer.call) not in found and counts_for(piece, outer):
                found.add(id(outer.call))
                outer.call.add_work(piece.call)


def counts_for(piece: Piece, outer: Piece) -> bool:
    """Return whether the work of a piece is added to the work of the call around it.

    The work of an operator with a duration of 0 is not added to an operator that begins at the same
    time. The clock is coarse. Two operators with the same start time probably ran one after the
    other.
    """
    if outer.call.kind == "operator":
        return piece.start_ns < piece.end_ns or outer.start_ns < piece.start_ns
    return outer.call.kind == "runtime"


def clip_to_steps(
    profile: Profile, ranges: Sequence[Call], pieces: Sequence[Piece]
) -> Iterator[Call]:
    """Yield the ranges around iterations, clipped to the timed iterations.

    A call that runs at the same time as a range around iterations is treated as a call within this
    range.
    """
    if not ranges:
        return
    steps = merge_intervals(step.interval for step in profile.timed_steps())
    busy = merge_intervals((piece.start_ns, piece.end_ns) for piece in pieces)
    for call in ranges:
        if own := intersect_intervals(steps, [(call.start_ns, call.end_ns)]):
            call.cpu_ns = total_of(own)
            call.self_cpu_ns = call.cpu_ns - total_of(intersect_intervals(own, busy))
            yield call


def device_calls(profile: Profile) -> Iterator[Call]:
    """Yield the activities of a device as calls.

    The memory use of an activity is 0 if memory is recorded, and None if memory is not recorded.
    """
    memory = Memory() if profile.on_device and memory_by_step(profile) else None
    for each in device_activities_of(profile):
        call = call_of_span(each.span, "kernel", on_device=True)
        call.memory = call.self_memory = memory
        yield call


def take_out_profiling(profile: Profile, calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the cost of profiling each iteration, and subtract it from the engine's calls.

    The cost is subtracted first from the calls with the longest own time.
    """
    if profile.correction is None:
        return
    own = group_by(calls, lambda call: call.step)
    for step in breakdown_of(profile):
        left = cost_ns = step.buckets_ns[PROFILING]
        for call in sorted(own.get(step.number, ()), key=lambda it: -(it.self_cpu_ns or 0)):
            left -= call.take_out(left)
        if cost_ns:
            where = None, 0, step.number, 0, 0
            yield Call("profiling", PROFILING, *where, cost_ns, cost_ns)


def memory_by_step(profile: Profile) -> dict[int, dict[int, Memory]]:
    """Return how much memory operators allocated and released, by step and by operator.

    Only timed steps with records of memory are included.
    """
    steps = sorted(profile.steps, key=lambda step: step.start_ns)
    starts = [step.start_ns for step in steps]
    sums: dict[int, dict[int, Memory]] = {}
    for each in profile.allocations:
        size = each.size_bytes
        # A release exactly at the begin of a step belongs to the step before.
        index = bisect_right(starts, each.at_ns - (size < 0)) - 1
        if each.operator is None or index < 0 or steps[index].warmup:
            continue
        own = Memory(size) if each.device.startswith("cpu") else Memory(0, size)
        taken = sums.setdefault(steps[index].number, {})
        taken[each.operator] = own.plus(taken.get(each.operator))
    return sums
