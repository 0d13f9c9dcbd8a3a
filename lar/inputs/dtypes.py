"""The dtypes that models take, and changing an array's dtype without changing what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from lar.inputs.loaded import Array

# load_and_run's JSON files say float and int for the 32-bit types.
_ALIASES = {"float": "float32", "int": "int32"}
_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
# The types of the package ml_dtypes, and text.
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
TEXT = "string"


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a NumPy name, of load_and_run's `float` and `int`, or of `string`.

    Raises:
        ValueError: lar feeds no dtype of this name, or ml_dtypes is needed and not installed.
    """
    name = _ALIASES.get(name, name)
    if name == TEXT:
        return np.dtype(object)
    if name in NARROW:
        try:
            import ml_dtypes  # slow to import, and few models take them
        except ImportError:
            raise ValueError(f"{name} needs the package ml_dtypes") from None
        return np.dtype(getattr(ml_dtypes, name))
    if name not in _NAMES:
        feeds = ", ".join((*_NAMES, *NARROW, TEXT))
        raise ValueError(f"{name[:40]!r} is not a dtype that lar feeds; it feeds {feeds}")
    return np.dtype(name)


def name_of(dtype: np.dtype[Any]) -> str:
    """Return lar's name of a dtype."""
    return TEXT if dtype.kind in "OSU" else dtype.name


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return NumPy's letter of a kind of dtype: f for all floating-point types, O for texts."""
    return "f" if dtype.name in NARROW else "O" if dtype.kind in "SU" else dtype.kind


def settle(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the array in a dtype, C-contiguous, aligned and writable; copied only if it must be.

    Values that the dtype cannot hold come out wrong: see `cast_values`.
    """
    # np.ascontiguousarray would give an array of rank 0 an axis.
    with np.errstate(all="ignore"):
        return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def cast_values(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return a settled array of another dtype whose values are the same, floats rounded.

    Raises:
        ValueError: a value is out of the dtype's range, not whole where the dtype is, or no text
            where the dtype is of texts, or the reverse.
    """
    if (kind_of(array.dtype) == "O") != (dtype.kind == "O"):
        raise ValueError(f"holds {name_of(array.dtype)}, the model takes {name_of(dtype)}")
    if dtype.kind in "biu":
        _check_whole(array, dtype)
    cast = settle(array, dtype)
    if kind_of(dtype) == "f" and count_nonfinite(cast) > count_nonfinite(array):
        raise ValueError(f"holds values out of the range of {dtype}")
    return cast


def count_nonfinite(array: Array) -> int:
    """Return how many elements are NaN or infinite."""
    if kind_of(array.dtype) not in "fc":
        return 0
    return int(array.size - np.count_nonzero(np.isfinite(array)))


def _check_whole(array: Array, dtype: np.dtype[Any]) -> None:
    if array.size == 0 or array.dtype == dtype or array.dtype.kind == "b":
        return
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.rint(array))).all():
        raise ValueError(f"holds values that are not whole, which {dtype} needs")
    lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    # int() of the extremes: exact, where a comparison with a float would round.
    for value in (int(array.min()), int(array.max())):
        if not lowest <= value <= highest:
            raise ValueError(f"holds {value}, out of the range of {dtype}")


def plain_array(array: Array) -> Array:
    """Return an array of NumPy's own types that holds the same: float32 for narrow floats, and an
    array of texts for Python's texts."""
    if array.dtype.name in NARROW:
        return array.astype(np.float32)
    return array.astype(str) if array.dtype.kind == "O" else array
