"""Additions to the file of a profile, whose events stay as they are.

Decoding and encoding all events again would take longer than many a run. That is done only if an
added range began before all of them; else they are copied, a piece at a time.
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
from typing import IO

import msgspec

from lar.files.work_folders import prefix_of_owner
from lar.measurement.time_origin import facts_with_zero_at, with_zero_at
from lar.profiles.packed_file import is_better_packed, open_json, write_pieces
from lar.profiles.trace_events import events_of
from lar.profiles.trace_file import (
    BYTES_AT_ONCE,
    PROFILE_SCHEMA,
    TraceFile,
    decode_profile,
    head_in,
    pieces_of,
)
from lar.profiles.trace_writer import around_events
from lar.records.profile import Profile, ProfileFacts, Span, TriedSetting


class UnreadTrace(msgspec.Struct, rename={"facts": "otherData"}):
    """What stands before the events in the file of a profile, of which only the facts are read
    (`lar.profiles.trace_file.TraceFile`).

    Their clock is the profile's own, which is not the file's where `zeroNs` is not 0.
    """

    schema: str
    facts: ProfileFacts
    deviceProperties: msgspec.Raw
    ops: msgspec.Raw
    memPlan: msgspec.Raw
    engineRaw: msgspec.Raw
    displayTimeUnit: str
    zeroNs: int


class WithoutEvents(UnreadTrace):
    """The same, as a file that has no events yet."""

    traceEvents: tuple[()] = ()


assert WithoutEvents.__struct_encode_fields__ == TraceFile.__struct_encode_fields__


def read_unread(path: str | Path) -> UnreadTrace:
    """Read the file of a profile without its events.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a profile that lar has written.
    """
    with open_json(path) as content:
        head = read_head(content)
    trace = msgspec.json.decode(head + b"]}", type=UnreadTrace)
    if trace.schema != PROFILE_SCHEMA:
        raise ValueError(f"has the schema {trace.schema!r}")
    trace.facts = facts_with_zero_at(trace.facts, -trace.zeroNs)
    return trace


def add_tried(path: str, tried: tuple[TriedSetting, ...]) -> None:
    """Add the settings that were tried to the facts of a profile in a file.

    Raises:
        OSError: it cannot be written.
        ValueError: it is not a profile that lar has written.
    """
    trace = read_unread(path)
    trace.facts = msgspec.structs.replace(trace.facts, tried=tried)
    write_with(trace, (), {}, path)


def read_head(content: IO[bytes]) -> bytes:
    """Read what stands before the events, and no more.

    Raises:
        ValueError: the events do not come last.
    """
    begin = b""
    while piece := content.read(BYTES_AT_ONCE):
        begin += piece
        if (head := head_in(begin)) is not None:
            content.seek(len(head))
            return head
    raise ValueError("its events do not come last")


def write_with(
    trace: UnreadTrace, spans: Sequence[Span], threads: Mapping[int, str], path: str | Path
) -> None:
    """Write a profile with more spans and threads; the old file stays until all is written.

    Raises:
        OSError: it cannot be written.
    """
    pieces = pieces_with(trace, spans, threads, path)
    if any(span.start_ns < trace.zeroNs for span in spans):
        # The zero of the file is the earliest time in it, so that all times in it change.
        before = decode_profile(b"".join(pieces_with(trace, (), {}, path)), str(path))
        pieces = pieces_of(
            replace(before, spans=(*before.spans, *spans), threads={**before.threads, **threads})
        )
    place = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(prefix=prefix_of_owner(), dir=os.path.dirname(place))
    try:
        with open(descriptor, "wb") as file:
            write_pieces(file, pieces, packed=is_better_packed(place))
        os.chmod(temporary, stat.S_IMODE(os.stat(place).st_mode))
        os.replace(temporary, place)
    except BaseException:
        # An interrupt may come when it has its place already.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def pieces_with(
    trace: UnreadTrace, spans: Sequence[Span], threads: Mapping[int, str], path: str | Path
) -> Iterator[bytes]:
    """Yield the content of the file, with the events that are in it now."""
    more = with_zero_at(Profile(spans=tuple(spans), threads=threads), trace.zeroNs)
    facts = facts_with_zero_at(trace.facts, trace.zeroNs)
    unread = msgspec.structs.replace(trace, facts=facts)
    head, tail = around_events(WithoutEvents(*msgspec.structs.astuple(unread)))
    yield head
    size_bytes = 0
    for piece in events_in(path):
        size_bytes += len(piece)
        yield piece
    # No event has a number as high: each is longer than one byte.
    if added := [*events_of(more, count(size_bytes + len("[]")))]:
        yield b"," * bool(size_bytes) + msgspec.json.encode(added)[1:-1]
    yield tail


def events_in(path: str | Path) -> Iterator[bytes]:
    """Yield the events in a file, without the brackets around them."""
    with open_json(path) as content:
        read_head(content)
        end = b"]}"
        held = b""
        while piece := content.read(BYTES_AT_ONCE):
            held += piece
            yield held[: -len(end)]
            held = held[-len(end) :]
