"""Operators that take values between the pixels of an image: Resize and its kin, GridSample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lar.engines.reference.implementations import Array, Call, NoTruthHere, implements

Kernel = Callable[[Array], Array]


def triangle(distance: Array) -> Array:
    """Return the weights of linear interpolation."""
    return np.asarray(np.maximum(0, 1 - np.abs(distance)))


def cubic(distance: Array, a: float) -> Array:
    """Return the weights of cubic interpolation."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def places_before(way: str, size: int, given: int, scale: Any, crop: Any, kind: Any) -> Any:
    """Return where in an axis of `size` pixels those of one of `given` pixels lie."""
    x, scale, half = np.arange(given).astype(kind), kind(scale), kind(0.5)
    if way == "align_corners":
        return x * kind(size - 1) / kind(max(1, given - 1))
    if way == "asymmetric":
        return x / scale
    if way == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if way == "pytorch_half_pixel" and given == 1:
        return np.zeros_like(x)
    if way == "half_pixel_symmetric":
        offset = kind(size / 2) * (1 - kind(given) / (scale * kind(size)))
        return offset + (x + half) / scale - half
    if way == "tf_crop_and_resize":
        start, end = crop
        if given == 1:
            return np.array([0.5 * (start + end) * (size - 1)])
        return start * (size - 1) + x * (end - start) * (size - 1) / (given - 1)
    return (x + half) / scale - half


def weights_between(
    places: Array, size: int, kernel: Kernel, reach: int, stretch: float, exclude: bool
) -> Array:
    """Return the weights {places,pixels} of the pixels around each place; those that lie outside
    are excluded, or those of the edge."""
    near = np.floor(places)[:, None].astype(int) + np.arange(1 - reach, reach + 1)
    values = kernel((near - places[:, None]) / stretch)
    if exclude:
        values[(near < 0) | (near >= size)] = 0
    weights = np.zeros((len(places), size))
    rows = np.arange(len(places))[:, None]
    np.add.at(weights, (rows, np.clip(near, 0, size - 1)), values)
    return np.asarray(weights / values.sum(axis=1, keepdims=True))


def nearest(places: Any, mode: str) -> Any:
    """Return the pixels next to places."""
    half = places.dtype.type(0.5)
    if mode == "round_prefer_ceil":
        return np.floor(places + half)
    if mode == "round_prefer_floor":
        return np.ceil(places - half)
    return np.floor(places) if mode == "floor" else np.ceil(places)


@implements("Resize")
def resize(call: Call) -> Any:
    """Return an image of another size.

    Raises:
        NoTruthHere: rounding on the way there decides which pixel is the nearest.
    """
    if call.opset < 11:
        return upsample(call)
    x, roi, scales, sizes = call.take(4)
    mode, pixels = call.get("mode", "nearest"), call.get("nearest_mode", "round_prefer_floor")
    way = call.get("coordinate_transformation_mode", "half_pixel")
    axes = [axis % x.ndim for axis in call.get("axes", range(x.ndim))]
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    given, factors = target_sizes([x.shape[axis] for axis in axes], scales, sizes, policy)
    roi = np.repeat([0.0, 1.0], len(axes)) if roi is None or not roi.size else roi
    kernel: Kernel = partial(cubic, a=call.get("cubic_coeff_a", -0.75))
    kernel, radius = (kernel, 2) if mode == "cubic" else (triangle, 1)
    beyond = np.zeros([1] * x.ndim, bool)
    # Which pixel is the nearest is decided in float32, as it is wherever a network runs.
    kind = np.float32 if mode == "nearest" else np.float64
    for at, axis in enumerate(axes):
        before, factor = x.shape[axis], factors[at]
        if factor == 1 and way != "tf_crop_and_resize":
            continue
        places = places_before(way, before, given[at], factor, roi[at :: len(axes)], kind)
        if way == "tf_crop_and_resize":
            outside = (places < 0) | (places > before - 1)
            beyond = beyond | outside.reshape([-1 if it == axis else 1 for it in range(x.ndim)])
        if mode == "nearest":
            if way == "half_pixel_symmetric" and not float(factor).is_integer():
                around = [nearest(places + kind(side), pixels) for side in (1e-5, -1e-5)]
                if not np.array_equal(*around):
                    raise NoTruthHere("which pixel is the nearest depends on rounding")
            x = x.take(np.clip(nearest(places, pixels), 0, before - 1).astype(int), axis=axis)
        else:
            stretch = max(1.0, 1 / factor) if call.get("antialias") else 1.0
            reach, exclude = int(np.ceil(radius * stretch)), bool(call.get("exclude_outside"))
            weights = weights_between(places, before, kernel, reach, stretch, exclude)
            x = np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)
    return np.where(beyond, call.get("extrapolation_value", 0.0), x) if beyond.any() else x


def target_sizes(
    before: Sequence[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[int], list[float]]:
    """Return the new sizes of axes, and by which factors they grow."""
    if sizes is None or not sizes.size:
        # The product in float32, of which the sizes that shape inference gives are made.
        grown = np.asarray(before, np.float32) * np.asarray(scales, np.float32)
        return [*np.floor(grown).astype(int)], [*scales]
    factors = [int(size) / old for size, old in zip(sizes, before, strict=True)]
    if policy == "stretch":
        return [*map(int, sizes)], factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [int(factor * old + 0.5) for old in before], [factor] * len(before)


@implements("Upsample")
def upsample(call: Call) -> Any:
    """Return a larger image, as Upsample and the first Resize made it.

    Raises:
        NoTruthHere: it is smaller, and made of single pixels: the standard does not say which.
    """
    x, factors = call.take(2)
    factors = np.asarray(call.get("scales")) if factors is None else factors
    is_plain = call.get("mode", "nearest") == "nearest"
    if is_plain and factors.min() < 1:
        raise NoTruthHere("the standard does not say which pixel is the nearest")
    given = {"mode": "nearest" if is_plain else "linear", "nearest_mode": "floor"}
    given["coordinate_transformation_mode"] = "asymmetric"
    return resize(Call("Resize", 11, (x, None, factors), given))


@implements("GridSample")
def sample_grid(call: Call) -> Array:
    """Return the values of images {N,C,...} at the places {N,...,axes} of a grid from -1 to 1, the
    last axis first."""
    x, grid = call.inputs
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    corners, sizes, where = call.get("align_corners", 0), np.array(x.shape[2:]), grid[..., ::-1]
    places = (where + 1) / 2 * (sizes - 1) if corners else ((where + 1) * sizes - 1) / 2
    radius = {"nearest": 0, "bicubic": 2, "cubic": 2}.get(mode, 1)
    first = np.floor(places) if radius else np.rint(places)
    kernel: Kernel = partial(cubic, a=-0.75) if radius == 2 else triangle
    item = np.arange(len(x)).reshape([-1, *[1] * (grid.ndim - 2)])
    total = np.zeros((*grid.shape[:-1], x.shape[1]))
    for offset in product(range(1 - radius, radius + 1) if radius else (0,), repeat=len(sizes)):
        near = first + np.array(offset)
        weight = kernel(near - places).prod(axis=-1) if radius else np.ones(grid.shape[:-1])
        if padding == "zeros":
            weight = np.where(((near < 0) | (near >= sizes)).any(axis=-1), 0, weight)
        if padding == "reflection":
            least = 0 if corners else -0.5
            span = np.maximum(sizes - 1 - 2 * least, 1e-9)
            away = np.mod(near - least, 2 * span)
            near = least + np.minimum(away, 2 * span - away)
        near = np.clip(near, 0, sizes - 1).astype(int)
        index: list[Any] = [item, slice(None), *np.moveaxis(near, -1, 0)]
        total += weight[..., None] * x[tuple(index)]
    return np.moveaxis(total, -1, 1)
