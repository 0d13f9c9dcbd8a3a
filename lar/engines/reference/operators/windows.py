"""Convolutions and poolings, over images of any number of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lar.engines.reference.implementations import (
    Array,
    Call,
    NoTruthHere,
    compute_as_onnx,
    implements,
    real,
)


class Window(NamedTuple):
    """The windows of a convolution or a pooling: how far each axis is padded, and what it takes.

    `beyond` is how much of the padding behind each axis nobody asked for.
    """

    kernel: Sequence[int]
    pads: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    beyond: Sequence[int]

    @classmethod
    def of(cls, sizes: Sequence[int], kernel: Sequence[int], given: Mapping[str, Any]) -> Window:
        """Make them of ONNX's attributes, for an image of these sizes."""
        count = len(kernel)
        strides, holes = (given.get(name) or [1] * count for name in ("strides", "dilations"))
        auto, pads = given.get("auto_pad", "NOTSET"), [*(given.get("pads") or [0] * (2 * count))]
        pads = pads if auto == "NOTSET" else [0] * (2 * count)
        beyond = [0] * count
        for at, (size, step) in enumerate(zip(sizes, strides, strict=True)):
            reach = holes[at] * (kernel[at] - 1) + 1
            if auto.startswith("SAME"):
                lacking = max(0, (-(-size // step) - 1) * step + reach - size)
                pads[at] = (lacking + (auto == "SAME_LOWER")) // 2
                pads[count + at] = lacking - pads[at]
            elif given.get("ceil_mode"):
                whole = size + pads[at] + pads[count + at]
                steps = -(-(whole - reach) // step)
                steps -= steps * step >= size + pads[at]  # the last one begins before the end
                beyond[at] = max(0, steps * step + reach - whole)
                pads[count + at] += beyond[at]
        return cls(kernel, pads, strides, holes, beyond)

    def views(self, x: Array, fill: Any = 0) -> Array:
        """Return the windows {N,C,pixels...,kernel...} of a tensor {N,C,...}, without a copy of
        what they share."""
        count = len(self.kernel)
        around = zip(self.pads[:count], self.pads[count:], strict=True)
        padded = np.pad(x, [(0, 0), (0, 0), *around], constant_values=fill)
        pairs = zip(self.kernel, self.dilations, strict=True)
        reach: Any = tuple(step * (size - 1) + 1 for size, step in pairs)
        windows: Any = sliding_window_view(padded, reach, tuple(range(2, 2 + count)))  # type: ignore[call-overload]
        steps = [slice(None, None, step) for step in (1, 1, *self.strides, *self.dilations)]
        return np.asarray(windows[tuple(steps)])


def convolve(x: Array, w: Array, bias: Array | None, given: Mapping[str, Any]) -> Array:
    """Return a convolution, by products of the windows with weights {M,C/group,kernel...}; the
    attributes are ONNX's."""
    windows = Window.of(x.shape[2:], w.shape[2:], given).views(x)
    axes, group = w.ndim - 2, given.get("group", 1)
    pixels = windows.shape[2 : 2 + axes]
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    shape = (len(x), group, w[0].size, int(np.prod(pixels)))
    rows = w.reshape(group, w.shape[0] // group, w[0].size)
    sums = np.asarray(rows @ windows.transpose(order).reshape(shape))
    sums = sums.reshape(len(x), w.shape[0], *pixels)
    return sums if bias is None else sums + real(bias).reshape([-1, *[1] * axes])


@implements("Conv")
def convolve_image(call: Call) -> Array:
    x, w, bias = call.take(3)
    return convolve(x, w, bias, call.attributes)


@implements("ConvTranspose")
def convolve_transposed(call: Call) -> Array:
    """Return what a convolution would have been made of; sizes that are asked for become padding.

    Raises:
        NoTruthHere: the padding would be negative.
    """
    x, w, bias = call.take(3)
    axes, given = x.ndim - 2, {**call.attributes, "pads": [0] * (2 * (x.ndim - 2))}
    auto, wanted = given.pop("auto_pad", "NOTSET"), given.pop("output_shape", ())
    nothing = [0] * (2 * axes)
    extra = [*(given.get("output_padding") or [0] * axes)]
    pads = [*(call.get("pads") or nothing)] if auto == "NOTSET" else nothing
    if wanted or auto.startswith("SAME"):
        strides = given.get("strides") or [1] * axes
        holes = given.get("dilations") or [1] * axes
        for at, (size, step) in enumerate(zip(x.shape[2:], strides, strict=True)):
            full = (size - 1) * step + (w.shape[2 + at] - 1) * holes[at] + 1 + extra[at]
            cut = full - (wanted[at - axes] if wanted else size * step)
            if cut < 0 and not wanted:
                raise NoTruthHere("its padding would be negative")
            extra[at] -= min(cut, 0)
            cut = max(cut, 0)
            pads[at] = cut // 2 if auto == "SAME_UPPER" else cut - cut // 2
            pads[axes + at] = cut - pads[at]
    given["output_padding"] = extra
    group = given.pop("group", 1)
    pairs = zip(np.split(x, group, axis=1), np.split(w, group), strict=True)
    parts = [compute_as_onnx(call.type, *each, opset=call.opset, **given) for each in pairs]
    sums = np.concatenate(parts, axis=1)
    for at in range(axes):
        sums = sums.take(range(pads[at], sums.shape[2 + at] - pads[axes + at]), axis=2 + at)
    return sums if bias is None else np.asarray(sums + bias.reshape([-1, *[1] * axes]))


@implements("MaxPool")
def pool_most(call: Call) -> tuple[Array, ...]:
    """Return the largest number of each window, and where it stands."""
    (x,), kernel = call.inputs, call.get("kernel_shape")
    window, axes = Window.of(x.shape[2:], kernel, call.attributes), len(kernel)
    windows = window.views(x, -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min)
    flat = windows.reshape(*windows.shape[: 2 + axes], -1)
    most = flat.max(axis=-1)
    if call.outputs < 2:
        return (most,)
    numbers = np.arange(x.size).reshape(x.shape)
    if call.get("storage_order"):
        turned = (*x.shape[:2], *x.shape[:1:-1])
        numbers = numbers.reshape(turned).transpose(0, 1, *range(1 + axes, 1, -1))
    every = window.views(numbers, -1).reshape(flat.shape)
    return most, np.where((flat == most[..., None]) & (every >= 0), every, x.size).min(axis=-1)


@implements("AveragePool")
def pool_mean(call: Call) -> Array:
    """Return the mean of each window, with or without the padding that was asked for; not what
    stands beyond it.

    Raises:
        NoTruthHere: whether it counts was open before opset 19.
    """
    (x,) = call.inputs
    window = Window.of(x.shape[2:], call.get("kernel_shape"), call.attributes)
    axes, inner = tuple(range(x.ndim, 2 * x.ndim - 2)), window
    ones = np.ones((1, 1, *x.shape[2:]))
    if call.get("count_include_pad"):
        if call.opset < 19 and any(window.beyond):
            raise NoTruthHere("whether what stands beyond the padding counts was open then")
        count = len(axes)
        ends = zip(window.pads[:count], window.pads[count:], window.beyond, strict=True)
        around = [(0, 0), (0, 0), *((first, last - more) for first, last, more in ends)]
        ones = np.pad(ones, around, constant_values=1)
        inner = window._replace(pads=[*[0] * count, *window.beyond])
    return np.asarray(window.views(x).sum(axis=axes) / inner.views(ones).sum(axis=axes))


@implements("LpPool", "GlobalLpPool", "GlobalMaxPool")
def pool_norm(call: Call) -> Array:
    """Return the norm of each window, or that or the largest number of all pixels."""
    (x,), p = call.inputs, call.get("p", 2)
    axes = tuple(range(2, x.ndim))
    if call.type == "GlobalMaxPool":
        return np.asarray(x.max(axis=axes, keepdims=True))
    powers = np.abs(x) ** p
    if call.type == "GlobalLpPool":
        return np.asarray(powers.sum(axis=axes, keepdims=True) ** (1 / p))
    windows = Window.of(x.shape[2:], call.get("kernel_shape"), call.attributes).views(powers)
    return np.asarray(windows.sum(axis=tuple(range(x.ndim, windows.ndim))) ** (1 / p))
