"""Signatures of tensors, by which twins are found.

A signature has the shape, the type family and sampled values of a tensor.

The values are the elements of a tensor in the order of its plain axes. The layout in the file does
not matter. Values come in blocks, so that a large tensor takes no more memory than its file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lar.dumps import Array, Dump, DumpedTensor, Stored
from lar.dumps.excerpts import STATISTICS
from lar.dumps.layouts import (
    axes_of,
    block_of,
    fits_layout,
    in_plain_order,
    is_padded,
    plain_shape,
    to_plain,
)
from lar.records.comparison import TensorFacts
from lar.records.run import Quantization

# The number of elements in a block. Four buffers of this size fit the second-level cache of any
# processor.
BLOCK = 1 << 16

# A tensor with more bytes than this is brought into plain axes block by block. A smaller tensor is
# brought into plain axes as a whole, which is faster.
LARGE = 1 << 24


class Elements(NamedTuple):
    """The elements of a tensor in blocks: each call of `blocks` begins with the first element.

    `raw` holds the elements before decoding. `raw` is None if the elements do not lie in order in
    memory.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    raw: Array | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)


def elements_of(stored: Stored, layout: str = "", shape: tuple[int, ...] = ()) -> Elements:
    """Return the elements of a tensor; in a blocked `layout`, cut them to the plain `shape`."""
    raw = in_plain_order(stored.raw, layout, shape) if layout else stored.raw
    shape = shape if layout else raw.shape
    raw = np.ascontiguousarray(raw) if raw.nbytes <= LARGE else raw
    # This frees the array that was read.
    stored = stored if raw is stored.raw else stored._replace(raw=raw)
    flat = raw.reshape(-1) if raw.flags.c_contiguous else None
    return Elements(shape, stored.dtype, lambda: map(stored.decode, blocks_of(raw)), flat)


def blocks_of(array: Array) -> Iterator[Array]:
    """Yield the elements of an array in order, in flat blocks."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        return (flat[begin : begin + BLOCK] for begin in range(0, flat.size, BLOCK))
    blocks: Any = np.nditer(array, ["external_loop", "buffered"], order="C", buffersize=BLOCK)
    # NumPy's own buffers are not aligned, so that sums over them would be rounded differently.
    return map(np.copy, blocks)


def dequantized(elements: Elements, quantization: Quantization) -> Elements:
    """Return the real numbers that a tensor's elements stand for; the tensor has plain axes."""

    def blocks() -> Iterator[Array]:
        for number, block in enumerate(elements.blocks()):
            places = np.arange(number * BLOCK, number * BLOCK + block.size)
            yield real_numbers(block, quantization, places, elements.shape)

    return Elements(elements.shape, real_type(elements.dtype), blocks)


def real_numbers(
    integers: Array, quantization: Quantization, places: Array, shape: tuple[int, ...]
) -> Array:
    """Return the real numbers that integers stand for, as an engine computes them.

    `places` are the indexes of the integers in the flat tensor. `shape` is the tensor's shape in
    plain axes.
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
    """Quantise real numbers in plain axes: return the nearest integers of a type."""
    numbers = quantization.scale, quantization.zero_point
    scale, zero = (np.array(each, np.float64) for each in numbers)
    if quantization.axis is not None:
        shape = [1] * real.ndim
        shape[quantization.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.size > 1 else zero
    limits = np.iinfo(dtype)
    integers: Array = np.clip(np.rint(real / scale) + zero, limits.min, limits.max).astype(dtype)
    return integers


def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of dequantised integers: float32, or float64 if float32 cannot hold them."""
    return np.dtype(np.float32 if dtype.itemsize <= 2 or dtype.kind == "f" else np.float64)


def whole(elements: Elements) -> Array:
    """Return all elements of a tensor as an array, which callers must not change."""
    if elements.raw is not None and elements.raw.dtype == elements.dtype:
        return elements.raw.reshape(elements.shape)
    blocks = [block.copy() for block in elements.blocks()]
    return np.concatenate(blocks or [np.zeros(0, elements.dtype)]).reshape(elements.shape)


def channel_axis(dimensions: int) -> int:
    """Return the number of the channels' axis in a plain layout such as NCHW.

    The channels are the second of four or more axes, or the last of fewer axes.
    """
    return 1 if dimensions > 3 else dimensions - 1


def extent_of(elements: Elements) -> tuple[float, float]:
    """Return the smallest and the largest finite element; 0 always counts as an element."""
    low = high = 0.0
    for block in elements.blocks():
        finite = block[np.isfinite(block)]
        low = min(low, float(finite.min(initial=0.0)))
        high = max(high, float(finite.max(initial=0.0)))
    return low, high


# Signatures of tensors, by samples of their values


SAMPLES = 256
GOLDEN = 0.6180339887498949

# The number of channels is taken for a multiple of this.
CHANNELS = 4

INTEGERS = {"QuantizedS8": "int8", "Quantized8Asymm": "uint8", "QuantizedS32": "int32"}

# Two samples count as equal if their distance, relative to their length, is not above this.
NEAR = 1e-2


# The family of quantised integers whose scale is not known.
UNSCALED = "unscaled"


class Signature(NamedTuple):
    """A summary of a tensor, to find its twin.

    `shape` is the plain shape without axes of size 1. `sample` is float64, and its length depends
    only on the shape.
    """

    plain_shape: tuple[int, ...]
    shape: tuple[int, ...]
    family: str
    sample: Array


class Values:
    """Reads the tensors of a dump in plain axes, such as NCHW; a tensor is read when it is needed.

    Quantised tensors are read as real numbers, or as integers if `raw` is true. If a dump lacks the
    scales of its integers, the scales come from `scales_of`, the dump of the other side.
    """

    def __init__(self, dump: Dump, *, raw: bool = False, scales_of: Dump | None = None) -> None:
        self.dump = dump
        self.quantizations = {} if raw else quantizations_in(dump, scales_of)
        self.unscaled = set() if raw else unscaled_in(dump, self.quantizations, scales_of)
        self.shapes: dict[str, tuple[int, ...]] = {}  # blocked tensors: shapes without padding

    def with_array(self, key: str, array: Array) -> Values:
        """Return a copy of this object in which an array replaces the values of one tensor."""
        values = copy.copy(self)
        values.dump = self.dump.of_array(key, array)
        return values

    def quantization_of(self, tensor: DumpedTensor | TensorFacts) -> Quantization | None:
        """Return the quantization of a tensor, or None if its elements are plain numbers."""
        return self.quantizations.get(tensor.key)

    def shape_of(self, tensor: DumpedTensor) -> tuple[int, ...]:
        """Return the plain shape of a tensor."""
        if not is_blocked(tensor):
            return tensor.shape
        return self.shapes.get(tensor.key) or plain_shape(tensor.shape, tensor.layout)

    def elements(self, tensor: DumpedTensor, *, integers: bool = False) -> Elements:
        """Read the elements of a tensor in plain axes, without padded channels.

        With `integers`, quantised tensors stay integers.

        Raises:
            DumpError: the tensor's file is missing or damaged.
        """
        layout = tensor.layout if is_blocked(tensor) else ""
        elements = elements_of(self.dump.read_stored(tensor.key), layout, self.shape_of(tensor))
        quantization = None if integers else self.quantization_of(tensor)
        return dequantized(elements, quantization) if quantization else elements

    def family_of(self, tensor: DumpedTensor) -> str:
        """Return the type family of a tensor; tensors of different families are never twins."""
        if tensor.key in self.unscaled:
            return UNSCALED
        return "float" if tensor.key in self.quantizations else family_of(tensor.dtype)

    def learn_padding(self, tensor: DumpedTensor, shapes: Collection[tuple[int, ...]]) -> Stored:
        """Read a tensor in plain axes, and detect which part of it is padding.

        Blocked layouts may pad the channels. If the last channels are all 0, these channels count
        as padding. `shapes` has the shapes of tensors of the other side. The tensor is cut to the
        smallest of these shapes that cuts off only zeros.

        Raises:
            DumpError: the tensor's file is missing or damaged.
        """
        stored = self.dump.read_stored(tensor.key)
        if not is_blocked(tensor) or self.dump.excerpts:
            return stored
        # Padding is looked for before decoding, since padding is a stored 0.
        array = to_plain(stored.raw, tensor.layout, self.shapes.get(tensor.key))
        smaller = [it for it in shapes if is_padded(array.shape, it, tensor.layout)]
        fitting = [it for it in smaller if is_empty_behind(array, it)]
        if fitting:
            self.shapes[tensor.key] = min(fitting)
        return stored._replace(raw=array[tuple(map(slice, self.shape_of(tensor)))])


def quantizations_in(dump: Dump, other: Dump | None) -> dict[str, Quantization]:
    """Return the quantization of each quantised tensor of a dump, by key.

    If an engine wrote a dump without an index, the types of the tensors are known, but not their
    quantizations. In this case, a quantised tensor gets the quantization of the tensor with the
    same name and type in the other dump, even if another engine wrote the other dump.
    """
    known = {tensor.key: tensor.quantization for tensor in dump if tensor.quantization}
    named = {(it.name, integer_of(it)): it.quantization for it in other or () if it.quantization}
    for tensor in dump:
        likely = named.get((tensor.name, integer_of(tensor)))
        if likely and not tensor.quantization and tensor.dtype.startswith("Quantized"):
            known[tensor.key] = likely
    return known


def learn_of_twins(sides: tuple[Values, Values], tensors: tuple[DumpedTensor, ...]) -> None:
    """Detect from two twins the scale that one twin lacks, and the padding that both twins have.

    Raises:
        DumpError: a file is missing or damaged.
    """
    share_quantization(sides, tensors)
    if (tensors[0].shape, tensors[0].layout) == (tensors[1].shape, tensors[1].layout):
        leave_out_padding(sides, tensors)


def share_quantization(sides: tuple[Values, Values], tensors: tuple[DumpedTensor, ...]) -> None:
    """Give the twin's scale to a quantised tensor that has no scale, if both types are equal."""
    for one, other in ((0, 1), (1, 0)):
        mine, theirs = tensors[one], tensors[other]
        known = sides[other].quantizations.get(theirs.key)
        unknown = mine.dtype.startswith("Quantized") and mine.key not in sides[one].quantizations
        if known and known.axis is None and unknown and integer_of(mine) == integer_of(theirs):
            sides[one].quantizations[mine.key] = known


def integer_of(tensor: DumpedTensor) -> str:
    """Return the type of a quantised tensor's integers, such as `int8` for `QuantizedS8`."""
    return INTEGERS.get(tensor.dtype, tensor.dtype)


def unscaled_in(dump: Dump, known: Container[str], other: Dump | None) -> set[str]:
    """Return the keys of quantised tensors without a scale.

    The result is empty if the other side has quantised tensors too.

    Tensors without a scale may be compared with integers of the other side, but not with real
    numbers.
    """
    if other is None or any(it.quantization or it.dtype.startswith("Quantized") for it in other):
        return set()
    return {it.key for it in dump if it.dtype.startswith("Quantized") and it.key not in known}


def is_blocked(tensor: DumpedTensor) -> bool:
    """Return whether a tensor has a blocked layout, and must be brought into plain axes."""
    return bool(tensor.layout) and fits_layout(tensor.shape, tensor.layout)


def leave_out_padding(sides: tuple[Values, Values], tensors: tuple[DumpedTensor, ...]) -> None:
    """Detect the padding of two tensors in the same blocked layout.

    The padding is the last channels of the last block, if the elements of these channels are 0 on
    both sides. The number of the remaining channels is rounded up to a multiple of 4, since a real
    channel may be 0 too.

    Raises:
        DumpError: a file is missing or damaged.
    """
    layout = tensors[0].layout
    block, axes = block_of(layout), axes_of(layout)
    is_known = any(tensor.key in side.shapes for side, tensor in zip(sides, tensors, strict=True))
    if is_known or not block or not is_blocked(tensors[0]) or 0 in tensors[0].shape:
        return
    used = 1
    for side, tensor in zip(sides, tensors, strict=True):
        # The axes of `split` are {N, C / block, block, H, W}.
        split = side.dump.read_stored(tensor.key).raw.transpose(axes.places)
        used += len(np.trim_zeros(split[:, -1].any(axis=(0, 2, 3))[used:], "b"))
    padding = block - min(-(-used // CHANNELS) * CHANNELS, block)
    for side, tensor in zip(sides, tensors, strict=True):
        batch, channels, *sizes = plain_shape(tensor.shape, layout)
        side.shapes[tensor.key] = (batch, channels - padding, *sizes)


def is_empty_behind(array: Array, shape: Sequence[int]) -> bool:
    """Return whether only zeros are lost if an array is cut to the shape `shape`."""
    part = array[tuple(map(slice, shape))]
    return part.size == array.size or np.count_nonzero(part) == np.count_nonzero(array)


def signature_of(
    values: Values, tensor: DumpedTensor, other_shapes: Collection[tuple[int, ...]] = ()
) -> Signature:
    """Read a tensor, and return its signature."""
    stored = values.learn_padding(tensor, other_shapes)
    array, quantization = stored.raw, values.quantization_of(tensor)
    if values.dump.excerpts:
        # Only the statistics are taken, since the first values depend on the layout.
        sample, shape = array[: len(STATISTICS)], values.shape_of(tensor)
    else:
        places, shape = sample_places(array.size), array.shape
        sample = stored.decode(array.reshape(-1)[places])
        if quantization is not None:
            sample = real_numbers(sample, quantization, places, shape)
    if sample.dtype.kind == "c":
        sample = np.abs(sample)
    numbers = np.nan_to_num(sample.astype(np.float64), posinf=1e30, neginf=-1e30)
    return Signature(shape, squeezed(shape), values.family_of(tensor), numbers)


def sample_places(size: int) -> Array:
    """Return the indexes of a sample, spread over a flat tensor at irregular distances."""
    if size <= SAMPLES:
        return np.arange(size)
    return np.sort((np.arange(SAMPLES) * GOLDEN % 1 * size).astype(np.int64))


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def family_of(dtype: str) -> str:
    """Return the family of a type: complex, float, bool or int.

    MegEngine's quantised types stand for real numbers, even if the scale is unknown.
    """
    name = dtype.lower()
    if "complex" in name:
        return "complex"
    if "float" in name or name.startswith("quantized"):
        return "float"
    return "bool" if name.startswith("bool") else "int"


def distances(rows: Array, others: Array) -> Iterator[Array]:
    """Yield for each sample in `rows` its distances from the samples in `others`.

    A distance is the length (L2 norm) of the difference of two samples, divided by the length of
    the longer sample. The distance is 0 if both samples are 0, and infinite if the samples are
    empty.
    """
    squares, count = np.square(others).sum(axis=-1), len(others)
    for start in range(0, len(rows), SAMPLES):
        block = rows[start : start + SAMPLES]
        own = np.square(block).sum(axis=-1)[:, None]
        if not count or not block.shape[-1]:
            yield from np.full((len(block), count), np.inf)
            continue
        apart = np.maximum(own + squares - 2 * block @ others.T, 0)
        greater = np.maximum(own, squares)
        yield from np.sqrt(np.divide(apart, greater, out=np.zeros_like(apart), where=greater > 0))
