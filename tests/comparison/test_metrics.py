"""The figures of a pair of arrays against the formulas written down in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lar.comparison.metrics import Bounds, bounds_of, measure, size_of, with_mask_of
from lar.dumps import Stored
from lar.graphs import signatures
from lar.records.comparison import Element, Figures, Tolerance
from tests.known import known

Array = npt.NDArray[Any]

EXACT = Bounds(0.0, 0.0)

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")


@st.composite
def pairs(draw: st.DrawFn, dtypes: tuple[str, ...]) -> tuple[Array, Array]:
    """Two arrays of one shape, some of their elements the same."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    elements: Any = None
    if dtype.kind == "f":
        elements = st.floats(-1e3, 1e3, width=dtype.itemsize * 8)  # type: ignore[arg-type]
    one = draw(hnp.arrays(dtype, shape, elements=elements))
    other = draw(hnp.arrays(dtype, shape, elements=elements))
    return one, np.where(draw(hnp.arrays(bool, shape)), one, other)


def wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.longdouble)


def expected_figures(actual: Array, expected: Array) -> dict[str, float]:
    """The formulas, in the plainest form."""
    a, e = wide(actual), wide(expected)
    absolute, greater = np.abs(a - e), np.maximum(np.abs(a), np.abs(e))
    relative = np.divide(absolute, greater, out=np.zeros_like(absolute), where=greater > 0)
    return {
        "max_error": float((absolute / np.maximum(greater, 1)).max()),
        "max_absolute": float(absolute.max()),
        "mean_absolute": float(absolute.mean()),
        "max_relative": float(relative.max()),
    }


@given(pairs((*FLOATS, *INTEGERS)))
def test_errors_are_those_of_the_formulas(pair: tuple[Array, Array]) -> None:
    actual, expected = pair
    figures = measure(actual, expected, EXACT)
    assert figures.elements == actual.size
    assert figures.identical == (actual.tobytes() == expected.tobytes())
    if not actual.size:
        assert figures.max_error is None
        return
    for name, value in expected_figures(actual, expected).items():
        assert getattr(figures, name) == pytest.approx(value, rel=1e-4, abs=1e-7), name
    assert figures.mismatches == np.count_nonzero(actual != expected)
    size = size_of(signatures.elements_of(Stored(expected)))
    has_fills = size.scale > 0 and not figures.identical
    fills = np.abs(wide(expected)) >= size.fill if has_fills else np.zeros(expected.shape, bool)
    kept = wide(expected)[~fills | (actual != expected)]
    assert figures.scale == pytest.approx(float(np.sqrt((np.abs(kept) ** 2).mean())), rel=1e-4)
    if figures.max_error:
        a, e = (wide(side)[known(figures.worst).index] for side in pair)
        error = abs(a - e) / max(abs(a), abs(e), 1)
        assert float(error) == pytest.approx(figures.max_error, rel=1e-5)
        assert known(figures.first).index == tuple(np.argwhere(actual != expected)[0])


@given(pairs(FLOATS))
def test_lengths_and_angles_are_those_of_the_formulas(pair: tuple[Array, Array]) -> None:
    actual, expected = pair
    figures = measure(actual, expected, EXACT)
    a, e = (wide(side).reshape(-1) for side in pair)
    noise, signal = (a - e) @ (a - e), e @ e
    # The squares of the smallest are no float32 any more.
    if signal > 1e-30 and noise > 1e-30 and a @ a > 1e-30:
        assert figures.relative_l2 == pytest.approx(float(np.sqrt(noise / signal)), rel=1e-4)
        assert figures.snr_db == pytest.approx(float(10 * np.log10(signal / noise)), abs=1e-3)
        cosine = float(a @ e / np.sqrt((a @ a) * signal))
        assert figures.gain == pytest.approx(float(a @ e / signal), rel=1e-4, abs=1e-6)
        length = float(np.sqrt(signal / e.size))
        assert known(figures.peak) * length == pytest.approx(float(np.abs(a - e).max()), rel=1e-4)
        assert figures.cosine == pytest.approx(cosine, abs=1e-6)
    if signal == 0 and noise > 1e-30:
        assert figures.relative_l2 is None
        assert figures.cosine is None


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
def test_figures_do_not_depend_on_the_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    expected = random.standard_normal((3, 5, 11)).astype(np.float32)
    actual = expected + np.float32(1e-3) * random.standard_normal((3, 5, 11)).astype(np.float32)
    actual[0, 1:] = expected[0, 1:]
    expected[1, 4, 5:] = actual[1, 4, 5:] = -1e9
    expected[2, 0] = actual[2, 3] = np.nan
    # The largest error, twice.
    actual[2, 4, 9:], expected[2, 4, 9:] = 8, 9
    whole = measure(actual, expected, Bounds(1e-4, 1e-4, scaled=True))
    monkeypatch.setattr(signatures, "BLOCK", block)
    figures = measure(actual, expected, Bounds(1e-4, 1e-4, scaled=True))
    for name, value in vars(whole).items():
        wanted = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        assert getattr(figures, name) == wanted, name


def test_nan_and_infinity() -> None:
    actual = np.array([1, np.nan, np.nan, np.inf, np.inf, -np.inf, 7], np.float32)
    expected = np.array([1, np.nan, 2, np.inf, -np.inf, 3, 8], np.float32)
    found = vars(measure(actual, expected, Bounds(max_error=0.5)))
    # Places 2, 4 and 5; where both are NaN or the same infinity, they agree.
    place = Element(index=(2,), actual="nan", expected="2.0")
    exact: dict[str, Any] = {
        "first": place,
        "worst": place,
        "elements": 7,
        "identical": False,
        "mismatches": 3,
        "nonfinite_mismatches": 3,
    }
    exact |= {"nan_counts": (2, 1), "infinity_counts": (3, 2)}
    assert {name: found.pop(name) for name in exact} == exact
    # Of the finite ones, 1 and 7 against 8.
    assert found == pytest.approx(
        {
            "max_error": 1 / 8,
            "max_absolute": 1,
            "mean_absolute": 0.5,
            "max_relative": 1 / 8,
            "relative_l2": math.sqrt(1 / 65),
            "scale": math.sqrt(65 / 2),
            "peak": math.sqrt(2 / 65),
            "gain": 57 / 65,
            "cosine": 57 / math.sqrt(50 * 65),
            "snr_db": 10 * math.log10(65),
        }
    )


def test_doubles_whose_squares_overflow_are_compared() -> None:
    large, small = np.array([1e200, 1.0]), np.array([1.0, 1.0])
    bounds = bounds_of(Tolerance(), "float64")
    figures = measure(large, small, bounds)
    assert figures.relative_l2 == pytest.approx(1e200 / math.sqrt(2))
    assert figures.snr_db == pytest.approx(-3997, abs=0.1)
    assert figures.cosine == pytest.approx(math.sqrt(0.5))
    assert figures.mismatches == 1
    figures = measure(small * 3, large, bounds)
    assert figures.scale == pytest.approx(1e200 / math.sqrt(2))
    assert (figures.relative_l2, figures.snr_db) == pytest.approx((1, 0))
    assert figures.mismatches == 2
    figures = measure(np.full(3, -1e308), np.full(3, 1e308), bounds)
    assert (figures.relative_l2, figures.cosine, figures.mismatches) == (2, -1, 3)
    figures = measure(large, large.copy(), bounds)
    assert figures.scale == pytest.approx(1e200 / math.sqrt(2))
    assert figures.cosine == 1


@given(st.sampled_from(["float32", "float64"]), st.floats(-1, 1), st.integers(0, 2**32))
def test_lengths_do_not_depend_on_the_unit(dtype: str, power: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    # No element is much smaller than all others: in a large unit, the others would be fills.
    expected = (random.choice([-1, 1], 40) * random.uniform(0.05, 2, 40)).astype(dtype)
    actual = expected + random.standard_normal(40).astype(dtype) * expected.dtype.type(1e-3)
    limits = np.finfo(dtype)
    unit = np.ldexp(expected.dtype.type(1), int(power * (limits.maxexp - 26 - limits.nmant)))
    plain = measure(actual, expected, bounds_of(Tolerance(), dtype))
    scaled = measure(actual * unit, expected * unit, bounds_of(Tolerance(), dtype))
    for name in ("relative_l2", "cosine", "snr_db", "peak", "gain"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-4), name
    assert scaled.scale == pytest.approx(plain.scale * unit, rel=1e-5)
    assert scaled.mismatches == plain.mismatches


@pytest.mark.parametrize("fill", [-1e4, -1e9, 1e30, np.finfo(np.float32).min])
@pytest.mark.parametrize("exact", [False, True])
def test_a_mask_hides_no_difference(fill: float, exact: bool) -> None:
    random = np.random.default_rng(2)
    expected = random.standard_normal((40, 40)).astype(np.float32)
    masked = random.random((40, 40)) < 0.6
    masked[0, 0], masked[0, 1] = False, True
    expected[masked] = np.float32(fill) + (0 if exact else expected[masked])
    assert passes(expected * np.float32(1 - 5e-5), expected)
    actual = expected.copy()
    actual[0, 0] += 0.01
    figures = measure(actual, expected, bounds_of(Tolerance(), "float32"))
    assert figures.mismatches == 1
    assert figures.peak == pytest.approx(0.01, rel=0.2)
    assert figures.max_absolute == pytest.approx(0.01, rel=0.01)
    # That a fill is rounded otherwise is no error, that there is another one is.
    actual = expected.copy()
    actual[0, 1] = np.nextafter(actual[0, 1], np.float32(0))
    figures = measure(actual, expected, bounds_of(Tolerance(), "float32"))
    assert (figures.mismatches, figures.relative_l2, figures.peak) == (0, 0, 0)
    actual[0, 1] = 0
    figures = measure(actual, expected, bounds_of(Tolerance(), "float32"))
    assert figures.mismatches == 1
    assert figures.relative_l2 == pytest.approx(1, rel=0.01)
    assert known(figures.peak) > 10


@pytest.mark.parametrize("fill", [-1e4, -1e9, 1e30])
def test_ratios_are_those_of_what_a_mask_leaves(fill: float) -> None:
    random = np.random.default_rng(4)
    expected = random.standard_normal((300, 300)).astype(np.float32)
    actual = expected + np.float32(5e-4) * random.standard_normal((300, 300)).astype(np.float32)
    masked = random.random((300, 300)) < 0.4
    kept = measure(actual[~masked], expected[~masked], bounds_of(Tolerance(), "float32"))
    for side in (actual, expected):
        side[masked] = np.float32(fill) + (0 if side is expected else side[masked])
    found = measure(actual, expected, bounds_of(Tolerance(rtol=1e-2), "float32"))
    for name in ("relative_l2", "cosine", "snr_db", "gain"):
        assert getattr(found, name) == pytest.approx(getattr(kept, name), rel=1e-5), name
    assert found.snr_db == pytest.approx(66, abs=0.5)


def test_complex_numbers() -> None:
    actual, expected = np.array([3 + 4j, 1j], np.complex64), np.array([0j, 1j], np.complex64)
    figures = measure(actual, expected, Bounds(1e-4, 1e-4))
    assert figures.max_absolute == 5
    assert figures.max_error == 1
    assert figures.mismatches == 1
    assert known(figures.first).actual == "(3+4j)"


@pytest.mark.parametrize("bits", [32, 64])
def test_wide_integers_are_compared_exactly(bits: int) -> None:
    expected = np.array([2 ** (bits - 1) - 2, -(2 ** (bits - 1))], f"int{bits}")
    figures = measure(expected + np.array([1, 0], expected.dtype), expected, EXACT)
    assert (figures.max_absolute, figures.mismatches) == (1, 1)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        measure(np.zeros(2), np.zeros(3), EXACT)


@given(pairs(("float32",)), st.sampled_from([0.0, 1e-3, 0.5]), st.sampled_from([0.0, 1e-3, 10.0]))
def test_mismatches_are_those_past_the_tolerance(
    pair: tuple[Array, Array], rtol: float, atol: float
) -> None:
    actual, expected = pair
    figures = measure(actual, expected, Bounds(rtol, atol))
    absolute = np.abs(actual - expected)
    # In single precision, as the program computes.
    allowed = np.abs(expected) * np.float32(rtol) + np.float32(atol)
    assert figures.mismatches == np.count_nonzero(absolute > allowed)


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.5, 1.0])
def test_the_manuals_error_can_be_the_limit(limit: float) -> None:
    actual, expected = np.array([0.0, 1.05, 10, 100]), np.array([0.5, 1.0, 12, 100])
    error = np.abs(actual - expected) / np.maximum(np.maximum(actual, expected), 1)
    figures = measure(actual, expected, bounds_of(Tolerance(max_error=limit), "float64"))
    assert figures.mismatches == np.count_nonzero(error > limit)


def passes(actual: Array, expected: Array, dtype: str = "", **tolerance: float) -> bool:
    bounds = bounds_of(Tolerance(**tolerance), dtype or expected.dtype.name)
    figures: Figures = measure(actual, expected, bounds)
    return not figures.mismatches


def test_default_tolerances_know_the_type() -> None:
    expected = np.linspace(1, 2, 50, dtype=np.float32)
    assert passes(expected * np.float32(1 + 5e-5), expected)
    assert not passes(expected.astype(np.float16).astype(np.float32), expected)
    assert passes(expected.astype(np.float16), expected.astype(np.float16) * np.float16(1.004))
    # A small element of a large tensor may be as far apart as a large one.
    actual = expected.copy()
    actual[0], expected[0] = 1e-5, -1e-5
    assert passes(actual, expected)
    assert not passes(np.full(1, 1e-5), np.full(1, -1e-5))
    # Integers are exact, but for those of quantised tensors.
    assert not passes(np.array([1], np.int32), np.array([2], np.int32))
    assert passes(np.array([1], np.int8), np.array([2], np.int8), "QuantizedS8")
    assert not passes(np.array([1], np.int8), np.array([3], np.int8), "QuantizedS8")


def test_bfloat16_has_a_tolerance_of_its_own() -> None:
    expected = (np.arange(0x3F80, 0x4000, dtype=np.uint32) << 16).view(np.float32)
    actual = (np.arange(0x3F82, 0x4002, dtype=np.uint32) << 16).view(np.float32)
    assert passes(actual, expected, "BFloat16")
    assert not passes(expected * 2, expected, "BFloat16")


def test_a_mask_is_the_same_in_any_type() -> None:
    actual = np.array([-1e9, -65504, -9000, -1e9, 1], np.float32)
    expected = np.array([-65504, -1e9, -8500, -3, -1e9], np.float32)
    assert with_mask_of(actual, expected).tolist() == [-65504, -1e9, -9000, -1e9, 1]
