from __future__ import annotations

import numpy as np
import pytest

from lar.errors import UsageError
from lar.inputs.batching import repeat_batch, repeat_batches
from lar.records import FedInput, TensorInfo

FREE = TensorInfo(name="data", dtype="float32", shape=(1, 2), resizable=True)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_items_are_fed_over_and_over(size: int) -> None:
    array = np.array([[0, 1], [2, 3]], np.float32)
    repeated = repeat_batch("data", array, FREE, size)
    assert repeated.shape == (size, 2)
    assert repeated.flags.c_contiguous
    for index, item in enumerate(repeated):
        np.testing.assert_array_equal(item, array[index % 2])


def test_the_result_tells_the_shape_that_was_fed() -> None:
    fed = FedInput(name="data", dtype="float32", shape=(1, 2), source="a.npy")
    arrays, (told,) = repeat_batches({"data": np.zeros((1, 2), np.float32)}, [fed], [FREE], 5)
    assert arrays["data"].shape == told.shape == (5, 2)


@pytest.mark.parametrize("shape", [(1, 2), ()])
def test_a_batch_that_is_fixed_is_refused(shape: tuple[int, ...]) -> None:
    info = TensorInfo(name="data", dtype="float32", shape=shape)
    with pytest.raises(UsageError, match="--batch-size 4: input data takes"):
        repeat_batch("data", np.zeros(shape, np.float32), info, 4)
