"""Convolutions and poolings, over images of any number of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.reference.implementations import Array, Call, implements, real


def attributes_of(given: Mapping[str, Any], count: int) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and the padding that is asked for, before all of `count` axes and
    then behind them."""
    pads = given.get("pads") if given.get("auto_pad", "NOTSET") == "NOTSET" else None
    strides, holes = (given.get(name) or [1] * count for name in ("strides", "dilations"))
    return strides, holes, [*(pads or [0] * (2 * count))]


def windows_of(
    x: Array, kernel: Sequence[int], given: Mapping[str, Any], fill: Any = 0
) -> tuple[Array, bool]:
    """Return the windows {N,C,pixels...,kernel...} of a tensor {N,C,...} that a convolution or a
    pooling takes, without a copy of what they share; and whether they go beyond the padding that
    is asked for. The attributes are ONNX's."""
    count, beyond, reaches = len(kernel), False, []
    strides, holes, pads = attributes_of(given, count)
    auto = given.get("auto_pad", "NOTSET")
    for at, (size, step) in enumerate(zip(x.shape[2:], strides, strict=True)):
        reach = holes[at] * (kernel[at] - 1) + 1
        reaches.append(reach)
        if auto.startswith("SAME"):
            lacking = max(0, (-(-size // step) - 1) * step + reach - size)
            pads[at] = (lacking + (auto == "SAME_LOWER")) // 2
            pads[count + at] = lacking - pads[at]
        elif given.get("ceil_mode"):
            whole = size + pads[at] + pads[count + at]
            steps = -(-(whole - reach) // step)
            steps -= steps * step >= size + pads[at]  # the last one begins before the end
            more = max(0, steps * step + reach - whole)
            pads[count + at] += more
            beyond = beyond or more > 0
    around = zip(pads[:count], pads[count:], strict=True)
    padded = np.pad(x, [(0, 0), (0, 0), *around], constant_values=fill)
    windows: Any = sliding_window_view(padded, reaches, [*range(2, 2 + count)])  # type: ignore[call-overload]
    places = tuple(slice(None, None, step) for step in (1, 1, *strides, *holes))
    return np.asarray(windows[places]), beyond


def add_bias(sums: Array, bias: Array | None) -> Array:
    """Return sums {N,C,...} with a number added to each channel."""
    return sums if bias is None else sums + real(bias).reshape([-1, *[1] * (sums.ndim - 2)])


@implements("Conv")
def convolve(call: Call) -> Array:
    """Return a convolution, by products of the windows with weights {M,C/group,kernel...}."""
    x, w, bias = call.take(3)
    windows, _ = windows_of(x, w.shape[2:], call.attributes)
    axes, group = w.ndim - 2, call.get("group", 1)
    pixels = windows.shape[2 : 2 + axes]
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    shape = (len(x), group, w[0].size, int(np.prod(pixels)))
    rows = w.reshape(group, w.shape[0] // group, w[0].size)
    sums = np.asarray(rows @ windows.transpose(order).reshape(shape))
    return add_bias(sums.reshape(len(x), w.shape[0], *pixels), bias)


@implements("ConvTranspose")
def convolve_transposed(call: Call) -> Array:
    """Return the input that a convolution would have had; sizes that are asked for become padding.

    Raises:
        NoTruthHere: the windows do not reach as far.
    """
    x, w, bias = call.take(3)
    sizes, kernel, axes = x.shape[2:], w.shape[2:], x.ndim - 2
    strides, holes, pads = attributes_of(call.attributes, axes)
    extra = call.get("output_padding") or [0] * axes
    rows = zip(sizes, kernel, strides, holes, extra, strict=True)
    full = [(size - 1) * step + (k - 1) * hole + 1 + more for size, k, step, hole, more in rows]
    wanted = call.get("output_shape") or ()
    if not wanted and call.get("auto_pad", "NOTSET").startswith("SAME"):
        wanted = [size * step for size, step in zip(sizes, strides, strict=True)]
        if any(size < more for size, more in zip(full, wanted, strict=True)):
            raise NoTruthHere("engines do not fill what the windows leave open")
    for at, size in enumerate(wanted[-axes:]):
        full[at] = max(full[at], size)
        cut = full[at] - size
        pads[at] = cut // 2 if call.get("auto_pad") == "SAME_UPPER" else cut - cut // 2
        pads[axes + at] = cut - pads[at]
    group = call.get("group", 1)
    data = x.reshape(len(x), group, len(w) // group, -1)
    weights = w.reshape(group, len(w) // group, *w.shape[1:]).swapaxes(1, 2)
    sums = np.zeros((len(x), group * w.shape[1], *full))
    for tap in np.ndindex(*kernel):
        place: list[Any] = [..., *tap]
        products = weights[tuple(place)] @ data
        begins = [at * hole for at, hole in zip(tap, holes, strict=True)]
        ends = zip(begins, sizes, strides, strict=True)
        places: list[Any] = [..., *(slice(at, at + size * step, step) for at, size, step in ends)]
        sums[tuple(places)] += products.reshape(len(x), -1, *sizes)
    inner = zip(pads, full, pads[axes:], strict=False)
    kept: list[Any] = [..., *(slice(first, size - last) for first, size, last in inner)]
    return add_bias(sums[tuple(kept)], bias)


@implements("MaxPool", "GlobalMaxPool")
def pool_most(call: Call) -> Array:
    """Return the largest number of each window; its place is not computed."""
    (x,) = call.inputs
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    windows, _ = windows_of(x, call.get("kernel_shape", x.shape[2:]), call.attributes, least)
    return np.asarray(windows.max(axis=tuple(range(x.ndim, windows.ndim))))


@implements("AveragePool")
def pool_mean(call: Call) -> Array:
    """Return the mean of each window, with or without the padding that was asked for.

    Raises:
        NoTruthHere: before opset 19 it was open whether values beyond it count.
    """
    (x,), kernel = call.inputs, call.get("kernel_shape")
    windows, beyond = windows_of(x, kernel, call.attributes)
    axes = tuple(range(x.ndim, windows.ndim))
    if not call.get("count_include_pad"):
        ones, _ = windows_of(np.ones((1, 1, *x.shape[2:])), kernel, call.attributes)
        return np.asarray(windows.sum(axis=axes) / ones.sum(axis=axes))
    if beyond:
        raise NoTruthHere("whether what stands beyond the padding counts was open for long")
    return np.asarray(windows.mean(axis=axes))


@implements("LpPool", "GlobalLpPool")
def pool_norm(call: Call) -> Array:
    """Return the norm of each window."""
    (x,), order = call.inputs, call.get("p", 2)
    kernel = call.get("kernel_shape", x.shape[2:])
    windows, _ = windows_of(np.abs(x) ** order, kernel, call.attributes)
    return np.asarray(windows.sum(axis=tuple(range(x.ndim, windows.ndim))) ** (1 / order))
