"""Generated data: the same for the same seed, input name, dtype and shape.

    fill      floating-point        uint8, int8               other integers   bool     text
    uniform   0 to 1                the dtype's whole range   0 or 1           either   a to z
    normal    mean 0, deviation 1   refused                   refused          refused  refused
    zeros     0                     0                         0                False    "0"
    ones      1                     1                         1                True     "1"

Floats of uniform fill stay positive so that a logarithm or a root in the model gives numbers.
8-bit integers are mostly pixels or quantized values; wider ones mostly indices, lengths or masks,
for which 0 and 1 are valid in nearly any model. No float is subnormal: arithmetic with those takes
many times longer on some processors.
"""

from __future__ import annotations

import hashlib
import math
import string
from typing import Any

import numpy as np

from lar.errors import UsageError
from lar.inputs.dtypes import NARROW, kind_of, name_of
from lar.inputs.loaded import Array, check_memory


def generate_array(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...], *, fill: str, seed: int
) -> Array:
    """Return generated data for the input of this name; other inputs' data is independent of it.

    Raises:
        UsageError: the array would not fit into the machine's memory, or there is no such fill for
            this dtype.
    """
    check_memory(math.prod(shape) * max(dtype.itemsize, 4), f"generated data for {name}")
    if fill in ("zeros", "ones"):
        one = "01"[fill == "ones"]
        return np.full(shape, one if dtype.kind == "O" else int(one), dtype)
    generator = generator_of(f"{seed}:{name}")
    kind = kind_of(dtype)
    if fill == "normal" and kind != "f":
        raise UsageError(
            f"input {name} takes {name_of(dtype)}, and normal is for floating-point data",
            f"feed {name} with --input, or leave --fill out",
            flag="--fill normal",
        )
    if kind == "f":
        return _draw_floats(generator, dtype, shape, fill)
    if kind == "O":
        return generator.choice([*string.ascii_lowercase], shape).astype(dtype)
    if kind in "iu" and dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype.type, endpoint=True)
    return generator.integers(0, 1, shape, np.uint8, endpoint=True).astype(dtype)


def generator_of(text: str) -> np.random.Generator:
    """Return a generator of random numbers, the same for the same text."""
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "little")
    return np.random.Generator(np.random.PCG64(entropy))


def describe_source(fill: str, seed: int) -> str:
    """Return how data was generated, as results name it: `uniform, seed 0`."""
    return f"{fill}, seed {seed}" if fill in ("uniform", "normal") else fill


def _draw_floats(
    generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], fill: str
) -> Array:
    drawn: type[np.float32 | np.float64] = np.float64 if dtype == np.float64 else np.float32
    if fill == "normal":
        floats = generator.standard_normal(shape, drawn)
    else:
        floats = generator.random(shape, drawn)
    array: Array = floats.astype(dtype, copy=False)
    if dtype.name not in NARROW:  # bfloat16 has the exponents of float32, others few numbers
        array[np.abs(array) < np.finfo(dtype).tiny] = 0
    return array
