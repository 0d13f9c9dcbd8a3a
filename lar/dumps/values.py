"""The tensors of a value that may be more than one, or none: sequences, maps, texts.

The tensors of a sequence `s` are named `s[0]`, `s[1]`, ...; those of a map `p` have its keys, as
`p[cat]`. A sequence of maps with equal keys has one tensor for each key, with the items on its
first axis. Texts are kept as bytes in UTF-8 on a last axis, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.binary import AXES, BY_DTYPE, TEXT
from lar.dumps.dump import Array


class Part(NamedTuple):
    """A tensor of a value: its name, its array as a file holds it, and MegEngine's dtype name.

    The dtype of a text is `String`.
    """

    name: str
    array: Array
    dtype: str


class Unheld(NamedTuple):
    """A value that no file can hold: its name, and why."""

    name: str
    reason: str


def parts_of(name: str, value: object) -> Iterator[Part | Unheld]:
    """Yield the tensors of a value as a file holds them, or why no file can."""
    for each, leaf in leaves_of(name, value):
        yield leaf if isinstance(leaf, Unheld) else part_of(each, leaf)


def leaves_of(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value, with names: arrays, numbers and texts.

    Sequences and maps are taken apart. An optional value that is not there, or an empty sequence,
    becomes `Unheld`.
    """
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
    """Return the items of a map by key, or those of a sequence by number.

    A sequence of maps with equal keys becomes a map of arrays.
    """
    if isinstance(value, Mapping):
        return value
    maps = [each for each in value if isinstance(each, Mapping)]
    if len(maps) < len(value) or any(each.keys() != maps[0].keys() for each in maps):
        return dict(enumerate(value))
    return {key: np.asarray([each[key] for each in maps]) for key in maps[0]}


def part_of(name: str, value: object) -> Part | Unheld:
    """Return the part for an array, or for a value that NumPy makes an array of."""
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    array = bytes_of_texts(array) if is_text else array
    if array.dtype.name.startswith("float8"):  # float32 holds each of their values
        array = array.astype(np.float32)
    element = BY_DTYPE.get(array.dtype.name)
    if element is None:
        return Unheld(name, f"no file holds the dtype {array.dtype.name}")
    if array.ndim > AXES:
        return Unheld(name, f"no file holds {array.ndim} axes")
    return Part(name, array, TEXT.name if is_text else element.name)


def texts_of_bytes(coded: Array) -> Array:
    """Return the texts for bytes that a file has on the last axis."""
    rows = coded.reshape(-1, coded.shape[-1])
    texts = [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]
    return np.array(texts, str).reshape(coded.shape[:-1])


def bytes_of_texts(texts: Array) -> Array:
    """Return texts (object, str or bytes) as uint8 with one more axis, as wide as the longest."""
    coded = [
        each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogateescape")
        for each in texts.reshape(-1)
    ]
    width = max(map(len, coded), default=0)
    padded = b"".join(each.ljust(width, b"\0") for each in coded)
    return np.frombuffer(padded, np.uint8).reshape(*texts.shape, width)
