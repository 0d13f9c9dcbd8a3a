"""Samples in memory that the measuring process and its parent share.

The worker writes one row an iteration, without a system call; the parent reads the rows while
the run goes on, and all of them after a crash. Layout: a 64-byte header whose first 8 bytes count
the finished rows, then rows of four little-endian doubles: end to end, host, device and
queue delay, in seconds, NaN for what was not measured.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.records import Samples

HEADER_BYTES = 64
ROW = struct.Struct("<dddd")
COUNT = struct.Struct("<q")
NAN = math.nan


class SampleRows:
    """A table of samples over a shared mapping, with room for `capacity` rows."""

    def __init__(self, file: int, capacity: int) -> None:
        self.capacity = capacity
        self._map = mmap.mmap(file, size_of_rows(capacity))

    @classmethod
    def anonymous(cls, capacity: int) -> SampleRows:
        """Make a table for this process alone."""
        return cls(-1, capacity)

    @property
    def count(self) -> int:
        count: int = COUNT.unpack_from(self._map, 0)[0]
        return count

    def append(self, end_to_end: float, host: float, device: float, queue_delay: float) -> None:
        count = self.count
        ROW.pack_into(
            self._map, HEADER_BYTES + ROW.size * count, end_to_end, host, device, queue_delay
        )
        COUNT.pack_into(self._map, 0, count + 1)

    def set_queue_delay(self, first: int, last: int, seconds: float) -> None:
        """Set the queue delay of the rows from `first` up to, not including, `last`."""
        for index in range(first, last):
            struct.pack_into("<d", self._map, HEADER_BYTES + ROW.size * index + 24, seconds)

    def row(self, index: int) -> tuple[float, float, float, float]:
        row: tuple[float, float, float, float] = ROW.unpack_from(
            self._map, HEADER_BYTES + ROW.size * index
        )
        return row

    def samples(self, first: int, last: int) -> Samples:
        """Return the rows from `first` up to, not including, `last`, as a record."""
        from lar.records import Samples  # records are slow to import, and only this needs them

        last = min(last, self.count)
        if last <= first:
            return Samples()
        with memoryview(self._map) as whole, whole[HEADER_BYTES:] as body, body.cast("d") as values:
            columns = [
                tuple(values[4 * first + column : 4 * last : 4].tolist()) for column in range(4)
            ]
        return Samples(
            end_to_end=columns[0],
            host=columns[1],
            device=optional(columns[2]),
            queue_delay=optional(columns[3]),
        )


def optional(values: tuple[float, ...]) -> tuple[float | None, ...]:
    """Return the values with None for NaN."""
    return tuple(None if math.isnan(value) else value for value in values)


def size_of_rows(capacity: int) -> int:
    """Return the bytes that a table of that many rows takes."""
    return HEADER_BYTES + ROW.size * capacity


def create_shared_file(capacity: int) -> int:
    """Create an unnamed file for that many rows and return its descriptor; pages cost nothing
    until they are written."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("lar-samples", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size_of_rows(capacity))
    return file
