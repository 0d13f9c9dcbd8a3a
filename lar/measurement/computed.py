"""Columns of samples that are computed when they are read, of the few readings of the noise."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import overload

NAN = float("nan")


class Computed:
    """Doubles that take no memory until they are read; used as a memoryview is, whose slices are no
    copies either. `compute` returns those from one place up to, not including, another."""

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
        """Return all of them."""
        if not self._places:
            return []
        first, last = sorted((self._places[0], self._places[-1]))
        return [*self._compute(first, last + 1)][:: self._places.step]

    def tobytes(self) -> bytes:
        """Return all of them in this machine's order of bytes."""
        return array("d", self.tolist()).tobytes()


def share_out(
    figures: Sequence[float],
    ends: Sequence[float],
    end_to_end: memoryview[float],
    active: Sequence[float] = (),
) -> Computed | None:
    """Share the seconds of each reading between its iterations, by the time that they took.

    No iteration gets more waiting than it took. CPU time has `active`: how long the threads did not
    wait for a CPU, 0 if only the iterations say so. Between short iterations lar itself computes
    for a notable part of it, which is left out. Since several threads share CPU time, an iteration
    gets at most all of it.
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
    """Give the figure of each reading to all iterations since the one before."""
    known = array("d", (figure for figure in figures if figure == figure))
    return give(figures, ends, count, lambda it, first, last: repeat(known[it], last - first))


def give(
    figures: Sequence[float],
    ends: Sequence[float],
    count: int,
    parts_of: Callable[[int, int, int], Iterable[float]],
) -> Computed | None:
    """Return each iteration's part of the readings' figures, NaN for none; None without any.

    `ends` has how many iterations had ended at each reading. A reading without a figure (NaN)
    leaves its iterations to the next one; those after the last reading have none. `parts_of` takes
    the number of a reading among those with a figure, and some of its iterations.
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
