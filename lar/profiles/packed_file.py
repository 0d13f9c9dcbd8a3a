"""Writes the bytes of a profile's file: JSON, or JSON in gzip if that is large.

Trace viewers detect both by the first bytes, whatever the name of the file. A gzip file has only
one member: some viewers cannot read more.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO

from lar.files.unpacking import MAGIC

# Most profiles are smaller, and stay JSON that any program reads.
LARGEST_PLAIN_BYTES = 8_000_000
# Higher levels take longer, and save little more.
LEVEL = 4


def is_packed_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name says that it is in gzip."""
    return os.fspath(path).endswith(".gz")


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is in gzip.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_pieces(file: IO[bytes], pieces: Iterable[bytes], *, packed: bool | None = None) -> None:
    """Write JSON into an empty file, in gzip or not.

    Without `packed`, JSON that is larger than `LARGEST_PLAIN_BYTES` goes into gzip.

    Raises:
        OSError: it cannot be written.
    """
    held: list[bytes] = []
    size_bytes, rest = 0, iter(pieces)
    for piece in rest if packed is None else ():
        held.append(piece)
        size_bytes += len(piece)
        if size_bytes > LARGEST_PLAIN_BYTES:
            packed = True
            break
    found = chain(held, rest)
    file.writelines(pack(found) if packed else found)


def pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file, some at a time."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", LEVEL, packed, mtime=0) as archive:
        for piece in pieces:
            archive.write(piece)
            yield packed.getvalue()
            packed.seek(0)
            packed.truncate()
    yield packed.getvalue()
