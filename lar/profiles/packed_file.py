"""The bytes of a profile's file: JSON, or JSON in gzip where that is large.

Trace viewers detect both by the first bytes, whatever the file is called. There is one member in a
gzip file: some viewers read no other.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, cast

from lar.errors import UsageError

MAGIC = b"\x1f\x8b"
# Most profiles are smaller, and JSON that any program reads.
LARGEST_PLAIN_BYTES = 8_000_000
# The higher levels take longer, and make little of it.
LEVEL = 4
AGAIN = "make it again with --profile"


def is_packed_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name says that it is in gzip."""
    return os.fspath(path).endswith(".gz")


def write_pieces(file: IO[bytes], pieces: Iterable[bytes], *, packed: bool | None = None) -> None:
    """Write JSON into an empty file, in gzip or not; if that is not said, where the JSON is larger
    than `LARGEST_PLAIN_BYTES`.

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


def unpack(data: bytes, name: str, hint: str = AGAIN) -> bytes:
    """Return the JSON of a file's content; `name` and `hint` are for messages.

    Raises:
        UsageError: its gzip is damaged or was cut short, or it does not fit into memory.
    """
    try:
        return unpacked(io.BytesIO(data)).read()
    except (OSError, EOFError, zlib.error) as error:
        problem = f"is damaged, or was cut short: {str(error).lower()}"
        raise UsageError(problem, hint, subject=name) from None
    except MemoryError:
        raise UsageError("does not fit into memory", hint, subject=name) from None


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """Return the JSON of an open file as a stream. To read it raises OSError, EOFError or
    zlib.error where its gzip is damaged."""
    packed = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file
