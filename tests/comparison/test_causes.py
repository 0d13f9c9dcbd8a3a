"""What is wrong with a tensor, where its elements show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.comparison.causes import Sides, find_kind
from lar.dumps import Dump
from lar.records.run import Quantization
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.comparison.test_quantization import quantise
from tests.tables import each_row

Array = npt.NDArray[Any]
EXPECTED = np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)
FACTORS = np.linspace(0.5, 2, 8, dtype=np.float32).reshape(1, 8, 1, 1)


def shuffle(array: Array) -> Array:
    return np.random.default_rng(1).permutation(array.reshape(-1)).reshape(array.shape)


def replaced(places: tuple[Any, ...], value: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array = array.copy()
        array[places] = value
        return array

    return change


def at_the_border(array: Array) -> Array:
    array = array.copy()
    array[..., 0] += 1
    return array


CASES: list[tuple[str, Callable[[Array], Array]]] = [
    ("scale: A is 1.5 times B", lambda array: array * 1.5),
    ("scale: A is -1 times B", lambda array: -array),
    ("zero point: A is B plus 0.3, 3 steps", lambda array: array + 0.3),
    ("zero point: A is B minus 0.25", lambda array: np.clip(array - 0.25, -1.5, 1.5)),
    ("saturation: 364 elements of A end at -1 and 1", lambda array: np.clip(array, -1, 1)),
    ("activation: 601 elements of A end at 0", lambda array: np.maximum(array, 0)),
    ("scales of channels: A is 0.5 to 2 times B along axis 1", lambda array: array * FACTORS),
    ("one wrong channel: number 3 of axis 1", replaced((0, 3), 0.0)),
    ("padding: A and B differ only at the border", at_the_border),
    ("overflow to infinity: 1 of 1152 elements are infinite in A", replaced((0, 3, 4, 5), np.inf)),
    ("no number: 1 of 1152 elements are NaN in A", replaced((0, 3, 4, 5), np.nan)),
    ("", lambda array: array),
    ("", shuffle),
]


@pytest.mark.parametrize(("kind", "change"), CASES, ids=[kind for kind, _ in CASES])
@pytest.mark.parametrize("rounding", [0.0, 0.01])
def test_the_kind_is_named(kind: str, change: Callable[[Array], Array], rounding: float) -> None:
    noise = np.random.default_rng(2).standard_normal(EXPECTED.shape) * rounding
    found = find_kind(Sides(change(EXPECTED), EXPECTED + noise, 0.1))
    if rounding and not kind:
        return
    if rounding:  # numbers may be rounded otherwise
        assert found.partition(":")[0] == kind.partition(":")[0]
    else:
        assert found == kind


def test_the_side_is_named() -> None:
    clipped = np.clip(EXPECTED, -1, 1)
    assert find_kind(Sides(EXPECTED, clipped)) == "saturation: 364 elements of B end at -1 and 1"
    assert "infinite in B" in find_kind(Sides(EXPECTED, replaced((0, 3, 4, 5), np.inf)(EXPECTED)))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7,), (2, 5)])
def test_any_shape_will_do(shape: tuple[int, ...]) -> None:
    find_kind(Sides(np.ones(shape), np.zeros(shape)))
    find_kind(Sides(np.full(shape, 2), np.full(shape, 3)))


def convolution(scale: float, of_bias: float, bias: float) -> Dump:
    """A convolution of integers; the scales of its input and its bias are off by these factors."""
    x, biases = EXPECTED.clip(-1, 1), np.linspace(-bias, bias, 8, dtype=np.float32).reshape(8, 1, 1)
    scales = {"x": 0.01 * scale, "w": 0.008, "b": 0.00008 * of_bias}
    known = {name: Quantization(scale=(it,)) for name, it in scales.items()}
    steps = np.rint(biases / 0.00008).astype(np.int32)
    return dump_of(
        Step("data", "Input", (), x),
        Step("w", "constant", (), quantise(np.eye(8), 0.008), quantization=known["w"]),
        Step("b", "constant", (), steps, quantization=known["b"]),
        Step("x", "Relu", ("data",), quantise(x, scales["x"]), quantization=known["x"]),
        Step("y", "Conv", ("x", "w", "b"), x + np.float32(of_bias) * biases),
    )


@each_row("comparison/cases/misread biases")
def test_a_bias_that_is_read_by_a_wrong_scale_is_told_from_another_wrong_bias(
    factors: list[float], others: list[float], notes: list[str], kinds: list[str]
) -> None:
    found = compare_dumps(convolution(*factors), convolution(*others))
    assert found.finding == "fault"
    assert [*found.notes] == notes
    assert [it.kind.partition(", most at")[0] for it in found.culprits] == kinds
