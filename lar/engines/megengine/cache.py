"""MegEngine's fast-run cache files: what they hold, read without guessing, written byte for byte.

A search leaves one entry for each operator: the algorithms that are worth keeping, each with its
time and workspace. A run with the file takes the first one that its policy and workspace limit
allow, so that one is the choice. All drivers of MegEngine and load_and_run share the format;
numbers are 32 bits, little endian, and `blob` is a length and that many bytes:

    file        number of categories; for each its name (blob), number of entries, the entries
    entry       key (blob), value (blob)
    value       of a search: number of algorithms; for each its description (blob), result (blob)
    description handle, type, length of parameters, length of name, parameters, name
    result      ":ATTRIBUTE;SECONDS;WORKSPACE_BYTES:" and a zero

Values of other categories, and of other versions of the search, are kept as they are.
Read from MegEngine 1.13: src/core/impl/utils/infile_persistent_cache.cpp (file),
persistent_cache.cpp beside it (value), src/rdnn/impl/algo_chooser.cpp (description).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from lar.engines.megengine.cache_key import profile_of
from lar.errors import UsageError
from lar.files.input_file import read_input

VERSION = 5  # of the search: the only one whose values are read
LONGEST_CATEGORY = 255  # the engine reads a name into a buffer of 256 bytes, unchecked
LARGEST_FILE = 1 << 28  # far above any cache; a model named by mistake is not read into memory
RESULT = re.compile(rb":(\d{1,10});(\d+(?:\.\d+)?(?:e[+-]\d+)?);(\d{1,20}):\0")


@dataclass(frozen=True)
class Algorithm:
    """One algorithm that was timed; `blob` describes it to the engine, `result` is its text."""

    name: str
    seconds: float
    workspace_bytes: int
    attribute: int
    blob: bytes
    result: bytes


@dataclass(frozen=True)
class Entry:
    """One key and its algorithms, the chosen one first; `other` is a value that is not read."""

    key: bytes
    algorithms: tuple[Algorithm, ...] = ()
    other: bytes = b""


@dataclass(frozen=True)
class Category:
    """The entries of one kind of operator on one kind of device."""

    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class AlgorithmCache:
    """The content of a cache file, in its order."""

    categories: tuple[Category, ...] = ()


class Reader:
    """Bytes from front to back; asking for more than there are is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def take(self, size: int) -> bytes:
        left = len(self.data) - self.offset
        if size > left:
            raise ValueError(f"{size} bytes should follow byte {self.offset}, {left} do")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def blob(self) -> bytes:
        return self.take(self.number())

    def end(self) -> None:
        """Check that nothing is left."""
        if self.offset < len(self.data):
            raise ValueError(f"{len(self.data) - self.offset} bytes too many")


def read_cache(path: str | Path) -> AlgorithmCache:
    """Read a cache file.

    Raises:
        UsageError: it cannot be read, or is not a whole cache file.
    """
    return cache_of(read_input(path, what="fast-run cache", limit=LARGEST_FILE), str(path))


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def cache_of(data: bytes, name: str = "the cache") -> AlgorithmCache:
    """Read the content of a cache file; nothing is guessed and nothing left out.

    Raises:
        UsageError: these bytes are not a whole cache file.
    """
    reader = Reader(data)
    try:
        categories = tuple(category_from(reader) for _ in range(reader.number()))
        reader.end()
        refuse_repeats([category.name for category in categories])
    except ValueError as error:
        raise UsageError(
            f"{name}: is not a fast-run cache of MegEngine, or is damaged: {error}",
            "remove it and search again, or choose another; an empty cache has 4 bytes, all zero",
        ) from None
    return AlgorithmCache(categories)


def category_from(reader: Reader) -> Category:
    raw = reader.blob()
    if len(raw) > LONGEST_CATEGORY:
        raise ValueError("the name of a category is too long")
    name = text_of(raw)
    profile = profile_of(name)
    is_read = profile is not None and profile.version == VERSION
    entries = tuple(entry_from(reader, is_read) for _ in range(reader.number()))
    refuse_repeats([entry.key for entry in entries])
    return Category(name, entries)


def entry_from(reader: Reader, is_read: bool) -> Entry:
    key, value = reader.blob(), reader.blob()
    if not is_read:
        return Entry(key, other=value)
    algorithms = Reader(value)
    entry = Entry(key, tuple(algorithm_from(algorithms) for _ in range(algorithms.number())))
    algorithms.end()
    if not entry.algorithms:
        raise ValueError("an operator has no algorithm")
    return entry


def algorithm_from(reader: Reader) -> Algorithm:
    blob, result = reader.blob(), reader.blob()
    parts = Reader(blob)
    parts.take(8)  # handle and type
    parameter_size, name_size = parts.number(), parts.number()
    parts.take(parameter_size)
    name = text_of(parts.take(name_size))
    parts.end()
    match = RESULT.fullmatch(result)
    seconds = float(match[2]) if match else math.inf
    if not match or math.isinf(seconds):
        raise ValueError(f"{result[:40]!r} is no result of a search")
    return Algorithm(name, seconds, int(match[3]), int(match[1]), blob, result)


def text_of(raw: bytes) -> str:
    """Read a name, which must be one that can be printed."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise ValueError(f"{raw[:16]!r} is no name")
    return text


def refuse_repeats(names: list[str] | list[bytes]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("an entry is there twice")


def bytes_of(cache: AlgorithmCache) -> bytes:
    """Return the file that `cache_of` reads, byte for byte."""
    parts = [number_bytes(len(cache.categories))]
    for category in cache.categories:
        parts += [blob_bytes(category.name.encode()), number_bytes(len(category.entries))]
        for entry in category.entries:
            parts += [blob_bytes(entry.key), blob_bytes(value_bytes(entry))]
    return b"".join(parts)


def value_bytes(entry: Entry) -> bytes:
    if not entry.algorithms:
        return entry.other
    pairs = [blob_bytes(each.blob) + blob_bytes(each.result) for each in entry.algorithms]
    return number_bytes(len(pairs)) + b"".join(pairs)


def number_bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def blob_bytes(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def merge_caches(base: AlgorithmCache, newer: AlgorithmCache) -> AlgorithmCache:
    """Return what either knows; where both know an operator, the newer's entry."""
    merged: dict[str, dict[bytes, Entry]] = {}
    for category in (*base.categories, *newer.categories):
        entries = merged.setdefault(category.name, {})
        entries.update((entry.key, entry) for entry in category.entries)
    return AlgorithmCache(
        tuple(Category(name, tuple(entries.values())) for name, entries in merged.items())
    )
