"""Tensors that hold the other side's numbers in another order.

A layer with its channels permuted has such an output, and the next layer such weights. That is no
fault where all that is computed from them agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Axes that are longer are not gone through, nor tensors that are larger, where several axes may be
# in another order.
LONGEST_AXIS = 4096
MOST_ELEMENTS = 1 << 22


def reorder(actual: Array, expected: Array) -> Iterator[Array]:
    """Yield an expected tensor in orders that the actual one of its shape may have: of a transposed
    matrix, of one axis, then of all."""
    if not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return
    if expected.ndim == 2 and expected.shape == expected.T.shape:
        yield expected.T
    for axis, size in enumerate(expected.shape):
        if 1 < size <= LONGEST_AXIS:
            order = order_of(rows_of(actual, axis), rows_of(expected, axis))
            if not is_in_order(order):
                yield np.take(expected, order, axis)
    if prod(expected.shape) > MOST_ELEMENTS:
        return
    found = expected
    for axis, size in enumerate(expected.shape):
        if 1 < size <= LONGEST_AXIS:
            # Sorted, since another axis may be in another order too.
            rows = (np.sort(rows_of(side, axis), axis=1) for side in (actual, found))
            found = np.take(found, order_of(*rows), axis)
    if found is not expected:
        yield found


def rows_of(array: Array, axis: int) -> Array:
    """Return what stands at each place of an axis, as rows."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1).astype(np.float64)


def order_of(actual: Array, expected: Array) -> Array:
    """Return for each actual row the number of the nearest expected one, each of them once."""
    squares = np.square(actual).sum(axis=1)[:, None] + np.square(expected).sum(axis=1)
    apart = squares - 2 * actual @ expected.T
    order = np.empty(len(actual), int)
    for place, row in enumerate(apart):
        order[place] = row.argmin()
        apart[:, order[place]] = np.inf
    return order


def is_in_order(order: Array) -> bool:
    return bool(np.array_equal(order, np.arange(order.size)))
