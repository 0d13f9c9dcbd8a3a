"""Numbers and texts in JSON: inline values of `--input` and the lists of JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from lar.inputs.loaded import Array

# NumPy 1 holds no more axes than this.
MOST_AXES = 32


def read_numbers(text: str) -> Array:
    """Read an inline value: `[1.5,2,3]` is (1,3), `[[1,2],[3,4]]` is (1,2,2), `1,2` is (2,).

    The shape is the nesting of the brackets, the text itself counting as one more pair.

    Returns:
        An array of int64 or uint64; of float64 if a point or an exponent occurs; or of texts.

    Raises:
        ValueError: the text is not a list of numbers, or its lists differ in length.
    """
    try:
        values = json.loads(f"[{text}]")
    except RecursionError:
        raise ValueError(f"has more than {MOST_AXES} levels of brackets") from None
    except ValueError:
        raise ValueError("is not a list of numbers such as [1.5,2,3]") from None
    shape = [len(values)]
    while any(isinstance(value, list) for value in values):
        lengths = {len(value) if isinstance(value, list) else -1 for value in values}
        if len(lengths) > 1:
            raise ValueError("is ragged: its lists differ in length or depth")
        shape.append(lengths.pop())
        values = [inner for value in values for inner in value]
    if len(shape) > MOST_AXES:
        raise ValueError(f"has more than {MOST_AXES} levels of brackets")
    return array_of_values(values).reshape(shape)


def array_of_values(values: Sequence[Any]) -> Array:
    """Return an array of one axis: bool, int64, uint64 or texts if all are such, else float64.

    Raises:
        ValueError: one is not a number, or one fits no dtype.
    """
    types = {type(value) for value in values}
    if types in ({bool}, {str}):
        return np.array(values, np.bool_ if types == {bool} else object)
    if not types <= {int, float}:
        culprit = next(value for value in values if type(value) not in (int, float))
        raise ValueError(f"{json.dumps(culprit)[:40]} is not a number")
    dtype: type[np.generic] = np.float64
    if types == {int}:
        dtype = np.uint64 if min(values) >= 0 and max(values) >= 2**63 else np.int64
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise ValueError("holds a number that no dtype holds") from None
