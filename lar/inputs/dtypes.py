"""Changing an array's dtype without changing what it says."""

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


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a NumPy name, or of load_and_run's `float` and `int`.

    Raises:
        ValueError: no numeric dtype has this name.
    """
    name = _ALIASES.get(name, name)
    if name not in _NAMES:
        raise ValueError(
            f"{name[:40]!r} is not a dtype that lar feeds; it feeds {', '.join(_NAMES)}"
        )
    return np.dtype(name)


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
        ValueError: a value is out of the dtype's range, or not whole where the dtype is.
    """
    if dtype.kind in "biu":
        _check_whole(array, dtype)
    cast = settle(array, dtype)
    if dtype.kind == "f" and count_nonfinite(cast) > count_nonfinite(array):
        raise ValueError(f"holds values out of the range of {dtype}")
    return cast


def count_nonfinite(array: Array) -> int:
    """Return how many elements are NaN or infinite."""
    if array.dtype.kind not in "fc":
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
