"""A profile as a Chrome trace, for chrome://tracing and ui.perfetto.dev.

Besides what the profile's own file has, which is a Chrome trace too, operators carry what is known
of them, arrows lead from each dispatch to the execution, devices have a process of their own, and
slices that overlap on a thread lie on tracks beside each other, since viewers draw only nested
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from lar.measurement.time_origin import earliest_ns, with_zero_at
from lar.profiles.activities import nest_intervals
from lar.profiles.breakdown import kernel_intervals
from lar.profiles.devices import device_number, device_title, is_of_device
from lar.profiles.intervals import intersect_intervals, merge_intervals, total_of
from lar.profiles.trace_writer import CHROME, Event
from lar.records.profile import Execution, Profile, ProfiledOperator, Span

# The processes of a trace: a device's is its number, as in the traces of other profilers.
HOST = 1000
MOST_BUCKETS = 100  # of a device's utilization


@dataclass(slots=True)
class Slice:
    """A time on a thread of the host or a stream of a device; `track` is set by `place_slices`."""

    process: int
    thread: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]
    track: int = 0


def export_chrome(profile: Profile) -> str:
    """Return the trace as JSON."""
    return msgspec.json.encode(chrome_trace_of(profile)).decode()


def chrome_trace_of(profile: Profile) -> dict[str, Any]:
    """Return the trace in Chrome's object format; its times are microseconds, to the ns, from the
    profile's zero or, where something begins before that, from the earliest begin."""
    profile = with_zero_at(profile, earliest_ns(profile))
    events: list[Event] = []
    slices = [slice_of_span(profile, span) for span in profile.spans]
    slices += step_slices(profile)
    arrows: list[tuple[Slice, Slice]] = []
    known = [facts_of_operator(operator) for operator in profile.operators]
    for execution in profile.executions:
        own = slice_of_execution(profile, execution, known[execution.operator])
        slices.append(own)
        dispatch = slice_of_dispatch(profile, execution)
        if dispatch is not None:
            slices.append(dispatch)
            arrows.append((dispatch, own))
    events += place_slices(profile, slices)
    events += [event_of(each) for each in slices]
    for number, (dispatch, own) in enumerate(arrows, 1):
        events += arrow_of(number, dispatch, own)
    events += counter_events(profile)
    facts = profile.facts
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "lar_version": facts.lar_version,
            "engine": f"{facts.engine} {facts.engine_version}".strip(),
            "device": facts.device,
            "model": facts.model.path,
        },
        "traceEvents": events,
    }


def step_slices(profile: Profile) -> list[Slice]:
    """Return the iterations, on a track of their own."""
    thread = max(profile.threads, default=0) + 1
    return [
        Slice(
            HOST,
            thread,
            f"ProfilerStep#{step.number}",
            "profiler_step",
            *step.interval,
            {"warmup": step.warmup},
        )
        for step in profile.steps
    ]


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


def place_slices(profile: Profile, slices: Iterable[Slice]) -> Iterator[Event]:
    """Set the track of each slice and yield the events that name processes and tracks.

    The first track of a thread has its number, the others have numbers above all threads.
    """
    yield CHROME.name("process_name", HOST, 0, f"host ({profile.facts.model.path or 'lar'})")
    if profile.on_device:
        number = device_number(profile.facts.device)
        yield CHROME.name(
            "process_name", number, 0, f"{device_title(profile.facts.device)} {number}"
        )
    by_thread: dict[tuple[int, int], list[Slice]] = {}
    for each in slices:
        by_thread.setdefault((each.process, each.thread), []).append(each)
    steps = max(profile.threads, default=0) + 1
    free = max([steps, *(thread for _, thread in by_thread)]) + 1
    for (process, thread), own in by_thread.items():
        name = (
            profile.threads.get(thread) or f"{'thread' if process == HOST else 'stream'} {thread}"
        )
        if process == HOST and thread == steps:
            name = "iterations"
        places = nest_intervals([(each.start_ns, each.end_ns) for each in own])
        for each, place in zip(own, places, strict=True):
            each.track = thread if place.track == 0 else free + place.track - 1
        others = max(place.track for place in places)
        yield CHROME.name("thread_name", process, thread, name)
        for number in range(others):
            yield CHROME.name("thread_name", process, free + number, f"{name} ({number + 2})")
        free += others


def event_of(part: Slice) -> Event:
    times_ns = part.start_ns, part.end_ns
    return CHROME.complete(part.name, part.category, part.process, part.track, times_ns, part.args)


def arrow_of(number: int, source: Slice, target: Slice) -> Iterator[Event]:
    """Yield the two ends of an arrow, which begin with the slices."""
    ends = (
        (source.process, source.track, source.start_ns),
        (target.process, target.track, target.start_ns),
    )
    return CHROME.arrow(number, "dispatch", ends)


def counter_events(profile: Profile) -> Iterator[Event]:
    """Yield the counters, the memory in use by device, and how busy a device is."""
    for sample in profile.counters:
        values = {sample.name: sample.value}
        yield CHROME.point("C", sample.name, HOST, 0, sample.at_ns, values)
    allocated: dict[str, int] = {}
    for each in profile.allocations:
        allocated[each.device] = allocated.get(each.device, 0) + each.size_bytes
        size = {"allocated": allocated[each.device]}
        yield CHROME.point("C", f"memory {each.device}", HOST, 0, each.at_ns, size)
    if profile.on_device:
        number = device_number(profile.facts.device)
        name = f"{device_title(profile.facts.device)} {number} Utilization"
        for at_ns, share in utilization_of(profile):
            yield CHROME.point("C", name, number, 0, at_ns, {"utilization": share})


def utilization_of(profile: Profile) -> list[tuple[int, float]]:
    """Return when each part of the profile began, and which share of it the device computed for.

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
