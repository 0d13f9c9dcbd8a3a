"""Blocked layouts: tensors that keep a few channels of a pixel together, and their plain form.

Every layout has a tag in oneDNN's notation: the axes from the outermost to the innermost. An axis
is a capital if blocks behind contain a part of it; each block has its size. Plain data is nchw.
With blocks of b channels:

    nchw4 nchw44 nchw44_dot nchw88 nchw32 nchw64    nChw<b>c    MegEngine
    nchw8c nchw16c                                  nChw<b>c    ONNX Runtime
    chwn4                                           Chwn4c      MegEngine on CUDA
    nhwcd4                                          nhCw4c      MegEngine on OpenCL
    nhwc                                            nhwc        ONNX Runtime, of int8

Layouts of weights have their tags as names. Plain weights are oihw, output channels first, and
goihw if there are groups of channels.

If the channels of a plain tensor do not fill its blocks, zeros follow, or whatever the engine left
there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from lar.dumps.dump import Array

CHANNELS_LAST = "nhwc"
TAGS: Mapping[str, str] = {
    **dict.fromkeys(("nchw4", "nchw44", "nchw44_dot"), "nChw4c"),
    **dict.fromkeys(("nchw8", "nchw88"), "nChw8c"),
    **{f"nchw{block}": f"nChw{block}c" for block in (32, 64)},
    "chwn4": "Chwn4c",
    "nhwcd4": "nhCw4c",
}
NCHWC = re.compile(r"nchw([1-9]\d{0,2}c)")
TAG = re.compile(r"([gGoOiIhw]{4,5}|[nchwC]{4})((?:\d{1,3}[goic])+)|(nhwc)")
PLAIN_ORDERS = ("nchw", "oihw", "goihw")


class Axes(NamedTuple):
    """The axes of a layout.

    `plain` has the plain axes in order, `outer` the array's axes from the outermost to the
    innermost, `blocks` the blocked axes with their sizes.
    """

    plain: str
    outer: str
    blocks: tuple[tuple[str, int], ...]

    @property
    def places(self) -> tuple[int, ...]:
        """The places in the array of the parts of each plain axis, one axis after the other."""
        letters = [*self.outer, *(letter for letter, _ in self.blocks)]
        return tuple(sorted(range(len(letters)), key=lambda it: self.plain.index(letters[it])))


NO_AXES = Axes("", "", ())


def block_of(layout: str) -> int:
    """Return how many channels a block of a layout of data has, 0 for any other layout."""
    axes = axes_of(layout)
    return axes.blocks[0][1] if axes.plain == "nchw" and axes.blocks else 0


@cache
def axes_of(layout: str) -> Axes:
    """Return the axes of a layout that is not plain, `NO_AXES` for any other."""
    found = TAG.fullmatch(TAGS.get(layout) or NCHWC.sub(r"nChw\1", layout))
    order, tail = (found[1] or found[3], found[2] or "") if found else ("", "")
    parts = re.findall(r"(\d+)([a-z])", tail)
    plain = next((it for it in PLAIN_ORDERS if sorted(it) == sorted(order.lower())), "")
    blocked = sorted(letter.upper() for _, letter in parts)
    if not plain or blocked != sorted(filter(str.isupper, order)):
        return NO_AXES
    return Axes(plain, order.lower(), tuple((letter, int(size)) for size, letter in parts))


def fits_layout(shape: Sequence[int], layout: str) -> bool:
    """Return whether a tensor of this blocked layout can have this shape."""
    axes = axes_of(layout)
    blocks = tuple(size for _, size in axes.blocks)
    return len(shape) >= len(axes.outer) > 0 and tuple(shape[len(axes.outer) :]) == blocks


def plain_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the plain shape of a blocked tensor, with all channels in its blocks."""
    axes = axes_of(layout)
    sizes = dict(axes.blocks)
    return tuple(shape[axes.outer.index(it)] * sizes.get(it, 1) for it in axes.plain)


def to_plain(array: Array, layout: str, shape: Sequence[int] | None = None) -> Array:
    """Return a blocked tensor in plain axes, cut to its plain shape if that is given."""
    plain = array.transpose(axes_of(layout).places).reshape(plain_shape(array.shape, layout))
    return plain[tuple(map(slice, shape or ()))]


def in_plain_order(array: Array, layout: str, shape: Sequence[int]) -> Array:
    """Return the elements of `to_plain` in order, but in other axes.

    This makes no copy unless it cuts padding.
    """
    if plain_shape(array.shape, layout) == tuple(shape):
        return array.transpose(axes_of(layout).places)
    return to_plain(array, layout, shape)


def to_blocked(array: Array, layout: str, shape: Sequence[int]) -> Array:
    """Return a plain array in a blocked layout, as a tensor of that shape is stored.

    Zeros fill up the blocks.
    """
    import numpy as np

    padded, places = plain_shape(shape, layout), axes_of(layout).places
    filled = np.zeros(padded, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    blocked = filled.reshape([shape[place] for place in places])
    return np.ascontiguousarray(blocked.transpose(np.argsort(places)))


def is_padded(padded: Sequence[int], shape: Sequence[int], layout: str) -> bool:
    """Return whether a shape with its blocks filled up is the padded shape."""
    axes = axes_of(layout)
    sizes = [dict(axes.blocks).get(letter, 1) for letter in axes.plain]
    return len(shape) == len(padded) == len(sizes) and all(
        0 <= whole - part < size for size, whole, part in zip(sizes, padded, shape, strict=True)
    )
