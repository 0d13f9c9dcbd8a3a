"""What is wrong with a tensor, where its elements show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.causes import Sides, find_kind
from tests.tables import each_row

Array = npt.NDArray[Any]
EXPECTED = np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)


def put(array: Array, places: Any, value: float) -> Array:
    array = array.copy()
    array[places] = value
    return array


@each_row("comparison/cases/kinds")
@pytest.mark.parametrize("rounding", [0.0, 0.01])
def test_the_kind_is_named(
    one: str, other: str, step: float, axis: int | None, noisy: bool, kind: str, rounding: float
) -> None:
    """Of two sides that are made of an array; a noisy row has the same kind after rounding."""
    names = {**vars(np), "x": EXPECTED, "flat": EXPECTED.reshape(-1), "put": put}
    noise = np.random.default_rng(2).standard_normal(EXPECTED.shape) * rounding
    actual, expected = (np.asarray(eval(each, names)) for each in (one, other))
    if not rounding:
        assert find_kind(Sides(actual, expected, step, axis)) == kind
    elif noisy:  # numbers may be rounded otherwise
        found = find_kind(Sides(actual, expected + noise, step, axis))
        assert found.partition(":")[0] == kind.partition(":")[0]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7,), (2, 5)])
def test_any_shape_will_do(shape: tuple[int, ...]) -> None:
    find_kind(Sides(np.ones(shape), np.zeros(shape)))
    find_kind(Sides(np.full(shape, 2), np.full(shape, 3)))
