"""What is added to a profile in its file, whose events stay as they are.

They are many, and reading and writing each of them again would take longer than many a run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from lar.profiling.profile import Profile, ProfileFacts, Span
from lar.profiling.trace_events import events_of
from lar.profiling.trace_file import PROFILE_SCHEMA, TraceFile, around_events


class UnreadTrace(msgspec.Struct, rename={"events": "traceEvents", "facts": "otherData"}):
    """The file, of which the facts alone are read (`lar.profiling.trace_file.TraceFile`)."""

    schema: str
    events: msgspec.Raw
    facts: ProfileFacts
    deviceProperties: msgspec.Raw
    ops: msgspec.Raw
    memPlan: msgspec.Raw
    engineRaw: msgspec.Raw
    displayTimeUnit: str


assert UnreadTrace.__struct_encode_fields__ == TraceFile.__struct_encode_fields__


def read_unread(path: str | Path) -> UnreadTrace:
    """Read a profile's file but for its events.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no profile that lar has written.
    """
    trace = msgspec.json.decode(Path(path).read_bytes(), type=UnreadTrace)
    if trace.schema != PROFILE_SCHEMA:
        raise ValueError(f"has the schema {trace.schema!r}")
    return trace


def write_with(
    trace: UnreadTrace, spans: Sequence[Span], threads: Mapping[int, str], path: str | Path
) -> None:
    """Write a profile with more spans and threads; what is in the file stays until all is written.

    Raises:
        OSError: it cannot be written.
    """
    place = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(prefix=".lar-", dir=os.path.dirname(place))
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces_with(trace, spans, threads))
        os.chmod(temporary, stat.S_IMODE(os.stat(place).st_mode))
        os.replace(temporary, place)
    except BaseException:
        # An interrupt may come when it has its place already.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def pieces_with(
    trace: UnreadTrace, spans: Sequence[Span], threads: Mapping[int, str]
) -> Iterator[bytes | memoryview]:
    """Yield the content of the file."""
    events = memoryview(trace.events)
    # No event has a number as high: each is longer than one byte.
    numbers = count(len(events))
    added = [*events_of(Profile(spans=tuple(spans), threads=threads), numbers)]
    head, tail = around_events(
        UnreadTrace(
            trace.schema,
            msgspec.Raw(b"[]"),
            trace.facts,
            trace.deviceProperties,
            trace.ops,
            trace.memPlan,
            trace.engineRaw,
            trace.displayTimeUnit,
        )
    )
    yield head
    yield events[1:-1]
    if added:
        yield b"," * (len(events) > len("[]")) + msgspec.json.encode(added)[1:-1]
    yield tail
