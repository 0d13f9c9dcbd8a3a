"""Distances in ULPs, against numbers that are counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lar.comparison.metrics import Bounds, measure

Array = npt.NDArray[Any]

EXACT = Bounds(0.0, 0.0)
FLOATS = ("float16", "float32", "float64")


def count_between(one: float, other: float, dtype: npt.DTypeLike) -> int:
    """The numbers between two, counted one by one."""
    low, high = sorted((np.array(one, dtype), np.array(other, dtype)))
    count = 0
    while low < high:
        low = np.nextafter(low, np.array(np.inf, dtype))
        count += 1
    return count


@given(
    st.sampled_from(FLOATS),
    st.floats(-100, 100, width=16),
    st.integers(-200, 200),
)
def test_ulps_are_the_numbers_in_between(dtype: str, start: float, steps: int) -> None:
    one = np.array(start, dtype)
    other = one
    for _ in range(abs(steps)):
        other = np.nextafter(other, np.array(math.copysign(np.inf, steps), dtype))
    figures = measure(np.array([one, 0], dtype), np.array([other, 0], dtype), EXACT)
    assert figures.max_ulp == abs(steps) == count_between(float(one), float(other), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulps_across_zero_and_the_whole_range(dtype: str) -> None:
    limits = np.finfo(dtype)
    tiny = limits.smallest_subnormal
    assert measure(np.array([-tiny]), np.array([tiny]), EXACT).max_ulp == 2
    assert measure(np.array([-0.0], dtype), np.array([0.0], dtype), EXACT).max_ulp == 0
    low, high = np.array([limits.min], dtype), np.array([limits.max], dtype)
    largest = int(high.view(f"u{high.itemsize}")[0])
    figures = measure(low, high, EXACT)
    assert figures.max_ulp == 2 * largest
    assert figures.max_absolute is None or figures.max_absolute > 1e4  # it may overflow


def test_the_greatest_ulps_are_found_among_many() -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal(200_000).astype(np.float32)
    actual = expected * (1 + 1e-6 * random.standard_normal(200_000)).astype(np.float32)
    for place, value in ((5, 1e-30), (150_000, -2.0)):
        actual[place] = value
    integers = [np.where(it < 0, -(2**31) - it, it) for it in (_bits(actual), _bits(expected))]
    assert measure(actual, expected, EXACT).max_ulp == int(np.abs(integers[0] - integers[1]).max())


def _bits(array: Array) -> Array:
    return array.view(np.int32).astype(np.int64)


def rank(number: Any) -> int:
    """The place of a number among all of its type."""
    bits = int(number.view(f"u{number.itemsize}"))
    half = 1 << (8 * number.itemsize - 1)
    return half - bits if bits >= half else bits


@st.composite
def near_pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    """Two arrays with numbers of any size, subnormal ones too, and others near them."""
    dtype = draw(st.sampled_from(FLOATS))
    least = float(np.finfo(dtype).smallest_subnormal)
    ordinary = hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    tiny = st.integers(-50, 50).map(lambda number: number * least)
    one = draw(hnp.arrays(dtype, 40, elements=ordinary | tiny))
    relative = draw(hnp.arrays(np.float64, 40, elements=st.floats(-1e-2, 1e-2)))
    with np.errstate(all="ignore"):
        other = (one * (1 + relative)).astype(dtype)
        jumps = draw(hnp.arrays(dtype, 40, elements=tiny))
        other = np.where(draw(hnp.arrays(bool, 40)), other, one + jumps)
    return one, np.where(np.isfinite(other), other, one)


@given(near_pairs())
def test_the_greatest_distance_is_that_of_brute_force(pair: tuple[Array, Array]) -> None:
    most = max(abs(rank(one) - rank(other)) for one, other in zip(*pair, strict=True))
    assert measure(*pair, EXACT).max_ulp == most


def test_a_small_distance_of_subnormals_hides_no_greater_one() -> None:
    expected = np.linspace(1, 2, 1000, dtype=np.float32)
    actual = expected.copy()
    actual[500] *= 1 + 1e-3
    expected[0], actual[0] = 1e-45, 3e-45
    figures = measure(actual, expected, EXACT)
    assert figures.max_ulp == abs(rank(actual[500]) - rank(expected[500])) > 12_000


def test_complex_numbers_are_counted_by_their_parts() -> None:
    one = np.array([1 + 2j, np.nan + 1j], np.complex64)
    other = np.array([1 + np.nextafter(np.float32(2), np.float32(3)) * 1j, 0], np.complex64)
    assert measure(one, other, EXACT).max_ulp == 1
