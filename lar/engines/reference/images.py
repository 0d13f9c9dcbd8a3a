"""Operators over images of any number of axes: convolutions and poolings; Resize, Upsample and
GridSample, which take values between the pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.reference.implementations import Array, Call, implements, real

# Which pixel is the nearest to a place.
NEAREST: Mapping[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
}


def triangle(distance: Array) -> Array:
    """Return the weights of linear interpolation."""
    return np.asarray(np.maximum(0, 1 - np.abs(distance)))


def cubic(distance: Array, a: float) -> Array:
    """Return the weights of cubic interpolation."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


# The pixels around a place that count, and their weights by their distances.
SAMPLINGS: Mapping[str, tuple[Sequence[int], Callable[[Array], Array]]] = {
    "nearest": ((0,), np.ones_like),
    "linear": ((0, 1), triangle),
    **dict.fromkeys(("cubic", "bicubic"), ((-1, 0, 1, 2), partial(cubic, a=-0.75))),
}


def places_before(way: str, size: int, given: int, scale: Any, kind: Any) -> Any:
    """Return where the pixels of an axis of `given` pixels lie in one of `size` pixels."""
    x = np.arange(given).astype(kind)
    if way == "align_corners":
        return x * kind(size - 1) / kind(max(1, given - 1))
    if way == "asymmetric":
        return x / kind(scale)
    if way == "pytorch_half_pixel" and given == 1:
        return np.zeros_like(x)
    middle = (x + kind(0.5)) / kind(scale)
    return middle if way == "tf_half_pixel_for_nn" else middle - kind(0.5)


def weights_between(places: Array, size: int, factor: float, call: Call) -> Array:
    """Return the weights {places,pixels} of the pixels around each place; those that lie outside
    are excluded, or those of the edge."""
    is_cubic = call.get("mode") == "cubic"
    stretch = max(1.0, 1 / factor) if call.get("antialias") else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) * stretch))
    near = np.floor(places)[:, None].astype(int) + np.arange(1 - reach, reach + 1)
    kernel = partial(cubic, a=call.get("cubic_coeff_a", -0.75)) if is_cubic else triangle
    values = kernel((near - places[:, None]) / stretch)
    if call.get("exclude_outside"):
        values[(near < 0) | (near >= size)] = 0
    weights = np.zeros((len(places), size))
    rows = np.arange(len(places))[:, None]
    np.add.at(weights, (rows, np.clip(near, 0, size - 1)), values)
    return np.asarray(weights / values.sum(axis=1, keepdims=True))


@implements("Resize")
def resize(call: Call) -> Any:
    """Return an image of another size."""
    if call.opset < 11:
        return upsample(call)
    x, _, scales, sizes = call.take(4)
    way = call.get("coordinate_transformation_mode", "half_pixel")
    is_nearest = call.get("mode", "nearest") == "nearest"
    # Which pixel is the nearest is decided in float32, as it is wherever a network runs.
    kind = np.float32 if is_nearest else np.float64
    for at, axis in enumerate(call.get("axes", range(x.ndim))):
        before = x.shape[axis]
        if sizes is None or not sizes.size:
            # The product in float32, of which the sizes that shape inference gives are made.
            factor, given = scales[at], int(np.float32(before) * np.float32(scales[at]))
        else:
            factor, given = int(sizes[at]) / before, int(sizes[at])
        if factor == 1:
            continue
        places = places_before(way, before, given, factor, kind)
        if is_nearest:
            pixels = NEAREST[call.get("nearest_mode", "round_prefer_floor")](places)
            x = x.take(np.clip(pixels, 0, before - 1).astype(int), axis=axis)
        else:
            weights = weights_between(places, before, factor, call)
            x = np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)
    return x


@implements("Upsample")
def upsample(call: Call) -> Any:
    """Return a larger image, as Upsample and the first Resize made it.

    Raises:
        NoTruthHere: it is smaller, and made of single pixels: the standard does not say which.
    """
    x, factors = call.take(2)
    factors = np.asarray(call.get("scales")) if factors is None else factors
    if call.get("mode", "nearest") == "nearest" and factors.min() < 1:
        raise NoTruthHere("the standard does not say which pixel is the nearest")
    given = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(Call("Resize", (x, None, factors), {**call.attributes, **given}))


@implements("GridSample")
def sample_grid(call: Call) -> Array:
    """Return the values of images {N,C,...} at the places {N,...,axes} of a grid from -1 to 1, the
    last axis first."""
    x, grid = call.inputs
    sizes, where = np.array(x.shape[2:]), (grid[..., ::-1] + 1) / 2
    places = where * (sizes - 1) if call.get("align_corners") else where * sizes - 0.5
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    offsets, kernel = SAMPLINGS.get(mode, SAMPLINGS["linear"])
    first = np.rint(places) if mode == "nearest" else np.floor(places)
    item = np.arange(len(x)).reshape([-1, *[1] * (grid.ndim - 2)])
    total = np.zeros((*grid.shape[:-1], x.shape[1]))
    for offset in product(offsets, repeat=len(sizes)):
        near = first + np.array(offset)
        weight = kernel(near - places).prod(axis=-1)
        if padding == "zeros":
            weight = np.where(((near < 0) | (near >= sizes)).any(axis=-1), 0, weight)
        elif padding == "reflection":  # at the middle of the pixels of the edge, or at their ends
            span = 2 * sizes - 2 * bool(call.get("align_corners"))
            near = np.mod(near, np.maximum(span, 1))
            near = np.minimum(near, 2 * sizes - 1 - near - (span < 2 * sizes))
        near = np.clip(near, 0, sizes - 1).astype(int)
        index: list[Any] = [item, slice(None), *np.moveaxis(near, -1, 0)]
        total += weight[..., None] * x[tuple(index)]
    return np.moveaxis(total, -1, 1)


# Convolutions and poolings


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
