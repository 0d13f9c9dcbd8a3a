"""Executions and spans as columns of integers: thousands of iterations have very many of them.

An execution takes 57 bytes here, a span 24, and either some 250 as a record: a record is made when
one is asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import le
from threading import Lock
from typing import Any, overload

import msgspec

from lar.records.profile import Execution, Span

# The fields of an execution in their order, and the type of each column: times are 64 bits.
COLUMN_TYPES = {
    "operator": "i",
    "step": "i",
    "thread": "i",
    "start_ns": "q",
    "end_ns": "q",
    "wait_ns": "q",
    "dispatch_start_ns": "q",
    "dispatch_end_ns": "q",
    "dispatch_thread": "i",
    "warmup": "b",
}
assert tuple(COLUMN_TYPES) == Execution.__struct_fields__

# What stands for None: no clock shows it, and no thread or step has the number.
NO_TIME = -(1 << 63)
NO_NUMBER = -(1 << 31)


class ExecutionColumns(Sequence[Execution]):
    """Executions, of which more can be added at the end."""

    def __init__(self, executions: Iterable[Execution] = ()) -> None:
        self._columns = [array(kind) for kind in COLUMN_TYPES.values()]
        self.extend(executions)

    def append(self, each: Execution) -> None:
        """Add an execution."""
        for column, value in zip(self._columns, values_of(each), strict=True):
            column.append(value)

    def extend(self, executions: Iterable[Execution]) -> None:
        """Add executions."""
        for each in executions:
            self.append(each)

    def rewrite(self, executions: Iterable[Execution]) -> None:
        """Put other executions in the place of these. They may be made of these, each of one that
        stands no earlier."""
        count = 0
        for count, each in enumerate(executions, start=1):
            for column, value in zip(self._columns, values_of(each), strict=True):
                column[count - 1] = value
        for column in self._columns:
            del column[count:]

    def part(self, first: int, last: int) -> ExecutionPart:
        """Return those from one place up to another, which is not included."""
        return ExecutionPart(self, first, last)

    def sort_by_start(self) -> None:
        """Put them in the order in which they began."""
        starts = self._columns[tuple(COLUMN_TYPES).index("start_ns")]
        if all(map(le, starts, islice(starts, 1, None))):
            return
        places = sorted(range(len(starts)), key=starts.__getitem__)
        self._columns = [
            array(column.typecode, map(column.__getitem__, places)) for column in self._columns
        ]

    def iterate(self, first: int, last: int) -> Iterator[Execution]:
        """Yield those from one place up to another."""
        return map(made_of, *(column[first:last] for column in self._columns))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Execution]:
        return map(made_of, *self._columns)

    @overload
    def __getitem__(self, place: int) -> Execution: ...
    @overload
    def __getitem__(self, place: slice) -> list[Execution]: ...
    def __getitem__(self, place: int | slice) -> Execution | list[Execution]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return made_of(*(column[place] for column in self._columns))


class ExecutionPart(Sequence[Execution]):
    """Some executions of columns, from one place up to another."""

    __slots__ = ("_places", "_whole")

    def __init__(self, whole: ExecutionColumns, first: int, last: int) -> None:
        self._whole, self._places = whole, range(first, last)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Execution]:
        return self._whole.iterate(self._places.start, self._places.stop)

    @overload
    def __getitem__(self, place: int) -> Execution: ...
    @overload
    def __getitem__(self, place: slice) -> list[Execution]: ...
    def __getitem__(self, place: int | slice) -> Execution | list[Execution]:
        if isinstance(place, slice):
            return [self._whole[each] for each in self._places[place]]
        return self._whole[self._places[place]]


def values_of(each: Execution) -> tuple[int, ...]:
    """Return the values of columns that stand for an execution."""
    wait, begin, done = each.wait_ns, each.dispatch_start_ns, each.dispatch_end_ns
    return (
        each.operator,
        each.step,
        each.thread,
        each.start_ns,
        each.end_ns,
        NO_TIME if wait is None else wait,
        NO_TIME if begin is None else begin,
        NO_TIME if done is None else done,
        NO_NUMBER if each.dispatch_thread is None else each.dispatch_thread,
        each.warmup,
    )


def made_of(
    operator: int,
    step: int,
    thread: int,
    start_ns: int,
    end_ns: int,
    wait_ns: int,
    dispatch_start_ns: int,
    dispatch_end_ns: int,
    dispatch_thread: int,
    warmup: int,
) -> Execution:
    """Return the execution that values of columns stand for."""
    return Execution(
        operator,
        step,
        thread,
        start_ns,
        end_ns,
        None if wait_ns == NO_TIME else wait_ns,
        None if dispatch_start_ns == NO_TIME else dispatch_start_ns,
        None if dispatch_end_ns == NO_TIME else dispatch_end_ns,
        None if dispatch_thread == NO_NUMBER else dispatch_thread,
        warmup != 0,
    )


class SpanColumns(Sequence[Span]):
    """Spans, of which more can be added at the end, by several threads too: those that differ in
    their times and steps alone have the rest in common."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}
        self._common: list[Span] = []
        self._columns = [array("i"), array("q"), array("q"), array("i")]
        self._lock = Lock()

    def add(self, start_ns: int, end_ns: int, step: int | None = None, **common: Any) -> None:
        """Add a span; `common` are its other fields."""
        key = (*common, *common.values())
        with self._lock:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = len(self._common)
                self._common.append(Span(start_ns=0, end_ns=0, **common))
            self._append(place, start_ns, end_ns, NO_NUMBER if step is None else step)

    def add_all(self, spans: Sequence[Span]) -> None:
        """Add other spans."""
        if isinstance(spans, SpanColumns):
            first = len(self._common)
            self._common += spans._common
            for place, *rest in zip(*spans._columns, strict=True):
                self._append(first + place, *rest)
            return
        for each in spans:
            place = len(self._common)
            self._common.append(each)
            self._append(
                place, each.start_ns, each.end_ns, NO_NUMBER if each.step is None else each.step
            )

    def sort_by_time(self) -> None:
        """Put them in the order in which they began, and of those that began at once the longer
        first."""
        _, starts, ends, _ = self._columns
        places = sorted(range(len(starts)), key=lambda place: (starts[place], -ends[place]))
        self._columns = [
            array(column.typecode, map(column.__getitem__, places)) for column in self._columns
        ]

    def _append(self, *values: int) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Span]:
        return map(self._made, *self._columns)

    @overload
    def __getitem__(self, place: int) -> Span: ...
    @overload
    def __getitem__(self, place: slice) -> list[Span]: ...
    def __getitem__(self, place: int | slice) -> Span | list[Span]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return self._made(*(column[place] for column in self._columns))

    def _made(self, place: int, start_ns: int, end_ns: int, step: int) -> Span:
        return msgspec.structs.replace(
            self._common[place],
            start_ns=start_ns,
            end_ns=end_ns,
            step=None if step == NO_NUMBER else step,
        )
