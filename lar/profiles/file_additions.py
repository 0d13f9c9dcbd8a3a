"""Additions to the file of a profile, whose events stay as they are.

Reading and writing all events again would take longer than many a run. That is done only if an
added range began before all of them.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec

from lar.files.work_folders import prefix_of_owner
from lar.measurement.time_origin import facts_with_zero_at, with_zero_at
from lar.profiles.trace_events import events_of
from lar.profiles.trace_file import (
    PROFILE_SCHEMA,
    TraceFile,
    around_events,
    decode_profile,
    pieces_of,
)
from lar.records.profile import Profile, ProfileFacts, Span


class UnreadTrace(msgspec.Struct, rename={"events": "traceEvents", "facts": "otherData"}):
    """The file of a profile, of which only the facts are read
    (`lar.profiles.trace_file.TraceFile`).

    Their clock is the profile's own, which is not the file's where `zeroNs` is not 0.
    """

    schema: str
    events: msgspec.Raw
    facts: ProfileFacts
    deviceProperties: msgspec.Raw
    ops: msgspec.Raw
    memPlan: msgspec.Raw
    engineRaw: msgspec.Raw
    displayTimeUnit: str
    zeroNs: int


assert UnreadTrace.__struct_encode_fields__ == TraceFile.__struct_encode_fields__


def read_unread(path: str | Path) -> UnreadTrace:
    """Read the file of a profile without its events.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a profile that lar has written.
    """
    trace = msgspec.json.decode(Path(path).read_bytes(), type=UnreadTrace)
    if trace.schema != PROFILE_SCHEMA:
        raise ValueError(f"has the schema {trace.schema!r}")
    trace.facts = facts_with_zero_at(trace.facts, -trace.zeroNs)
    return trace


def write_with(
    trace: UnreadTrace, spans: Sequence[Span], threads: Mapping[int, str], path: str | Path
) -> None:
    """Write a profile with more spans and threads; the old file stays until all is written.

    Raises:
        OSError: it cannot be written.
    """
    pieces = pieces_with(trace, spans, threads)
    if any(span.start_ns < trace.zeroNs for span in spans):
        # The zero of the file is the earliest time in it, so that all times in it change.
        before = decode_profile(b"".join(pieces_with(trace, (), {})), str(path))
        pieces = pieces_of(
            replace(before, spans=(*before.spans, *spans), threads={**before.threads, **threads})
        )
    place = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(prefix=prefix_of_owner(), dir=os.path.dirname(place))
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces)
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
    more = with_zero_at(Profile(spans=tuple(spans), threads=threads), trace.zeroNs)
    added = [*events_of(more, numbers)]
    head, tail = around_events(
        UnreadTrace(
            trace.schema,
            msgspec.Raw(b"[]"),
            facts_with_zero_at(trace.facts, trace.zeroNs),
            trace.deviceProperties,
            trace.ops,
            trace.memPlan,
            trace.engineRaw,
            trace.displayTimeUnit,
            trace.zeroNs,
        )
    )
    yield head
    yield events[1:-1]
    if added:
        yield b"," * (len(events) > len("[]")) + msgspec.json.encode(added)[1:-1]
    yield tail
