"""Tensors as numbers in plain axes: quantised, padded, and summarised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lar.dumps import Stored
from lar.graphs.signatures import (
    Values,
    channel_axis,
    dequantized,
    distances,
    elements_of,
    extent_of,
    integers_of,
    learn_of_twins,
    signature_of,
    whole,
)
from lar.records.run import Quantization
from tests.graphs.drawn import dump_in
from tests.tables import each_row


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("zero", ["one", "each"])
@pytest.mark.parametrize(
    ("dtype", "real"), [("int8", "f4"), ("uint16", "f4"), ("int32", "f8"), ("int64", "f8")]
)
def test_integers_stand_for_real_numbers(
    axis: int | None, zero: str, dtype: str, real: str
) -> None:
    raw = np.arange(2 * 3 * 4, dtype=dtype).reshape(2, 3, 4)
    count = 1 if axis is None else raw.shape[axis]
    zeros = range(count if zero == "each" else 1)
    scales = tuple(0.5**number for number in range(count))
    quantization = Quantization(scale=scales, zero_point=tuple(zeros), axis=axis)
    shape = [-1 if each == axis else 1 for each in range(3)]
    scale, offset = (np.resize(it, count).reshape(shape) for it in (scales, list(zeros)))
    found = whole(dequantized(elements_of(Stored(raw)), quantization))
    assert found.dtype == real
    np.testing.assert_array_equal(found, (raw.astype(real) - offset) * scale)
    np.testing.assert_array_equal(integers_of(found, quantization, raw.dtype), raw)


def test_the_elements_of_any_array_are_those_in_order() -> None:
    for array in (np.zeros(0), np.arange(70_000.0), np.arange(70_000.0).reshape(7, -1).T):
        elements = elements_of(Stored(array))
        np.testing.assert_array_equal(np.concatenate([*elements.blocks(), []]), array.ravel())
        np.testing.assert_array_equal(whole(elements), array)
        assert elements.size == array.size


def test_the_extent_of_a_tensor_has_0_and_no_infinity() -> None:
    for array, extent in (
        ([2.0, 5.0, np.inf], (0, 5)),
        ([-3.0, -1.0, np.nan], (-3, 0)),
        ([], (0, 0)),
    ):
        assert extent_of(elements_of(Stored(np.array(array)))) == extent


def test_the_channels_are_the_second_of_four_axes_or_the_last() -> None:
    assert [*map(channel_axis, range(1, 6))] == [0, 1, 2, 1, 1]


def test_a_distance_is_relative_to_the_longer_sample() -> None:
    rows = [np.array(it, float) for it in ([[0, 0], [3, 4]], [[0, 0], [0, 4], [6, 8]])]
    assert np.array([*distances(*rows)]) == pytest.approx(np.array([[0, 1, 1], [1, 0.6, 0.5]]))


@each_row("graphs/signatures/families")
def test_the_family_of_a_type(value: str, family: str) -> None:
    dump = dump_in(f"x = Input : 1x4x1 a@{value}")
    found = signature_of(Values(dump), dump.index.tensors[0])
    assert (found.family, found.shape, found.plain_shape) == (family, (4,), (1, 4, 1))


@each_row("graphs/signatures/learned")
def test_twins_tell_scales_and_padding(actual: str, expected: str, learned: list[Any]) -> None:
    """A scale that one lacks, and the channels that are 0 on both sides, but for multiples of 4."""
    dumps = [dump_in(f"x = Input : {text}") for text in (actual, expected)]
    one, other = map(Values, dumps)
    tensors = (dumps[0].index.tensors[0], dumps[1].index.tensors[0])
    learn_of_twins((one, other), tensors)
    found = zip((one, other), tensors, strict=True)
    told = [
        [[*side.shape_of(it)], known.scale[0] if (known := side.quantization_of(it)) else None]
        for side, it in found
    ]
    assert told == learned
