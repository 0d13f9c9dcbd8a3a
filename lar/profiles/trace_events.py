"""The events in the file of a profile: those of a Chrome trace, and how a profile becomes them.

An operator's execution is an event of category `cpu_op` and up to three of `op_inner` whose
`parent` it is: dispatch, wait and compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import msgspec

from lar.profiles.trace_writer import EXACT, Event
from lar.records.profile import THREADS_OF_A_COPY, Execution, Profile, Span


class TraceArgs(
    msgspec.Struct,
    omit_defaults=True,
    gc=False,
    rename={
        "operator": "op",
        "size_bytes": "bytes",
        "source_kind": "src_kind",
        "destination_kind": "dst_kind",
        "address": "addr",
    },
):
    """The facts of an event besides its times, without the unknown ones."""

    id: int | None = None
    parent: int | None = None
    step: int | None = None
    warmup: bool = False
    operator: int | None = None
    wait_ns: int | None = None
    size_bytes: int | None = None
    tensor: str | None = None
    device: str | None = None
    stream: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    source_kind: str | None = None
    destination_kind: str | None = None
    color: str | None = None
    style: str | None = None
    source: str | None = None
    result: str | None = None
    address: int | None = None
    value: float | None = None
    name: str | None = None


LATEST_NS = 1 << 62  # nearly 150 years

# What a span and its event have alike, by the names of both.
SPAN_FACTS = tuple(
    field
    for field in Span.__struct_fields__
    if field in TraceArgs.__struct_fields__ and field != "name"
)
facts_of = attrgetter(*SPAN_FACTS)


class TraceEvent(msgspec.Struct, gc=False):
    """An event as it is read."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float | None = None
    pid: int = 0
    tid: int = 0
    args: TraceArgs | None = None


def events_of(profile: Profile, numbers: Iterator[int]) -> Iterator[Event]:
    """Yield the events of a profile, numbered by `numbers`.

    The parent of a span is the innermost phase or step on its thread around it, that of an
    execution its step.
    """
    steps: dict[int, int] = {}
    for thread, name in profile.threads.items():
        yield EXACT.name("thread_name", 0, thread, name)
    for step in profile.steps:
        steps[step.number] = number = next(numbers)
        args = TraceArgs(id=number, step=step.number, warmup=step.warmup)
        # The steps of copies that ran at once stand on lines of their own.
        line = step.copy * THREADS_OF_A_COPY
        yield EXACT.complete(step.trace_name, "profiler_step", 0, line, step.interval, args)
    yield from events_of_spans(profile, numbers, steps)
    for execution in profile.executions:
        yield from events_of_execution(profile, execution, numbers, steps)
    for sample in profile.counters:
        value = TraceArgs(value=sample.value)
        yield EXACT.point("C", sample.name, 0, 0, sample.at_ns, value, cat="counter")
    for each in profile.allocations:
        args = TraceArgs(
            size_bytes=each.size_bytes,
            operator=each.operator,
            address=each.address,
            device=each.device,
            source=each.source,
        )
        yield EXACT.point("i", "[memory]", 0, 0, each.at_ns, args, cat="memory")


def events_of_spans(
    profile: Profile, numbers: Iterator[int], steps: dict[int, int]
) -> Iterator[Event]:
    """Yield the events of the spans."""
    around: dict[int, list[tuple[int, int]]] = {}  # by thread: the ends and numbers of phases
    for span in in_order(profile.spans):
        number = next(numbers)
        enclosing = around.setdefault(span.thread, [])
        while enclosing and enclosing[-1][0] <= span.start_ns:
            enclosing.pop()
        parent = enclosing[-1][1] if enclosing else None
        if parent is None and span.step is not None:
            parent = steps.get(span.step)
        if span.category == "phase":
            enclosing.append((span.end_ns, number))
        args = TraceArgs(
            id=number, parent=parent, **dict(zip(SPAN_FACTS, facts_of(span), strict=True))
        )
        yield EXACT.complete(span.name, span.category, 0, span.thread, span.interval, args)


def in_order(spans: Sequence[Span]) -> Sequence[Span]:
    """Return spans in the order in which they began, and of those that began at once the longer
    first."""
    before = (-LATEST_NS, 0)
    for span in spans:
        place = span.start_ns, -span.end_ns
        if place < before:
            return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
        before = place
    return spans


def events_of_execution(
    profile: Profile, execution: Execution, numbers: Iterator[int], steps: dict[int, int]
) -> Iterator[Event]:
    """Yield the event of an execution, and those of its recorded parts."""
    number, thread, wait = next(numbers), execution.thread, execution.wait_ns
    args = TraceArgs(
        id=number,
        parent=steps.get(execution.step),
        step=execution.step,
        warmup=execution.warmup,
        operator=execution.operator,
        wait_ns=wait,
    )
    name = profile.operators[execution.operator].name
    yield EXACT.complete(name, "cpu_op", 0, thread, execution.interval, args)
    inner = TraceArgs(parent=number)
    if (dispatch := execution.dispatch) is not None:
        host = execution.dispatch_thread or 0
        yield EXACT.complete("dispatch", "op_inner", 0, host, dispatch, inner)
    if wait is not None:
        computes_ns, _ = execution.computation
        if wait:
            waiting = (execution.start_ns, computes_ns)
            yield EXACT.complete("wait", "op_inner", 0, thread, waiting, inner)
        yield EXACT.complete("compute", "op_inner", 0, thread, execution.computation, inner)
