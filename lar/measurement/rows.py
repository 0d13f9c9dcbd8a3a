"""Samples in memory that the measuring process and its parent share.

The worker writes one row an iteration, without a system call; the parent reads the rows while
the run goes on, and all of them after a crash. Layout, once for each runner: a 64-byte header
whose first 8 bytes count the finished rows, then rows of four little-endian doubles: end to end,
host, device and queue delay, in seconds, NaN for what was not measured.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.records.run import Samples

HEADER_BYTES = 64
ROW = struct.Struct("<dddd")
COUNT = struct.Struct("<q")
NAN = math.nan


class SampleRows:
    """One runner's table of samples in a shared mapping, with room for `capacity` rows."""

    def __init__(self, mapping: mmap.mmap, capacity: int, runner: int = 0) -> None:
        self.capacity = capacity
        self.runner = runner
        self._map = mapping
        self._count_at = runner * size_of_rows(capacity)
        self._rows_at = self._count_at + HEADER_BYTES

    @classmethod
    def anonymous(cls, capacity: int) -> SampleRows:
        """Make a table for this process alone."""
        return open_rows(-1, capacity)[0]

    @property
    def count(self) -> int:
        count: int = COUNT.unpack_from(self._map, self._count_at)[0]
        return count

    def append(self, end_to_end: float, host: float, device: float, queue_delay: float) -> None:
        count = self.count
        at = self._rows_at + ROW.size * count
        ROW.pack_into(self._map, at, end_to_end, host, device, queue_delay)
        COUNT.pack_into(self._map, self._count_at, count + 1)

    def share_queue_delay(self, first: int, last: int, seconds: float) -> None:
        """Share a queue delay between the rows from `first` up to, not including, `last`, by their
        end-to-end times; none waited longer than it took."""
        together = sum(self.row(index)[0] for index in range(first, last)) if seconds else 0.0
        share = min(1.0, seconds / together) if together else 0.0
        for index in range(first, last):
            delay = share * self.row(index)[0] if share else 0.0
            struct.pack_into("<d", self._map, self._rows_at + ROW.size * index + 24, delay)

    def row(self, index: int) -> tuple[float, float, float, float]:
        row: tuple[float, float, float, float] = ROW.unpack_from(
            self._map, self._rows_at + ROW.size * index
        )
        return row

    def samples(self, first: int, last: int) -> Samples:
        """Return the rows from `first` up to, not including, `last`, as a record."""
        from lar.records.run import Samples  # records are slow to import, and only this needs them

        last = min(last, self.count)
        if last <= first:
            return Samples()
        end = self._rows_at + ROW.size * last
        with (
            memoryview(self._map) as whole,
            whole[self._rows_at : end] as body,
            body.cast("d") as values,
        ):
            columns = [tuple(values[4 * first + column :: 4].tolist()) for column in range(4)]
        return Samples(
            end_to_end=columns[0],
            host=columns[1],
            device=optional(columns[2]),
            queue_delay=optional(columns[3]),
        )


def make_rows(file: int, capacity: int, runners: int = 1) -> tuple[SampleRows, ...]:
    """Give an empty file the size of that many tables and map them; pages cost nothing until they
    are written."""
    os.ftruncate(file, runners * size_of_rows(capacity))
    return open_rows(file, capacity, runners)


def open_rows(file: int, capacity: int, runners: int = 1) -> tuple[SampleRows, ...]:
    """Map a file of that many tables; with -1 for the file, memory of this process alone."""
    mapping = mmap.mmap(file, runners * size_of_rows(capacity))
    return tuple(SampleRows(mapping, capacity, runner) for runner in range(runners))


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Return the samples of all runners as one record; with one runner, those."""
    if len(parts) == 1:
        return parts[0]
    from lar.records.run import Samples

    return Samples(
        **{
            name: tuple(chain.from_iterable(getattr(part, name) for part in parts))
            for name in ("end_to_end", "host", "device", "queue_delay")
        },
        runner=tuple(
            chain.from_iterable(
                repeat(number, len(part.end_to_end)) for number, part in enumerate(parts)
            )
        ),
    )


def optional(values: tuple[float, ...]) -> tuple[float | None, ...]:
    """Return the values with None for NaN."""
    # NaN alone is not equal to itself; isnan is slow on millions of values.
    return tuple([value if value == value else None for value in values])


def size_of_rows(capacity: int) -> int:
    """Return the bytes that one runner's table of that many rows takes."""
    return HEADER_BYTES + ROW.size * capacity


def create_shared_file() -> int:
    """Create an unnamed, empty file and return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lar-samples", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as temporary:
        return os.dup(temporary.fileno())
