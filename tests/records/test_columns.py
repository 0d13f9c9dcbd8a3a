"""Columns are the executions and spans that they were made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lar.records.profile import Execution, ExecutionColumns, Span, SpanColumns

# Of one run: no two times are further apart than 64 bits count. Most are near to each other, and
# some at the limits of shorter integers.
LIMITS = sorted(
    {
        0,
        *(
            sign * (1 << bits) + by
            for bits in (7, 15, 31, 61)
            for sign in (1, -1)
            for by in (-1, 0, 1)
        ),
    }
)
times = st.integers(-(1 << 61), 1 << 61) | st.sampled_from(LIMITS)
numbers = st.integers(0, 1 << 20) | st.sampled_from([it for it in LIMITS if 0 <= it < 1 << 20])
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


def columns_of(own: list[Execution]) -> ExecutionColumns:
    columns = ExecutionColumns()
    columns.extend(own)
    return columns


@given(st.lists(executions, max_size=5), st.integers(0, 5), st.integers(0, 5))
def test_they_are_read_as_they_were_added(own: list[Execution], first: int, last: int) -> None:
    columns = columns_of(own)
    assert [*columns] == own
    assert [columns[at] for at in range(len(columns))] == own
    assert columns[first:last] == own[first:last]


@given(st.lists(executions, max_size=5), st.integers(0, 5))
def test_they_are_rewritten_in_their_place(own: list[Execution], count: int) -> None:
    columns = columns_of(own)
    columns.rewrite(each for each in [*columns][count:])
    assert [*columns] == own[count:]
    columns.rewrite(each for each in columns[:])
    assert [*columns] == own[count:]


@given(st.lists(executions, max_size=5))
def test_they_are_sorted_as_a_list_is(own: list[Execution]) -> None:
    columns = columns_of(own)
    columns.sort_by_start()
    assert [*columns] == sorted(own, key=lambda each: each.start_ns)


spans = st.builds(
    Span,
    category=st.sampled_from(["phase", "runtime"]),
    name=st.sampled_from(["load", "forward"]),
    start_ns=times,
    end_ns=times,
    step=st.none() | numbers,
    size_bytes=st.none() | numbers,
)


@given(st.lists(spans, max_size=5), st.lists(spans, max_size=3))
def test_spans_are_read_as_they_were_added(own: list[Span], more: list[Span]) -> None:
    columns, others = SpanColumns(), SpanColumns()
    for each in own:
        fields = {"category": each.category, "name": each.name, "size_bytes": each.size_bytes}
        columns.add(each.start_ns, each.end_ns, each.step, **fields)
    others.add_all(more)
    columns.add_all(others)
    assert [*columns] == [*own, *more]
    assert [columns[at] for at in range(len(columns))] == [*own, *more]
    assert columns[1:3] == [*own, *more][1:3]
    columns.sort_by_time()
    assert [*columns] == sorted([*own, *more], key=lambda each: (each.start_ns, -each.end_ns))
