"""Records of a profile as columns of integers: thousands of iterations have very many of them.

An execution takes 57 bytes here, a span 24, and as a record either takes some 250: a record is made
when it is asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import le
from threading import Lock
from typing import Any, Generic, TypeVar, overload

import msgspec

from lar.records.profile import Execution, Span

R = TypeVar("R")

# What stands for None in columns of 32 and of 64 bits: no step, thread or time has the number.
NONES = {"I": -(1 << 31), "Q": -(1 << 63)}


def values_in(kind: str, column: Sequence[int]) -> Iterable[int | None]:
    """Return the values that a column of a type stands for."""
    if kind in NONES:
        return map({NONES[kind]: None}.get, column, column)
    return map(bool, column) if kind == "B" else column


class Columns(Sequence[R], Generic[R]):
    """Records of a few values each; more can be added at the end. `make` makes a record of its
    values when it is asked for.

    `kinds` has the type of each column: i and q for integers of 32 and 64 bits, I and Q if they may
    be None, B for true or false.
    """

    def __init__(self, make: Callable[..., R], kinds: str) -> None:
        self._make, self._kinds = make, kinds
        self._columns = [array(kind.lower()) for kind in kinds]
        self._lock = Lock()

    def _stored(self, values: Iterable[int | None]) -> Iterator[int]:
        """Yield what stands for the values of a record in its columns."""
        for kind, value in zip(self._kinds, values, strict=True):
            yield NONES[kind] if value is None else value

    def _append(self, *values: int | None) -> None:
        for column, value in zip(self._columns, self._stored(values), strict=True):
            column.append(value)

    def _records(self, columns: Sequence[Sequence[int]]) -> Iterator[R]:
        return map(self._make, *map(values_in, self._kinds, columns))

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def __getitem__(self, place: int | slice) -> R | list[R]:
        if isinstance(place, slice):
            return [*self._records([column[place] for column in self._columns])]
        return next(self._records([[column[place]] for column in self._columns]))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[R]:
        return self._records(self._columns)

    def _reorder(self, places: Sequence[int]) -> None:
        """Put the records into the order of their places, one column after the other."""
        for number, column in enumerate(self._columns):
            self._columns[number] = array(column.typecode, map(column.__getitem__, places))


class RecordColumns(Columns[R]):
    """Records that several threads may add."""

    def add(self, *values: int) -> None:
        """Add a record."""
        with self._lock:
            self._append(*values)


class ExecutionColumns(Columns[Execution]):
    """Executions, of which more can be added at the end."""

    def __init__(self) -> None:
        super().__init__(Execution, "iiiqqQQQIB")

    def append(self, each: Execution) -> None:
        """Add an execution."""
        self._append(*msgspec.structs.astuple(each))

    def extend(self, executions: Iterable[Execution]) -> None:
        """Add executions."""
        for each in executions:
            self.append(each)

    def rewrite(self, executions: Iterable[Execution]) -> None:
        """Replace the executions by others. Each of them may be made of one here that stands at its
        place or behind."""
        count = 0
        for count, each in enumerate(executions, start=1):
            stored = self._stored(msgspec.structs.astuple(each))
            for column, value in zip(self._columns, stored, strict=True):
                column[count - 1] = value
        for column in self._columns:
            del column[count:]

    def sort_by_start(self) -> None:
        """Put them in the order in which they began."""
        starts = self._columns[Execution.__struct_fields__.index("start_ns")]
        if not all(map(le, starts, islice(starts, 1, None))):
            self._reorder(sorted(range(len(starts)), key=starts.__getitem__))


class SpanColumns(Columns[Span]):
    """Spans, which several threads may add. Spans that differ only in their times and steps share
    the rest."""

    def __init__(self) -> None:
        super().__init__(self._made, "iqqI")
        self._places: dict[tuple[object, ...], int] = {}
        self._common: list[Span] = []

    def add(self, start_ns: int, end_ns: int, step: int | None = None, **common: Any) -> None:
        """Add a span; `common` are its other fields."""
        key = (*common, *common.values())
        with self._lock:
            place = self._places.setdefault(key, len(self._common))
            if place == len(self._common):
                self._common.append(Span(start_ns=0, end_ns=0, **common))
            self._append(place, start_ns, end_ns, step)

    def add_all(self, spans: Sequence[Span]) -> None:
        """Add other spans."""
        first = len(self._common)
        if isinstance(spans, SpanColumns):
            self._common += spans._common
            for place, *rest in zip(*spans._columns, strict=True):
                self._append(first + place, *rest)
            return
        self._common += spans
        for place, each in enumerate(spans, first):
            self._append(place, each.start_ns, each.end_ns, each.step)

    def sort_by_time(self) -> None:
        """Put them in the order in which they began, the longer first if two began at once."""
        _, starts, ends, _ = self._columns
        # Twice, as pairs would take much more memory than the spans.
        places = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        places.sort(key=starts.__getitem__)
        self._reorder(places)

    def _made(self, place: int, start_ns: int, end_ns: int, step: int | None) -> Span:
        return msgspec.structs.replace(
            self._common[place], start_ns=start_ns, end_ns=end_ns, step=step
        )
