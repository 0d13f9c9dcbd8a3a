"""Limits of what can be fed, from both sides of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lar.errors import UsageError
from lar.inputs import loaded
from lar.inputs.batching import repeat_batch
from lar.inputs.dtypes import cast_values, count_nonfinite
from lar.inputs.generation import generate_array
from lar.inputs.grammar import PathItem, ShapeItem, item_of
from lar.inputs.image_files import read_netpbm
from lar.inputs.image_settings import channel_axis_of
from lar.inputs.literals import array_of_values, read_numbers
from lar.inputs.loaded import Loaded, check_memory
from lar.inputs.matching import find_misfit, input_of
from lar.records.run import TensorInfo


def test_brackets_are_at_most_32_deep() -> None:
    # The text itself counts as one more pair.
    assert read_numbers("[" * 31 + "1" + "]" * 31).ndim == 32
    with pytest.raises(ValueError, match="more than 32 levels"):
        read_numbers("[" * 32 + "1" + "]" * 32)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2**63 - 1, "int64"),
        (2**63, "uint64"),
        (2**64 - 1, "uint64"),
        (-(2**63), "int64"),
        (0, "int64"),
    ],
)
def test_the_dtype_that_holds_a_whole_number(value: int, dtype: str) -> None:
    array = array_of_values([value])
    assert (array.dtype.name, int(array[0])) == (dtype, value)


@pytest.mark.parametrize("values", [[2**64], [-(2**63) - 1], [-1, 2**63]])
def test_whole_numbers_that_no_dtype_holds(values: list[int]) -> None:
    with pytest.raises(ValueError, match="no dtype"):
        array_of_values(values)


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


def test_values_that_are_not_finite_are_counted() -> None:
    assert count_nonfinite(np.array([0, np.nan, np.inf, -np.inf, 1])) == 3
    assert count_nonfinite(np.zeros(3)) == count_nonfinite(np.zeros(3, int)) == 0


def test_data_as_large_as_the_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "memory_bytes", lambda: 100)
    check_memory(100, "x")
    with pytest.raises(UsageError, match="x: needs 101 bytes"):
        check_memory(101, "x")


def test_an_axis_has_at_most_18_digits() -> None:
    assert item_of("{" + "9" * 18 + "}") == ShapeItem("", (10**18 - 1,), "{" + "9" * 18 + "}")
    with pytest.raises(UsageError, match="is not a shape"):
        item_of("{" + "9" * 19 + "}")
    item = item_of("a.bin,int8," + "9" * 18)
    assert isinstance(item, PathItem)
    assert item.form is not None
    assert item.form.shape == (10**18 - 1,)
    with pytest.raises(UsageError, match="has no dtype and shape"):
        item_of("a.bin,int8," + "9" * 19)


@pytest.mark.parametrize(
    ("maximum", "sample", "value"),
    [(1, 1, 255), (255, 255, 255), (256, 256, 255), (65535, 65535, 255)],
)
def test_the_maximum_of_a_netpbm_image(
    maximum: int, sample: int, value: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.pgm"
    width = 1 if maximum < 256 else 2
    path.write_bytes(b"P5 1 1 %d\n" % maximum + sample.to_bytes(width, "big"))
    assert read_netpbm(str(path))[0].array.tolist() == [[[[value]]]]
    path.write_bytes(b"P5 1 1 %d\n" % maximum + bytes(width - 1))
    with pytest.raises(UsageError, match="truncated"):
        read_netpbm(str(path))


@pytest.mark.parametrize("maximum", [0, 65536])
def test_a_maximum_that_a_netpbm_image_cannot_have(maximum: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 1 1 %d\n" % maximum + bytes(4))
    with pytest.raises(UsageError, match=r"is not in 1\.\.65535"):
        read_netpbm(str(path))


def test_a_sample_above_the_maximum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pgm"
    for sample, is_fine in ((7, True), (8, False)):
        path.write_bytes(b"P5 1 1 7\n" + bytes([sample]))
        if is_fine:
            assert read_netpbm(str(path))[0].array.item() == 255
        else:
            with pytest.raises(UsageError, match="a sample of 8, above its maximum 7"):
                read_netpbm(str(path))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 3, 8, 8), 1),
        ((1, 8, 8, 3), 3),
        ((1, 8, 8, 1), 3),
        ((1, 8, 8, 4), 3),
        ((1, 8, 8, 2), 1),
        ((1, 8, 8, 5), 1),
        ((1, 4, 8, 4), 1),
        ((1, 1, 8, 3), 1),
        ((1, 2, 8, 3), 3),
        ((1, 5, 8, 3), 3),
    ],
)
def test_the_axis_of_channels(shape: tuple[int, ...], axis: int) -> None:
    assert channel_axis_of(shape) == axis


def test_a_batch_of_as_many_items_as_are_fed() -> None:
    info = TensorInfo(name="x", dtype="float32", shape=(None, 2))
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert repeat_batch(array, info, 3, is_generated=False).tolist() == array.tolist()
    assert repeat_batch(array, info, 4, is_generated=False).tolist() == [*array.tolist(), [0, 1]]
    with pytest.raises(UsageError, match="is fed 3 items"):
        repeat_batch(array, info, 2, is_generated=False)
    assert len(repeat_batch(array, info, 2, is_generated=True)) == 2


def test_the_input_of_a_position() -> None:
    infos = [TensorInfo(name=name, dtype="float32", shape=(1,)) for name in "ab"]
    array = np.zeros(1, np.float32)
    assert input_of(Loaded(array, "f", position=0), "", infos).name == "a"
    assert input_of(Loaded(array, "f", position=1), "", infos).name == "b"
    with pytest.raises(UsageError, match="is input number 2, counted from 0; the model has 2"):
        input_of(Loaded(array, "f", position=2), "", infos)


def test_the_axes_of_a_resizable_input() -> None:
    image = TensorInfo(name="x", dtype="float32", shape=(1, 3, 8, 8), resizable=True)
    assert find_misfit((5, 3, 9, 7), image) == ""
    assert "axis 1 must be 3" in find_misfit((1, 4, 8, 8), image)
    assert "an axis of 0" in find_misfit((0, 3, 8, 8), image)
    fixed = TensorInfo(name="x", dtype="float32", shape=(None, 3))
    assert find_misfit((7, 3), fixed) == ""
    assert "axis 1 must be 3" in find_misfit((7, 2), fixed)
    assert "has 1 axes" in find_misfit((3,), fixed)
    assert fixed.shape_text == "{?,3}"


def test_generated_bytes_have_the_whole_range() -> None:
    for kind in ("int8", "uint8"):
        array = generate_array("x", np.dtype(kind), (20000,), fill="uniform", seed=0)
        limits = np.iinfo(kind)
        assert (array.min(), array.max()) == (limits.min, limits.max)
    array = generate_array("x", np.dtype("int32"), (200,), fill="uniform", seed=0)
    assert set(array.tolist()) == {0, 1}
    floats = generate_array("x", np.dtype("float32"), (20000,), fill="uniform", seed=0)
    assert 0 <= floats.min() < 0.01
    assert 0.99 < floats.max() < 1
