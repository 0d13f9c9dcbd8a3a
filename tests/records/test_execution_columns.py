"""Executions as columns are the executions that they were made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lar.records.execution_columns import ExecutionColumns
from lar.records.profile import Execution

times = st.integers(-(1 << 62), 1 << 62)
numbers = st.integers(0, 1 << 20)
executions = st.builds(
    Execution,
    numbers,
    numbers,
    numbers,
    times,
    times,
    st.none() | times,
    st.none() | times,
    st.none() | times,
    st.none() | numbers,
    st.booleans(),
)


@given(st.lists(executions, max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_they_are_read_as_they_were_added(own: list[Execution], first: int, last: int) -> None:
    columns = ExecutionColumns(own)
    assert [*columns] == own
    assert [columns[at] for at in range(len(columns))] == own
    assert columns[first:last] == own[first:last]
    first, last = sorted((min(first, len(own)), min(last, len(own))))
    part = columns.part(first, last)
    assert [*part] == own[first:last]
    assert [part[at] for at in range(len(part))] == own[first:last]


@given(st.lists(executions, max_size=8))
def test_they_are_sorted_as_a_list_is(own: list[Execution]) -> None:
    columns = ExecutionColumns(own)
    columns.sort_by_start()
    assert [*columns] == sorted(own, key=lambda each: each.start_ns)
