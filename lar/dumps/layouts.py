"""Blocked layouts, in which a few channels of a pixel lie together, and plain layouts.

Every layout has a tag in oneDNN's notation, which lists the axes from the outermost to the
innermost. A capital letter is an axis that is divided into blocks; the size of a block and its
axis stand at the end of the tag. Plain data is nchw.

A layout with blocks of b channels has the tag nChw<b>c. MegEngine's layouts with blocks are nchw4,
nchw44, nchw44_dot, nchw88, nchw32 and nchw64. ONNX Runtime's layouts with blocks are nchw8c and
nchw16c. MegEngine's layout chwn4 on CUDA has the tag Chwn4c, and the layout nhwcd4 on OpenCL has
the tag nhCw4c. ONNX Runtime uses nhwc for int8.

A layout of weights is named by its tag. Plain weights are oihw, output channels first, or goihw if
there are groups of channels.

If the channels of a tensor do not fill the last block, the rest of the block contains zeros, or
what the engine left in memory.

This module also finds the blocked layouts of a dump's tensors, from the operators around them.

Five axes alone do not prove that a tensor is blocked, since videos have five axes too. The layout
of an operator's output is certain if the engine names the format, or if the result of a
two-dimensional convolution has five axes. If an operator does not change the layout, and the layout
of one of its tensors is certain, its other tensors have this layout too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from lar.dumps import Array, DumpedOperator, DumpedTensor

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

    `plain` has the plain axes in order. `outer` has the array's axes without the blocks, from the
    outermost to the innermost. `blocks` has the axis and the size of each block.
    """

    plain: str
    outer: str
    blocks: tuple[tuple[str, int], ...]

    @property
    def places(self) -> tuple[int, ...]:
        """The order of the array's axes that puts the parts of each plain axis side by side."""
        letters = [*self.outer, *(letter for letter, _ in self.blocks)]
        return tuple(sorted(range(len(letters)), key=lambda it: self.plain.index(letters[it])))


NO_AXES = Axes("", "", ())


def block_of(layout: str) -> int:
    """Return the number of channels in a block of a data layout; 0 for any other layout."""
    axes = axes_of(layout)
    return axes.blocks[0][1] if axes.plain == "nchw" and axes.blocks else 0


@cache
def axes_of(layout: str) -> Axes:
    """Return the axes of a blocked layout, or `NO_AXES` for a plain or unknown layout."""
    found = TAG.fullmatch(TAGS.get(layout) or NCHWC.sub(r"nChw\1", layout))
    order, tail = (found[1] or found[3], found[2] or "") if found else ("", "")
    parts = re.findall(r"(\d+)([a-z])", tail)
    plain = next((it for it in PLAIN_ORDERS if sorted(it) == sorted(order.lower())), "")
    blocked = sorted(letter.upper() for _, letter in parts)
    if not plain or blocked != sorted(filter(str.isupper, order)):
        return NO_AXES
    return Axes(plain, order.lower(), tuple((letter, int(size)) for size, letter in parts))


def fits_layout(shape: Sequence[int], layout: str) -> bool:
    """Return whether a tensor in this blocked layout can have this shape."""
    axes = axes_of(layout)
    blocks = tuple(size for _, size in axes.blocks)
    return len(shape) >= len(axes.outer) > 0 and tuple(shape[len(axes.outer) :]) == blocks


def plain_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the plain shape of a blocked tensor; padding counts as channels."""
    axes = axes_of(layout)
    sizes = dict(axes.blocks)
    return tuple(shape[axes.outer.index(it)] * sizes.get(it, 1) for it in axes.plain)


def to_plain(array: Array, layout: str, shape: Sequence[int] | None = None) -> Array:
    """Return a blocked tensor in plain axes (such as NCHW), cut to `shape` if `shape` is given."""
    plain = array.transpose(axes_of(layout).places).reshape(plain_shape(array.shape, layout))
    return plain[tuple(map(slice, shape or ()))]


def in_plain_order(array: Array, layout: str, shape: Sequence[int]) -> Array:
    """Return the elements in the order of `to_plain`, but perhaps as an array with more axes.

    The array is copied only if padding must be cut.
    """
    if plain_shape(array.shape, layout) == tuple(shape):
        return array.transpose(axes_of(layout).places)
    return to_plain(array, layout, shape)


def to_blocked(array: Array, layout: str, shape: Sequence[int]) -> Array:
    """Return a plain array in a blocked layout.

    `shape` is the shape of the blocked array.

    Zeros fill up the blocks.
    """
    import numpy as np

    padded, places = plain_shape(shape, layout), axes_of(layout).places
    filled = np.zeros(padded, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    blocked = filled.reshape([shape[place] for place in places])
    return np.ascontiguousarray(blocked.transpose(np.argsort(places)))


def is_padded(padded: Sequence[int], shape: Sequence[int], layout: str) -> bool:
    """Return whether `padded` is `shape` with the last block of each axis filled up."""
    axes = axes_of(layout)
    sizes = [dict(axes.blocks).get(letter, 1) for letter in axes.plain]
    return len(shape) == len(padded) == len(sizes) and all(
        0 <= whole - part < size for size, whole, part in zip(sizes, padded, shape, strict=True)
    )


CONVOLUTIONS = ("ConvolutionForward", "ConvBiasForward")

# All inputs and outputs of these operators have one layout, except constants with fewer axes.
KEEPING = re.compile(
    r"ConvolutionForward|ConvBiasForward|Elemwise(MultiType)?|TypeCvt|Concat|Identity"
    r"|(Adaptive)?PoolingForward|ResizeForward|WarpPerspectiveForward"
    r"|QLinear(Add|Mul|Concat|LeakyRelu|Sigmoid)"
)

# The layout for an engine's name of a tensor format.
LAYOUTS = {
    r"I2D\{2,.*": "nhwcd4",
    r"NCHWC\{(\d{1,3})\}": r"nchw\1c",
    r"OIHWC\{(\d{1,3})\}": r"Oihw\1o",
    r"OIHWC\{(\d{1,3}),\d{1,3}\}": r"OIhw\1i\1o",
}

FORMATS = re.compile(r"(NCHW44_DOT|[A-Z]+\d*)(?:_(NCHW44_DOT|[A-Z]+\d*))?")


def layouts_of(
    tensors: Sequence[DumpedTensor], operators: Sequence[DumpedOperator]
) -> dict[str, str]:
    """Return the layouts of the tensors that are certainly blocked, by key.

    The `layout` that a tensor already has is used if it fits the shape of the tensor.
    """
    known = {tensor.key: tensor for tensor in tensors}
    found = {it.key: it.layout for it in tensors if fits_layout(it.shape, it.layout)}

    def mark(keys: Iterable[str], layout: str) -> None:
        for key in keys:
            if key in known and key not in found and fits_layout(known[key].shape, layout):
                found[key] = layout

    for operator in operators:
        before, after = layouts_of_operator(operator, known)
        mark(operator.outputs, after)
        if after == CHANNELS_LAST or operator.type in CONVOLUTIONS:
            mark(operator.inputs[:1], before)
        if operator.type in CONVOLUTIONS:
            group = operator.parameters.get("sparse") == "GROUP"
            for weight in filter(known.__contains__, operator.inputs[1:2]):
                mark([weight], layout_of_weight(known[weight].shape, before, after, group))
    count = -1
    while len(found) > count:
        count = len(found)
        for operator in operators:
            if KEEPING.fullmatch(operator.type):
                # The second and third inputs of a convolution are weights and bias.
                skipped = 2 if operator.type in CONVOLUTIONS else 0
                around = [*operator.outputs, *operator.inputs[skipped:]]
                mark(around, next((found[key] for key in around if key in found), ""))
    return found


def layout_of_weight(shape: tuple[int, ...], before: str, after: str, group: bool) -> str:
    """Return the layout of a convolution's weights, empty if it is unknown or plain.

    `before` and `after` are the layouts of the convolution's input and output. `group` says that
    the engine calls the operator a group convolution. The layouts of weights are taken from
    `ConvBias` and `opr_param_defs.py` of MegDNN, and from dumps of MegEngine 1.13.
    """
    block = block_of(after)
    if after == "chwn4":
        tags = ["Ihwo4i"]
    elif re.fullmatch(r"nchw(4|32|64)", before):  # only blocks of input channels
        tags = [f"oIhw{block_of(before)}i", f"goIhw{block_of(before)}i"]
    elif after in ("nchw44", "nchw44_dot", "nchw88"):
        both = f"{block}o{block}i" if after == "nchw44_dot" else f"{block}i{block}o"
        # With one channel in each group, the shape is {G/b,1,1,FH,FW,b}. A filter of the block's
        # size may have such a shape too.
        each = shape[1:3] == (1, 1) and (group or shape[-2] != block)
        tags = [f"Goihw{block}g" if each else f"OIhw{both}", f"gOIhw{both}", f"Ohwi{block}o"]
    else:
        return ""
    return next((tag for tag in tags if fits_layout(shape, tag)), "")


def layout_of_format(text: str) -> str:
    """Return the layout for an engine's name of a tensor format; empty for an unknown format.

    `I2D{2,1}` is an image with four channels in each pixel. `NCHWC{16}` is ONNX Runtime's layout
    with blocks of 16 channels. Formats of weights, such as `OIHWC{16}`, are known too.
    """
    return next((re.sub(*it, text) for it in LAYOUTS.items() if re.fullmatch(it[0], text)), "")


def layouts_of_operator(
    operator: DumpedOperator, tensors: Mapping[str, DumpedTensor]
) -> tuple[str, str]:
    """Return the layouts of an operator's inputs and of its outputs; empty if uncertain."""
    kind, parameters = operator.type, operator.parameters
    # ONNX Runtime computes these operators with the channels of images last.
    last = kind.startswith("QLinear") and parameters.get("channels_last") == 1
    if last or kind.startswith("Nhwc"):
        return CHANNELS_LAST, CHANNELS_LAST
    named = FORMATS.fullmatch(str(parameters.get("format", "")))
    if named:
        return named[1].lower(), (named[2] or named[1]).lower()
    if kind not in CONVOLUTIONS or len(operator.inputs) < 2:
        return "", ""
    taken, weight, given = map(tensors.get, (*operator.inputs[:2], *operator.outputs[:1]))
    layout = guess_layout(given, weight) if given and weight else ""
    if re.fullmatch(r"nchw(4|32|64)", layout) and taken:  # the input may have other blocks
        return f"nchw{taken.shape[-1] if taken.shape else 0}", layout
    return layout, layout


def guess_layout(given: DumpedTensor, weight: DumpedTensor) -> str:
    """Return the layout of a two-dimensional convolution's result, such as `nchw44`.

    The result is empty if the tensor has no fifth axis, since only blocked layouts have five axes.

    In the layouts nchw4, nchw44 and chwn4, the results of a convolution have similar shapes. The
    shapes of the weights distinguish the three layouts: nchw4 has {OC,IC/4,FH,FW,4}, nchw44 has
    {OC/4,IC/4,FH,FW,4,4} or {OC/4,FH,FW,IC,4}, and chwn4 has {IC/4,FH,FW,OC,4}.
    """
    if len(given.shape) != 5 or given.shape[-1] not in (4, 8, 32, 64):
        return ""
    channels, block = given.shape[1], given.shape[-1]
    if len(weight.shape) != 5 or weight.shape[0] == channels:
        return {4: "nchw44", 8: "nchw88"}.get(block, f"nchw{block}")
    if weight.shape[0] == channels * block:
        return f"nchw{block}"
    return "chwn4" if block == 4 and weight.shape[3] == given.shape[0] * block else ""
