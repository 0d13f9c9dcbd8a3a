"""Additions to the file of a profile, whose events stay as they are.

Decoding and encoding all events again would take longer than many a run. That is done only if
ranges are added; else they are copied, a piece at a time.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec

from lar.files.work_folders import prefix_of_owner
from lar.measurement.time_origin import with_zero_at
from lar.profiles.packed_file import is_packed_name, unpacked, write_pieces
from lar.profiles.trace_events import EVENTS_BEGIN
from lar.profiles.trace_file import (
    BYTES_AT_ONCE,
    EventRecords,
    decode_profile,
    head_of_profile,
    pieces_of,
    read_head,
)
from lar.records.profile import Profile, TriedSetting


def change_profile(path: str | Path, change: Callable[[Profile], Profile]) -> None:
    """Change the file of a profile; the old file stays until all is written.

    `change` takes the profile without its events, and gives it with other facts or operators, and
    with spans and threads that are added.

    Raises:
        OSError: it cannot be read or written.
        ValueError: it is not a profile that lar has written.
    """
    with open(path, "rb") as packed:
        content = unpacked(packed)
        if (begin := read_head(content)) is None:
            raise ValueError("its events do not come last")
        file, engine_raw, first = begin
        found = change(EventRecords().profile_of(file, engine_raw))
        if found.spans or found.threads:
            content.seek(0)
            whole = decode_profile(content.read(), str(path))
            spans, threads = (*whole.spans, *found.spans), {**whole.threads, **found.threads}
            changed = replace(whole, facts=found.facts, operators=found.operators)
            write_over(path, pieces_of(replace(changed, spans=spans, threads=threads)))
        else:
            own = head_of_profile(with_zero_at(found, file.zeroNs), file.zeroNs)
            events = iter(lambda: content.read(BYTES_AT_ONCE), b"")
            write_over(path, chain([own + b"," + EVENTS_BEGIN, first], events))


def add_tried(path: str, tried: tuple[TriedSetting, ...]) -> None:
    """Add the settings that were tried to the facts of a profile in a file.

    Raises:
        OSError: it cannot be written.
        ValueError: it is not a profile that lar has written.
    """

    def add(profile: Profile) -> Profile:
        return replace(profile, facts=msgspec.structs.replace(profile.facts, tried=tried))

    change_profile(path, add)


def write_over(path: str | Path, pieces: Iterable[bytes]) -> None:
    """Write a file in the place of one that may still be read.

    Raises:
        OSError: it cannot be written.
    """
    place = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(prefix=prefix_of_owner(), dir=os.path.dirname(place))
    try:
        with open(descriptor, "wb") as file:
            write_pieces(file, pieces, packed=is_packed_name(path) or None)
        os.chmod(temporary, stat.S_IMODE(os.stat(place).st_mode))
        os.replace(temporary, place)
    except BaseException:
        # An interrupt may come when it has its place already.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
