"""`--range`: every tensor that an operator gives is looked at, once, before anything is timed.

The inputs are the same in all iterations, and so are the tensors. They are looked at in a session
of their own, so that what is timed is the model as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.onnxruntime.blocked_layout import block_size, plain_layout
from lar.engines.onnxruntime.dumps import Producer, instrument
from lar.engines.onnxruntime.saving import open_saved
from lar.errors import CheckFailed

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

# Of integers, sizes and indices are as large as they are, and quantised ones mean other numbers.
FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")


def check_range(driver: SessionDriver, limit: float) -> None:
    """Run a driver's model on what it was fed, and check the floating-point tensors.

    Raises:
        CheckFailed: an element of one is NaN, or further from 0 than the limit.
    """
    for producer, array in tensors_of(driver):
        # As wide as the limit: in float16 it may be infinite itself.
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        wrong = ~(np.isfinite(wide) & (np.abs(wide) <= wide.dtype.type(limit)))
        if wrong.any():
            raise CheckFailed(describe_misfit(producer, wide, wrong, limit))


def tensors_of(driver: SessionDriver) -> Iterator[tuple[Producer, np.ndarray[Any, Any]]]:
    """Yield the floating-point tensors of a run in the graph's order and in the plain layout."""
    model, producers = instrument(driver)
    session = open_saved(driver, model)
    names = [node.name for node in session.get_outputs()]
    values = dict(zip(names, session.run_with_ort_values(names, driver.fed), strict=True))
    block = block_size(driver.onnxruntime) if any(each.blocked for each in producers) else 1
    for producer in producers:
        value = values[producer.tensor]
        if value.has_value() and value.data_type() in FLOATS:
            array = value.numpy()
            yield producer, plain_layout(array, block) if producer.blocked else array


def describe_misfit(
    producer: Producer, array: np.ndarray[Any, Any], wrong: np.ndarray[Any, Any], limit: float
) -> str:
    """Say which element of a tensor is wrong: the first one."""
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(map(str, index))
    count = int(wrong.sum())
    others = f", and {count - 1} of {array.size} more" if count > 1 else ""
    node = f" {producer.node}" if producer.node else ""
    return (
        f"--range {limit:.9g}: tensor {producer.tensor} of {producer.operator}{node} holds "
        f"{array[index]:.9g} at [{place}]{others}"
    )
