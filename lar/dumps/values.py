"""The tensors of a value that may be more than one, or none: sequences, maps, texts.

The tensors of a sequence `s` are named `s[0]`, `s[1]`, ...; those of a map `p` by its keys,
`p[cat]`. A sequence of maps with equal keys has one tensor a key, with the items on its first axis.
Texts are kept as their bytes in UTF-8, those of an element on the last axis, padded with zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lar.dumps.binary import AXES, BY_DTYPE, TEXT
from lar.dumps.dump import Array

# Behind the name of a sequence or a map, for one of its elements.
ELEMENT = re.compile(r"\[[^][]*\]$")


class Part(NamedTuple):
    """A tensor of a value: its name, its array as a file holds it, and MegEngine's name of its
    dtype (`String` of a text)."""

    name: str
    array: Array
    dtype: str


class Unheld(NamedTuple):
    """What no file holds of a value: its name, and why."""

    name: str
    reason: str


def parts_of(name: str, value: object) -> Iterator[Part | Unheld]:
    """Yield the tensors of a value: an array, a number or a text, a sequence or map of them, None
    of an optional value that is not there, or what says that no file holds the value."""
    if isinstance(value, Unheld):
        yield value
    elif value is None:
        yield Unheld(name, "an optional value that is not there")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from parts_of(f"{name}[{key}]", each)
    elif isinstance(value, list):
        yield from parts_of_sequence(name, value)
    else:
        yield part_of(name, value)


def parts_of_sequence(name: str, values: Sequence[object]) -> Iterator[Part | Unheld]:
    if not values:
        yield Unheld(name, "a sequence without items")
        return
    maps = [each for each in values if isinstance(each, Mapping)]
    if len(maps) == len(values) and all(each.keys() == maps[0].keys() for each in maps):
        for key in maps[0]:
            yield part_of(f"{name}[{key}]", [each[key] for each in maps])
        return
    for number, each in enumerate(values):
        yield from parts_of(f"{name}[{number}]", each)


def part_of(name: str, value: object) -> Part | Unheld:
    """Return what is kept of an array, or of what NumPy makes one of."""
    array, dtype = np.asarray(value), ""
    if array.dtype.kind in "OSU":
        array, dtype = bytes_of_texts(array), TEXT.name
    element = BY_DTYPE.get(array.dtype.name)
    if element is None:
        return Unheld(name, f"no file holds the dtype {array.dtype.name}")
    if array.ndim > AXES:
        return Unheld(name, f"no file holds {array.ndim} axes")
    return Part(name, array, dtype or element.name)


def bytes_of_texts(texts: Array) -> Array:
    """Return texts (object, str or bytes) as uint8 with an axis more, as wide as the longest."""
    coded = [
        each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogateescape")
        for each in texts.reshape(-1)
    ]
    width = max(map(len, coded), default=0)
    padded = b"".join(each.ljust(width, b"\0") for each in coded)
    return np.frombuffer(padded, np.uint8).reshape(*texts.shape, width)
