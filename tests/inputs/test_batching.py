from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lar.errors import UsageError
from lar.inputs.feed import repeat_batch, repeat_batches
from lar.records.run import FedInput, TensorInfo
from tests.refusals import refused

FREE = TensorInfo(name="data", dtype="float32", shape=(1, 2), resizable=True)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_the_items_are_fed_over_and_over(size: int) -> None:
    array = np.array([[0, 1], [2, 3]], np.float32)
    repeated = repeat_batch(array, FREE, size, is_generated=False)
    assert repeated.shape == (size, 2)
    assert repeated.flags.c_contiguous
    for index, item in enumerate(repeated):
        np.testing.assert_array_equal(item, array[index % 2])


def test_items_that_are_fed_are_not_left_out() -> None:
    array = np.array([[0, 1], [2, 3]], np.float32)
    with pytest.raises(UsageError, match="--batch-size 1: input data is fed 2 items") as caught:
        repeat_batch(array, FREE, 1, is_generated=False)
    assert "give 2 or more" in caught.value.hint
    np.testing.assert_array_equal(repeat_batch(array, FREE, 1, is_generated=True), array[:1])


def test_what_is_generated_is_known_from_what_is_fed() -> None:
    fed = FedInput(name="data", dtype="float32", shape=(2, 2), source="", generated=True)
    arrays = {"data": np.zeros((2, 2), np.float32)}
    repeated, _ = repeat_batches(arrays, [fed], [FREE], 1)
    assert repeated["data"].shape == (1, 2)
    refused("is fed 2 items", repeat_batches, arrays, [replace(fed, generated=False)], [FREE], 1)


def test_the_result_tells_the_shape_that_was_fed() -> None:
    fed = FedInput(name="data", dtype="float32", shape=(1, 2), source="a.npy")
    arrays, (told,) = repeat_batches({"data": np.zeros((1, 2), np.float32)}, [fed], [FREE], 5)
    assert arrays["data"].shape == told.shape == (5, 2)


def test_a_sequence_has_no_batch() -> None:
    info = TensorInfo(name="s", dtype="float32", shape=(1, 2), sequence=True)
    arrays = {"s": [np.zeros((1, 2), np.float32)]}
    refused("input s takes no batch", repeat_batches, arrays, [], [info], 2)


@pytest.mark.parametrize("shape", [(1, 2), ()])
def test_a_batch_that_is_fixed_is_refused(shape: tuple[int, ...]) -> None:
    info = TensorInfo(name="data", dtype="float32", shape=shape)
    with pytest.raises(UsageError, match="--batch-size 4: input data takes"):
        repeat_batch(np.zeros(shape, np.float32), info, 4, is_generated=False)


def test_inputs_without_a_batch_in_common_are_refused() -> None:
    infos = [
        TensorInfo(name=name, dtype="float32", shape=shape, resizable=True)
        for name, shape in (("a", (2, 3)), ("b", (3, 4)))
    ]
    arrays = {info.name: np.zeros([size or 1 for size in info.shape], "f4") for info in infos}
    with pytest.raises(UsageError, match=r"--batch-size 6: .* no batch in common: a 2, b 3"):
        repeat_batches(arrays, [], infos, 6)


def test_any_size_of_batch_goes_with_a_fixed_one() -> None:
    infos = [
        TensorInfo(name="a", dtype="float32", shape=(None, 3)),
        TensorInfo(name="b", dtype="float32", shape=(2, 4)),
    ]
    arrays = {"a": np.zeros((1, 3), np.float32), "b": np.zeros((2, 4), np.float32)}
    repeated, _ = repeat_batches(arrays, [], infos, 2)
    assert [array.shape for array in repeated.values()] == [(2, 3), (2, 4)]


def test_a_batch_on_another_axis_is_refused_and_fixed_inputs_stay() -> None:
    info = TensorInfo(name="x", dtype="float32", shape=(None, None), axes=("seq", "batch"))
    arrays = {"x": np.zeros((1, 1), "f4"), "t": np.zeros((7, 5), "f4")}
    refused("input x has its batch on axis 1", repeat_batches, arrays, [], [info], 4)
    infos = [replace(info, axes=()), TensorInfo(name="t", dtype="float32", shape=(7, 5))]
    repeated, _ = repeat_batches(arrays, [], infos, 4)
    assert [array.shape for array in repeated.values()] == [(4, 1), (7, 5)]
