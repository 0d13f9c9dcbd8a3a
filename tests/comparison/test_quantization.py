"""Quantised tensors are compared by the real numbers that they stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.dumps import Stored
from lar.graphs.signatures import BLOCK, dequantized, elements_of, integers_of, whole
from lar.records.comparison import Comparison, TensorComparison
from lar.records.run import Quantization
from lar.reports.comparison_report import describe_type
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.known import known
from tests.tables import each_row

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng(3)
START = RANDOM.standard_normal((2, 6, 8)).astype(np.float32)


def quantise(array: Array, scale: float, zero: int = 0, dtype: str = "int8") -> Array:
    limits = np.iinfo(dtype)
    rounded = np.rint(array / np.float32(scale)) + zero
    clipped: Array = np.clip(rounded, limits.min, limits.max).astype(dtype)
    return clipped


def step(array: Array, quantization: Quantization | None, dtype: str = "") -> Step:
    return Step("x", "Conv", ("data",), array, quantization=quantization, dtype=dtype)


def compare(actual: Step, expected: Step) -> Comparison:
    data = Step("data", "Input", (), START)
    return compare_dumps(dump_of(data, actual), dump_of(data, expected))


def found(comparison: Comparison) -> TensorComparison:
    return next(it for it in comparison.tensors if it.expected.name == "x")


def snr(signal: Array, other: Array) -> float:
    noise = np.linalg.norm(signal.astype(float) - other)
    return float(20 * np.log10(np.linalg.norm(signal.astype(float)) / noise))


@pytest.mark.parametrize(("zero", "dtype"), [(0, "int8"), (-7, "int8"), (131, "uint8")])
def test_integers_are_compared_with_floats_by_what_they_stand_for(zero: int, dtype: str) -> None:
    scale = float(np.float32(0.031))
    integers = quantise(START, scale, zero, dtype)
    quantization = Quantization(scale=(scale,), zero_point=(zero,))
    pair = found(compare(step(integers, quantization), step(START, None)))
    assert pair.passed
    assert known(pair.figures).max_absolute == pytest.approx(scale / 2, rel=0.05)
    assert known(pair.figures).snr_db == pytest.approx(
        snr(START, (integers.astype(float) - zero) * scale), abs=1e-3
    )
    assert pair.actual.quantization == quantization
    assert pair.expected.quantization is None


@pytest.mark.parametrize(
    ("apart", "moved", "passed"), [(1, 0.5, True), (1, 1.0, False), (2, 0.5, False)]
)
def test_a_step_here_and_there_is_rounding(apart: int, moved: float, passed: bool) -> None:
    """From equal inputs: a step nearly everywhere is another zero point."""
    quantization = Quantization(scale=(0.031,))
    right = np.clip(quantise(START, 0.031).astype(int), -126, 125)
    wrong = np.where(np.arange(START.size).reshape(START.shape) < moved * START.size, apart, 0)
    sides = (step(array.astype(np.int8), quantization) for array in (right + wrong, right))
    assert found(compare(*sides)).passed is passed


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_channel_has_its_own_scale(axis: int) -> None:
    count = START.shape[axis]
    scales = tuple(float(np.float32(0.02 * (1 + index))) for index in range(count))
    shape = [count if place == axis else 1 for place in range(3)]
    integers = np.rint(START / np.reshape(scales, shape)).astype(np.int8)
    quantization = Quantization(scale=scales, axis=axis)
    pair = found(compare(step(integers, quantization), step(START, None)))
    assert known(pair.figures).snr_db == pytest.approx(
        snr(START, integers * np.reshape(scales, shape)), abs=1e-3
    )
    assert describe_type(pair.actual) == f"int8 x 0.02..{scales[-1]:.3g}"


@pytest.mark.parametrize(("shape", "axis"), [((3, BLOCK // 2 + 5), 0), ((BLOCK // 2 + 5, 3), 1)])
def test_channels_are_counted_through_all_blocks(shape: tuple[int, int], axis: int) -> None:
    integers = RANDOM.integers(-128, 128, shape).astype(np.int8)
    quantization = Quantization(scale=(0.5, 0.25, 2.0), zero_point=(1, 0, -3), axis=axis)
    wide = (3, 1) if axis == 0 else (1, 3)
    real = (integers - np.reshape([1, 0, -3], wide)) * np.reshape([0.5, 0.25, 2.0], wide)
    blocks = [*dequantized(elements_of(Stored(integers)), quantization).blocks()]
    assert np.array_equal(np.concatenate(blocks), real.ravel())
    assert np.array_equal(integers_of(real, quantization, integers.dtype), integers)
    single = replace(quantization, zero_point=(-3,))
    numbers = (integers.astype(float) + 3) * np.reshape([0.5, 0.25, 2.0], wide)
    assert np.array_equal(integers_of(numbers, single, integers.dtype), integers)
    assert [*integers_of(real[:1, 0] * 0 + 1e3, Quantization(scale=(0.5,)), integers.dtype)] == [
        127
    ]
    empty = dequantized(elements_of(Stored(integers[:0])), Quantization(scale=(0.5,)))
    assert whole(empty).shape == (0, shape[1])


def test_a_folder_without_scales_borrows_those_of_the_other_side() -> None:
    integers = quantise(START, 0.05)
    scaled = step(integers, Quantization(scale=(0.05,)), "QuantizedS8")
    unknown = replace(scaled, quantization=None)
    for actual, expected in ((scaled, unknown), (unknown, scaled)):
        pair = found(compare(actual, expected))
        assert known(pair.figures).identical
        assert describe_type(pair.actual) == describe_type(pair.expected) == "int8 x 0.05"
    wider = replace(unknown, array=integers.astype(np.int32), dtype="QuantizedS32")
    assert found(compare(scaled, wider)).expected.quantization is None
    # Where none knows them, the integers are all there is.
    moved = replace(unknown, array=np.clip(integers, -127, 126) + np.int8(1))
    pair = found(compare(moved, unknown))
    assert (known(pair.figures).max_absolute, pair.passed) == (1.0, True)


@each_row("comparison/cases/coarse scales")
def test_a_scale_is_wrong_if_it_is_far_coarser_than_values_and_sources_need(
    scales: list[float], most: float, types: str, notes: list[str]
) -> None:
    """Of a chain of tensors with numbers up to `most`; those whose scale is 0 are not quantised.

    Scales are in units of the least with which 8 bits hold numbers up to 1.
    """
    array = np.linspace(-most, most, 96, dtype=np.float32)
    data = Step("data", "Input", (), array)
    sides = [data], [data]
    for scale, kind in zip(np.array(scales) / 127, types.split(), strict=True):
        step = Step(f"t{len(sides[0]) - 1}", kind, (sides[0][-1].name,), array)
        quantization = Quantization(scale=(scale,)) if scale else None
        stored = quantise(array, scale) if scale else array
        sides[0].append(replace(step, array=stored, quantization=quantization))
        sides[1].append(step)
    found = compare_dumps(dump_of(*sides[0]), dump_of(*sides[1]))
    assert [note.removesuffix(" coarser than the values need") for note in found.notes] == notes
