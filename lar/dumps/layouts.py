"""Blocked layouts: tensors that keep a few channels of a pixel together, and the way to plain ones.

Plain is {N,C,H,W}. With blocks of b channels:

    nchw4 nchw44 nchw44_dot nchw88 nchw32 nchw64    {N,C/b,H,W,b}    MegEngine
    nchw8c nchw16c                                  {N,C/b,H,W,b}    ONNX Runtime
    chwn4                                           {C/4,H,W,N,4}    MegEngine on CUDA
    nhwcd4                                          {N,H,C/4,W,4}    MegEngine on OpenCL

The channels of a plain tensor that do not fill its blocks are followed by zeros, or by what the
engine left there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

# Where the axes N, C/b, b, H, W of a plain tensor stand in a blocked one.
AXES: Mapping[str, tuple[int, ...]] = {"chwn4": (3, 0, 4, 1, 2), "nhwcd4": (0, 2, 4, 1, 3)}
USUAL_AXES = (0, 1, 4, 2, 3)


def block_of(layout: str) -> int:
    """Return how many channels a block of a layout has, 0 where it is no blocked layout."""
    found = NCHWC.fullmatch(layout)
    return int(found[1]) if found else BLOCKS.get(layout, 0)


def plain_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the shape of a blocked tensor's plain form, with the channels that its blocks hold.

    Raises:
        ValueError: no tensor of this layout has this shape.
    """
    check_shape(shape, layout)
    batch, blocks, block, height, width = (shape[axis] for axis in AXES.get(layout, USUAL_AXES))
    return batch, blocks * block, height, width


def to_plain(array: Array, layout: str, channels: int | None = None) -> Array:
    """Return a blocked tensor as {N,C,H,W}, cut to that many channels if they are known.

    Raises:
        ValueError: no tensor of this layout has this shape, or so many channels.
    """
    shape = plain_shape(array.shape, layout)
    if channels is not None and not 0 <= shape[1] - channels < max(block_of(layout), 1):
        raise ValueError(f"{channels} channels do not fill the blocks of {array.shape}")
    plain = array.transpose(AXES.get(layout, USUAL_AXES)).reshape(shape)
    return plain[:, :channels]


def to_blocked(array: Array, layout: str) -> Array:
    """Return a tensor {N,C,H,W} in a blocked layout, its last block filled up with zeros.

    Raises:
        ValueError: the tensor has not four axes, or the layout is none.
    """
    import numpy as np

    block = block_of(layout)
    if not block or array.ndim != 4:
        raise ValueError(f"{array.shape} cannot be brought into the layout {layout!r}")
    padded = np.pad(array, ((0, 0), (0, -array.shape[1] % block), (0, 0), (0, 0)))
    batch, channels, height, width = padded.shape
    blocks = padded.reshape(batch, channels // block, block, height, width)
    return blocks.transpose(np.argsort(AXES.get(layout, USUAL_AXES)))


def check_shape(shape: Sequence[int], layout: str) -> None:
    """Refuse a shape that no tensor of a layout has.

    Raises:
        ValueError: so it is, or there is no such layout.
    """
    block = block_of(layout)
    if not block or len(shape) != 5 or shape[-1] != block:
        raise ValueError(f"{tuple(shape)} is no shape of the layout {layout!r}")
