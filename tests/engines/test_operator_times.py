"""The profile of an engine that gives durations alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from lar.engines.operator_times import OperatorTimes, executions_in
from lar.records.profile import ProfiledOperator, Step, Times

OPERATORS = [ProfiledOperator(id=name, type="Conv", name=name) for name in ("a", "b")]


def taken(times: Times, *durations: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The executions of two iterations, the second of which begins at 100."""
    left = list(durations)
    profiler = OperatorTimes(OPERATORS, lambda: left.pop(0), times)
    for number in (0, 1):
        at = 100 * number
        profiler.take(Step(number, at, at + 60), at + 10, at + 20, at + 60)
    found = profiler.finish()
    assert (found.operators, found.times) == (tuple(OPERATORS), times)
    return [(it.operator, it.step, it.start_ns, it.end_ns) for it in found.executions]


def test_operators_stand_one_behind_the_other_from_the_dispatch_on() -> None:
    assert taken("each", (20, 5), (1, 30)) == [
        (0, 0, 10, 30),
        (1, 0, 30, 35),
        (0, 1, 110, 111),
        (1, 1, 111, 141),
    ]


def test_means_are_read_once_when_the_last_iteration_has_ended() -> None:
    assert taken("mean", (20, 5)) == [
        (0, 0, 10, 30),
        (1, 0, 30, 35),
        (0, 1, 110, 130),
        (1, 1, 130, 135),
    ]


@pytest.mark.parametrize("durations", [(60, 40), (1, 99), (0, 51), (50, 50, 50)])
def test_what_is_longer_than_its_iteration_is_fitted_into_it(durations: tuple[int, ...]) -> None:
    found = [*executions_in(Step(0, 0, 60), 10, durations)]
    assert (found[0].start_ns, found[-1].end_ns) == (10, 60)
    for one, next_one in itertools.pairwise(found):
        assert one.start_ns <= one.end_ns == next_one.start_ns
