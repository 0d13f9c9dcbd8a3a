"""Computes the figures of a pair of arrays, such as errors and cosine, in few passes over memory.

Arrays are read in blocks that stay in the processor's cache, so a comparison takes little memory
besides the arrays. Blocks with equal bytes are not subtracted. A difference is actual - expected.
"""

from __future__ import annotations

import ctypes
import math
from collections import namedtuple
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lar.dumps import Array, Stored
from lar.graphs.signatures import BLOCK, Elements, elements_of
from lar.records.comparison import Element, Figures, Tolerance

# The default tolerance of a type, relative to the element and to the size of the tensor. Errors of
# winograd algorithms and of sums in another order are smaller than the tolerance. The error of a
# cast to the next smaller type is larger.
DEFAULT_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
DEFAULT_RTOL |= {"complex64": 1e-4, "complex128": 1e-7, "tf32": 1e-4}

# A fill is a number that marks elements to leave out, such as -1e9 in the mask of an attention. Its
# absolute value is at least FILL, and more than GAP octaves above all other elements. Coordinates
# of an image are smaller. Numbers that a network computes, such as powers and probabilities, are
# smaller or have no such gap.
FILL = 2.0**13
GAP = 8

# Numbers below this stand for minus infinity.
MASK = -1e8

# Quantised types: rounding may go up or down, so a difference of one step is within the tolerance.
ONE_STEP = ("int8", "uint8", "QuantizedS8", "Quantized8Asymm", "QuantizedS4", "Quantized4Asymm")


# Through rounding, numbers that are one step apart may differ by slightly more than a step.
SLIGHTLY_MORE = 1 + 1e-5

# From the C library. It is faster than NumPy's comparison, which writes a byte for each element.
memory_compare = ctypes.CDLL(None).memcmp
memory_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Bounds(NamedTuple):
    """The tolerance of one pair.

    With `scaled`, `atol` is multiplied by the root mean square of the expected tensor, but the
    product is at least `least`. If `max_error` is given, no other field is used. With `symmetric`,
    exchanging the two sides changes nothing: the tolerance depends on the larger of two elements,
    and on the smaller root mean square of the two tensors. With `masks`, two numbers that both
    stand for minus infinity count as equal.
    """

    rtol: float = 0.0
    atol: float = 0.0
    scaled: bool = False
    max_error: float | None = None
    symmetric: bool = False
    least: float = 0.0
    masks: bool = False


def bounds_of(tolerance: Tolerance, *dtypes: str, step: float | None = None) -> Bounds:
    """Return the bounds of a tolerance for two tensors, whose types may differ.

    `dtypes` are the names of the types in dumps. If the user gave no tolerance, the default
    tolerance of the coarser type is used. For integers that stand for real numbers, the default
    tolerance is `step`, the coarser of the two scales.
    """
    if tolerance.max_error is not None:
        return Bounds(max_error=tolerance.max_error)
    names = {dtype.partition("(")[0] for dtype in dtypes}
    default = max((DEFAULT_RTOL.get(name.lower(), 0.0) for name in names), default=0.0)
    rtol = default if tolerance.rtol is None else tolerance.rtol
    if tolerance.atol is not None:
        return Bounds(rtol, tolerance.atol)
    if step is not None and tolerance.rtol is None:
        return Bounds(0.0, step * SLIGHTLY_MORE, symmetric=True)
    if tolerance.rtol is None and not names.isdisjoint(ONE_STEP) and not default:
        return Bounds(rtol, 1.0, symmetric=True)
    return Bounds(rtol, rtol, scaled=True, symmetric=tolerance.rtol is None)


class Size(NamedTuple):
    """The magnitude of a tensor's elements, and the limit above which numbers are fills.

    A fill is a huge number, such as -1e9 in a mask, which marks an element to ignore. `scale` is
    the root mean square of the elements that are finite and not fills. With `equal`, both sides are
    known to hold the same bytes.
    """

    scale: float
    fill: float = math.inf
    equal: bool = False


# Sums over the elements that are finite on both sides. `counted` is their number, and `absolute`
# sums absolute differences. All other sums leave out fills that agree; `kept` is the number of
# elements without these. `difference`, `actual` and `expected` sum squares. `shift` sums the
# difference times the expected element, `cross` the actual times the expected element.
Sums = namedtuple("Sums", "counted absolute kept difference actual expected shift cross")


def measure(
    actual: Array | Elements, expected: Array | Elements, bounds: Bounds, size: Size | None = None
) -> Figures:
    """Return all figures of two arrays, which have the same shape but may have any numeric types.

    `size` is the `Size` of the expected tensor, or None if it was not computed yet.

    Raises:
        ValueError: the shapes differ.
    """
    sides = actual, expected
    one, other = (it if isinstance(it, Elements) else elements_of(Stored(it)) for it in sides)
    if one.shape != other.shape:
        raise ValueError(f"shapes differ: {one.shape} and {other.shape}")
    with np.errstate(all="ignore"):
        size = size or size_beside(one, other)
        pair = PairOfBlocks(one, other, bounds, size)
        for blocks in zip(one.blocks(), other.blocks(), strict=True):
            pair.add_block(*blocks, size.equal)
        return pair.sum_up()


def size_beside(actual: Elements, expected: Elements) -> Size:
    """Return the `Size` of an expected tensor, by which errors are divided.

    The size is 0, and is not computed, if both tensors have equal bytes.
    """
    # If two runs of one model are compared, most weights are equal, and their size is not needed.
    if hold_the_same(actual, expected):
        return Size(0.0, equal=True)
    with np.errstate(all="ignore"):
        return size_of(expected)


class PairOfBlocks:
    """Adds up the figures of two tensors, block by block."""

    def __init__(self, actual: Elements, expected: Elements, bounds: Bounds, size: Size) -> None:
        self.sums: Any = np.zeros(len(Sums._fields), np.longdouble)
        self.identical, self.shape = True, expected.shape
        # If all other elements are 0, the large numbers are the tensor's content, and no fills.
        self.fill = size.fill if size.scale > 0 else math.inf
        self.max_absolute = self.max_relative = self.max_error = self.peak = 0.0
        self.mismatches = self.nonfinite_mismatches = 0
        self.nans, self.infinities = [0, 0], [0, 0]
        self.worst: Element | None = None
        self.first: Element | None = None
        self.first_nonfinite: Element | None = None
        self.bounds = bounds
        if bounds.scaled:
            self.bounds = bounds._replace(atol=max(bounds.atol * size.scale, bounds.least))
        # The size of the actual tensor is computed only when an error is near the tolerance.
        self.unsized = actual if bounds.scaled and bounds.symmetric else None
        self.relative_atol = bounds.atol
        self.same_type = actual.dtype == expected.dtype
        self.dtype = working_type(actual.dtype, expected.dtype)
        self.start = 0
        self.raw: tuple[Array, Array]

    def add_block(self, actual: Array, expected: Array, equal: bool) -> None:
        """Add the next block of both sides; with `equal`, the two blocks are known to be equal."""
        self.raw = actual, expected
        equal = equal or (self.same_type and equal_bytes(actual, expected))
        self.identical &= equal
        other = expected.astype(self.dtype, copy=False)
        if not (equal and self.add_equal(other)):
            one = actual.astype(self.dtype, copy=False)
            self.add_pair(with_mask_of(one, other) if self.bounds.masks else one, other)
        self.start += actual.size

    def add_equal(self, block: Array) -> bool:
        """Add a block that is equal on both sides, and return whether the block was added.

        A block is not added if the square of an element overflows or is rounded to 0.
        """
        counted, energy = block.size, square(block)
        if not has_exact_squares(block, energy):
            return False
        if self.fill < math.inf:
            block = block[np.abs(block) < self.fill].astype(wider_type(block.dtype))
            energy = square(block)
        self.sums += Sums(counted, 0, block.size, 0, energy, energy, 0, energy)
        return True

    def add_pair(self, actual: Array, expected: Array) -> None:
        """Add a block that may differ between the sides."""
        counted, bad = actual.size, None
        difference = actual - expected
        noise, energy = square(difference), square(expected)
        # A NaN, an infinity or a square that overflows makes one of these sums NaN or infinite.
        # Squares of very small numbers become 0. All of these cases need the slow way.
        least = least_energy(self.dtype)
        if not (least < noise < math.inf and least < energy < math.inf):
            actual, expected, bad = self.without_nonfinite(actual, expected)
            difference = actual - expected
            noise, energy = square(difference), square(expected)
            counted -= int(np.count_nonzero(~np.isfinite(self.raw[0]) | ~np.isfinite(self.raw[1])))
        absolute = np.abs(difference)
        past = self.add_errors(absolute, actual, expected, bad)
        total, kept_count = inner(absolute, ones(absolute.dtype)[: absolute.size]), counted
        if self.fill < math.inf:
            kept = np.abs(expected) < self.fill
            kept = kept if past is None else kept | past
            wide = wider_type(difference.dtype)
            parts = (each[kept] for each in (difference, actual, expected))
            difference, actual, expected = (each.astype(wide) for each in parts)
            noise, energy = square(difference), square(expected)
            absolute = absolute[kept]
            kept_count -= kept.size - absolute.size
            self.peak = max(self.peak, float(absolute.max(initial=0.0)))
        shift = inner(difference, expected)
        own, cross = energy + 2 * shift + noise, energy + shift
        if noise > energy / 4:  # else `own` and `cross` would be differences of large numbers
            own, cross = square(actual), inner(actual, expected)
        self.sums += Sums(counted, total, kept_count, noise, own, energy, shift, cross)

    def without_nonfinite(self, actual: Array, expected: Array) -> tuple[Array, Array, Array]:
        """Count NaN and infinite elements; return wider copies with zeros for these elements.

        The third array of the result marks the places where one side has a NaN or an infinite
        element, and the other side has a different value.
        """
        for side, block in enumerate((actual, expected)):
            self.nans[side] += int(np.count_nonzero(np.isnan(block)))
            self.infinities[side] += int(np.count_nonzero(np.isinf(block)))
        finite = np.isfinite(actual) & np.isfinite(expected)
        agreeing = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        wide = wider_type(self.dtype)
        one, other = (np.where(finite, side, 0).astype(wide) for side in (actual, expected))
        return one, other, ~finite & ~agreeing

    def add_errors(
        self, absolute: Array, actual: Array, expected: Array, bad: Array | None
    ) -> Array | None:
        """Take the errors of a block into account; no element of the block is infinite or NaN.

        `bad` marks elements that are already known to differ.

        The result is a mask of the elements past the tolerance, or None if all elements are within
        the tolerance.
        """
        largest, mask = float(absolute.max()), bad
        bounds = self.bounds_for(largest)
        if largest > 0:
            self.max_absolute = max(self.max_absolute, largest)
            theirs = np.abs(expected)
            greater = np.abs(actual)
            np.maximum(greater, theirs, out=greater)
            past = None
            if bounds.max_error is None and largest > bounds.atol:
                np.multiply(greater if bounds.symmetric else theirs, bounds.rtol, out=theirs)
                np.add(theirs, bounds.atol, out=theirs)
                past = absolute > theirs
            # No error is larger than the largest difference.
            if largest > min(self.max_error, bounds.max_error or math.inf):
                errors = np.maximum(greater, ones(greater.dtype)[: greater.size], out=theirs)
                np.divide(absolute, errors, out=errors)
                error = float(errors.max())
                if error > self.max_error:
                    self.max_error, self.worst = error, self.element(errors)
                if bounds.max_error is not None:
                    past = errors > bounds.max_error
            # 0 / 0 gives NaN, which fmax leaves out.
            relative = float(np.fmax.reduce(np.divide(absolute, greater, out=greater)))
            self.max_relative = max(self.max_relative, relative)
            if past is not None:
                mask = past if bad is None else past | bad
        if bad is not None:
            self.nonfinite_mismatches += int(np.count_nonzero(bad))
            if self.first_nonfinite is None and bad.any():
                self.first_nonfinite = self.element(bad)
        if mask is not None:
            self.mismatches += int(np.count_nonzero(mask))
            if self.first is None and mask.any():
                self.first = self.element(mask)
        return mask

    def bounds_for(self, largest: float) -> Bounds:
        """Return the tolerance of a block, given its largest error."""
        if self.unsized is not None and largest > self.bounds.atol / 2:
            scale = size_of(self.unsized).scale * self.relative_atol
            atol = max(min(self.bounds.atol, scale), self.bounds.least)
            self.bounds = self.bounds._replace(atol=atol)
            self.unsized = None
        return self.bounds

    def element(self, found: Array) -> Element:
        """Return this block's element at the index where the array `found` is largest."""
        place = int(found.argmax())
        index = map(int, np.unravel_index(self.start + place, self.shape))
        actual, expected = (str(side[place]) for side in self.raw)
        return Element(index=tuple(index), actual=actual, expected=expected)

    def sum_up(self) -> Figures:
        """Return the figures of the whole tensors, from the sums of all blocks."""
        sums = Sums(*self.sums)
        noise = finite(np.sqrt(sums.difference / sums.expected)) if sums.difference else 0.0
        scale = float(np.sqrt(sums.expected / sums.kept))
        peak = self.peak if self.fill < math.inf else self.max_absolute
        figures = Figures(
            elements=math.prod(self.shape),
            identical=self.identical,
            mismatches=self.mismatches,
            first=self.first,
            worst=self.first_nonfinite or self.worst,
            nan_counts=(self.nans[0], self.nans[1]),
            infinity_counts=(self.infinities[0], self.infinities[1]),
            nonfinite_mismatches=self.nonfinite_mismatches,
        )
        if not sums.counted:
            return figures
        return replace(
            figures,
            max_error=finite(self.max_error),
            max_absolute=finite(self.max_absolute),
            mean_absolute=finite(sums.absolute / sums.counted),
            max_relative=finite(self.max_relative),
            relative_l2=noise,
            scale=finite(scale),
            peak=finite(np.divide(peak, scale)) if peak else 0.0,
            gain=finite(1 + sums.shift / sums.expected),
            cosine=cosine_of(sums),
            snr_db=0.0 - 20 * math.log10(noise) if noise else None,
        )


def with_mask_of(actual: Array, expected: Array) -> Array:
    """Return an actual block, in which masked numbers are replaced by the expected numbers.

    A number is masked if both sides have a number that means minus infinity.

    The mask of an attention contains -1e9 for minus infinity, or in float16 -65504 or -inf.
    """
    if actual.dtype.kind == "c" or not min(actual.min(), expected.min()) <= MASK:
        return actual
    masked = (np.minimum(actual, expected) <= MASK) & (np.maximum(actual, expected) <= -FILL)
    return np.where(masked, expected, actual)


def hold_the_same(one: Elements, other: Elements) -> bool:
    """Return whether two tensors are known to hold the same bytes in the same order."""
    if one.raw is None or other.raw is None or one.dtype != other.dtype:
        return False
    return one.raw.dtype == other.raw.dtype and equal_bytes(one.raw, other.raw)


def equal_bytes(one: Array, other: Array) -> bool:
    """Return whether two contiguous arrays of the same type hold the same bytes."""
    return not memory_compare(one.ctypes.data, other.ctypes.data, one.nbytes)


def cosine_of(sums: Sums) -> float | None:
    """Return the cosine of the angle between the two sides, exact even if it is almost 1."""
    actual, expected = np.sqrt(sums.actual), np.sqrt(sums.expected)
    if not min(actual, expected) > 0 or not np.isfinite(actual + expected):
        return None
    if sums.difference > sums.expected / 4:
        cosine = sums.cross / actual / expected
    else:
        apart = (2 * sums.shift + sums.difference) / (actual + expected)
        cosine = 1 - (sums.difference - apart**2) / actual / expected / 2
    return float(max(-1.0, min(1.0, cosine)))


def finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@cache
def working_type(actual: np.dtype[Any], expected: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which arrays of two types can be subtracted without loss."""
    common = np.result_type(actual, expected)
    if common.kind in "fc" and common.itemsize >= 4:
        return common
    if common.kind in "iu" and common.itemsize == 8:
        return np.dtype(np.longdouble)
    return np.dtype(np.float64 if common.itemsize == 4 else np.float32)


def wider_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type that can hold the square of any number of the given type."""
    real = np.dtype(np.float64 if dtype.name in ("float32", "complex64") else np.longdouble)
    return np.result_type(real, np.complex64) if dtype.kind == "c" else real


@cache
def least_energy(dtype: np.dtype[Any]) -> float:
    """Return a limit: in a smaller sum of squares, too many squares may have been rounded to 0."""
    limits = np.finfo(dtype)
    return float(limits.tiny) * BLOCK / float(limits.eps)


@cache
def ones(dtype: np.dtype[Any]) -> Array:
    """Return a block of ones.

    NumPy computes a maximum with an array of ones five times as fast as a maximum with the number
    1.
    """
    return np.ones(BLOCK, dtype)


def inner(one: Array, other: Array) -> Any:
    """Return the inner product of two vectors, or its real part if they are complex."""
    return np.vdot(one, other).real


def square(block: Array) -> Any:
    return inner(block, block)


def has_exact_squares(block: Array, energy: Any) -> bool:
    """Return whether no square of a block has overflowed or was rounded to 0."""
    return bool(least_energy(block.dtype) < energy < math.inf or not block.any())


def size_of(elements: Elements) -> Size:
    """Return the `Size` of a tensor; its scale is 0 if no element is finite."""
    total, counted, may_have_fills = add_up(elements, math.inf)
    fill = find_fill(elements) if may_have_fills else math.inf
    if fill < math.inf:
        total, counted, _ = add_up(elements, fill)
    return Size(float(np.sqrt(total / counted)) if counted else 0.0, fill)


def add_up(elements: Elements, fill: float) -> tuple[Any, int, bool]:
    """Return the sum of squares of the finite elements that are not fills, and their number.

    A fill is a number, such as -1e9, whose absolute value is at least `fill` (see `Size`).

    The result has three values: the sum, the number, and whether the elements may contain fills
    (huge numbers such as -1e9).
    """
    dtype = working_type(elements.dtype, elements.dtype)
    total, counted, may_have_fills = np.longdouble(0.0), 0, False
    for each in elements.blocks():
        block: Array = each.astype(dtype, copy=False)
        energy = square(block)
        if fill < math.inf or not has_exact_squares(block, energy):
            block = block[np.isfinite(block)].astype(wider_type(dtype))
            block = block[np.abs(block) < fill]
            energy = square(block)
        # A block is searched for fills only if its energy shows that it may have fills.
        may_have_fills |= bool(energy >= FILL**2 and np.abs(block).max() >= FILL)
        total, counted = total + energy, counted + block.size
    return total, counted, may_have_fills


def find_fill(elements: Elements) -> float:
    """Return the limit of a tensor: numbers with at least this absolute value are fills.

    A fill is a huge number, such as -1e9 in a mask (see `Size`).

    The result is infinite if a tensor has no fills.
    """
    octaves: set[int] = set()  # octave n has absolute values from 2**(n-1) to 2**n; 0 has zeros
    for block in elements.blocks():
        absolute = np.abs(block[np.isfinite(block)])
        octaves.update(np.unique(np.frexp(absolute)[1]).tolist())
    for octave in sorted(octaves):
        below = [each for each in octaves if each < octave]
        if 2.0 ** (octave - 1) >= FILL and below and max(below) < octave - GAP:
            return float(np.ldexp(1.0, octave - 1))
    return math.inf
