"""A profile as a Chrome trace for other programs: one for viewers, and one for TensorBoard.

In the first, for chrome://tracing and ui.perfetto.dev, operators carry what is known of them, which
the profile's own file keeps apart; arrows lead from each dispatch to the execution, devices have a
process of their own, and slices that overlap on a thread lie on tracks beside each other, since
viewers draw only nested ones.

The second is for the PyTorch profiler's TensorBoard plugin, which looks for files
`NAME.pt.trace.json` in a run's folder, one for each worker. It builds its views from events of the
categories cpu_op, runtime, kernel, gpu_memcpy and gpu_memset, takes the operators' names for their
kinds, and ties kernels to operators by `External id` and `correlation`; other categories it only
draws. Warm-up iterations are left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import Any, NamedTuple

import msgspec

from lar.errors import UsageError
from lar.measurement.time_origin import earliest_ns, with_zero_at
from lar.profiles.activities import (
    HostActivity,
    device_activities_of,
    host_activities_of,
    nest_intervals,
    position_of_call,
    positions_of_dispatches,
)
from lar.profiles.breakdown import kernel_intervals, leaf_calls
from lar.profiles.devices import device_number, device_title, is_of_device
from lar.profiles.intervals import intersect_intervals, merge_intervals, total_of
from lar.profiles.memory_places import MemoryPlaces
from lar.profiles.totals import group_by
from lar.profiles.trace_writer import EVENTS_KEY, EXACT, PLUGIN, Event, pieces_of_trace
from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    Execution,
    Profile,
    ProfiledOperator,
    Span,
    Step,
)

# The processes of a trace: a device's is its number, as in the traces of other profilers.
HOST = 1000
MOST_BUCKETS = 100  # of a device's utilization
DEVICE_CATEGORIES = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
# The plugin takes operators of this name for the loading of data.
DATA_LOADER = "enumerate(DataLoader)#lar.__next__"


class Slice(NamedTuple):
    """A time on a thread of the host or a stream of a device."""

    process: int
    thread: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


def export_chrome(profile: Profile) -> Iterator[bytes]:
    """Yield the trace as JSON, some events at a time."""
    return pieces_of_trace(*chrome_parts_of(profile))


def chrome_trace_of(profile: Profile) -> dict[str, Any]:
    """Return the trace in Chrome's object format, as `chrome_parts_of` has it."""
    head, events = chrome_parts_of(profile)
    return {**head, EVENTS_KEY: [*events]}


def chrome_parts_of(profile: Profile) -> tuple[dict[str, Any], Iterator[Event]]:
    """Return what stands before the events in the trace, and the events. Their times are
    microseconds, to the ns, from the profile's zero or, where something begins before that, from
    the earliest begin."""
    facts = profile.facts
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "lar_version": facts.lar_version,
            "engine": f"{facts.engine} {facts.engine_version}".strip(),
            "device": facts.device,
            "model": facts.model.path,
        },
    }
    return head, chrome_events(with_zero_at(profile, earliest_ns(profile)))


def chrome_events(profile: Profile) -> Iterator[Event]:
    """Yield the events of the trace. The slices are made again for each pass over them: all of them
    at once take much more memory than the profile."""
    tracks = array("q")
    yield from place_slices(profile, tracks)
    for part, track in zip(slices_of(profile), tracks, strict=True):
        yield event_of(part, track)
    places = islice(tracks, len(profile.spans) + len(profile.steps), None)
    numbers = count(1)
    for own, dispatch in slices_of_executions(profile):
        track = next(places)
        if dispatch is not None:
            yield from arrow_of(next(numbers), (dispatch, next(places)), (own, track))
    yield from counter_events(profile)


def slices_of(profile: Profile) -> Iterator[Slice]:
    """Yield the slices: spans, iterations, and executions with their dispatches."""
    for span in profile.spans:
        yield slice_of_span(profile, span)
    yield from step_slices(profile)
    for own, dispatch in slices_of_executions(profile):
        yield own
        if dispatch is not None:
            yield dispatch


def slices_of_executions(profile: Profile) -> Iterator[tuple[Slice, Slice | None]]:
    """Yield executions and the dispatch of each, None where it is not recorded."""
    known = [facts_of_operator(operator) for operator in profile.operators]
    for execution in profile.executions:
        own = slice_of_execution(profile, execution, known[execution.operator])
        yield own, slice_of_dispatch(profile, execution)


def step_slices(profile: Profile) -> Iterator[Slice]:
    """Yield the iterations, on a track of their own."""
    thread = max(profile.threads, default=0) + 1
    for step in profile.steps:
        args = {"warmup": step.warmup}
        yield Slice(HOST, thread, step.trace_name, "profiler_step", *step.interval, args)


def slice_of_span(profile: Profile, span: Span) -> Slice:
    """Return a span; kernels, copies and fills of a device lie on its streams."""
    of_device = span.category in ("kernel", "memcpy", "memset") and is_of_device(profile, span)
    details = {
        "step": span.step,
        "bytes": span.size_bytes,
        "tensor": span.tensor,
        "device": span.device,
        "stream": span.stream,
        "grid": span.grid,
        "block": span.block,
        "result": span.result,
        "source": span.source,
    }
    args = {key: value for key, value in details.items() if value is not None}
    if span.operator is not None:
        args["operator"] = profile.operators[span.operator].name
    stream = span.thread if span.stream is None else span.stream
    return Slice(
        device_number(profile.facts.device) if of_device else HOST,
        stream if of_device else span.thread,
        span.name,
        span.category,
        *span.interval,
        args,
    )


def slice_of_execution(profile: Profile, execution: Execution, facts: dict[str, Any]) -> Slice:
    """Return an execution with what is known of its operator."""
    args = {"step": execution.step, **facts}
    if execution.wait_ns is not None:
        args["wait_us"] = execution.wait_ns / 1000
    return Slice(
        device_number(profile.facts.device) if profile.on_device else HOST,
        execution.thread,
        profile.operators[execution.operator].name,
        "cpu_op" if not profile.on_device else "device_op",
        *execution.interval,
        args,
    )


def slice_of_dispatch(profile: Profile, execution: Execution) -> Slice | None:
    """Return the dispatch of an execution, None if it is not recorded."""
    if (times := execution.dispatch) is None:
        return None
    name = f"dispatch {profile.operators[execution.operator].name}"
    args = {"step": execution.step}
    return Slice(HOST, execution.host_thread, name, "dispatch", *times, args)


def facts_of_operator(operator: ProfiledOperator) -> dict[str, Any]:
    """Return what is known of an operator."""
    facts = {
        "type": operator.type,
        "module": operator.module or None,
        "inputs": [f"{fact.dtype}{list(fact.shape)}" for fact in operator.inputs] or None,
        "outputs": [f"{fact.dtype}{list(fact.shape)}" for fact in operator.outputs] or None,
        "flops": operator.flops,
        "bytes": operator.size_bytes,
        "algorithm": operator.algorithm,
        "provider": operator.provider or None,
    }
    return {key: value for key, value in facts.items() if value is not None}


def place_slices(profile: Profile, tracks: array[int]) -> Iterator[Event]:
    """Add the track of each slice to `tracks`, and yield the events that name processes and tracks.

    The first track of a thread has its number, the others have numbers above all threads.
    """
    yield EXACT.name("process_name", HOST, 0, f"host ({profile.facts.model.path or 'lar'})")
    if profile.on_device:
        number = device_number(profile.facts.device)
        yield EXACT.name(
            "process_name", number, 0, f"{device_title(profile.facts.device)} {number}"
        )
    by_thread: dict[tuple[int, int], Lane] = {}
    for number, each in enumerate(slices_of(profile)):
        lane = by_thread.setdefault((each.process, each.thread), Lane())
        lane.numbers.append(number)
        lane.starts_ns.append(each.start_ns)
        lane.ends_ns.append(each.end_ns)
        tracks.append(each.thread)
    steps = max(profile.threads, default=0) + 1
    free = max([steps, *(thread for _, thread in by_thread)]) + 1
    for (process, thread), lane in by_thread.items():
        name = (
            profile.threads.get(thread) or f"{'thread' if process == HOST else 'stream'} {thread}"
        )
        if process == HOST and thread == steps:
            name = "iterations"
        others = 0
        places = nest_intervals([*zip(lane.starts_ns, lane.ends_ns, strict=True)])
        for number, place in zip(lane.numbers, places, strict=True):
            if place.track:
                tracks[number] = free + place.track - 1
                others = max(others, place.track)
        yield EXACT.name("thread_name", process, thread, name)
        for number in range(others):
            yield EXACT.name("thread_name", process, free + number, f"{name} ({number + 2})")
        free += others


class Lane:
    """The numbers of the slices of one thread, and their times in nanoseconds."""

    def __init__(self) -> None:
        self.numbers, self.starts_ns, self.ends_ns = array("q"), array("q"), array("q")


def event_of(part: Slice, track: int) -> Event:
    times_ns = part.start_ns, part.end_ns
    return EXACT.complete(part.name, part.category, part.process, track, times_ns, part.args)


def arrow_of(number: int, source: tuple[Slice, int], target: tuple[Slice, int]) -> Iterator[Event]:
    """Yield the two ends of an arrow, which begin with the slices on their tracks."""
    begin, end = ((part.process, track, part.start_ns) for part, track in (source, target))
    return EXACT.arrow(number, "dispatch", (begin, end))


def counter_events(profile: Profile) -> Iterator[Event]:
    """Yield the counters, the memory in use by device, and how busy a device is."""
    for sample in profile.counters:
        values = {sample.name: sample.value}
        yield EXACT.point("C", sample.name, HOST, 0, sample.at_ns, values)
    allocated: dict[str, int] = {}
    for each in profile.allocations:
        allocated[each.device] = allocated.get(each.device, 0) + each.size_bytes
        size = {"allocated": allocated[each.device]}
        yield EXACT.point("C", f"memory {each.device}", HOST, 0, each.at_ns, size)
    if profile.on_device:
        number = device_number(profile.facts.device)
        name = f"{device_title(profile.facts.device)} {number} Utilization"
        for at_ns, share in utilization_of(profile):
            yield EXACT.point("C", name, number, 0, at_ns, {"utilization": share})


def utilization_of(profile: Profile) -> list[tuple[int, float]]:
    """Return when each part of the profile began, and the share of it in which the device computed.

    The parts are a power of ten of microseconds long, at most 100 of them; after the last stands
    a 0.
    """
    busy = merge_intervals(kernel_intervals(profile))
    if not busy:
        return []
    start, end = busy[0][0], busy[-1][1]
    if profile.steps:
        start = min(start, profile.steps[0].start_ns)
        end = max(end, profile.steps[-1].end_ns)
    length = 1000
    while (end - start) > MOST_BUCKETS * length:
        length *= 10
    parts = [(at, min(at + length, end)) for at in range(start, end, length)]
    shares = [
        (part[0], total_of(intersect_intervals(busy, [part])) / (part[1] - part[0]))
        for part in parts
    ]
    return [*shares, (end, 0.0)]


def export_tensorboard(profile: Profile) -> Iterator[bytes]:
    """Return an iterator over the trace as JSON, some events at a time.

    Raises:
        UsageError: no operator was timed, so that the plugin could not show anything.
    """
    return pieces_of_trace(*tensorboard_parts_of(profile))


def tensorboard_trace_of(profile: Profile) -> dict[str, Any]:
    """Return the trace.

    Raises:
        UsageError: no operator was timed.
    """
    head, events = tensorboard_parts_of(profile)
    return {**head, EVENTS_KEY: [*events]}


def tensorboard_parts_of(profile: Profile) -> tuple[dict[str, Any], Iterator[Event]]:
    """Return what stands before the events in the trace, and the events.

    Raises:
        UsageError: no operator was timed.
    """
    if not any(not each.warmup for each in profile.executions):
        raise UsageError(
            "the profile has no timed operators, and the plugin loads none without",
            "make it with --iter 1 or more",
        )
    events = PluginEvents(with_zero_at(profile, earliest_ns(profile)))
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [
            msgspec.to_builtins(device) for device in profile.devices if device.kind != "cpu"
        ],
    }
    return head, chain(
        events.of_names(),
        events.of_steps(),
        events.of_operators(),
        events.of_device(),
        events.of_spans(),
        events.of_memory(),
    )


class PluginEvents:
    """The events of the plugin's trace, by where they come from."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.activities = host_activities_of(profile)
        self.dispatches = positions_of_dispatches(self.activities)
        threads = [each.thread for each in self.activities]
        self.thread = Counter(threads).most_common(1)[0][0] if threads else 0
        known = [*threads, *profile.threads, *(span.thread for span in profile.spans)]
        self.free = max(known, default=0) + 1  # the first number above all threads
        self.memory_places = MemoryPlaces(profile, self.activities)
        self.tracks: dict[tuple[int, int], int] = {}
        for each in self.activities:
            if each.track and (each.thread, each.track) not in self.tracks:
                self.tracks[each.thread, each.track] = self.free + 2 + len(self.tracks)

    def track_of(self, activity: HostActivity) -> int:
        return self.tracks.get((activity.thread, activity.track), activity.thread)

    def of_names(self) -> Iterator[Event]:
        """Yield the names of processes and threads."""
        yield PLUGIN.name("process_name", HOST, 0, self.profile.facts.model.path or "lar")
        for thread, name in self.profile.threads.items():
            yield PLUGIN.name("thread_name", HOST, thread, name)
        for (thread, track), number in self.tracks.items():
            name = self.profile.threads.get(thread) or f"thread {thread}"
            yield PLUGIN.name("thread_name", HOST, number, f"{name} ({track + 1})")
        yield PLUGIN.name("thread_name", HOST, self.free, "iterations")
        yield PLUGIN.name("thread_name", HOST, self.free + 1, "data loading")
        if self.profile.on_device:
            number = device_number(self.profile.facts.device)
            yield PLUGIN.name(
                "process_name", number, 0, f"{device_title(self.profile.facts.device)} {number}"
            )
            for stream in sorted({each.stream for each in device_activities_of(self.profile)}):
                yield PLUGIN.name("thread_name", number, stream, f"stream {stream}")

    def of_steps(self) -> Iterator[Event]:
        """Yield the timed iterations, on the thread with most operators if all of those are each
        within one or none: the plugin's diff compares what lies in the iterations. Copies of a
        model that ran at once have such a thread each."""
        copies = group_by(self.profile.timed_steps(), lambda step: step.copy)
        for copy, steps in copies.items():
            busiest = self.thread % THREADS_OF_A_COPY + copy * THREADS_OF_A_COPY
            outer = [
                each
                for each in self.activities
                if each.thread == busiest and each.track == 0 and each.parent < 0
            ]
            thread = busiest if are_within_steps(outer, steps) else self.free
            for step in steps:
                times_ns = step.interval
                yield PLUGIN.complete(
                    step.trace_name, "user_annotation", HOST, thread, times_ns, {}
                )

    def of_operators(self) -> Iterator[Event]:
        """Yield the operators on the host; their `External id` is their position after 1."""
        lengthened = self.memory_places.lengthened
        for index, each in enumerate(self.activities):
            operator = self.profile.operators[each.operator]
            args = {
                "External id": index + 1,
                "Input Dims": [list(fact.shape) for fact in operator.inputs],
                "Input type": [fact.dtype for fact in operator.inputs],
                "name": operator.name,
            }
            times_ns = lengthened.get(index, (each.start_ns, each.end_ns))
            yield PLUGIN.complete(each.name, "cpu_op", HOST, self.track_of(each), times_ns, args)
        for span in self.profile.spans_of("phase"):
            if span.name == "dataloader":
                thread = self.free + 1
                yield PLUGIN.complete(DATA_LOADER, "cpu_op", HOST, thread, span.interval, {})

    def of_device(self) -> Iterator[Event]:
        """Yield what a device did. Each dispatch gets a launch that lasts no time, the only way for
        the plugin to assign kernels to operators; it stands at the end of the dispatch, since the
        begin may be the end of the iteration before."""
        launched: set[int] = set()
        process = device_number(self.profile.facts.device)
        unknown = len(self.activities)
        for each in device_activities_of(self.profile):
            index = -1
            if each.operator is not None:
                index = self.dispatches.get((each.operator, each.step), -1)
            unknown += index < 0
            number = index + 1 if index >= 0 else unknown
            if index >= 0 and index not in launched:
                launched.add(index)
                own = self.activities[index]
                args = {"External id": number, "correlation": number}
                times_ns = (own.end_ns, own.end_ns)
                yield PLUGIN.complete("launch", "runtime", HOST, self.track_of(own), times_ns, args)
            details: dict[str, Any] = {
                "External id": number,
                "correlation": number,
                "device": process,
                "stream": each.stream,
                "bytes": each.size_bytes,
                "grid": each.grid,
                "block": each.block,
            }
            args = {key: value for key, value in details.items() if value is not None}
            times_ns = (each.start_ns, each.end_ns)
            category = DEVICE_CATEGORIES[each.kind]
            yield PLUGIN.complete(each.name, category, process, each.stream, times_ns, args)

    def of_spans(self) -> Iterator[Event]:
        """Yield phases, ranges and calls. Those calls of the runtime that the plugin's overview
        counts, on a device, have the category runtime."""
        runtime = {id(span) for span in leaf_calls(self.profile)} if self.profile.on_device else ()
        # Above the numbers of operators and of kernels without one.
        unknown = len(self.activities) + len(self.profile.executions) + len(self.profile.spans)
        spans = self.profile.spans_of("phase", "runtime", "user_annotation", "relayout", "osrt")
        for span in (*spans, *ranges_around(self.profile)):
            args: dict[str, Any] = {}
            category: str = span.category if span.category != "runtime" else "engine_api"
            if id(span) in runtime:
                unknown += 1
                category = "runtime"
                index = position_of_call(span, self.dispatches)
                args = {"External id": index + 1, "correlation": unknown}
            yield PLUGIN.complete(span.name, category, HOST, span.thread, span.interval, args)

    def of_memory(self) -> Iterator[Event]:
        """Yield what was allocated and released, where the plugin takes it for its operator's."""
        allocated: dict[str, int] = {}
        at_ns = 0
        for number, each in enumerate(self.profile.allocations):
            allocated[each.device] = allocated.get(each.device, 0) + each.size_bytes
            # In the thread of the iterations no operator is.
            place, thread = self.memory_places.places.get(number), self.free
            if place is not None:
                at_ns, thread = place.at_ns, self.track_of(self.activities[place.activity])
            elif not number or not self.profile.on_device:
                at_ns = max(each.at_ns, at_ns)
            # Else with what was moved before it: the plugin sorts them by time.
            args = self.memory_args(number, each, allocated[each.device])
            yield PLUGIN.point("i", "[memory]", HOST, thread, at_ns, args, scope="t")

    def memory_args(self, number: int, allocation: Allocation, total_bytes: int) -> dict[str, Any]:
        """Return the facts of an allocation. The plugin's curve leaves out what has no address and
        what says nothing of the memory that is reserved, which is no less than is allocated."""
        on_host = device_title(allocation.device) == "CPU"
        reserved = self.profile.memory_plan.static_bytes
        return {
            "Device Type": 0 if on_host else 1,
            "Device Id": -1 if on_host else device_number(allocation.device),
            "Bytes": allocation.size_bytes,
            "Total Allocated": total_bytes,
            "Total Reserved": total_bytes if reserved is None else reserved,
            # Where it is not known, one that no other has: no release is paired by it.
            "Addr": -1 - number if allocation.address is None else allocation.address,
        }


def ranges_around(profile: Profile) -> list[Span]:
    """Return the ranges that belong to no single iteration, such as those of the program, if they
    overlap with the timed ones."""
    steps = profile.timed_steps()
    if not steps:
        return []
    start, end = steps[0].start_ns, steps[-1].end_ns
    return [
        span
        for span in profile.spans_of("user_annotation", timed=False)
        if span.step is None and span.start_ns < end and span.end_ns > start
    ]


def are_within_steps(activities: Sequence[HostActivity], steps: Sequence[Step]) -> bool:
    """Return whether no activity lies across the begin or end of a step."""
    edges = sorted(edge for step in steps for edge in step.interval)
    return all(
        bisect_right(edges, each.start_ns) >= bisect_right(edges, each.end_ns - 1)
        for each in activities
    )
