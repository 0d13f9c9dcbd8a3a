"""The table of samples, in memory that the worker and its parent share.

The worker writes a row for each iteration and for each reading of the noise, without a system call.
The parent reads the rows while the run goes on, and can read all of them after a crash. To save the
worker's time, the parent divides each reading between the iterations of the reading.

Each runner has a table in this machine's byte order. The table has a header of eight integers, then
the rows of iterations, and then the rows of readings. The row of an iteration has five doubles: the
end-to-end, host and device times, the time on the driver's clock when the iteration began, and the
time that its request waited for the runner. The row of a reading has ten doubles: the number of
finished iterations, and the fields of a `Reading`.

Times are seconds; NaN means not measured.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from lar.measurement.noise import Reading
    from lar.records.record import Numbers
    from lar.records.run import Samples

# The integers of the header: the number of rows of iterations; the number of rows of readings; the
# length of the warm-up plus 1, or 0 while the warm-up goes on; a number that grows while a runner
# sleeps.
COUNT, READINGS, WARMUPS, BEATS = range(4)
HEADER_BYTES = 64
ROW_COLUMNS, READING_COLUMNS = 5, 10
ROW_BYTES, pack_row = 8 * ROW_COLUMNS, struct.Struct(f"{ROW_COLUMNS}d").pack_into
NAN = math.nan
# If a reading covers at least this many iterations, columns that are computed from readings take
# less memory.
FEWEST_OF_READING = 4
# Samples of at least this many rows stay in the table, which keeps a file open. Fewer rows are
# copied, since a process may keep the samples of very many short runs.
LONG = 50_000


class SampleRows:
    """One runner's table of samples in a shared mapping, with room for `capacity` rows."""

    def __init__(self, mapping: mmap.mmap, capacity: int, runner: int = 0) -> None:
        self.capacity = capacity
        self.runner = runner
        self._whole = whole = memoryview(mapping)[runner * size_of_rows(capacity) :]
        self._header = whole[:HEADER_BYTES].cast("q")
        readings_at = HEADER_BYTES + ROW_BYTES * capacity
        self._rows = whole[HEADER_BYTES:readings_at].cast("d")
        self._readings = whole[readings_at : size_of_rows(capacity)].cast("d")

    @classmethod
    def anonymous(cls, capacity: int) -> SampleRows:
        """Make a table in private memory of this process."""
        return open_rows(-1, capacity)[0]

    @property
    def count(self) -> int:
        return self._header[COUNT]

    @property
    def warmups(self) -> int | None:
        """The number of rows of the warm-up, or None while the warm-up goes on."""
        length = self._header[WARMUPS]
        return length - 1 if length else None

    @property
    def warmups_so_far(self) -> int:
        """The number of rows of the warm-up so far; during the warm-up, the number of all rows."""
        return self.count if self.warmups is None else self.warmups

    def end_warmup(self) -> None:
        """End the warm-up, to which all rows so far belong."""
        self._header[WARMUPS] = self.count + 1

    @property
    def beats(self) -> int:
        """The number of times that a sleeping runner has shown that it is alive."""
        return self._header[BEATS]

    def beat(self) -> None:
        """Show the parent that the runner is alive."""
        self._header[BEATS] += 1

    def end_to_end(self, first: int = 0) -> list[float]:
        """Return the end-to-end times of the rows from `first` on."""
        begin, end = ROW_COLUMNS * first, ROW_COLUMNS * self.count
        return list(self._rows[begin:end:ROW_COLUMNS])

    def append(
        self,
        end_to_end: float,
        host: float,
        device: float,
        began: float = NAN,
        queueing: float = NAN,
    ) -> None:
        header = self._header
        count = header[COUNT]
        if count == self.capacity:
            raise IndexError(f"the table has room for {count} rows")
        at = HEADER_BYTES + ROW_BYTES * count
        pack_row(self._whole, at, end_to_end, host, device, began, queueing)
        header[COUNT] = count + 1

    def add_reading(self, reading: Reading) -> None:
        """Write a reading of the noise, which holds for all rows written since the last reading."""
        count = self._header[READINGS]
        at = READING_COLUMNS * count
        self._readings[at : at + READING_COLUMNS] = array("d", (self.count, *reading))
        self._header[READINGS] = count + 1

    def times(self, first: int, last: int) -> Iterable[tuple[float, float, float]]:
        """Return the end-to-end, host and device times of the rows from `first` to `last - 1`."""
        part = self._rows[ROW_COLUMNS * first : ROW_COLUMNS * last].tolist()
        return zip(*(part[column::ROW_COLUMNS] for column in range(3)), strict=True)

    def began(self, index: int) -> float:
        """Return when an iteration began, on the driver's clock."""
        return self._rows[ROW_COLUMNS * index + 3]

    def samples(self, first: int, last: int) -> Samples:
        """Return the rows from `first` to `last - 1` as a record."""
        return self.all_samples().part(slice(first, max(first, last)))

    def all_samples(self, zero: float = 0.0) -> Samples:
        """Return all rows as a record.

        `zero` is the time on the driver's clock from which `began` is counted.

        If there are many rows, the columns are views of the table, or are computed when they are
        read. If there are few rows, the rows are copied.
        """
        # This module imports slowly, and only this method needs it.
        from lar.records.run import Samples

        # Readings are read before iterations: then each reading has its iterations, even if the
        # worker adds more meanwhile.
        readings = self._readings[: READING_COLUMNS * self._header[READINGS]]
        rows = self._rows[: ROW_COLUMNS * self.count]
        if len(rows) < ROW_COLUMNS * LONG:
            rows = memoryview(rows.tobytes()).cast("d")
        end_to_end, host, device, began, queueing = columns_of(rows, ROW_COLUMNS)
        count, read = len(end_to_end), map(list, columns_of(readings, READING_COLUMNS))
        ends, delay, busiest, active, cpu, steal, throttled, frequency, probe, before = read
        if any(before):
            delay = reach_back(delay, before, ends, end_to_end)

        def since_zero(first: int, last: int) -> Iterable[float]:
            # Rounded to nanoseconds: a clock is no finer, and short numbers make a short file.
            return (round((at - zero) * 1e9) / 1e9 for at in began[first:last])

        columns: dict[str, Any] = {
            "end_to_end": end_to_end,
            "host": host,
            "device": device,
            "queue_delay": share_out(delay, ends, end_to_end) or array("d", [NAN]) * count,
            "began": Computed(since_zero, range(count)) if count and began[0] == began[0] else None,
            "cpu": share_out(cpu, ends, end_to_end, active),
            "busiest_thread": share_out(busiest, ends, end_to_end, active),
            "steal": share_out(steal, ends, end_to_end),
            "throttled": share_out(throttled, ends, end_to_end),
            "frequency": spread(frequency, ends, count),
            "queueing": queueing if any(it == it for it in queueing) else None,
            "probe": spread(probe, ends, count),
        }
        if FEWEST_OF_READING * len(ends) > count:
            columns = {name: joined([column]) for name, column in columns.items() if column}
        return Samples(**{name: column for name, column in columns.items() if column})


def columns_of(values: memoryview[float], columns: int) -> list[memoryview[float]]:
    """Return the columns of rows, without copying them."""
    return [values[column::columns] for column in range(columns)]


def joined(parts: Iterable[memoryview[float] | Numbers]) -> array[float]:
    """Return a copy of a column, joined from its parts in their order."""
    return array("d", b"".join(part.tobytes() for part in parts))


def reach_back(
    delays: Sequence[float],
    before: Sequence[float],
    ends: Sequence[float],
    end_to_end: Sequence[float],
) -> list[float]:
    """Return how long a thread waited for a CPU during each reading.

    A wait that only a later reading shows is moved to the reading in which it happened. A thread
    that waits through several readings reports its wait when it runs again. For each reading,
    `before` is how long a wait had already lasted at the previous reading.
    """
    reached = list(delays)
    begins = [0, *(int(end) for end in ends)]
    for index, seconds in enumerate(before):
        while seconds > 0 and index > 0:
            index -= 1
            passed = math.fsum(end_to_end[begins[index] : begins[index + 1]])
            if not reached[index] >= min(seconds, passed):
                reached[index] = min(seconds, passed)
            seconds -= passed
    return reached


def make_rows(file: int, capacity: int, runners: int = 1) -> tuple[SampleRows, ...]:
    """Extend an empty file to the size of all runners' tables, and map it into memory.

    A page takes no memory until it is written.
    """
    os.ftruncate(file, runners * size_of_rows(capacity))
    return open_rows(file, capacity, runners)


def open_rows(file: int, capacity: int, runners: int = 1) -> tuple[SampleRows, ...]:
    """Map the file with all runners' tables into memory; if `file` is -1, use private memory."""
    mapping = mmap.mmap(file, runners * size_of_rows(capacity))
    return tuple(SampleRows(mapping, capacity, runner) for runner in range(runners))


def read_samples(tables: Sequence[SampleRows]) -> tuple[Samples, Samples]:
    """Return two records for all runners: the samples of the warm-up and the timed samples."""
    pairs = [(rows, rows.warmups_so_far) for rows in tables]
    firsts = (rows.began(min(count, rows.count - 1)) for rows, count in pairs if rows.count)
    zero = min(firsts, default=0.0)
    parts = [(rows.all_samples(zero), count) for rows, count in pairs]
    return (
        join_samples([part.part(slice(count)) for part, count in parts]),
        join_samples([part.part(slice(count, None)) for part, count in parts]),
    )


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Join the samples of all runners into one record; a single runner's record stays as it is."""
    if len(parts) == 1:
        return parts[0]
    from lar.records.record import Numbers
    from lar.records.run import MEASURED, Samples

    counts = [len(part.end_to_end) for part in parts]
    columns: dict[str, Any] = {}
    for name in MEASURED:
        found: list[Numbers] = [getattr(part, name) for part in parts]
        if any(found):  # else no runner has measured this figure
            pairs = zip(found, counts, strict=True)
            columns[name] = joined(it or Numbers((None,) * count) for it, count in pairs)
    numbers = [repeat(number, count) for number, count in enumerate(counts)]
    return Samples(**columns, runner=tuple(chain.from_iterable(numbers)))


def samples_since(tables: Sequence[SampleRows], firsts: Sequence[int]) -> Samples:
    """Return the samples of all runners from a given row on.

    For each runner, `firsts` has the number of the first row to return.
    """
    pairs = zip(tables, firsts, strict=True)
    return join_samples([rows.samples(first, rows.count) for rows, first in pairs])


def size_of_rows(capacity: int) -> int:
    """Return the size in bytes of one runner's table for `capacity` iterations."""
    # Each iteration may have a reading, and each end of a loop has one more.
    return HEADER_BYTES + 8 * (ROW_COLUMNS + 2 * READING_COLUMNS) * capacity


def create_shared_file() -> int:
    """Create an unnamed, empty file and return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lar-samples", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as temporary:
        return os.dup(temporary.fileno())


# Columns that are computed from the readings of the noise, when they are read


class Computed:
    """A column of doubles that takes no memory until it is read.

    The column can be used like a memoryview: its slices are views, and not copies. `compute` takes
    the index of the first number and the index after the last number, and returns the numbers from
    the first to the last.
    """

    def __init__(self, compute: Callable[[int, int], Iterable[float]], places: range) -> None:
        self._compute, self._places = compute, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> Computed: ...
    def __getitem__(self, place: int | slice) -> float | Computed:
        found = self._places[place]
        if isinstance(found, range):
            return Computed(self._compute, found)
        return next(iter(self._compute(found, found + 1)))

    def tolist(self) -> list[float]:
        """Return all numbers of the column."""
        if not self._places:
            return []
        first, last = sorted((self._places[0], self._places[-1]))
        return [*self._compute(first, last + 1)][:: self._places.step]

    def tobytes(self) -> bytes:
        """Return all numbers of the column as bytes, in this machine's byte order."""
        return array("d", self.tolist()).tobytes()


def share_out(
    figures: Sequence[float],
    ends: Sequence[float],
    end_to_end: memoryview[float],
    active: Sequence[float] = (),
) -> Computed | None:
    """Divide the seconds of each reading between its iterations.

    Each iteration gets a part in proportion to the duration of the iteration.

    If `active` is empty, `figures` are the seconds of waiting, and the wait of an iteration is at
    most as long as the iteration. If `active` is not empty, `figures` are the seconds of CPU time.
    `active` has for each reading the time in which the thread did not wait for a CPU, 0 if unknown.
    CPU time that is used between the iterations is used by lar itself, and is left out. Several
    threads may use more CPU time than an iteration took. So the part of an iteration may be longer
    than the iteration, but not longer than the CPU time of the reading.
    """
    shares, most = array("d"), array("d")
    begin, is_waiting = 0, not active
    for index, (seconds, end) in enumerate(zip(figures, ends, strict=True)):
        if seconds == seconds:
            whole = (active[index] if active else 0.0) or sum(end_to_end[begin : int(end)])
            shares.append(seconds / whole if whole else 0.0)
            most.append(seconds)
            begin = int(end)

    def parts_of(reading: int, first: int, last: int) -> Iterable[float]:
        share, times = shares[reading], end_to_end[first:last]
        if not share:
            return repeat(0.0, len(times))
        if is_waiting:
            share = min(share, 1.0)
            return [share * each for each in times]
        parts, seconds = [round(share * each * 1e9) / 1e9 for each in times], most[reading]
        return (
            parts if max(parts, default=0.0) <= seconds else [min(each, seconds) for each in parts]
        )

    return give(figures, ends, len(end_to_end), parts_of)


def spread(figures: Sequence[float], ends: Sequence[float], count: int) -> Computed | None:
    """Return a column that repeats the figure of each reading for all iterations of the reading."""
    known = array("d", (figure for figure in figures if figure == figure))
    return give(figures, ends, count, lambda it, first, last: repeat(known[it], last - first))


def give(
    figures: Sequence[float],
    ends: Sequence[float],
    count: int,
    parts_of: Callable[[int, int, int], Iterable[float]],
) -> Computed | None:
    """Return a column with a value for each iteration, or None if all figures are NaN.

    `figures` has a figure for each reading, and `ends` has the number of iterations that had ended
    at each reading. If a reading has no figure (NaN), its iterations belong to the next reading.
    Iterations after the last reading get NaN. `parts_of` takes the number of a reading, its first
    iteration, and the iteration after its last one. Only readings that have a figure are numbered.
    """
    pairs = zip(figures, ends, strict=True)
    until = array("q", (int(end) for figure, end in pairs if figure == figure))

    def pieces_of(first: int, last: int) -> Iterator[Iterable[float]]:
        reading = bisect_right(until, first)
        while first < last and reading < len(until):
            end = min(until[reading], last)
            yield parts_of(reading, first, end)
            first, reading = end, reading + 1
        yield repeat(NAN, last - first)

    def compute(first: int, last: int) -> Iterable[float]:
        return chain.from_iterable(pieces_of(first, last))

    return Computed(compute, range(count)) if until and until[-1] else None
