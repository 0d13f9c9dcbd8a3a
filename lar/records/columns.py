"""Records of a profile as columns of integers: thousands of iterations have very many of them.

An execution takes 57 bytes here, a span 24, and either some 250 as a record: a record is made when
one is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import le
from threading import Lock
from typing import Any, Generic, TypeVar, overload

import msgspec

from lar.records.profile import CounterSample, Execution, Span, Step

R = TypeVar("R")

# What stands for None in columns of 32 and of 64 bits: no step, thread or time has the number.
NO_NUMBER = -(1 << 31)
NO_TIME = -(1 << 63)


class Records(Sequence[R], Generic[R]):
    """Records that are made when they are asked for: `_at` makes one."""

    __slots__ = ()

    @abstractmethod
    def _at(self, place: int) -> R: ...

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def __getitem__(self, place: int | slice) -> R | list[R]:
        if isinstance(place, slice):
            return [self._at(each) for each in range(*place.indices(len(self)))]
        return self._at(place)


class Columns(Records[R]):
    """Records of a few integers each, of which more can be added at the end: `make` makes one of
    its values, and `kinds` has the type of each column."""

    def __init__(self, make: Callable[..., R], kinds: str) -> None:
        self._make = make
        self._columns = [array(kind) for kind in kinds]
        self._lock = Lock()

    def _append(self, *values: int) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def _at(self, place: int) -> R:
        return self._make(*(column[place] for column in self._columns))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[R]:
        return map(self._make, *self._columns)

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

    def __init__(self, executions: Iterable[Execution] = ()) -> None:
        super().__init__(execution_of, "iiiqqqqqib")
        self.extend(executions)

    def append(self, each: Execution) -> None:
        """Add an execution."""
        self._append(*values_of(each))

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

    def iterate(self, first: int, last: int) -> Iterator[Execution]:
        """Yield those from one place up to another."""
        return map(execution_of, *(column[first:last] for column in self._columns))

    def sort_by_start(self) -> None:
        """Put them in the order in which they began."""
        _, _, _, starts, *_ = self._columns  # as in `values_of`
        if not all(map(le, starts, islice(starts, 1, None))):
            self._reorder(sorted(range(len(starts)), key=starts.__getitem__))


class ExecutionPart(Records[Execution]):
    """Some executions of columns, from one place up to another."""

    __slots__ = ("_places", "_whole")

    def __init__(self, whole: ExecutionColumns, first: int, last: int) -> None:
        self._whole, self._places = whole, range(first, last)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Execution]:
        return self._whole.iterate(self._places.start, self._places.stop)

    def _at(self, place: int) -> Execution:
        return self._whole[self._places[place]]


def values_of(each: Execution) -> tuple[int, ...]:
    """Return the values of columns that stand for an execution, in the order of its fields."""
    times = (each.wait_ns, each.dispatch_start_ns, each.dispatch_end_ns)
    return (
        *(each.operator, each.step, each.thread, each.start_ns, each.end_ns),
        *(NO_TIME if time is None else time for time in times),
        NO_NUMBER if each.dispatch_thread is None else each.dispatch_thread,
        each.warmup,
    )


def execution_of(*values: int) -> Execution:
    """Return the execution that values of columns stand for."""
    operator, step, thread, start, end, wait, begin, done, dispatch_thread, warmup = values
    return Execution(
        *(operator, step, thread, start, end),
        None if wait == NO_TIME else wait,
        None if begin == NO_TIME else begin,
        None if done == NO_TIME else done,
        None if dispatch_thread == NO_NUMBER else dispatch_thread,
        warmup != 0,
    )


def step_columns() -> RecordColumns[Step]:
    """Return columns of steps, without any yet."""
    return RecordColumns(step_of, "qqqbi")


def step_of(number: int, start_ns: int, end_ns: int, warmup: int, copy: int) -> Step:
    """Return the step that values of columns stand for."""
    return Step(number, start_ns, end_ns, warmup != 0, copy)


def counter_columns(name: str) -> RecordColumns[CounterSample]:
    """Return columns of the readings of a counter, times and whole numbers, without any yet."""
    return RecordColumns(partial(CounterSample, name), "qq")


class SpanColumns(Columns[Span]):
    """Spans, which several threads may add: those that differ in their times and steps alone have
    the rest in common."""

    def __init__(self) -> None:
        super().__init__(self._made, "iqqi")
        self._places: dict[tuple[object, ...], int] = {}
        self._common: list[Span] = []

    def add(self, start_ns: int, end_ns: int, step: int | None = None, **common: Any) -> None:
        """Add a span; `common` are its other fields."""
        key = (*common, *common.values())
        with self._lock:
            place = self._places.setdefault(key, len(self._common))
            if place == len(self._common):
                self._common.append(Span(start_ns=0, end_ns=0, **common))
            self._append(place, start_ns, end_ns, NO_NUMBER if step is None else step)

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
            step = NO_NUMBER if each.step is None else each.step
            self._append(place, each.start_ns, each.end_ns, step)

    def sort_by_time(self) -> None:
        """Put them in the order in which they began, and of those that began at once the longer
        first."""
        _, starts, ends, _ = self._columns
        # Twice, as pairs would take much more memory than the spans.
        places = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        places.sort(key=starts.__getitem__)
        self._reorder(places)

    def _made(self, place: int, start_ns: int, end_ns: int, step: int) -> Span:
        return msgspec.structs.replace(
            self._common[place],
            start_ns=start_ns,
            end_ns=end_ns,
            step=None if step == NO_NUMBER else step,
        )
