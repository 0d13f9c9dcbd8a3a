"""Records of a profile as columns of integers: thousands of iterations have very many of them.

An execution takes some 35 bytes here, a span 24, and either some 250 as a record: a record is made
when one is asked for.
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

# The types of integers, the shorter ones first: a column has the next one when a value needs it.
WIDTHS = "bhiq"

# The columns of executions and the type that each begins with. A duration and the offsets of a
# dispatch are counted from the start: 32 bits are enough for 2 seconds.
COLUMN_TYPES = {
    "operator": "h",
    "step": "h",
    "thread": "b",
    "start_ns": "q",
    "duration_ns": "i",
    "wait_ns": "i",
    "dispatch_start_offset_ns": "i",
    "dispatch_end_offset_ns": "i",
    "dispatch_thread": "b",
    "warmup": "b",
}

# What stands for None in a span: no step has the number.
NO_NUMBER = -(1 << 31)


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
    """Records as columns of integers; `_maker` returns what makes a record of their values."""

    _columns: list[array[int]]

    @abstractmethod
    def _maker(self) -> Callable[..., R]: ...

    def _append(self, *values: int) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def _at(self, place: int) -> R:
        return self._maker()(*(column[place] for column in self._columns))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[R]:
        return map(self._maker(), *self._columns)


class ExecutionColumns(Columns[Execution]):
    """Executions, of which more can be added at the end."""

    def __init__(self, executions: Iterable[Execution] = ()) -> None:
        self._columns = [array(kind) for kind in COLUMN_TYPES.values()]
        # What each column's values are nearer to 0 than; its negative stands for None.
        self._limits = [limit_of(column) for column in self._columns]
        self.extend(executions)

    def append(self, each: Execution) -> None:
        """Add an execution."""
        for number, value in enumerate(self._values_of(each)):
            self._columns[number].append(value)

    def extend(self, executions: Iterable[Execution]) -> None:
        """Add executions."""
        for each in executions:
            self.append(each)

    def rewrite(self, executions: Iterable[Execution]) -> None:
        """Put other executions in the place of these. They may be made of these, each of one that
        stands no earlier."""
        count = 0
        for count, each in enumerate(executions, start=1):
            for number, value in enumerate(self._values_of(each)):
                self._columns[number][count - 1] = value
        for column in self._columns:
            del column[count:]

    def part(self, first: int, last: int) -> ExecutionPart:
        """Return those from one place up to another, which is not included."""
        return ExecutionPart(self, first, last)

    def sort_by_start(self) -> None:
        """Put them in the order in which they began."""
        starts = self._columns[tuple(COLUMN_TYPES).index("start_ns")]
        if not all(map(le, starts, islice(starts, 1, None))):
            reorder(self._columns, sorted(range(len(starts)), key=starts.__getitem__))

    def iterate(self, first: int, last: int) -> Iterator[Execution]:
        """Yield those from one place up to another."""
        parts = [column[first:last] for column in self._columns]
        return map(self._maker(), *parts)

    def _values_of(self, each: Execution) -> Iterator[int]:
        """Yield the values that stand for an execution, each when its column has room for it."""
        for number, (value, limit) in enumerate(zip(values_of(each), self._limits, strict=True)):
            if value is not None and not -limit < value < limit:
                self._widen(number, value)
            yield -self._limits[number] if value is None else value

    def _widen(self, number: int, value: int) -> None:
        """Make a column's integers longer, so that a value is one of them."""
        column, limit = self._columns[number], self._limits[number]
        wider = array(WIDTHS[WIDTHS.index(column.typecode) + 1])
        wide = limit_of(wider)
        wider.extend(-wide if old == -limit else old for old in column)
        self._columns[number], self._limits[number] = wider, wide
        if not -wide < value < wide:
            self._widen(number, value)

    def _maker(self) -> Callable[..., Execution]:
        return Maker(self._limits).make


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


class RecordColumns(Columns[R]):
    """Records of a few integers each, of which more can be added at the end, by several threads
    too: `make` makes one of its values, and `kinds` has the type of each column."""

    def __init__(self, make: Callable[..., R], kinds: str) -> None:
        self._make = make
        self._columns = [array(kind) for kind in kinds]
        self._lock = Lock()

    def add(self, *values: int) -> None:
        """Add a record."""
        with self._lock:
            self._append(*values)

    def _maker(self) -> Callable[..., R]:
        return self._make


def step_columns() -> RecordColumns[Step]:
    """Return columns of steps, without any yet."""
    return RecordColumns(step_of, "qqqbi")


def step_of(number: int, start_ns: int, end_ns: int, warmup: int, copy: int) -> Step:
    """Return the step that values of columns stand for."""
    return Step(number, start_ns, end_ns, warmup != 0, copy)


def counter_columns(name: str) -> RecordColumns[CounterSample]:
    """Return columns of the readings of a counter, times and whole numbers, without any yet."""
    return RecordColumns(partial(CounterSample, name), "qq")


def limit_of(column: array[int]) -> int:
    """Return the power of 2 that a column's values are nearer to 0 than."""
    return 1 << (8 * column.itemsize - 1)


def reorder(columns: list[array[int]], places: Sequence[int]) -> None:
    """Put the values of columns into the order of their places, one column after the other."""
    for number, column in enumerate(columns):
        columns[number] = array(column.typecode, map(column.__getitem__, places))


def values_of(each: Execution) -> tuple[int | None, ...]:
    """Return the values of columns that stand for an execution."""
    start, begin, done = each.start_ns, each.dispatch_start_ns, each.dispatch_end_ns
    return (
        each.operator,
        each.step,
        each.thread,
        start,
        each.end_ns - start,
        each.wait_ns,
        None if begin is None else begin - start,
        None if done is None else done - start,
        each.dispatch_thread,
        each.warmup,
    )


class Maker:
    """Makes executions of the values of columns, which have these limits."""

    __slots__ = ("no_begin", "no_done", "no_thread", "no_wait")

    def __init__(self, limits: Sequence[int]) -> None:
        self.no_wait, self.no_begin, self.no_done, self.no_thread = (-it for it in limits[5:9])

    def make(
        self,
        operator: int,
        step: int,
        thread: int,
        start_ns: int,
        duration_ns: int,
        wait_ns: int,
        begin_ns: int,
        done_ns: int,
        dispatch_thread: int,
        warmup: int,
    ) -> Execution:
        """Return the execution that values of columns stand for."""
        return Execution(
            operator,
            step,
            thread,
            start_ns,
            start_ns + duration_ns,
            None if wait_ns == self.no_wait else wait_ns,
            None if begin_ns == self.no_begin else start_ns + begin_ns,
            None if done_ns == self.no_done else start_ns + done_ns,
            None if dispatch_thread == self.no_thread else dispatch_thread,
            warmup != 0,
        )


class SpanColumns(Columns[Span]):
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
        # Twice, as pairs would take much more memory than the spans.
        places = sorted(range(len(starts)), key=ends.__getitem__, reverse=True)
        places.sort(key=starts.__getitem__)
        reorder(self._columns, places)

    def _maker(self) -> Callable[..., Span]:
        return self._made

    def _made(self, place: int, start_ns: int, end_ns: int, step: int) -> Span:
        return msgspec.structs.replace(
            self._common[place],
            start_ns=start_ns,
            end_ns=end_ns,
            step=None if step == NO_NUMBER else step,
        )
