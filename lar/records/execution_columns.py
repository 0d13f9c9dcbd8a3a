"""Executions as columns of integers: a run of thousands of iterations has hundreds of thousands.

One takes 57 bytes here, and 250 as a record: a record is made when one is asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import le
from typing import overload

from lar.records.profile import Execution

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

# What stands for None: no clock shows it, and no thread has the number.
NO_TIME = -(1 << 63)
NO_THREAD = -(1 << 31)


class ExecutionColumns(Sequence[Execution]):
    """Executions, of which more can be added at the end."""

    def __init__(self, executions: Iterable[Execution] = ()) -> None:
        self._columns = [array(kind) for kind in COLUMN_TYPES.values()]
        self.extend(executions)

    def append(self, each: Execution) -> None:
        """Add an execution."""
        wait, begin, done = each.wait_ns, each.dispatch_start_ns, each.dispatch_end_ns
        values = (
            each.operator,
            each.step,
            each.thread,
            each.start_ns,
            each.end_ns,
            NO_TIME if wait is None else wait,
            NO_TIME if begin is None else begin,
            NO_TIME if done is None else done,
            NO_THREAD if each.dispatch_thread is None else each.dispatch_thread,
            each.warmup,
        )
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def extend(self, executions: Iterable[Execution]) -> None:
        """Add executions."""
        for each in executions:
            self.append(each)

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
        None if dispatch_thread == NO_THREAD else dispatch_thread,
        warmup != 0,
    )
