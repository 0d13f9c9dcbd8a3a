"""Blocked layouts: tensors that keep a few channels of a pixel together, and the way to plain ones.

Every layout has a tag in oneDNN's notation: the axes from the outermost to the innermost, in
capitals those of which a part is among the blocks behind, each with its size. Plain data is nchw.
With blocks of b channels:

    nchw4 nchw44 nchw44_dot nchw88 nchw32 nchw64    nChw<b>c    MegEngine
    nchw8c nchw16c                                  nChw<b>c    ONNX Runtime
    chwn4                                           Chwn4c      MegEngine on CUDA
    nhwcd4                                          nhCw4c      MegEngine on OpenCL
    nhwc                                            nhwc        ONNX Runtime, of int8

Layouts of weights have their tags as names. Plain weights are oihw, output channels first, and
goihw where there are groups of channels.

The channels of a plain tensor that do not fill its blocks are followed by zeros, or by what the
engine left there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

BLOCKS: Mapping[str, int] = {
    "nchw4": 4,
    "nchw44": 4,
    "nchw44_dot": 4,
    "nchw8": 8,
    "nchw88": 8,
    "nchw32": 32,
    "nchw64": 64,
    "chwn4": 4,
    "nhwcd4": 4,
}
NCHWC = re.compile(r"nchw([1-9]\d{0,2})c")

# The tags of layouts whose blocks do not stand behind plain axes.
TAGS: Mapping[str, str] = {"chwn4": "Chwn4c", "nhwcd4": "nhCw4c"}
CHANNELS_LAST = "nhwc"
TAG = re.compile(r"([gGoOiIhw]{4,5}|[nchwC]{4})((?:\d{1,3}[goic])+)")
PLAIN_ORDERS = ("nchw", "oihw", "goihw")


class Axes(NamedTuple):
    """The axes of a layout: the plain ones in order, those of the array from the outermost to the
    innermost, and the blocked ones with their sizes."""

    plain: str
    outer: str
    blocks: tuple[tuple[str, int], ...]

    @property
    def places(self) -> tuple[int, ...]:
        """Where the parts of each plain axis stand in the array, one axis after the other."""
        letters = [*self.outer, *(letter for letter, _ in self.blocks)]
        return tuple(
            place
            for wanted in self.plain
            for place, letter in enumerate(letters)
            if letter == wanted
        )


def block_of(layout: str) -> int:
    """Return how many channels a block of a layout has, 0 for any layout that is not a blocked one
    of data."""
    found = NCHWC.fullmatch(layout)
    return int(found[1]) if found else BLOCKS.get(layout, 0)


@cache
def axes_of(layout: str) -> Axes | None:
    """Return the axes of a layout that is not plain, None for any other layout."""
    if layout == CHANNELS_LAST:
        return Axes("nchw", layout, ())
    block = block_of(layout)
    found = TAG.fullmatch(TAGS.get(layout, f"nChw{block}c") if block else layout)
    if found is None:
        return None
    outer = found[1].lower()
    blocks = tuple((letter, int(size)) for size, letter in re.findall(r"(\d+)([a-z])", found[2]))
    capitals = sorted(letter.lower() for letter in found[1] if letter.isupper())
    plain = next((order for order in PLAIN_ORDERS if sorted(order) == sorted(outer)), "")
    if not plain or capitals != sorted(letter for letter, _ in blocks):
        return None
    return Axes(plain, outer, blocks)


def fits_layout(shape: Sequence[int], layout: str) -> bool:
    """Return whether a tensor of a blocked layout can have a shape."""
    axes = axes_of(layout)
    if axes is None:
        return False
    sizes = tuple(size for _, size in axes.blocks)
    return len(shape) == len(axes.outer) + len(sizes) and tuple(shape[len(axes.outer) :]) == sizes


def plain_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the shape of a blocked tensor's plain form, with the channels that its blocks hold.

    Raises:
        ValueError: no tensor of this layout has this shape.
    """
    axes = known_axes(shape, layout)
    sizes = dict(axes.blocks)
    return tuple(shape[axes.outer.index(it)] * sizes.get(it, 1) for it in axes.plain)


def to_plain(array: Array, layout: str, shape: Sequence[int] | None = None) -> Array:
    """Return a blocked tensor in plain axes, cut to its plain shape if that is known.

    Raises:
        ValueError: no tensor of this layout has this shape, or this plain one.
    """
    padded = plain_shape(array.shape, layout)
    if shape is not None and not is_padded(padded, shape, layout):
        raise ValueError(f"{tuple(shape)} does not fill the blocks of {array.shape}")
    plain = array.transpose(known_axes(array.shape, layout).places).reshape(padded)
    return plain[tuple(map(slice, padded if shape is None else shape))]


def to_blocked(array: Array, layout: str, shape: Sequence[int]) -> Array:
    """Return a plain array in a blocked layout, as a tensor of that shape is stored; what does not
    fill the blocks is followed by zeros.

    Raises:
        ValueError: no tensor of this layout has this shape, or this plain one.
    """
    import numpy as np

    padded = plain_shape(shape, layout)
    if not is_padded(padded, array.shape, layout):
        raise ValueError(f"{array.shape} does not fill the blocks of {tuple(shape)}")
    filled = np.zeros(padded, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    places = known_axes(shape, layout).places
    blocked = filled.reshape([shape[place] for place in places])
    return np.ascontiguousarray(blocked.transpose(np.argsort(places)))


def plain_pieces(array: Array, layout: str, shape: Sequence[int], most: int) -> Iterator[Array]:
    """Yield the elements of `to_plain` in order, as flat arrays of at most so many.

    Of layouts with blocks of one axis, as all of data are, no copy of the whole is made.

    Raises:
        ValueError: no tensor of this layout has this shape, or this plain one.
    """
    import numpy as np

    axes = known_axes(array.shape, layout)
    if len(axes.blocks) != 1 or not is_padded(plain_shape(array.shape, layout), shape, layout):
        yield from pieces_of(to_plain(array, layout, shape), most)
        return
    ((letter, block),) = axes.blocks
    split = array.transpose(axes.places)
    place = axes.plain.index(letter)
    whole, rest = divmod(shape[place], block)
    for before in np.ndindex(split.shape[:place]):
        yield from pieces_of(split[before][:whole], most)
        if rest:
            yield from pieces_of(split[before][whole, :rest], most)


def pieces_of(array: Array, most: int) -> Iterator[Array]:
    """Yield the elements of an array in order, as flat arrays of at most so many."""
    if array.size <= most:
        yield array.reshape(-1)
        return
    count = max(most * len(array) // array.size, 1)
    for start in range(0, len(array), count):
        part = array[start : start + count]
        yield from pieces_of(part[0] if len(part) == 1 else part, most)


def is_padded(padded: Sequence[int], shape: Sequence[int], layout: str) -> bool:
    """Return whether a plain shape fills the blocks of a layout up to a padded shape."""
    axes = axes_of(layout)
    if axes is None or not len(shape) == len(padded) == len(axes.plain):
        return False
    sizes = dict(axes.blocks)
    return all(
        0 <= whole - size < sizes.get(letter, 1)
        for letter, whole, size in zip(axes.plain, padded, shape, strict=True)
    )


def known_axes(shape: Sequence[int], layout: str) -> Axes:
    """Return the axes of a blocked layout.

    Raises:
        ValueError: no tensor of this layout has this shape, or there is no such layout.
    """
    axes = axes_of(layout)
    if axes is None or not fits_layout(shape, layout):
        raise ValueError(f"{tuple(shape)} is not a shape of the layout {layout!r}")
    return axes
