"""Writes the events of Chrome traces, for the profile's own file and for other programs.

The format is the same for all: what differs is a dialect, how times are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

Event = dict[str, Any]

EVENTS_KEY = "traceEvents"
EVENTS_AT_ONCE = 250
# Where the events begin in the file, as they come last.
EVENTS_BEGIN = f'"{EVENTS_KEY}":['.encode()


def pieces_of_trace(
    head: dict[str, Any] | msgspec.Struct, events: Iterable[Event]
) -> Iterator[bytes]:
    """Yield the JSON of a trace, some events at a time: all of them at once take much memory.

    `head` is what stands before the events; a record has an empty list of them.
    """
    before, after = around_events({**head, EVENTS_KEY: []} if isinstance(head, dict) else head)
    rest, separator = iter(events), b""
    yield before
    while some := [*islice(rest, EVENTS_AT_ONCE)]:
        yield separator + msgspec.json.encode(some)[1:-1]
        separator = b","
    yield after


def around_events(file: dict[str, Any] | msgspec.Struct) -> tuple[bytes, bytes]:
    """Return what stands before and after the events in the file, which has none yet."""
    head, opening, tail = msgspec.json.encode(file).rpartition(EVENTS_BEGIN)
    return head + opening, tail


def exact_microseconds(start_ns: int, end_ns: int) -> tuple[float, float]:
    """Return begin and duration in microseconds, to the nanosecond."""
    return start_ns / 1000, (end_ns - start_ns) / 1000


def plugin_microseconds(start_ns: int, end_ns: int) -> tuple[float, float]:
    """Return begin and duration in microseconds, rounded down to 1/1024, and whole numbers as
    integers.

    The TensorBoard plugin adds starts and durations and drops what then ends after what it lies
    in; with these numbers it adds without rounding.
    """
    start, end = ((time_ns * 1024 // 1000) / 1024 for time_ns in (start_ns, end_ns))
    return plain(start), plain(end - start)


def plain(value: float) -> int | float:
    return int(value) if value.is_integer() else value


class TraceWriter(NamedTuple):
    """A dialect: `microseconds` makes begin and duration of nanoseconds.

    Every event names its process and its thread: Chrome's viewer opens no file without.
    """

    microseconds: Callable[[int, int], tuple[float, float]] = exact_microseconds

    def complete(
        self,
        name: str,
        category: str,
        process: int,
        thread: int,
        times_ns: tuple[int, int],
        args: Any,
    ) -> Event:
        """Return something that lasts; `args` may be any record that becomes JSON."""
        begin, duration = self.microseconds(*times_ns)
        event = {"ph": "X", "name": name, "cat": category, "ts": begin, "dur": duration}
        return self._finish(event, process, thread, args)

    def point(
        self, kind: str, name: str, process: int, thread: int, at_ns: int, args: Any, **more: str
    ) -> Event:
        """Return what happens at a time: `kind` is C for a counter, i for an instant."""
        event: Event = {"ph": kind, **({"s": more.pop("scope")} if "scope" in more else {})}
        event |= {"name": name, **more, "pid": process, "tid": thread}
        event |= {"ts": self.microseconds(at_ns, at_ns)[0], "args": args}
        return event

    def name(self, what: str, process: int, thread: int, name: str) -> Event:
        """Return the name of a process or a thread."""
        event = {"ph": "M", "name": what}
        return self._finish(event, process, thread, {"name": name})

    def arrow(
        self, number: int, name: str, ends: tuple[tuple[int, int, int], tuple[int, int, int]]
    ) -> Iterator[Event]:
        """Yield the ends of an arrow, each (process, thread, nanoseconds), which viewers bind to
        the slices around them."""
        for kind, (process, thread, at_ns) in zip("sf", ends, strict=True):
            event = {"ph": kind, "id": number, "name": name, "cat": name}
            event |= {"ts": self.microseconds(at_ns, at_ns)[0], "pid": process, "tid": thread}
            yield event | ({"bp": "e"} if kind == "f" else {})

    def _finish(self, event: Event, process: int, thread: int, args: Any) -> Event:
        event["pid"], event["tid"], event["args"] = process, thread, args
        return event


EXACT = TraceWriter()
PLUGIN = TraceWriter(plugin_microseconds)
