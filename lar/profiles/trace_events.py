"""The events of Chrome traces, and those of a profile's own file, which is one.

An operator's execution is an event of category `cpu_op` and, where its dispatch is recorded, one of
`op_inner` whose `parent` it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec

from lar.records.profile import (
    THREADS_OF_A_COPY,
    Allocation,
    CounterSample,
    Execution,
    Interval,
    Profile,
    Span,
)

Event = dict[str, Any]
R = TypeVar("R")

EVENTS_AT_ONCE = 250
# Where the events begin in the file, as they come last.
EVENTS_BEGIN = b'"traceEvents":['


def pieces_of_trace(head: bytes, events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the JSON of a trace, some events at a time: all of them at once take much memory.

    `head` is the JSON of what stands before the events, without the brace that ends it.
    """
    rest, separator = iter(events), b""
    yield head + b"," + EVENTS_BEGIN
    while some := [*islice(rest, EVENTS_AT_ONCE)]:
        yield separator + msgspec.json.encode(some)[1:-1]
        separator = b","
    yield b"]}"


# Every event names its process and its thread: Chrome's viewer opens no file without.


def complete(
    name: str, category: str, process: int, thread: int, times_ns: Interval, args: Any
) -> Event:
    """Return something that lasts; `args` may be any record that becomes JSON."""
    start_ns, end_ns = times_ns
    return {
        **{"ph": "X", "name": name, "cat": category},
        **{"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000},
        **{"pid": process, "tid": thread, "args": args},
    }


def point(
    kind: str, name: str, process: int, thread: int, at_ns: int, args: Any, **more: str
) -> Event:
    """Return what happens at a time: `kind` is C for a counter, i for an instant."""
    begin: Event = {"ph": kind, "name": name, **more, "pid": process, "tid": thread}
    return begin | {"ts": at_ns / 1000, "args": args}


def name_line(what: str, process: int, thread: int, name: str) -> Event:
    """Return the name of a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def arrow_end(kind: str, number: int, process: int, thread: int, at_ns: int) -> Event:
    """Return the begin (s) or the end (f) of an arrow, bound to the slice around it."""
    event: Event = {"ph": kind, "id": number, "name": "dispatch", "cat": "dispatch"}
    event |= {"ts": at_ns / 1000, "pid": process, "tid": thread}
    return event | ({"bp": "e"} if kind == "f" else {})


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
LATEST_US = LATEST_NS / 1000

# What a record and its event have alike, by the names of both.
FACTS: Mapping[type, Sequence[str]] = {
    kind: [it for it in kind.__struct_fields__ if it in {*TraceArgs.__struct_fields__} - {"name"}]
    for kind in (Span, Execution, CounterSample, Allocation)
}


def args_of(record: object, **more: Any) -> TraceArgs:
    """Return the facts of a record, and `more`."""
    return TraceArgs(**{name: getattr(record, name) for name in FACTS[type(record)]}, **more)


def record_of(kind: type[R], args: TraceArgs, **more: Any) -> R:
    """Return the record that has these facts, and `more`."""
    for name in FACTS[kind]:
        if (value := getattr(args, name)) is not None:
            more[name] = value
    return kind(**more)


class TraceEvent(msgspec.Struct, gc=False):
    """An event as it is read."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: Annotated[float, msgspec.Meta(ge=-LATEST_US, le=LATEST_US)] = 0.0
    dur: Annotated[float, msgspec.Meta(ge=0, le=LATEST_US)] | None = None
    pid: int = 0
    tid: int = 0
    args: TraceArgs | None = None


def events_of(profile: Profile) -> Iterator[Event]:
    """Yield the events of a profile."""
    for thread, name in profile.threads.items():
        yield name_line("thread_name", 0, thread, name)
    for step in profile.steps:
        args = TraceArgs(step=step.number, warmup=step.warmup)
        # The steps of copies that ran at once stand on lines of their own.
        line = step.copy * THREADS_OF_A_COPY
        yield complete(step.trace_name, "profiler_step", 0, line, step.interval, args)
    for span in profile.spans:
        yield complete(span.name, span.category, 0, span.thread, span.interval, args_of(span))
    for number, each in enumerate(profile.executions, 1):
        name, dispatch = profile.operators[each.operator].name, each.dispatch
        args = args_of(each, id=number if dispatch else None)
        yield complete(name, "cpu_op", 0, each.thread, each.interval, args)
        if dispatch:
            host, args = each.dispatch_thread or 0, TraceArgs(parent=number)
            yield complete("dispatch", "op_inner", 0, host, dispatch, args)
    for sample in profile.counters:
        yield point("C", sample.name, 0, 0, sample.at_ns, args_of(sample), cat="counter")
    for taken in profile.allocations:
        yield point("i", "[memory]", 0, 0, taken.at_ns, args_of(taken), cat="memory")
