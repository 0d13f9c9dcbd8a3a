from __future__ import annotations

from math import prod

import numpy as np
import pytest

from lar.errors import UsageError
from lar.inputs.feed import repeat_batch, repeat_batches, without_batch
from lar.records.run import FedInput, TensorInfo, format_shape
from tests.inputs.test_feed import infos_in
from tests.refusals import refused
from tests.tables import each_row


@pytest.mark.parametrize("size", [2, 3, 7])
def test_the_items_are_fed_over_and_over(size: int) -> None:
    array = np.array([[0, 1], [2, 3]], np.float32)
    (info,) = infos_in("data float32 1x2 resizable")
    repeated = repeat_batch(array, info, size, is_generated=False)
    assert repeated.shape == (size, 2)
    assert repeated.flags.c_contiguous
    for index, item in enumerate(repeated):
        np.testing.assert_array_equal(item, array[index % 2])


@each_row("inputs/batching/batches")
def test_a_batch_is_made_of_items_or_refused(
    infos: str, shapes: dict[str, list[int]], generated: str, size: int, found: str
) -> None:
    """What the result tells is what is fed."""
    inputs = infos_in(infos)
    arrays = {name: np.arange(prod(it), dtype="f4").reshape(it) for name, it in shapes.items()}
    fed = [
        FedInput(name=name, dtype="f4", shape=it.shape, source="", generated=name in generated)
        for name, it in arrays.items()
    ]
    try:
        repeated, records = repeat_batches(arrays, fed, inputs, size)
    except UsageError as error:
        told = f"{error.message}; {error.hint}"
    else:
        assert [each.shape for each in records] == [it.shape for it in repeated.values()]
        told = "; ".join(f"{name} {format_shape(it.shape)}" for name, it in repeated.items())
    assert told == found


def test_a_sequence_has_no_batch() -> None:
    info = TensorInfo(name="s", dtype="float32", shape=(1, 2), sequence=True)
    arrays = {"s": [np.zeros((1, 2), np.float32)]}
    refused("input s takes no batch", repeat_batches, arrays, [], [info], 2)


def test_fewer_items_than_a_fixed_batch_may_be_given() -> None:
    infos = infos_in("a float32 4x3; b float32 2x4; c float32 -")
    assert [it.shape for it in without_batch(infos, 4)] == [(None, 3), (2, 4), ()]
    assert without_batch(infos, None) == infos
