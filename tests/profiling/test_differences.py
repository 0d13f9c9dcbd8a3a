"""Differences of means and their intervals."""

from __future__ import annotations

import random

import pytest

from lar.profiling.differences import difference_of, student_quantile


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [
        # From printed tables of Student's distribution.
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 4, 2.776),
        (0.95, 10, 2.228),
        (0.99, 5, 4.032),
        (0.999, 9, 4.781),
        (0.90, 30, 1.697),
        (0.50, 8, 0.706),
        (0.95, 1e6, 1.960),
    ],
)
def test_quantiles_are_those_of_the_tables(
    confidence: float, freedom: float, quantile: float
) -> None:
    # The series is at its worst with two degrees of freedom.
    tolerance = 2e-3 if freedom == 2 else 6e-4
    assert student_quantile(confidence, freedom) == pytest.approx(quantile, abs=tolerance)


def test_a_difference_and_its_percentage() -> None:
    change = difference_of([10, 12, 14], [6, 6, 6], 0.95)
    assert change is not None
    assert (change.baseline, change.experiment, change.delta) == (12, 6, -6)
    assert change.percent == pytest.approx(-50)
    # Welch: variances 4/3 and 0, two degrees of freedom.
    assert change.error == pytest.approx(4.303 * (4 / 3) ** 0.5, rel=1e-3)
    assert change.exceeds_noise is True


def test_from_nothing_there_is_no_percentage() -> None:
    change = difference_of([0, 0], [1, 3], 0.95)
    assert change is not None
    assert change.percent is None


@pytest.mark.parametrize(("one", "two"), [([1], [2, 3]), ([1, 2], [3])])
def test_one_iteration_tells_nothing_of_noise(one: list[float], two: list[float]) -> None:
    change = difference_of(one, two, 0.95)
    assert change is not None
    assert (change.error, change.exceeds_noise) == (None, None)


def test_without_scatter_any_difference_exceeds_it_but_none_does_not() -> None:
    same, other = difference_of([5, 5], [5, 5], 0.95), difference_of([5, 5], [6, 6], 0.95)
    assert same is not None
    assert other is not None
    assert (same.exceeds_noise, other.exceeds_noise) == (False, True)


def test_what_one_run_cannot_tell_has_no_difference() -> None:
    assert difference_of(None, [1, 2], 0.95) is None
    assert difference_of([1, 2], [], 0.95) is None


def test_of_equal_runs_one_in_twenty_differs() -> None:
    draw = random.Random(7)
    count = 2000
    found = 0
    for _ in range(count):
        change = difference_of(
            [draw.gauss(100, 5) for _ in range(6)], [draw.gauss(100, 9) for _ in range(9)], 0.95
        )
        assert change is not None
        found += bool(change.exceeds_noise)
    assert 0.03 < found / count < 0.07
