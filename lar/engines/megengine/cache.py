"""MegEngine's fast-run cache files: read without guessing, written byte for byte, changed whole.

A search leaves one entry for each operator: the algorithms that are worth keeping, each with its
time and workspace. A run with the file takes the first one that its policy and workspace limit
allow, so that one is the choice. All drivers of MegEngine and load_and_run share the format;
numbers are 32 bits, little endian, and `blob` is a length and that many bytes:

    file        number of categories; for each its name (blob), number of entries, the entries
    entry       key (blob), value (blob)
    value       of a search: number of algorithms; for each its description (blob), result (blob)
    description handle, type, length of parameters, length of name, parameters, name
    result      ":ATTRIBUTE;SECONDS;WORKSPACE_BYTES:" and a zero

The name of a category of a search is `profile:DEVICE:OPERATORvVERSIONSET`, as
`profile:plat=cpu:ConvBiasForwardv5X0`; SET names the family of algorithms (X0: x86), DEVICE holds
for CUDA the device's name, too. `cache_operators` has the keys. Values of other categories, and of
other versions of the search, are kept as they are.
Read from MegEngine 1.13: src/core/impl/utils/infile_persistent_cache.cpp (file),
persistent_cache.cpp beside it (value), src/rdnn/impl/algo_chooser.cpp (description),
dnn/src/common/conv_bias.cpp (names of winograd algorithms).
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from lar.engines.caches import Algorithm
from lar.errors import UsageError
from lar.files.input_file import read_input

SEARCH = re.compile(r"profile:(.*):(\w+?)v5(?!\d).*")  # the one version whose values are read
WINOGRAD = re.compile(r"WINOGRAD(?:_NCHW\d+)?:[^:]+:(\d+):(\d+):(\d+):(\d+)$")
RESULT = re.compile(rb":(\d{1,10});(\d+(?:\.\d+)?(?:e[+-]\d+)?);(\d{1,20}):\0")
DESCRIPTION = struct.Struct("<8xII")  # after handle and type
LONGEST_CATEGORY = 255  # the engine reads a name into a buffer of 256 bytes, unchecked
# What an algorithm promises, and what it depends on.
ATTRIBUTES = {1: "reproducible", 2: "naive", 4: "depends on shape", 8: "depends on batch"}
LARGEST_FILE = 1 << 28  # far above any cache; a model named by mistake is not read into memory


def winograd_of(algorithm: str) -> str:
    """Return which winograd an algorithm is, empty for none.

    F(m,r) computes m outputs of a filter of r by transforming tiles of m+r-1; the numbers in
    WINOGRAD:MATMUL:4:2:16:3 are the channels in a block, m, the tiles in a unit of work, and r.
    """
    if match := WINOGRAD.search(algorithm):
        return f"F({match[2]},{match[4]})"
    return "winograd" if "WINOGRAD" in algorithm else ""


Place: TypeAlias = tuple[str, bytes]
"""The name of a category, and a key in it."""

Entry: TypeAlias = "tuple[Algorithm, ...] | bytes"
"""The algorithms for an operator, the chosen one first; or a value that is not read."""

AlgorithmCache: TypeAlias = Mapping[Place, Entry]
"""The content of a cache file, in its order; a category without entries is left out. The newer of
two is put over the older as `{**older, **newer}`."""


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

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Read a number, and then so many pairs of blobs."""
        return [(self.blob(), self.blob()) for _ in range(self.number())]

    def end(self) -> None:
        """Check that nothing is left."""
        if self.offset < len(self.data):
            raise ValueError(f"{len(self.data) - self.offset} bytes too many")


def read_cache(path: str | Path, flag: str = "") -> AlgorithmCache:
    """Read a cache file.

    Raises:
        UsageError: it cannot be read, or is not a whole cache file.
    """
    data = read_input(path, flag, what="fast-run cache", limit=LARGEST_FILE)
    return cache_of(data, str(path), flag)


def cache_of(data: bytes, name: str = "the cache", flag: str = "") -> AlgorithmCache:
    """Read the content of a cache file; nothing is guessed and nothing left out.

    Raises:
        UsageError: these bytes are not a whole cache file.
    """
    reader = Reader(data)
    cache: dict[Place, Entry] = {}
    names: set[str] = set()
    try:
        for _ in range(reader.number()):
            category = text_of(raw := reader.blob())
            if len(raw) > LONGEST_CATEGORY:
                raise ValueError("the name of a category is too long")
            if category in names:
                raise ValueError("a category is there twice")
            names.add(category)
            for key, value in reader.pairs():
                if (category, key) in cache:
                    raise ValueError("an entry is there twice")
                cache[category, key] = entry_of(category, value)
        reader.end()
    except ValueError as error:
        raise UsageError(
            f"is not a fast-run cache of MegEngine, or is damaged: {error}",
            "remove it and search again, or choose another; an empty cache has 4 bytes, all zero",
            flag=flag,
            subject=name,
        ) from None
    return cache


def entry_of(category: str, value: bytes) -> Entry:
    if not SEARCH.fullmatch(category):
        return value
    reader = Reader(value)
    algorithms = tuple(algorithm_of(*pair) for pair in reader.pairs())
    reader.end()
    if not algorithms:
        raise ValueError("an operator has no algorithm")
    return algorithms


def algorithm_of(blob: bytes, result: bytes) -> Algorithm:
    parts = Reader(blob)
    parameter_size, name_size = DESCRIPTION.unpack(parts.take(DESCRIPTION.size))
    parts.take(parameter_size)
    name = text_of(parts.take(name_size))
    parts.end()
    match = RESULT.fullmatch(result)
    seconds = float(match[2]) if match else math.inf
    if not match or math.isinf(seconds):
        raise ValueError(f"{result[:40]!r} is not the result of a search")
    names = tuple(name for bit, name in ATTRIBUTES.items() if bit & int(match[1]))
    return Algorithm(name, seconds, int(match[3]), names, winograd_of(name), blob, result)


def text_of(raw: bytes) -> str:
    """Read a name, which must be one that can be printed."""
    text = raw.decode(errors="replace")
    if not text or not text.isprintable() or "\N{REPLACEMENT CHARACTER}" in text:
        raise ValueError(f"{raw[:16]!r} is not a name")
    return text


def bytes_of(cache: AlgorithmCache) -> bytes:
    """Return the file that `cache_of` reads."""
    categories: dict[str, list[tuple[bytes, bytes]]] = {}
    for (category, key), entry in cache.items():
        if not isinstance(entry, bytes):
            entry = pair_bytes([(each.blob, each.result) for each in entry])
        categories.setdefault(category, []).append((key, entry))
    parts = [blob_bytes(name.encode()) + pair_bytes(its) for name, its in categories.items()]
    return number_bytes(len(parts)) + b"".join(parts)


def pair_bytes(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return number_bytes(len(pairs)) + b"".join(blob_bytes(a) + blob_bytes(b) for a, b in pairs)


def number_bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def blob_bytes(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def update_cache(
    path: str | Path, change: Callable[[AlgorithmCache], AlgorithmCache], flag: str = ""
) -> tuple[AlgorithmCache, AlgorithmCache]:
    """Change a cache file, an empty one if it does not exist; return the old and the new contents.

    Readers see the old file or the new one, whole, at any time; other writers wait.

    Raises:
        UsageError: the file is there and no cache, cannot be written, or its folder stays locked.
    """
    # Imported here: a run of a packed model only reads its cache.
    from lar.files.locks import locked
    from lar.files.report_file import OutputFile

    real = os.path.realpath(path)  # `-` is a file here, too
    with locked(os.path.dirname(real), flag):
        is_new = not os.path.exists(real)
        old = {} if is_new else read_cache(real)
        new = change(old)
        if is_new or new != old:
            with OutputFile(real, flag) as file:
                file.write(bytes_of(new))
        return old, new
