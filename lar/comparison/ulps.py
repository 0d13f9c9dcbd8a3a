"""The floating-point numbers that lie between two others, which are their distance in ULPs."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def most_between(
    actual: Array, expected: Array, relative: Array, largest: float, known: int
) -> int:
    """Return the greatest distance of two blocks of one floating-point type in ULPs, or what was
    `known` if that is more; elements that are NaN or infinite do not count.

    `relative` are the relative errors, up to `largest`, which show where to look: between two
    normal numbers whose relative error is r < 0.5 there are from r to 2 r times 2**mantissa others,
    between subnormal ones fewer, and between any others 2**(mantissa - 1) at least.
    """
    if actual.dtype.kind == "c":
        return max(known, greatest(actual, expected))
    numbers = 1.01 * 2.0 ** (np.finfo(actual.dtype).nmant + 1)  # for a relative error, at most
    if largest < 0.5 and largest * numbers < known:
        return known
    limit = min(largest, 0.5) / 2.1
    chosen = relative >= limit
    # Taking most of them out would cost more than leaving them in.
    if np.count_nonzero(chosen) * 8 < chosen.size:
        found = greatest(actual[chosen], expected[chosen])
        if found >= limit * numbers:
            return max(known, found)
    return max(known, greatest(actual, expected))


def greatest(actual: Array, expected: Array) -> int:
    """Return the greatest distance of two arrays of one type."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not finite.all():
        actual, expected = actual[finite], expected[finite]
    if not actual.size:
        return 0
    ranks = ordinals(actual), ordinals(expected)
    low, high = np.minimum(*ranks), np.maximum(*ranks)
    unsigned = f"u{low.itemsize}"
    return int((high.view(unsigned) - low.view(unsigned)).max())


def ordinals(block: Array) -> Array:
    """Return the rank of each floating-point number among all numbers of its type, 0 for zero."""
    size = block.itemsize // 2 if block.dtype.kind == "c" else block.itemsize
    integers = np.ascontiguousarray(block).view(f"i{size}")
    lowest = np.iinfo(integers.dtype).min
    return np.where(integers < 0, lowest - integers, integers)
