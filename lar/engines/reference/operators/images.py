"""Operators that take values between the pixels of an image: Resize, Upsample, GridSample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.reference.implementations import Array, Call, implements

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
