"""Lengths of vectors, and the size of a tensor that its errors are measured against."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lar.graphs.elements import BLOCK, Elements

Array = np.ndarray[Any, np.dtype[Any]]

# A fill stands for what is to be left out, as -1e9 in the mask of an attention: a number as large
# as this that is so many octaves above all others. An image has no coordinates as large, and
# numbers that a network computes, as powers and probabilities, have no such gap or are smaller.
FILL = 2.0**13
GAP = 8


class Size(NamedTuple):
    """The size of a tensor's elements: the root mean square of the finite ones without fills, their
    number, and the absolute value from which elements count as fills."""

    scale: float
    counted: int
    fill: float = math.inf


@cache
def working_type(actual: np.dtype[Any], expected: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that differences of two types are computed in, without loss."""
    common = np.result_type(actual, expected)
    if common.kind in "fc" and common.itemsize >= 4:
        return common
    if common.kind in "iu" and common.itemsize == 8:
        return np.dtype(np.longdouble)
    return np.dtype(np.float64 if common.itemsize == 4 else np.float32)


def wider_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a working type that holds the squares of another one, however large or small."""
    real = np.dtype(np.float64 if dtype.name in ("float32", "complex64") else np.longdouble)
    return np.result_type(real, np.complex64) if dtype.kind == "c" else real


@cache
def least_energy(dtype: np.dtype[Any]) -> float:
    """Return the energy of a block below which squares that were rounded to 0 may matter."""
    limits = np.finfo(dtype)
    return float(limits.tiny) * BLOCK / float(limits.eps)


def working(block: Array, dtype: np.dtype[Any]) -> Array:
    return block.astype(dtype, copy=False)


def inner(one: Array, other: Array) -> Any:
    """Return the inner product of two vectors, the real part of a complex one, as a `number`."""
    return number(np.vdot(one, other).real)


def number(scalar: Any) -> Any:
    """Return a NumPy scalar as a float, but one of greater range as it is."""
    return scalar if scalar.dtype.itemsize > 8 else float(scalar)


def square(block: Array) -> Any:
    return inner(block, block)


def root(value: Any) -> Any:
    """Return the square root of a float, or of a NumPy scalar of greater range."""
    return math.sqrt(value) if isinstance(value, float) else np.sqrt(value)


def size_of(elements: Elements) -> Size:
    """Return the size of a tensor, 0 where nothing in it is finite."""
    dtype = working_type(elements.dtype, elements.dtype)
    least = least_energy(dtype)
    total, count, may_have_fills = 0.0, 0, False
    for each in elements.blocks():
        block = working(each, dtype)
        energy = square(block)
        if not least < energy < math.inf and block.any():
            block = finite_part(block)
            energy = square(block)
        # Looked at only where its energy shows that there may be some.
        may_have_fills |= bool(energy >= FILL**2 and np.abs(block).max() >= FILL)
        total, count = total + energy, count + block.size
    fill = find_fill(elements) if may_have_fills else math.inf
    if fill < math.inf:
        total, count = 0.0, 0
        for each in elements.blocks():
            block = finite_part(working(each, dtype))
            block = block[np.abs(block) < fill]
            total, count = total + square(block), count + block.size
    return Size(float(root(total / count)) if count else 0.0, count, fill)


def finite_part(block: Array) -> Array:
    """Return the finite elements of a block, in a type that holds their squares."""
    part: Array = block[np.isfinite(block)].astype(wider_type(block.dtype))
    return part


def find_fill(elements: Elements) -> float:
    """Return the smallest absolute value that is a fill; infinity if the tensor has no fill."""
    octaves: set[int] = set()  # in n are 2**(n-1) to 2**n, and in 0 what is 0
    for block in elements.blocks():
        absolute = np.abs(block[np.isfinite(block)])
        octaves.update(np.unique(np.frexp(absolute)[1]).tolist())
    for octave in sorted(octaves):
        below = [each for each in octaves if each < octave]
        if 2.0 ** (octave - 1) >= FILL and below and max(below) < octave - GAP:
            return float(np.ldexp(1.0, octave - 1))
    return math.inf
