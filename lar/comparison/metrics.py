"""The figures of a pair of arrays, such as errors and cosine, in few passes over memory.

Arrays are gone through in blocks that stay in the processor's cache, so a pair costs little more
memory than itself; blocks of equal bytes are passed over. Signs are those of actual - expected.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lar.comparison.norms import (
    FILL,
    Size,
    inner,
    least_energy,
    number,
    root,
    size_of,
    square,
    wider_type,
    working,
    working_type,
)
from lar.dumps.dump import Stored
from lar.graphs.elements import BLOCK, Elements, elements_of
from lar.records.comparison import Element, Figures, Tolerance

Array = np.ndarray[Any, np.dtype[Any]]

# Default tolerance of a type, relative to the element and to the size of the tensor:
# sums in another order and winograd algorithms stay below it, a cast to the next smaller type
# does not.
DEFAULT_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "BFloat16": 5e-2}
DEFAULT_RTOL |= {"complex64": 1e-4, "complex128": 1e-7}

# What is as far below 0 stands for minus infinity.
MASK = -1e8

# Rounding to a quantised type may go either way: one step is no difference.
ONE_STEP = ("int8", "uint8", "QuantizedS8", "Quantized8Asymm", "QuantizedS4", "Quantized4Asymm")


# Real numbers that are one step apart are so within rounding.
SLIGHTLY_MORE = 1 + 1e-5

# Of the C library; NumPy's comparison writes a byte for each element before it looks.
memory_compare = ctypes.CDLL(None).memcmp
memory_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Bounds(NamedTuple):
    """The tolerance of one pair: `atol` counts in units of the expected tensor's size if `scaled`
    is set; `max_error`, if given, decides alone.

    With `symmetric` the larger of two elements counts and the smaller of the tensors' sizes, so
    that it does not matter which side is the expected one. `atol` is at least `least`. With `masks`
    numbers far below 0 agree with any that a coarser type has in their place.
    """

    rtol: float = 0.0
    atol: float = 0.0
    scaled: bool = False
    max_error: float | None = None
    symmetric: bool = False
    least: float = 0.0
    masks: bool = False


def bounds_of(tolerance: Tolerance, *dtypes: str, step: float | None = None) -> Bounds:
    """Return what a tolerance means for tensors of one type, or of two, as dumps name them; the
    default is that of the coarser type, or a `step`: the coarser scale of real numbers of which a
    side has the integers."""
    if tolerance.max_error is not None:
        return Bounds(max_error=tolerance.max_error)
    names = {dtype.partition("(")[0] for dtype in dtypes}
    default = max((DEFAULT_RTOL.get(name, 0.0) for name in names), default=0.0)
    rtol = default if tolerance.rtol is None else tolerance.rtol
    if tolerance.atol is not None:
        return Bounds(rtol, tolerance.atol)
    if step is not None and tolerance.rtol is None:
        return Bounds(0.0, step * SLIGHTLY_MORE, symmetric=True)
    if tolerance.rtol is None and not names.isdisjoint(ONE_STEP) and not default:
        return Bounds(rtol, 1.0, symmetric=True)
    return Bounds(rtol, rtol, scaled=True, symmetric=tolerance.rtol is None)


class Spot(NamedTuple):
    """An element by its place in the flat arrays, and what both sides have there."""

    place: int
    actual: str
    expected: str


class Sums:
    """What the blocks add up to."""

    def __init__(self) -> None:
        self.identical = True
        self.counted = 0  # elements finite on both sides
        self.energy: Any = 0.0  # the expected squares of these
        self.relative = 0.0
        # Floats, or NumPy scalars of greater range.
        self.absolute: Any = 0.0
        # These are sums of squares, without fills that agree.
        self.difference: Any = 0.0
        self.actual: Any = 0.0
        self.expected: Any = 0.0
        self.shift: Any = 0.0  # difference times expected
        self.cross: Any = 0.0  # actual times expected
        self.bulk_difference: Any = 0.0
        self.bulk_absolute = 0.0
        self.max_absolute = self.max_relative = self.max_error = 0.0
        self.worst: Spot | None = None
        self.first: Spot | None = None
        self.max_ulp = 0
        self.mismatches = self.nonfinite_mismatches = 0
        self.nans, self.infinities = [0, 0], [0, 0]
        self.first_nonfinite: Spot | None = None


def measure(
    actual: Array | Elements,
    expected: Array | Elements,
    bounds: Bounds | Callable[[Size], Bounds],
    *,
    spare_bits: int = 0,
) -> Figures:
    """Return all figures of a pair of one shape, of any numeric types.

    The tolerance may depend on the size of the expected tensor.

    `spare_bits` are the lowest bits of each number that its own type lacks: 16 of a BFloat16,
    which comes as float32.

    Raises:
        ValueError: the shapes differ.
    """
    one, other = (
        side if isinstance(side, Elements) else elements_of(Stored(side))
        for side in (actual, expected)
    )
    if one.shape != other.shape:
        raise ValueError(f"shapes differ: {one.shape} and {other.shape}")
    # As most of the weights are, when two runs of a model are compared.
    equal = hold_the_same(one, other)
    with np.errstate(all="ignore"):
        size = Size(0.0, 0) if equal else size_of(other)
        bounds = bounds if isinstance(bounds, Bounds) else bounds(size)
        pair = PairOfBlocks(one, other, bounds, size)
        for blocks in zip(one.blocks(), other.blocks(), strict=True):
            pair.add_block(*blocks, equal)
        ulps = pair.sums.max_ulp >> spare_bits if pair.counts_ulps else None
        return figures_of(pair.sums, other.shape, size, ulps)


class PairOfBlocks:
    """Adds up the figures of two tensors, block by block; holds the buffers for it."""

    def __init__(self, actual: Elements, expected: Elements, bounds: Bounds, size: Size) -> None:
        self.sums, self.fill = Sums(), size.fill
        # Beside nothing but zeros, the fill is what the tensor says.
        self.leaves_out = self.fill < math.inf and size.scale > 0
        self.bounds = bounds
        if bounds.scaled:
            self.bounds = bounds._replace(atol=max(bounds.atol * size.scale, bounds.least))
        # The size of the actual tensor is needed only where an error is of the tolerance's order.
        self.unsized = actual if bounds.scaled and bounds.symmetric else None
        self.relative_atol = bounds.atol
        self.same_type = actual.dtype == expected.dtype
        self.counts_ulps = self.same_type and actual.dtype.kind in "fc"
        self.dtype = working_type(actual.dtype, expected.dtype)
        self.least = least_energy(self.dtype)
        self.most = min(BLOCK, actual.size)  # elements of a block
        self.start = 0
        self.raw: tuple[Array, Array]

    @cached_property
    def buffers(self) -> list[Array]:
        real = np.empty(0, self.dtype).real.dtype
        return [np.empty(self.most, dtype) for dtype in (self.dtype, real, real, real)]

    def add_block(self, actual: Array, expected: Array, equal: bool) -> None:
        """Add the next block of both sides; `equal` says that all bytes are known to be equal."""
        self.raw = actual, expected
        equal = equal or (self.same_type and equal_bytes(actual, expected))
        self.sums.identical &= equal
        if not (equal and self.add_equal(working(expected, self.dtype))):
            one, other = working(actual, self.dtype), working(expected, self.dtype)
            self.add_pair(with_mask_of(one, other) if self.bounds.masks else one, other)
        self.start += actual.size

    def add_equal(self, block: Array) -> bool:
        """Add a block that is the same on both sides; return False if its sums would not be
        exact."""
        sums, energy = self.sums, square(block)
        if not self.least < energy < math.inf and block.any():
            return False
        sums.energy += energy
        sums.counted += block.size
        if self.leaves_out:
            block = block[np.abs(block) < self.fill].astype(wider_type(block.dtype))
            energy = square(block)
        sums.actual += energy
        sums.expected += energy
        sums.cross += energy
        return True

    def add_pair(self, actual: Array, expected: Array) -> None:
        """Add a block of both sides."""
        sums = self.sums
        difference = self.buffers[0][: actual.size]
        np.subtract(actual, expected, out=difference)
        noise, energy = square(difference), square(expected)
        # A NaN or an infinity anywhere makes one of them NaN or infinite, and so may numbers
        # whose squares overflow; those of small numbers vanish: all are for the slow way.
        bad = None
        if not (self.least < noise < math.inf and self.least < energy < math.inf):
            actual, expected, bad = self.without_nonfinite(actual, expected)
            difference = actual - expected
            noise, energy = square(difference), square(expected)
        sums.energy += energy
        sums.counted += actual.size
        mask = self.add_errors(difference, actual, expected, bad)
        if self.leaves_out:
            kept = np.abs(expected) < self.fill
            if mask is not None:
                kept |= mask
            wide = wider_type(difference.dtype)
            difference, actual, expected = (
                each[kept].astype(wide) for each in (difference, actual, expected)
            )
            noise, energy = square(difference), square(expected)
        shift = inner(difference, expected)
        sums.difference += noise
        sums.expected += energy
        sums.shift += shift
        if noise < energy / 16:
            sums.actual += energy + 2 * shift + noise
            sums.cross += energy + shift
        else:  # the sums would cancel out
            sums.actual += square(actual)
            sums.cross += inner(actual, expected)

    def without_nonfinite(self, actual: Array, expected: Array) -> tuple[Array, Array, Array]:
        """Count NaN and infinite elements; return copies of a wider type with zeros in their
        places, and the places where only one side has them or the sides differ."""
        sums = self.sums
        for side, block in enumerate((actual, expected)):
            sums.nans[side] += int(np.count_nonzero(np.isnan(block)))
            sums.infinities[side] += int(np.count_nonzero(np.isinf(block)))
        finite = np.isfinite(actual) & np.isfinite(expected)
        agreeing = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        wider = wider_type(self.dtype)
        sums.counted -= int(np.count_nonzero(~finite))
        return (
            np.where(finite, actual, 0).astype(wider),
            np.where(finite, expected, 0).astype(wider),
            ~finite & ~agreeing,
        )

    def add_errors(
        self, difference: Array, actual: Array, expected: Array, bad: Array | None
    ) -> Array | None:
        """Add the errors of a block of finite elements; `bad` marks mismatches known before.

        Returns where elements are past the tolerance, None if nowhere.
        """
        sums = self.sums
        if difference.dtype == self.dtype:
            buffers = [buffer[: actual.size] for buffer in self.buffers[1:]]
        else:
            buffers = [np.empty(actual.size, difference.real.dtype) for _ in range(3)]
        absolute, greater, scratch = buffers
        np.abs(difference, out=absolute)
        largest = float(absolute.max())
        bounds = self.bounds_for(largest)
        mask = None
        if largest > 0:
            sums.max_absolute = max(sums.max_absolute, largest)
            sums.absolute += number(absolute.sum())
            np.abs(actual, out=greater)
            np.abs(expected, out=scratch)
            np.maximum(greater, scratch, out=greater)
            if bounds.max_error is None and largest > bounds.atol:
                np.multiply(greater if bounds.symmetric else scratch, bounds.rtol, out=scratch)
                np.add(scratch, bounds.atol, out=scratch)
                mask = absolute > scratch
            # No error is larger than the largest difference.
            known = sums.max_error
            if largest > (known if bounds.max_error is None else min(known, bounds.max_error)):
                np.maximum(greater, 1, out=scratch)
                np.divide(absolute, scratch, out=scratch)
                error = float(scratch.max())
                if error > sums.max_error:
                    sums.max_error, sums.worst = error, self.spot(scratch)
                if bounds.max_error is not None and error > bounds.max_error:
                    mask = scratch > bounds.max_error
            np.maximum(greater, np.finfo(greater.dtype).smallest_subnormal, out=greater)
            np.divide(absolute, greater, out=greater)
            relative = float(greater.max())
            sums.max_relative = max(sums.max_relative, relative)
            sums.relative += float(greater.sum())
            if self.counts_ulps:
                sums.max_ulp = most_between(*self.raw, greater, relative, sums.max_ulp)
        if bad is not None:
            mask = bad if mask is None else mask | bad
            sums.nonfinite_mismatches += int(np.count_nonzero(bad))
            if sums.first_nonfinite is None and bad.any():
                sums.first_nonfinite = self.spot(bad)
        if mask is not None:
            sums.mismatches += int(np.count_nonzero(mask))
            if sums.first is None and mask.any():
                sums.first = self.spot(mask)
        if self.fill < math.inf:
            self.add_bulk(absolute, expected, mask)
        return mask

    def bounds_for(self, largest: float) -> Bounds:
        """Return the tolerance of a block with a largest error."""
        if self.unsized is not None and largest > self.bounds.atol / 2:
            scale = size_of(self.unsized).scale * self.relative_atol
            atol = max(min(self.bounds.atol, scale), self.bounds.least)
            self.bounds = self.bounds._replace(atol=atol)
            self.unsized = None
        return self.bounds

    def add_bulk(self, absolute: Array, expected: Array, mask: Array | None) -> None:
        """Add the errors of a block without those of fills that agree."""
        chosen = np.abs(expected) < self.fill
        if mask is not None:
            chosen |= mask
        errors = absolute[chosen].astype(wider_type(absolute.dtype))
        if errors.size:
            self.sums.bulk_difference += square(errors)
            self.sums.bulk_absolute = max(self.sums.bulk_absolute, float(errors.max()))

    def spot(self, found: Array) -> Spot:
        """Return the element of this block where an array has its greatest value first."""
        place = int(found.argmax())
        actual, expected = self.raw
        return Spot(self.start + place, str(actual[place]), str(expected[place]))


def with_mask_of(actual: Array, expected: Array) -> Array:
    """Return an actual block with the expected numbers where both stand for minus infinity, as -1e9
    in the mask of an attention does, of which float16 has -65504 or -inf."""
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
    """Return whether two contiguous arrays of a type hold the same bytes."""
    return not memory_compare(one.ctypes.data, other.ctypes.data, one.nbytes)


# Distances in ULPs: how many floating-point numbers of the type lie between two others.


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


def figures_of(sums: Sums, shape: tuple[int, ...], size: Size, ulps: int | None) -> Figures:
    """Return the figures of a pair that has been added up."""
    worst = sums.worst if sums.first_nonfinite is None else sums.first_nonfinite
    known = sums.counted > 0
    noise = None
    if known and not sums.difference:
        noise = 0.0
    elif sums.expected > 0:
        noise = finite(root(np.longdouble(sums.difference) / sums.expected))
    scale = float(root(sums.energy / sums.counted)) if known else 0.0
    bulk = noise, units_of(scale, sums.max_absolute)
    if size.fill < math.inf:
        length = float(root(sums.bulk_difference / size.counted))
        bulk = units_of(size.scale, length), units_of(size.scale, sums.bulk_absolute)
    return Figures(
        elements=math.prod(shape),
        identical=sums.identical,
        max_error=finite(sums.max_error) if known else None,
        max_absolute=finite(sums.max_absolute) if known else None,
        mean_absolute=finite(sums.absolute / sums.counted) if known else None,
        max_relative=finite(sums.max_relative) if known else None,
        mean_relative=finite(sums.relative / sums.counted) if known else None,
        relative_l2=noise,
        scale=finite(scale) if known else None,
        bulk_l2=bulk[0],
        bulk_peak=bulk[1],
        bulk_scale=finite(scale if size.fill == math.inf else size.scale) if known else None,
        gain=finite(1 + sums.shift / sums.expected) if sums.expected > 0 else None,
        max_ulp=ulps if known else None,
        cosine=cosine_of(sums),
        snr_db=0.0 - 20 * math.log10(noise) if noise else None,
        mismatches=sums.mismatches,
        first=element_at(sums.first, shape),
        worst=element_at(worst, shape),
        nan_counts=(sums.nans[0], sums.nans[1]),
        infinity_counts=(sums.infinities[0], sums.infinities[1]),
        nonfinite_mismatches=sums.nonfinite_mismatches,
    )


def cosine_of(sums: Sums) -> float | None:
    """Return the cosine of the angle between the two sides, exact also where it is almost 1."""
    actual, expected = root(sums.actual), root(sums.expected)
    if not min(actual, expected) > 0 or not np.isfinite(actual + expected):
        return None
    if sums.difference > sums.expected / 4:
        cosine = sums.cross / actual / expected
    else:
        apart = (2 * sums.shift + sums.difference) / (actual + expected)
        cosine = 1 - (sums.difference - apart**2) / actual / expected / 2
    return float(max(-1.0, min(1.0, cosine)))


def units_of(scale: float, error: float) -> float | None:
    """Return an error in units of a scale, None if that is not finite."""
    if not error:
        return 0.0
    return finite(error / scale) if scale else None


def finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def element_at(spot: Spot | None, shape: tuple[int, ...]) -> Element | None:
    """Return the element at a spot of a tensor of a shape."""
    if spot is None:
        return None
    index = tuple(int(axis) for axis in np.unravel_index(spot.place, shape))
    return Element(index=index, actual=spot.actual, expected=spot.expected)
