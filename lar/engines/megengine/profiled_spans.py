"""What follows from the executions in a profile: copies, conversions, kernels, memory in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lar.engines.megengine.profiled_graphs import COPIES, ProfiledGraphs
from lar.records.profile import (
    Allocation,
    Execution,
    MemoryChunk,
    MemoryPlan,
    ProfiledOperator,
    Span,
)

PLAN = "static plan"


def move_spans(graphs: ProfiledGraphs, executions: Iterable[Execution], device: str) -> list[Span]:
    """Return a span for each execution that copies a tensor or converts its layout."""
    on_host = device.startswith("cpu")
    spans = []
    for each in executions:
        if each.operator not in graphs.moved_bytes:
            continue
        operator = graphs.operators[each.operator]
        copies = operator.type in COPIES
        source = "host" if on_host or operator.type == "Host2DeviceCopy" else "device"
        target = "host" if on_host else "device"
        direction = f"{source[0].upper()}to{target[0].upper()}"
        spans.append(
            Span(
                category="memcpy" if copies else "relayout",
                name=f"[{'CPU' if on_host else 'CUDA'} memcpy {direction}]"
                if copies
                else "[relayout]",
                start_ns=each.start_ns + (each.wait_ns or 0),
                end_ns=each.end_ns,
                thread=each.thread,
                step=each.step,
                warmup=each.warmup,
                operator=each.operator,
                size_bytes=graphs.moved_bytes[each.operator],
                tensor=operator.name,
                device=None if on_host else device,
                stream=None if on_host else each.thread,
                source_kind=source if copies else None,
                destination_kind=target if copies else None,
            )
        )
    return spans


def kernel_spans(
    operators: Sequence[ProfiledOperator],
    graphs: ProfiledGraphs,
    executions: Iterable[Execution],
    device: str,
) -> list[Span]:
    """Return a span for each execution that computes on a device, by its algorithm's name."""
    return [
        Span(
            category="kernel",
            name=operators[each.operator].algorithm or operators[each.operator].type,
            start_ns=each.start_ns + (each.wait_ns or 0),
            end_ns=each.end_ns,
            thread=each.thread,
            step=each.step,
            warmup=each.warmup,
            operator=each.operator,
            device=device,
            stream=each.thread,
        )
        for each in executions
        if each.compute_ns > 0
        and not (each.operator in graphs.moved_bytes and operators[each.operator].type in COPIES)
    ]


def allocations_of(
    plan: MemoryPlan, executions: Iterable[Execution], device: str
) -> list[Allocation]:
    """Return when the plan's pieces come into use and go out of it, in one iteration.

    A piece is taken when the first of its operators begins, and given back when the last one ends;
    but when the last one begins, if that writes what it makes into the same place.
    """
    times = {each.operator: (each.start_ns, each.end_ns) for each in executions}
    planned = [
        (chunk, first, last)
        for chunk in plan.chunks
        if (first := chunk.first_operator) in times and (last := chunk.last_operator) in times
    ]
    made: dict[int, list[MemoryChunk]] = {}
    for chunk, first, _ in planned:
        made.setdefault(first, []).append(chunk)
    events: list[tuple[int, int, int, Allocation]] = []
    for chunk, first, last in planned:
        over = any(overlap(chunk, each) for each in made.get(last, ()) if each is not chunk)
        begin, end = times[first][0], times[last][0 if over else 1]
        # Of what happens at one time, an operator gives back before the next one takes.
        for at, operator, order, sign in ((begin, first, 1, 1), (end, last, 0 if over else 2, -1)):
            taken = Allocation(at, sign * chunk.size_bytes, operator, chunk.address, device, PLAN)
            events.append((at, operator, order, taken))
    return [taken for *_, taken in sorted(events, key=lambda event: event[:3])]


def overlap(chunk: MemoryChunk, other: MemoryChunk) -> bool:
    return (
        chunk.address < other.address + other.size_bytes
        and other.address < chunk.address + chunk.size_bytes
    )
