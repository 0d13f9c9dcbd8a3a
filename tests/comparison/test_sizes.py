"""The size of a tensor, which fills must not set, and nothing else may be taken for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.metrics import Size, size_of
from lar.dumps import Stored
from lar.graphs.signatures import elements_of
from tests.tables import each_row

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.standard_normal(1000).astype(np.float32)


def size(array: Array) -> Size:
    with np.errstate(all="ignore"):
        return size_of(elements_of(Stored(array)))


def root_mean_square(array: Array) -> float:
    return float(np.sqrt(np.square(np.abs(array).astype(np.longdouble)).mean()))


USUAL = {
    "normal": NORMAL,
    "relu": np.maximum(NORMAL, 0),
    "large relu": np.maximum(NORMAL, 0) * np.float32(1e5),
    "large channels": NORMAL * np.where(np.arange(1000) % 100, 1, 3000).astype(np.float32),
    "exponentials": np.exp(5 * np.abs(NORMAL)),
    "powers": np.square(np.square(30 * NORMAL)),
    "probabilities": np.array([1 - 1e-7, 1e-9, 3e-12], np.float32),
    "coordinates": np.array([1900, 2, 0.5, 3], np.float32),
    "all large": np.full(7, 1e9, np.float32),
    "all larger": np.full(7, 1e200),
    "all smaller": np.full(7, 1e-200),
    "all small": np.full(7, 1e-30, np.float32),
    "float16": np.full(7, 65504, np.float16),
    "integers": np.array([3, -7, 1 << 12]),
    "complex": np.array([3 + 4j, 0]),
}


@pytest.mark.parametrize("name", USUAL)
def test_the_size_is_the_root_mean_square(name: str) -> None:
    array = USUAL[name]
    found = size(array)
    assert found.scale == pytest.approx(root_mean_square(array), rel=1e-5)
    assert found.fill == math.inf


@pytest.mark.parametrize("fill", [-1e4, -65504, 1e9, -1e9, 3e38])
@pytest.mark.parametrize("count", [1, 300, 999])
def test_fills_are_left_out(fill: float, count: int) -> None:
    array = NORMAL.copy()
    array[-count:] += np.float32(fill)
    found = size(array)
    assert found.scale == pytest.approx(root_mean_square(NORMAL[:-count]), rel=1e-5)
    assert 5 < found.fill <= abs(array[-1])


@each_row("comparison/cases/fills")
def test_a_fill_is_large_and_far_above_all_others(
    rest: float, large: float, fill: float, why: str
) -> None:
    assert size(np.array([rest, rest, -large], np.float32)).fill == fill, why


def test_a_mask_itself_has_the_size_of_the_rest() -> None:
    assert size(np.array([0, -1e9, 0], np.float32)).scale == 0
    assert size(np.array([1, -1e9, -np.inf, np.nan], np.float32)).scale == 1
    assert size(np.array([-np.inf, np.nan])) == Size(0)
