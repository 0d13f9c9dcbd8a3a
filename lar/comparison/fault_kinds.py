"""What is wrong with a culprit's output, where its elements show it: a scale, a zero point, ...

Each kind is a way to make one side of the other. Where what it leaves is a small part of the
difference, it is named; rounding and other errors may be the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lar.graphs.elements import channel_axis

Array = np.ndarray[Any, np.dtype[Any]]
Names = tuple[str, str]

# The part of the difference's energy that a kind may leave.
LEFT = 0.05

# A factor nearer to 1 than this changes nothing; sizes that differ by less than this part are one.
SAME = 0.02

# Factors of all channels that are nearer to each other are one.
SAME_FACTORS = 1e-3

# A channel whose error has that many times the energy of any other is the wrong one.
OUTSTANDING = 20

# Steps nearer to a whole number than this are one.
WHOLE = 0.1


def find_kind(
    actual: Array,
    expected: Array,
    step: float = 0.0,
    *,
    axis: int | None = None,
    names: Names = ("A", "B"),
) -> str:
    """Return what one side's elements are beside the other's, in words; empty if nothing simple is
    found.

    Both are of one shape, in plain axes. `step` is that of a quantised type, 0 for any other;
    `axis` is that of the channels, if it is known; `names` are what the sides are called.
    """
    one, other = (np.asarray(side, np.float64) for side in (actual, expected))
    if text := describe_nonfinite(one, other, names):
        return text
    difference = one - other
    energy = float(np.square(difference).sum())
    if not energy or not np.isfinite(energy):
        return ""
    for find in KINDS:
        if text := find(one, other, LEFT * energy, step, names):
            return text
    if axis is None:
        axis = channel_axis(one.ndim)
    return find_channels(one, other, LEFT * energy, axis, names)


def describe_nonfinite(one: Array, other: Array, names: Names) -> str:
    """Return which side alone has infinite numbers or NaN."""
    for name, side, twin in ((names[0], one, other), (names[1], other, one)):
        finite = np.isfinite(twin)
        for what, bad in (("infinite", np.isinf(side)), ("NaN", np.isnan(side))):
            count = int(np.count_nonzero(bad & finite))
            if count:
                kind = "overflow to infinity" if what == "infinite" else "no number"
                return f"{kind}: {count} of {side.size} elements are {what} in {name}"
    return ""


def find_scale(one: Array, other: Array, most: float, step: float, names: Names) -> str:
    """Detect a factor of the whole tensor."""
    factor = slope(one, other)
    if abs(factor - 1) > SAME and left_by(one - factor * other) <= most:
        return f"scale: {names[0]} is {factor:.4g} times {names[1]}"
    return ""


def find_zero_point(one: Array, other: Array, most: float, step: float, names: Names) -> str:
    """Detect a number that is added to all elements but those that are clipped."""
    inside = is_inside(one) & is_inside(other)
    if np.count_nonzero(inside) < one.size / 8:
        return ""
    difference = one - other
    shift = float(np.median(difference[inside]))
    energy, share = left_by(difference[inside]), np.count_nonzero(inside) / one.size
    # What is clipped differs less than the others, not more.
    if energy < left_by(difference) * share / 2:
        return ""
    if shift and left_by(difference[inside] - shift) <= LEFT * energy:
        steps = abs(shift / step) if step else 0.0
        number = f", {steps:.0f} steps" if steps and abs(steps - round(steps)) < WHOLE else ""
        sign = "plus" if shift > 0 else "minus"
        return f"zero point: {names[0]} is {names[1]} {sign} {abs(shift):.4g}{number}"
    return ""


def find_saturation(one: Array, other: Array, most: float, step: float, names: Names) -> str:
    """Detect a side whose elements end at a number that the other's exceed; where that is 0, an
    activation is missing on the other side."""
    for name, side, twin in ((names[0], one, other), (names[1], other, one)):
        low, high = float(side.min()), float(side.max())
        clipped = ((side == high) & (twin > high)) | ((side == low) & (twin < low))
        ends = [
            f"{end:.4g}" for end in (low, high) if np.count_nonzero(clipped & (side == end)) > 1
        ]
        if ends and low < high and left_by((one - other)[~clipped]) <= most:
            count = int(np.count_nonzero(clipped))
            kind = "activation" if ends == ["0"] else "saturation"
            return f"{kind}: {count} elements of {name} end at {' and '.join(ends)}"
    return ""


def find_wrapping(one: Array, other: Array, most: float, step: float, names: Names) -> str:
    """Detect sums that were too large for their type and began again at its other end."""
    difference = one - other
    size = float(np.abs(difference).max())
    wrong = np.abs(difference) > size / 2
    sizes = np.abs(difference[wrong])
    if (
        0 < np.count_nonzero(wrong) < one.size / 2
        and float(np.ptp(sizes)) <= SAME * size
        and np.count_nonzero(wrong) > 1
        and size > np.abs(other).max()
        and left_by(difference[~wrong]) <= most
    ):
        return f"overflow of a sum: {np.count_nonzero(wrong)} elements are off by {size:.4g}"
    return ""


def find_channels(one: Array, other: Array, most: float, axis: int, names: Names) -> str:
    """Detect factors of the channels: one wrong channel, or the scales of another axis."""
    if one.ndim > 1 and one.shape[axis] > 1:
        rows = [np.moveaxis(side, axis, 0).reshape(side.shape[axis], -1) for side in (one, other)]
        energies = np.square(rows[0] - rows[1]).sum(axis=1)
        worst = int(energies.argmax())
        others = np.delete(energies, worst)
        stands_out = energies[worst] > OUTSTANDING * others.max()
        if (others.sum() <= most or stands_out) and rows[0].shape[1] > 1:
            return f"one wrong channel: number {worst} of axis {axis}"
        if rows[0].shape[1] < 4:
            return ""
        squares = np.square(rows[1]).sum(axis=1)
        products = (rows[0] * rows[1]).sum(axis=1)
        factors = np.divide(products, squares, out=np.ones_like(products), where=squares > 0)
        if left_by(rows[0] - factors[:, None] * rows[1]) <= most:
            known = factors[squares > 0]
            if float(np.ptp(known)) <= SAME_FACTORS:
                return f"scale: {names[0]} is {known.mean():.4g} times {names[1]}"
            return (
                f"scales of channels: {names[0]} is {known.min():.3g} to {known.max():.3g} times "
                f"{names[1]} along axis {axis}"
            )
    return ""


def find_border(one: Array, other: Array, most: float, step: float, names: Names) -> str:
    """Detect a difference at the borders of images alone."""
    if one.ndim != 4 or min(one.shape[2:]) < 5:
        return ""
    if left_by((one - other)[:, :, 1:-1, 1:-1]) <= most:
        return f"padding: {names[0]} and {names[1]} differ at the border alone"
    return ""


Find = Callable[[Array, Array, float, float, Names], str]
KINDS: tuple[Find, ...] = (
    find_scale,
    find_zero_point,
    find_saturation,
    find_wrapping,
    find_border,
)


def slope(one: Array, other: Array) -> float:
    """Return the factor of one array that is nearest to another."""
    square = float(np.square(other).sum())
    return float((one * other).sum()) / square if square else 1.0


def left_by(rest: Array) -> float:
    return float(np.square(rest).sum())


def is_inside(side: Array) -> Array:
    """Return which elements are neither the least nor the greatest."""
    inside: Array = (side > side.min()) & (side < side.max())
    return inside
