"""Values become those of another dtype where they fit, from both sides of each limit; and data is
generated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lar import inputs
from lar.errors import UsageError
from lar.inputs import Array, check_memory
from lar.inputs.dtypes import cast_values, describe_source, dtype_of, generate_array
from tests.refusals import refused
from tests.tables import each_row

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
SHAPE = (1, 3, 32, 33)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "bool"])
def test_a_value_at_the_end_of_a_dtypes_range_is_kept(kind: str) -> None:
    dtype = np.dtype(kind)
    low, high = (0, 1) if kind == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for source in (np.int64, np.float64):
        ends = np.array([low, high], source)
        assert cast_values(ends, dtype).astype(np.int64).tolist() == [low, high]
        for outside in (low - 1, high + 1):
            with pytest.raises(ValueError, match=f"holds {outside}, out of the range"):
                cast_values(np.array([low, outside], source), dtype)


def test_the_largest_float16_is_kept() -> None:
    assert cast_values(np.array([65504.0]), np.dtype(np.float16))[0] == 65504
    with pytest.raises(ValueError, match="out of the range of float16"):
        cast_values(np.array([65536.0]), np.dtype(np.float16))


def generate(
    dtype: str, fill: str = "uniform", *, name: str = "data", seed: int = 0, shape: Any = SHAPE
) -> Array:
    return generate_array(name, dtype_of(dtype), shape, fill=fill, seed=seed)


@pytest.mark.parametrize(
    ("fill", "dtype"),
    [
        *((fill, dtype) for fill in ("uniform", "zeros", "ones") for dtype in DTYPES),
        *(("normal", dtype) for dtype in FLOATS),
    ],
)
def test_every_dtype_and_fill_gives_settled_data(dtype: str, fill: str) -> None:
    for shape in (SHAPE, (), (1,)):
        array = generate(dtype, fill, shape=shape)
        assert array.dtype == dtype
        assert array.shape == shape
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize(
    ("fill", "dtype"),
    [*(("uniform", dtype) for dtype in DTYPES), *(("normal", dtype) for dtype in FLOATS)],
)
def test_seed_and_name_decide_the_data(dtype: str, fill: str) -> None:
    array = generate(dtype, fill)
    assert np.array_equal(array, generate(dtype, fill))
    assert not np.array_equal(array, generate(dtype, fill, seed=1))
    assert not np.array_equal(array, generate(dtype, fill, name="other"))


@each_row("inputs/dtypes/drawn")
def test_the_drawn_values_do_not_change_between_releases(
    dtype: str, fill: str, values: list[Any]
) -> None:
    assert generate(dtype, fill, shape=(4,)).tolist() == pytest.approx(values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_fill_their_range_and_are_never_subnormal(dtype: str) -> None:
    uniform, normal = generate(dtype), generate(dtype, "normal")
    assert uniform.min() >= 0
    assert uniform.max() <= 1
    assert abs(float(uniform.mean(dtype=np.float64)) - 0.5) < 0.05
    assert abs(float(normal.mean(dtype=np.float64))) < 0.1
    assert abs(float(normal.std(dtype=np.float64)) - 1) < 0.1
    many = generate(dtype, shape=(300_000,))
    assert not ((many != 0) & (np.abs(many) < np.finfo(dtype).tiny)).any()


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("int64", 0, 1)]
)
def test_integers_fill_their_range(dtype: str, low: int, high: int) -> None:
    array = generate(dtype)
    assert (array.min(), array.max()) == (low, high)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_normal_data_is_floating_point(dtype: str) -> None:
    with pytest.raises(UsageError, match=f"--fill normal: input ids takes {dtype}") as caught:
        generate(dtype, "normal", name="ids")
    assert caught.value.hint == "feed ids with --input, or leave --fill out"


def test_sources_are_named() -> None:
    assert describe_source("uniform", 3) == "uniform, seed 3"
    assert describe_source("zeros", 3) == "zeros"


def test_more_than_the_memory_is_refused_before_it_is_allocated() -> None:
    for fill in ("uniform", "zeros", "ones"):
        with pytest.raises(UsageError, match="more than this machine's memory"):
            generate("uint8", fill, shape=(1 << 40, 1 << 20))


def test_data_as_large_as_the_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "memory_bytes", lambda: 100)
    check_memory(100, "x")
    refused("x: needs 101 bytes", check_memory, 101, "x")
