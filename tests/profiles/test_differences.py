"""Differences of means and their intervals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.differences import (
    binomial_half,
    difference_of,
    error_of_median,
    median_difference_of,
    student_quantile,
)


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


# Medians.


def test_a_difference_of_medians() -> None:
    change = median_difference_of([10, 11, 12, 13, 90], [6, 7, 8, 9, 9], 0.95)
    assert (change.baseline, change.experiment, change.delta) == (12, 8, -4)
    # The extremes of five, between which the median lies but for a chance of 1 in 16.
    assert error_of_median([10, 11, 12, 13, 90]) == pytest.approx(80 / (2 * 1.8627), rel=1e-4)
    assert change.error == pytest.approx(1.95996 * (80**2 + 3**2) ** 0.5 / (2 * 1.8627), rel=1e-4)
    assert change.exceeds_noise is False


def test_four_iterations_tell_nothing_of_a_medians_noise() -> None:
    change = median_difference_of([1, 2, 3, 4], [1, 2, 3, 4, 5], 0.95)
    assert (change.delta, change.error, change.exceeds_noise) == (0.5, None, None)


@pytest.mark.parametrize("count", [1, 5, 60, 3000])
def test_chances_sum_to_one(count: int) -> None:
    assert sum(binomial_half(count, k) for k in range(count + 1)) == pytest.approx(1)


@pytest.mark.parametrize("count", [5, 10, 40])
def test_the_interval_of_medians_holds_as_often_as_it_says(count: int) -> None:
    """Of skewed values with stragglers, as times are."""
    draw = random.Random(count)

    def times() -> list[float]:
        values = [draw.lognormvariate(0, 0.3) for _ in range(count)]
        return [value * 5 if draw.random() < 0.05 else value for value in values]

    within = sum(
        not median_difference_of(times(), times(), 0.95).exceeds_noise for _ in range(1000)
    )
    assert 930 <= within <= 995


@given(
    st.lists(st.floats(0, 1e9), min_size=5, max_size=30),
    st.lists(st.floats(0, 1e9), min_size=5, max_size=30),
)
def test_medians_the_other_way_round_differ_as_much(one: list[float], two: list[float]) -> None:
    there, back = median_difference_of(one, two, 0.95), median_difference_of(two, one, 0.95)
    assert (there.delta, there.error) == (-back.delta, back.error)
