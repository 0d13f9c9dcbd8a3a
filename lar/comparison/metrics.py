"""How far one array is from another: all figures of a pair in few passes over memory.

Arrays are gone through in blocks that stay in the processor's cache, so a pair costs little more
memory than itself; blocks of equal bytes are passed over. Signs are those of actual - expected.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from lar.comparison.record import Element, Figures, Tolerance

Array = np.ndarray[Any, np.dtype[Any]]

# Elements of a block: four buffers of it fit the second-level cache of any processor.
BLOCK = 1 << 16

# Default tolerance of a type, relative to the element and to the root mean square of the tensor:
# sums in another order and winograd algorithms stay below it, a cast to the next smaller type
# does not.
DEFAULT_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
DEFAULT_RTOL |= {"complex64": 1e-4, "complex128": 1e-7}

# Rounding to a quantised type may go either way: one step is no difference.
ONE_STEP = ("int8", "uint8", "QuantizedS8", "Quantized8Asymm", "QuantizedS4", "Quantized4Asymm")


# Of the C library; NumPy's comparison writes a byte for each element before it looks.
memory_compare = ctypes.CDLL(None).memcmp
memory_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Bounds(NamedTuple):
    """The tolerance of one pair: `atol` counts in units of the expected root mean square where
    `scaled` is set; with `max_error` that alone decides."""

    rtol: float = 0.0
    atol: float = 0.0
    scaled: bool = False
    max_error: float | None = None


def bounds_of(tolerance: Tolerance, dtype: str) -> Bounds:
    """Return what a tolerance means for tensors of a type, as dumps name it."""
    if tolerance.max_error is not None:
        return Bounds(max_error=tolerance.max_error)
    name = dtype.partition("(")[0]
    rtol = DEFAULT_RTOL.get(name, 0.0) if tolerance.rtol is None else tolerance.rtol
    if tolerance.atol is not None:
        return Bounds(rtol, tolerance.atol)
    if name in ONE_STEP and tolerance.rtol is None:
        return Bounds(rtol, 1.0)
    return Bounds(rtol, rtol, scaled=True)


class Sums:
    """What the blocks add up to."""

    def __init__(self) -> None:
        self.identical = True
        self.counted = 0  # elements finite on both sides
        self.absolute = self.relative = 0.0
        self.difference = self.actual = self.expected = 0.0  # sums of squares
        self.shift = self.cross = 0.0  # difference times expected, actual times expected
        self.max_absolute = self.max_relative = self.max_error = 0.0
        self.worst: int | None = None
        self.first: int | None = None
        self.max_ulp = 0
        self.mismatches = self.nonfinite_mismatches = 0
        self.nans, self.infinities = [0, 0], [0, 0]
        self.first_nonfinite: int | None = None


def measure(actual: Array, expected: Array, bounds: Bounds) -> Figures:
    """Return all figures of a pair of arrays of one shape, of any numeric types.

    Raises:
        ValueError: the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes differ: {actual.shape} and {expected.shape}")
    flat_actual = np.ascontiguousarray(actual).reshape(-1)
    flat_expected = np.ascontiguousarray(expected).reshape(-1)
    sums = Sums()
    # As most of the weights are, when two runs of a model are compared.
    equal = actual.dtype == expected.dtype and equal_bytes(flat_actual, flat_expected)
    if equal:
        bounds = bounds._replace(scaled=False)
    with np.errstate(all="ignore"):
        atol = bounds.atol
        if bounds.scaled:
            atol *= root_mean_square(flat_expected)
        pair = PairOfBlocks(flat_actual, flat_expected, bounds._replace(atol=atol), sums)
        for start in range(0, flat_actual.size, BLOCK):
            pair.add_block(start, equal)
    return figures_of(sums, actual, expected)


def root_mean_square(array: Array) -> float:
    """Return the root mean square of the finite elements of a flat array, 0 for none."""
    total, count = 0.0, 0
    for start in range(0, array.size, BLOCK):
        block = working(array[start : start + BLOCK], working_type(array.dtype, array.dtype))
        energy = square(block)
        if not math.isfinite(energy):
            block = block[np.isfinite(block)].astype(np.result_type(block.dtype, np.float64))
            energy = square(block)
        total, count = total + energy, count + block.size
    return math.sqrt(total / count) if count else 0.0


def working_type(actual: np.dtype[Any], expected: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that differences of two types are computed in, without loss."""
    common = np.result_type(actual, expected)
    if common.kind in "fc" and common.itemsize >= 4:
        return common
    if common.kind in "iu" and common.itemsize == 8:
        return np.dtype(np.longdouble)
    return np.dtype(np.float64 if common.itemsize == 4 else np.float32)


def working(block: Array, dtype: np.dtype[Any]) -> Array:
    return block.astype(dtype, copy=False)


def inner(one: Array, other: Array) -> float:
    """Return the inner product of two vectors, the real part of a complex one."""
    return float(np.vdot(one, other).real)


def square(block: Array) -> float:
    return inner(block, block)


class PairOfBlocks:
    """Adds up the figures of two flat arrays, block by block; holds the buffers for it."""

    def __init__(self, actual: Array, expected: Array, bounds: Bounds, sums: Sums) -> None:
        self.actual, self.expected, self.bounds, self.sums = actual, expected, bounds, sums
        self.same_type = actual.dtype == expected.dtype
        self.dtype = working_type(actual.dtype, expected.dtype)
        real = np.empty(0, self.dtype).real.dtype
        size = min(BLOCK, actual.size)
        self.difference = np.empty(size, self.dtype)
        self.buffers = [np.empty(size, real) for _ in range(3)]

    def add_block(self, start: int, equal: bool) -> None:
        """Add the block that begins there; `equal` where all bytes are known to be."""
        raw = self.actual[start : start + BLOCK], self.expected[start : start + BLOCK]
        sums = self.sums
        if equal or (self.same_type and equal_bytes(*raw)):
            block = working(raw[1], self.dtype)
            energy = square(block)
            if math.isfinite(energy):
                sums.actual += energy
                sums.expected += energy
                sums.cross += energy
                sums.counted += block.size
                return
        else:
            sums.identical = False
        actual, expected = working(raw[0], self.dtype), working(raw[1], self.dtype)
        difference = self.difference[: actual.size]
        np.subtract(actual, expected, out=difference)
        noise, energy = square(difference), square(expected)
        # A NaN or an infinity anywhere makes one of them NaN or infinite, and so may numbers
        # whose squares overflow: both are for the slow way.
        bad = None
        if not math.isfinite(noise + energy):
            actual, expected, bad = self.without_nonfinite(actual, expected)
            difference = actual - expected
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
        sums.counted += actual.size
        self.add_errors(start, difference, actual, expected, bad)

    def without_nonfinite(self, actual: Array, expected: Array) -> tuple[Array, Array, Array]:
        """Count what is NaN or infinite; return copies with zeros in those places, and where
        only one side is, or each is another."""
        sums = self.sums
        for side, block in enumerate((actual, expected)):
            sums.nans[side] += int(np.count_nonzero(np.isnan(block)))
            sums.infinities[side] += int(np.count_nonzero(np.isinf(block)))
        finite = np.isfinite(actual) & np.isfinite(expected)
        agreeing = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        wider = np.result_type(self.dtype, np.float64)
        sums.counted -= int(np.count_nonzero(~finite))
        return (
            np.where(finite, actual, 0).astype(wider),
            np.where(finite, expected, 0).astype(wider),
            ~finite & ~agreeing,
        )

    def add_errors(
        self, start: int, difference: Array, actual: Array, expected: Array, bad: Array | None
    ) -> None:
        """Add the errors of a block of finite elements; `bad` marks mismatches known before."""
        sums, bounds = self.sums, self.bounds
        if difference.dtype == self.dtype:
            buffers = [buffer[: actual.size] for buffer in self.buffers]
        else:
            buffers = [np.empty(actual.size, difference.real.dtype) for _ in range(3)]
        absolute, greater, scratch = buffers
        np.abs(difference, out=absolute)
        largest = float(absolute.max())
        mask = None
        if largest > 0:
            sums.max_absolute = max(sums.max_absolute, largest)
            sums.absolute += float(absolute.sum())
            np.abs(actual, out=greater)
            np.abs(expected, out=scratch)
            np.maximum(greater, scratch, out=greater)
            if bounds.max_error is None and largest > bounds.atol:
                np.multiply(scratch, bounds.rtol, out=scratch)
                np.add(scratch, bounds.atol, out=scratch)
                mask = absolute > scratch
            # No error is larger than the largest difference.
            known = sums.max_error
            if largest > (known if bounds.max_error is None else min(known, bounds.max_error)):
                np.maximum(greater, 1, out=scratch)
                np.divide(absolute, scratch, out=scratch)
                error = float(scratch.max())
                if error > sums.max_error:
                    sums.max_error, sums.worst = error, start + int(scratch.argmax())
                if bounds.max_error is not None and error > bounds.max_error:
                    mask = scratch > bounds.max_error
            np.maximum(greater, np.finfo(greater.dtype).smallest_subnormal, out=greater)
            np.divide(absolute, greater, out=greater)
            relative = float(greater.max())
            sums.max_relative = max(sums.max_relative, relative)
            sums.relative += float(greater.sum())
            if self.same_type and self.actual.dtype.kind in "fc":
                self.add_ulps(start, relative, greater)
        if bad is not None:
            mask = bad if mask is None else mask | bad
            sums.nonfinite_mismatches += int(np.count_nonzero(bad))
            if sums.first_nonfinite is None and bad.any():
                sums.first_nonfinite = start + int(bad.argmax())
        if mask is not None:
            sums.mismatches += int(np.count_nonzero(mask))
            if sums.first is None and mask.any():
                sums.first = start + int(mask.argmax())

    def add_ulps(self, start: int, largest: float, relative: Array) -> None:
        """Count the numbers between the elements of a block, where there can be most.

        Between two numbers of which one is less than twice the other there are about
        relative * 2**mantissa others, within a factor of two; between any others there are more.
        """
        sums, kind = self.sums, self.actual.dtype
        is_complex = kind.kind == "c"
        real = np.dtype(f"f{kind.itemsize // 2}") if is_complex else kind
        if not is_complex and largest < 0.5:
            most = largest * 2.0 ** (np.finfo(real).nmant + 1)
            if most * 1.01 < sums.max_ulp:
                return
        block = slice(start, start + relative.size)
        pair = self.actual[block], self.expected[block]
        if not is_complex:
            chosen = relative >= min(largest, 0.5) / 4
            # Taking most of them out would cost more than leaving them in.
            if np.count_nonzero(chosen) * 8 < chosen.size:
                pair = pair[0][chosen], pair[1][chosen]
        if sums.nans != [0, 0] or sums.infinities != [0, 0]:
            finite = np.isfinite(pair[0]) & np.isfinite(pair[1])
            pair = pair[0][finite], pair[1][finite]
        actual, expected = (ordinals(side, real) for side in pair)
        if actual.size:
            low, high = np.minimum(actual, expected), np.maximum(actual, expected)
            between = high.view(f"u{real.itemsize}") - low.view(f"u{real.itemsize}")
            sums.max_ulp = max(sums.max_ulp, int(between.max()))


def equal_bytes(one: Array, other: Array) -> bool:
    """Tell whether two contiguous arrays of a type hold the same bytes."""
    return not memory_compare(one.ctypes.data, other.ctypes.data, one.nbytes)


def ordinals(block: Array, real: np.dtype[Any]) -> Array:
    """Return the rank of each floating-point number among all numbers of its type, 0 for zero."""
    integers = np.ascontiguousarray(block).view(f"i{real.itemsize}")
    lowest = np.iinfo(integers.dtype).min
    return np.where(integers < 0, lowest - integers, integers)


def figures_of(sums: Sums, actual: Array, expected: Array) -> Figures:
    """Return the figures of a pair that has been added up."""
    worst = sums.worst if sums.first_nonfinite is None else sums.first_nonfinite
    known = sums.counted > 0
    is_float = actual.dtype == expected.dtype and actual.dtype.kind in "fc"
    noise = None
    if sums.expected > 0:
        noise = finite(math.sqrt(sums.difference / sums.expected))
    elif known and sums.difference == 0:
        noise = 0.0
    has_snr = sums.expected > 0 and sums.difference > 0
    return Figures(
        elements=actual.size,
        identical=sums.identical,
        max_error=finite(sums.max_error) if known else None,
        max_absolute=finite(sums.max_absolute) if known else None,
        mean_absolute=finite(sums.absolute / sums.counted) if known else None,
        max_relative=finite(sums.max_relative) if known else None,
        mean_relative=finite(sums.relative / sums.counted) if known else None,
        relative_l2=noise,
        scale=finite(math.sqrt(sums.expected / sums.counted)) if known else None,
        max_ulp=sums.max_ulp if is_float and known else None,
        cosine=cosine_of(sums),
        snr_db=finite(10 * math.log10(sums.expected / sums.difference)) if has_snr else None,
        mismatches=sums.mismatches,
        first=element_at(sums.first, actual, expected),
        worst=element_at(worst, actual, expected),
        nan_counts=(sums.nans[0], sums.nans[1]),
        infinity_counts=(sums.infinities[0], sums.infinities[1]),
        nonfinite_mismatches=sums.nonfinite_mismatches,
    )


def cosine_of(sums: Sums) -> float | None:
    """Return the cosine of the angle between the two sides, exact also where it is almost 1."""
    lengths = math.sqrt(sums.actual), math.sqrt(sums.expected)
    if not min(lengths) > 0 or not math.isfinite(sum(lengths)):
        return None
    if sums.difference > sums.expected / 4:
        cosine = sums.cross / (lengths[0] * lengths[1])
    else:
        apart = (2 * sums.shift + sums.difference) / sum(lengths)
        cosine = 1 - (sums.difference - apart**2) / (2 * lengths[0] * lengths[1])
    return max(-1.0, min(1.0, cosine))


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def element_at(position: int | None, actual: Array, expected: Array) -> Element | None:
    """Return an element of both sides by its place in the flat arrays."""
    if position is None:
        return None
    index = tuple(int(axis) for axis in np.unravel_index(position, actual.shape))
    return Element(index=index, actual=str(actual[index]), expected=str(expected[index]))
