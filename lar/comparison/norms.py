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
    """The size of a tensor's elements: the root mean square of the finite ones without fills, and
    the absolute value from which elements count as fills."""

    scale: float
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


def inner(one: Array, other: Array) -> Any:
    """Return the inner product of two vectors, the real part of a complex one."""
    return np.vdot(one, other).real


def square(block: Array) -> Any:
    return inner(block, block)


def has_exact_squares(block: Array, energy: Any) -> bool:
    """Return whether no square of a block has overflowed or was rounded to 0."""
    return bool(least_energy(block.dtype) < energy < math.inf or not block.any())


def size_of(elements: Elements) -> Size:
    """Return the size of a tensor, 0 where nothing in it is finite."""
    total, counted, may_have_fills = add_up(elements, math.inf)
    fill = find_fill(elements) if may_have_fills else math.inf
    if fill < math.inf:
        total, counted, _ = add_up(elements, fill)
    return Size(float(np.sqrt(total / counted)) if counted else 0.0, fill)


def add_up(elements: Elements, fill: float) -> tuple[Any, int, bool]:
    """Return the sum of the squares of the finite elements below a fill, their number, and whether
    there may be fills among them."""
    dtype = working_type(elements.dtype, elements.dtype)
    total, counted, may_have_fills = np.longdouble(0.0), 0, False
    for each in elements.blocks():
        block: Array = each.astype(dtype, copy=False)
        energy = square(block)
        if fill < math.inf or not has_exact_squares(block, energy):
            block = block[np.isfinite(block)].astype(wider_type(dtype))
            block = block[np.abs(block) < fill]
            energy = square(block)
        # Looked at only where its energy shows that there may be some.
        may_have_fills |= bool(energy >= FILL**2 and np.abs(block).max() >= FILL)
        total, counted = total + energy, counted + block.size
    return total, counted, may_have_fills


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
