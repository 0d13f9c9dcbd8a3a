"""The tensors of a value that may be more than one, or none: sequences, maps, texts.

The tensors of a sequence `s` are named `s[0]`, `s[1]`, ...; those of a map `p` by its keys,
`p[cat]`. A sequence of maps with equal keys has one tensor a key, with the items on its first axis.
Texts are kept as their bytes in UTF-8, those of an element on the last axis, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.binary import AXES, BY_DTYPE, TEXT
from lar.dumps.dump import Array


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
    """Yield the tensors of a value as a file holds them, or why none does."""
    for each, leaf in leaves_of(name, value):
        yield leaf if isinstance(leaf, Unheld) else part_of(each, leaf)


def leaves_of(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what a value is made of, with names: an array, a number or a text, a sequence or map of
    them, None of an optional value that is not there, or what says that no file holds the value."""
    if value is None:
        yield name, Unheld(name, "an optional value that is not there")
    elif isinstance(value, list) and not value:
        yield name, Unheld(name, "a sequence without items")
    elif isinstance(value, (Mapping, list)):
        for key, each in items_of(value).items():
            yield from leaves_of(f"{name}[{key}]", each)
    else:
        yield name, value


def items_of(value: Mapping[Any, object] | list[object]) -> Mapping[Any, object]:
    """Return what a map holds, or a sequence by number: one of maps with equal keys by these."""
    if isinstance(value, Mapping):
        return value
    maps = [each for each in value if isinstance(each, Mapping)]
    if len(maps) < len(value) or any(each.keys() != maps[0].keys() for each in maps):
        return dict(enumerate(value))
    return {key: np.asarray([each[key] for each in maps]) for key in maps[0]}


def part_of(name: str, value: object) -> Part | Unheld:
    """Return what is kept of an array, or of what NumPy makes one of."""
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    array = bytes_of_texts(array) if is_text else array
    if array.dtype.name.startswith("float8"):  # float32 holds each of them
        array = array.astype(np.float32)
    element = BY_DTYPE.get(array.dtype.name)
    if element is None:
        return Unheld(name, f"no file holds the dtype {array.dtype.name}")
    if array.ndim > AXES:
        return Unheld(name, f"no file holds {array.ndim} axes")
    return Part(name, array, TEXT.name if is_text else element.name)


def texts_of_bytes(coded: Array) -> Array:
    """Return the texts of which a file holds the bytes on the last axis."""
    rows = coded.reshape(-1, coded.shape[-1])
    texts = [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]
    return np.array(texts, str).reshape(coded.shape[:-1])


def bytes_of_texts(texts: Array) -> Array:
    """Return texts (object, str or bytes) as uint8 with an axis more, as wide as the longest."""
    coded = [
        each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogateescape")
        for each in texts.reshape(-1)
    ]
    width = max(map(len, coded), default=0)
    padded = b"".join(each.ljust(width, b"\0") for each in coded)
    return np.frombuffer(padded, np.uint8).reshape(*texts.shape, width)
