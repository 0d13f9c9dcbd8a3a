"""Reads the elements of a tensor in the order of its plain axes, whatever its layout.

They come in blocks, so that a large tensor takes no more memory than its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.dump import Array, Stored
from lar.dumps.layouts import in_plain_order
from lar.records.run import Quantization

# Elements of a block: four buffers of it fit the second-level cache of any processor.
BLOCK = 1 << 16

# A tensor of more bytes than this is brought into plain axes in blocks. A smaller one is brought as
# a whole, which is faster.
LARGE = 1 << 24


class Elements(NamedTuple):
    """The elements of a tensor in blocks: each call of `blocks` begins with the first element.

    `raw` holds the elements before they are decoded, None if they do not lie in order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    raw: Array | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)


def elements_of(stored: Stored, layout: str = "", shape: tuple[int, ...] = ()) -> Elements:
    """Return the elements of a tensor; those of a blocked `layout` are cut to the plain `shape`."""
    raw = in_plain_order(stored.raw, layout, shape) if layout else stored.raw
    shape = shape if layout else raw.shape
    raw = np.ascontiguousarray(raw) if raw.nbytes <= LARGE else raw
    # This frees the array from before.
    stored = stored if raw is stored.raw else stored._replace(raw=raw)
    flat = raw.reshape(-1) if raw.flags.c_contiguous else None
    return Elements(shape, stored.dtype, lambda: map(stored.decode, blocks_of(raw)), flat)


def blocks_of(array: Array) -> Iterator[Array]:
    """Yield the elements of an array in order, in flat blocks."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        return (flat[begin : begin + BLOCK] for begin in range(0, flat.size, BLOCK))
    blocks: Any = np.nditer(array, ["external_loop", "buffered"], order="C", buffersize=BLOCK)
    # NumPy's own buffers are not aligned: sums over them would be rounded in another way.
    return map(np.copy, blocks)


def dequantized(elements: Elements, quantization: Quantization) -> Elements:
    """Return the real numbers that the elements of a tensor in plain axes stand for."""

    def blocks() -> Iterator[Array]:
        for number, block in enumerate(elements.blocks()):
            places = np.arange(number * BLOCK, number * BLOCK + block.size)
            yield real_numbers(block, quantization, places, elements.shape)

    return Elements(elements.shape, real_type(elements.dtype), blocks)


def real_numbers(
    integers: Array, quantization: Quantization, places: Array, shape: tuple[int, ...]
) -> Array:
    """Return the real numbers that integers stand for, as an engine computes them.

    `places` are those of the integers in the flat tensor, which has `shape` in plain axes.
    """
    dtype, axis = real_type(integers.dtype), quantization.axis
    scale, zero = np.array(quantization.scale, dtype), np.array(quantization.zero_point, dtype)
    if axis is not None:
        channels = places // prod(shape[axis + 1 :]) % len(scale)
        scale, zero = scale[channels], zero[channels % len(zero)]
    real: Array = integers.astype(dtype)
    np.subtract(real, zero, out=real)
    np.multiply(real, scale, out=real)
    return real


def integers_of(real: Array, quantization: Quantization, dtype: np.dtype[Any]) -> Array:
    """Return the integers nearest to real numbers in plain axes, within their type's limits."""
    scale, zero = (
        np.array(each, np.float64) for each in (quantization.scale, quantization.zero_point)
    )
    if quantization.axis is not None:
        shape = [1] * real.ndim
        shape[quantization.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.size > 1 else zero
    limits = np.iinfo(dtype)
    integers: Array = np.clip(np.rint(real / scale) + zero, limits.min, limits.max).astype(dtype)
    return integers


def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32, the engines' type, or float64 for integers that float32 cannot hold."""
    return np.dtype(np.float32 if dtype.itemsize <= 2 or dtype.kind == "f" else np.float64)


def whole(elements: Elements) -> Array:
    """Return all elements of a tensor as an array, which nobody may write to."""
    if elements.raw is not None and elements.raw.dtype == elements.dtype:
        return elements.raw.reshape(elements.shape)
    blocks = [block.copy() for block in elements.blocks()]
    return np.concatenate(blocks or [np.zeros(0, elements.dtype)]).reshape(elements.shape)


def channel_axis(dimensions: int) -> int:
    """Return the axis of the channels in plain axes: the second of four or more, else the last."""
    return 1 if dimensions > 3 else dimensions - 1


def extent_of(elements: Elements) -> tuple[float, float]:
    """Return the least and the greatest of the finite elements and 0."""
    low = high = 0.0
    for block in elements.blocks():
        finite = block[np.isfinite(block)]
        low = min(low, float(finite.min(initial=0.0)))
        high = max(high, float(finite.max(initial=0.0)))
    return low, high
