"""Rows: executions added up by what they have in common, bodies of loops once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.rows import Key, rows_of
from lar.profiles.times import own_times, self_times_of
from lar.records.profile import Execution, Profile
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.tables import each_row


def profile_of_loop() -> Profile:
    """Two iterations of a loop of 10 us, with two executions of 4 us of its body in each."""
    made = profile_of_times({"loop": "Loop", "mm": "MatMul"}, [{"loop": 10}] * 2, step_us=12)
    executions: list[Execution] = []
    for each in made.executions:
        executions.append(each)
        executions += (
            Execution(1, each.step, each.thread, each.start_ns + at, each.start_ns + at + 4000)
            for at in (1000, 5500)
        )
    return replace(made, executions=tuple(executions))


def test_a_body_counts_once() -> None:
    body, loop = rows_of(profile_of_loop())
    assert (body.name, body.times.calls, body.times.total_ns) == ("mm", 4, 16_000)
    assert (loop.name, loop.times.total_ns, loop.total_ns) == ("loop", 4000, 20_000)
    assert (body.share, loop.share) == (0.8, 0.2)
    assert (body.iteration_ns, loop.iteration_ns) == (8000, 2000)


def test_of_no_time_nothing_has_a_share() -> None:
    (row,) = rows_of(profile_of_times({"a": "Conv"}, [{"a": 0}], step_us=1))
    assert row.share == 0.0


@pytest.mark.parametrize("by", ["operator", "type", "module", "shape", "kernel"])
def test_every_grouping_has_all_of_the_time(by: Key) -> None:
    profile = profile_of_layers(layers=3, iterations=4)
    rows = rows_of(profile, by)
    assert sum(row.times.total_ns for row in rows) == sum(self_times_of(profile))
    assert sum(row.times.calls for row in rows) == len(profile.timed_executions)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [row.iteration_ns for row in rows] == sorted(
        (row.iteration_ns for row in rows), reverse=True
    )
    for row in rows:
        assert sum(row.bounds.values()) == pytest.approx(1)


def test_a_shape_tells_operators_of_one_type_apart() -> None:
    made = profile_of_times({"a": "Conv", "b": "Conv"}, [{"a": 3, "b": 2}], step_us=9)
    profile = replace(made, operators=(made.operators[0], operator_of("b", "Conv", (1, 8, 8, 8))))
    assert [row.name for row in rows_of(profile, "shape")] == ["Conv {1,4,4,4}", "Conv {1,8,8,8}"]
    (only,) = rows_of(profile, "type")
    assert (only.name, only.operators) == ("Conv", (0, 1))


@each_row("profiles/rows/bounds")
def test_bounds_are_told_with_their_shares(count: int, bounds: dict[str, float], text: str) -> None:
    given: Any = {bound or None: share for bound, share in bounds.items()}
    row = replace(rows_of(profile_of_loop())[0], operators=tuple(range(count)), bounds=given)
    assert row.describe_bounds() == text


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(0, 50)).map(
            lambda it: (it[0], it[1], it[1] + it[2])
        )
    )
)
def test_own_times_add_up_to_no_more_than_what_passed(timed: list[tuple[int, int, int]]) -> None:
    own = own_times(timed)
    assert all(0 <= ns <= end - start for ns, (_, start, end) in zip(own, timed, strict=True))
    for thread in (0, 1):
        spans = [it for it in timed if it[0] == thread]
        apart = all(a[2] <= b[1] or b[2] <= a[1] for a in spans for b in spans if a is not b)
        if apart:
            assert sum(own_times(spans)) == sum(end - start for _, start, end in spans)
