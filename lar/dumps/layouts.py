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
    axes = axes_of(layout)
    return axes.blocks[0][1] if axes and axes.plain == "nchw" and axes.blocks else 0


@cache
def axes_of(layout: str) -> Axes | None:
    """Return the axes of a layout that is not plain, None for any other layout."""
    found = TAG.fullmatch(TAGS.get(layout) or NCHWC.sub(r"nChw\1", layout))
    if found is None:
        return None
    order, parts = found[1] or found[3], re.findall(r"(\d+)([a-z])", found[2] or "")
    plain = next((it for it in PLAIN_ORDERS if sorted(it) == sorted(order.lower())), "")
    blocked = [letter for _, letter in parts]
    if not plain or sorted(blocked) != sorted(it.lower() for it in order if it.isupper()):
        return None
    return Axes(plain, order.lower(), tuple((letter, int(size)) for size, letter in parts))


def fits_layout(shape: Sequence[int], layout: str) -> bool:
    """Return whether a tensor of a blocked layout can have a shape."""
    axes = axes_of(layout)
    if axes is None or len(shape) < len(axes.outer):
        return False
    return tuple(shape[len(axes.outer) :]) == tuple(size for _, size in axes.blocks)


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
    check_padded(padded, padded if shape is None else shape, layout)
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
    check_padded(padded, array.shape, layout)
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
    if len(axes.blocks) != 1:
        yield from pieces_of(to_plain(array, layout, shape), most)
        return
    check_padded(plain_shape(array.shape, layout), shape, layout)
    ((letter, block),) = axes.blocks
    split, place = array.transpose(axes.places), axes.plain.index(letter)
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
    sizes = [dict(axes.blocks).get(letter, 1) for letter in axes.plain] if axes else []
    return len(shape) == len(padded) == len(sizes) > 0 and all(
        0 <= whole - part < size for size, whole, part in zip(sizes, padded, shape, strict=True)
    )


def check_padded(padded: Sequence[int], shape: Sequence[int], layout: str) -> None:
    """Refuse a plain shape that does not fill the blocks of a layout up to a padded one.

    Raises:
        ValueError: so it is.
    """
    if not is_padded(padded, shape, layout):
        raise ValueError(f"{tuple(shape)} does not fill the blocks of {tuple(padded)}")


def known_axes(shape: Sequence[int], layout: str) -> Axes:
    """Return the axes of a blocked layout.

    Raises:
        ValueError: no tensor of this layout has this shape, or there is no such layout.
    """
    axes = axes_of(layout)
    if axes is None or not fits_layout(shape, layout):
        raise ValueError(f"{tuple(shape)} is not a shape of the layout {layout!r}")
    return axes
