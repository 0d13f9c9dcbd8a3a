"""The calls of a profile and which is within which: time with and without what they call.

A call is a child of the innermost one around it on its thread. What a call takes itself is its
time less the union of its direct children, so that it is never negative. A call that only waits
is no CPU work, but for what is computed within it on its thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

from lar.profiles.activities import device_times_of
from lar.profiles.devices import is_of_device, streams_of
from lar.profiles.disturbance import disturbed_executions
from lar.profiles.intervals import intersect_intervals, merge_intervals, total_of
from lar.profiles.launches import launches_of
from lar.profiles.range_members import executions_in_ranges
from lar.profiles.times import waiting_calls
from lar.records.profile import Interval, Profile, Span

Kind = Literal["range", "runtime", "operator", "kernel"]
# Of two that take the same time, the first is around the second.
KINDS: tuple[Kind, ...] = ("range", "runtime", "operator", "kernel")


@dataclass(slots=True)
class Call:
    """One call. What is not known is None; `device_ns` and the memory are sums with children.

    `operator` counts in `Profile.operators`; it is None for a call that is not an operator.
    `disturbed` says that something else on the machine made it longer.
    """

    kind: Kind
    name: str
    operator: int | None = None
    cpu_ns: int | None = None
    self_cpu_ns: int | None = None
    self_device_ns: int = 0
    device_ns: int = 0
    self_memory: Memory | None = None
    memory: Memory | None = None
    only_waits: bool = False
    disturbed: bool = False
    children: list[Interval] | None = None


class Memory(NamedTuple):
    """Bytes taken less those given back."""

    cpu_bytes: int = 0
    device_bytes: int = 0

    def plus(self, other: Memory | None) -> Memory:
        if other is None:
            return self
        return Memory(self.cpu_bytes + other.cpu_bytes, self.device_bytes + other.device_bytes)


class Piece(NamedTuple):
    """A time in which a call is on a thread; `main` where the device and the memory are its."""

    thread: int
    start_ns: int
    end_ns: int
    call: Call
    main: bool = True


def calls_of(profile: Profile) -> list[Call]:
    """Return the calls of timed iterations, first those of operators and then the others in the
    order of time."""
    operators = calls_of_executions(profile)
    ranges = calls_of_ranges(profile, operators)
    pieces = [*pieces_of_executions(profile, operators), *pieces_of_spans(profile, ranges)]
    nest_pieces(pieces)
    calls = {id(piece.call): piece.call for piece in pieces}
    for call in calls.values():
        if call.cpu_ns is not None:
            within_ns = total_of(merge_intervals(call.children or ()))
            call.cpu_ns = within_ns if call.only_waits else call.cpu_ns
            call.self_cpu_ns = call.cpu_ns - within_ns
    return [*calls.values(), *outer_ranges(profile, ranges, pieces), *device_calls(profile)]


def calls_of_executions(profile: Profile) -> list[Call]:
    """Return the calls of the timed executions, with their times and memory."""
    names = [operator.type for operator in profile.operators]
    memory = memory_by_step(profile)
    calls = []
    times_ns = device_times_of(profile)
    disturbed = disturbed_executions(profile)
    executions = profile.timed_executions
    for place, (execution, device_ns) in enumerate(zip(executions, times_ns, strict=True)):
        call = Call("operator", names[execution.operator], execution.operator)
        call.disturbed = place in disturbed
        if execution.dispatch_ns is not None or not profile.on_device:
            call.cpu_ns = profile.host_times_ns[place]
        call.device_ns = call.self_device_ns = device_ns
        if (taken := memory.get(execution.step)) is not None:
            # Of several executions in a step the first has it all: only sums are shown.
            call.memory = call.self_memory = taken.pop(execution.operator, Memory())
        calls.append(call)
    return calls


def calls_of_ranges(profile: Profile, operators: Sequence[Call]) -> dict[int, Call]:
    """Return the calls of the user's ranges by the identity of their spans.

    A range around operators on a device is there, as they are, and keeps no CPU busy. Any other
    has what the operators that belong to it do on a device, and their memory.
    """
    streams = streams_of(profile)
    calls = {}
    for span, places in executions_in_ranges(profile):
        if span.thread in streams:
            calls[id(span)] = device_call("range", span.name, span.duration_ns)
            continue
        calls[id(span)] = call = Call("range", span.name, cpu_ns=span.duration_ns)
        for place in places:
            add_to_outer(call, operators[place])
    return calls


def pieces_of_executions(profile: Profile, calls: Sequence[Call]) -> Iterator[Piece]:
    """Yield when operators keep the host busy: during their dispatch and, on a CPU, their
    computation."""
    on_device = profile.on_device
    for execution, call in zip(profile.timed_executions, calls, strict=True):
        if (dispatch := execution.dispatch) is not None:
            yield Piece(execution.host_thread, *dispatch, call, on_device)
        elif on_device:
            yield Piece(NOWHERE, *execution.interval, call)
        if not on_device:
            yield Piece(execution.thread, *execution.work, call)


# The thread of what is on none: each is alone there.
NOWHERE = -1


def pieces_of_spans(profile: Profile, ranges: Mapping[int, Call]) -> Iterator[Piece]:
    """Yield the engine's API calls, and the user's ranges of one iteration."""
    streams, waiting = streams_of(profile), waiting_calls(profile)
    for span in profile.spans_of("runtime", "user_annotation"):
        call, thread = ranges.get(id(span)), span.thread
        if span.thread in streams:
            call, thread = call or device_call("runtime", span.name, span.duration_ns), NOWHERE
        only_waits = id(span) in waiting
        call = call or Call("runtime", span.name, cpu_ns=span.duration_ns, only_waits=only_waits)
        yield Piece(thread, *span.interval, call)


def nest_pieces(pieces: Iterable[Piece]) -> None:
    """Add each call to the children of the call around it, and its device time and memory to all
    calls around it."""
    around: list[Piece] = []
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    # By thread, start, latest end and kind: keys of all four at once would take much memory.
    ordered = sorted(pieces, key=lambda piece: ranks[piece.call.kind])
    ordered.sort(key=attrgetter("end_ns"), reverse=True)
    ordered.sort(key=attrgetter("start_ns"))
    ordered.sort(key=attrgetter("thread"))
    for piece in ordered:
        thread, start, end, call, main = piece
        if thread == NOWHERE:
            continue
        while around and (
            around[-1].thread != thread or start >= around[-1].end_ns or end > around[-1].end_ns
        ):
            around.pop()
        if around and around[-1].call is not call:
            outer_call = around[-1].call
            outer_call.children = outer_call.children or []  # most have none
            outer_call.children.append((start, end))
        if main and call.kind == "operator":
            outers = {id(each.call): each.call for each in around if counts_for(piece, each)}
            for outer in outers.values():
                add_to_outer(outer, call)
        around.append(piece)


def counts_for(piece: Piece, outer: Piece) -> bool:
    """Return whether an operator counts for the call around it; what counts for a range is known.

    One that lasts no time is within no other that begins with it: where clocks are coarse, it is
    rather before.
    """
    if outer.call.kind == "operator":
        begins_later = piece.start_ns < piece.end_ns or outer.start_ns < piece.start_ns
        return outer.call is not piece.call and begins_later
    return outer.call.kind == "runtime"


def add_to_outer(outer: Call, call: Call) -> None:
    """Count what an operator does on a device, and its memory, for a call around it."""
    outer.device_ns += call.self_device_ns
    if call.self_memory is not None:
        outer.memory = call.self_memory.plus(outer.memory)


def outer_ranges(
    profile: Profile, calls: Mapping[int, Call], pieces: Iterable[Piece]
) -> Iterator[Call]:
    """Yield the user's ranges around whole iterations, which are on no thread of the engine.

    Only what they have in common with timed iterations counts; there, all others are within.
    """
    steps = merge_intervals(step.interval for step in profile.timed_steps())
    ranges = [span for span in profile.spans_of("user_annotation", timed=False) if is_outer(span)]
    on_host = [piece for piece in pieces if piece.thread != NOWHERE] if ranges else []
    busy = merge_intervals((piece.start_ns, piece.end_ns) for piece in on_host)
    for span in ranges:
        own = intersect_intervals(steps, [span.interval])
        if own:
            call = calls[id(span)]
            call.cpu_ns = total_of(own)
            call.self_cpu_ns = call.cpu_ns - total_of(intersect_intervals(own, busy))
            yield call


def is_outer(span: Span) -> bool:
    return span.step is None and not span.warmup


def device_calls(profile: Profile) -> Iterator[Call]:
    """Yield the activities of a device; nothing without a device."""
    if not profile.on_device:
        return
    # Where memory is recorded, kernels take none.
    memory = Memory() if memory_by_step(profile) else None
    for launch in launches_of(profile):
        duration_ns = launch.piece.duration_ns
        yield device_call("kernel", launch.kernel, duration_ns, launch.place, memory)
    for span in profile.spans_of("memcpy", "memset"):
        if is_of_device(profile, span):
            yield device_call("kernel", span.name, span.duration_ns, span.operator, memory)


def device_call(
    kind: Kind,
    name: str,
    duration_ns: int,
    operator: int | None = None,
    memory: Memory | None = None,
) -> Call:
    return Call(
        kind,
        name,
        operator,
        cpu_ns=0,
        self_cpu_ns=0,
        self_device_ns=duration_ns,
        device_ns=duration_ns,
        self_memory=memory,
        memory=memory,
    )


def memory_by_step(profile: Profile) -> dict[int, dict[int, Memory]]:
    """Sum up what operators have taken and given back: by the timed steps that record it,
    and by operator."""
    steps = sorted(profile.steps, key=lambda step: step.start_ns)
    starts = [step.start_ns for step in steps]
    sums: dict[int, dict[int, Memory]] = {}
    for each in profile.allocations:
        size = each.size_bytes
        # What is given back as one step ends and the next begins belongs to the one that ends.
        index = bisect_right(starts, each.at_ns - (size < 0)) - 1
        if each.operator is None or index < 0 or steps[index].warmup:
            continue
        own = Memory(size) if each.device.startswith("cpu") else Memory(0, size)
        taken = sums.setdefault(steps[index].number, {})
        taken[each.operator] = own.plus(taken.get(each.operator))
    return sums
