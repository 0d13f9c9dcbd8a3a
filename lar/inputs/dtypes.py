"""The dtypes of models' inputs: conversion of arrays to a dtype, and generated data of a dtype.

Generated data depends only on the seed, the input's name, the dtype, the shape and the fill:

`uniform` draws floats from 0 to 1, integers of 8 bits from the dtype's whole range, other integers
and booleans from 0 and 1, and texts from a to z. `normal` draws floats with mean 0 and standard
deviation 1, and is refused for dtypes that are not floats. `zeros` and `ones` give the numbers 0
and 1, the booleans False and True, or the texts "0" and "1".

Floats of uniform fill stay positive so that a logarithm or a root in the model gives numbers.
Integers of 8 bits are mostly pixels or quantized values. Wider integers are mostly indices, lengths
or masks, for which 0 and 1 are valid in nearly any model. No float is subnormal, since arithmetic
with subnormal numbers takes many times longer on some processors.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import Any

import numpy as np

from lar.errors import UsageError
from lar.inputs import Array, check_memory

# load_and_run's JSON files name the 32-bit types float and int.
_ALIASES = {"float": "float32", "int": "int32"}
_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
# The types that the package ml_dtypes adds, and the name of text.
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
TEXT = "string"


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype for a NumPy name, for load_and_run's `float` or `int`, or for `string`.

    Raises:
        ValueError: lar feeds no dtype of this name, or ml_dtypes is needed and not installed.
    """
    name = _ALIASES.get(name, name)
    if name == TEXT:
        return np.dtype(object)
    if name in NARROW:
        try:
            import ml_dtypes  # slow to import, and few models take its types
        except ImportError:
            raise ValueError(f"{name} needs the package ml_dtypes") from None
        return np.dtype(getattr(ml_dtypes, name))
    if name not in _NAMES:
        feeds = ", ".join((*_NAMES, *NARROW, TEXT))
        raise ValueError(f"{name[:40]!r} is not a dtype that lar feeds; it feeds {feeds}")
    return np.dtype(name)


@cache  # NumPy computes the name at each access
def name_of(dtype: np.dtype[Any]) -> str:
    """Return lar's name of a dtype."""
    return TEXT if dtype.kind in "OSU" else dtype.name


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of the floating-point types that NumPy lacks."""
    return dtype.isbuiltin == 2 and dtype.name in NARROW  # 2: a package's; the name is slow


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return NumPy's letter for the kind of a dtype: f for any floating-point type, O for texts."""
    return "f" if is_narrow(dtype) else "O" if dtype.kind in "SU" else dtype.kind


def settle(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in a dtype, C-contiguous, aligned and writable; copy it only if needed.

    Values that the dtype cannot hold become wrong without an error, unlike in `cast_values`.
    """
    if array.dtype == dtype and array.flags.carray:  # faster than np.require
        return array
    # np.ascontiguousarray would add an axis to an array of rank 0.
    with np.errstate(all="ignore"):
        return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def cast_values(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array with equal values in another dtype; floats are rounded to this dtype.

    Raises:
        ValueError: a value is out of range; a value has a fraction, but the dtype is for whole
            numbers; or texts would become numbers, or numbers would become texts.
    """
    if (kind_of(array.dtype) == "O") != (dtype.kind == "O"):
        raise ValueError(f"holds {name_of(array.dtype)}, the model takes {name_of(dtype)}")
    if dtype.kind in "biu":
        _check_whole(array, dtype)
    cast = settle(array, dtype)
    if kind_of(dtype) == "f" and count_nonfinite(cast) > count_nonfinite(array):
        raise ValueError(f"holds values out of the range of {dtype}")
    return cast


def cast_rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in another dtype, like `cast_values`, but round to whole numbers if needed.

    Raises:
        ValueError: a value is out of range, texts would become numbers, or numbers would become
            texts.
    """
    is_rounded = kind_of(array.dtype) == "f" and kind_of(dtype) != "f"
    return cast_values(np.rint(array) if is_rounded else array, dtype)


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
    # int() of the extremes is exact; a comparison with a float would round.
    for value in (int(array.min()), int(array.max())):
        if not lowest <= value <= highest:
            raise ValueError(f"holds {value}, out of the range of {dtype}")


def plain_array(array: Array) -> Array:
    """Return an array with the same values in one of NumPy's own types.

    Narrow floats become float32, and Python's texts become NumPy's.
    """
    if is_narrow(array.dtype):
        return array.astype(np.float32)
    return array.astype(str) if array.dtype.kind == "O" else array


def generate_array(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...], *, fill: str, seed: int
) -> Array:
    """Return generated data for an input, independent of the data for other inputs.

    Raises:
        UsageError: the array would not fit into the machine's memory, or the fill does not go with
            the dtype.
    """
    check_memory(math.prod(shape) * max(dtype.itemsize, 4), f"generated data for {name}")
    if fill in ("zeros", "ones"):
        one = "01"[fill == "ones"]
        return np.full(shape, one if dtype.kind == "O" else int(one), dtype)
    generator, kind = generator_of(f"{seed}:{name}"), kind_of(dtype)
    if kind == "f":
        return _draw_floats(generator, dtype, shape, fill)
    if fill == "normal":
        problem = f"input {name} takes {name_of(dtype)}, and normal is for floating-point data"
        hint = f"feed {name} with --input, or leave --fill out"
        raise UsageError(problem, hint, flag="--fill normal")
    if kind == "O":
        return generator.choice([*"abcdefghijklmnopqrstuvwxyz"], shape).astype(dtype)
    if kind in "iu" and dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype.type, endpoint=True)
    return generator.integers(0, 1, shape, np.uint8, endpoint=True).astype(dtype)


def generator_of(text: str) -> np.random.Generator:
    """Return a generator of random numbers that depend only on a text."""
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "little")
    return np.random.Generator(np.random.PCG64(entropy))


def describe_source(fill: str, seed: int) -> str:
    """Return the text in a result that says how data was generated, such as `uniform, seed 0`."""
    return f"{fill}, seed {seed}" if fill in ("uniform", "normal") else fill


def _draw_floats(
    generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], fill: str
) -> Array:
    drawn = np.float64 if dtype == np.float64 else np.float32
    draw = generator.standard_normal if fill == "normal" else generator.random
    array: Array = draw(shape, drawn).astype(dtype, copy=False)
    if not is_narrow(dtype):  # bfloat16 has float32's exponents
        array[np.abs(array) < np.finfo(dtype).tiny] = 0
    return array
