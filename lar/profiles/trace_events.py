"""The events of Chrome traces, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from lar.records.profile import Interval
from lar.records.record import elements_as_json

Event = dict[str, Any]

EVENTS_AT_ONCE = 250
LATEST_NS = 1 << 62  # nearly 150 years
# The events begin here in the file: they come last.
EVENTS_BEGIN = b'"traceEvents":['


def pieces_of_trace(head: bytes, events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the JSON of a trace, some events at a time: together they take much memory.

    `head` is the JSON of what stands before the events, without the brace that ends it.
    """
    rest = iter(events)
    yield head + b"," + EVENTS_BEGIN
    yield from elements_as_json(iter(lambda: [*islice(rest, EVENTS_AT_ONCE)], []))
    yield b"]}"


# Every event names its process and its thread: Chrome's viewer opens no file without them.


def complete(
    name: str, category: str, process: int, thread: int, times_ns: Interval, args: Any
) -> Event:
    """Return an event that has a duration; `args` may be any record that becomes JSON."""
    start_ns, end_ns = times_ns
    return {
        **{"ph": "X", "name": name, "cat": category},
        **{"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000},
        **{"pid": process, "tid": thread, "args": args},
    }


def point(
    kind: str, name: str, process: int, thread: int, at_ns: int, args: Any, **more: str
) -> Event:
    """Return an event at one time: `kind` is C for a counter, i for an instant."""
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
