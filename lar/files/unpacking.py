"""Unpacking of packed content, with a limit on its size.

A file of a few megabytes can unpack to many gigabytes, and no deadline would stop the unpacking in
time. So packed content is refused if its unpacked size is above `MOST_BYTES`, or above `MOST_RATIO`
times its packed size. But an unpacked size up to `FREE_BYTES`, or up to twice the packed size, is
always allowed. If the user gives a limit with `--max-file-size`, only this limit is used. With
gzip, profiles of real runs shrink to between a tenth and a thirtieth of their size.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import IO, TYPE_CHECKING, Any, cast

from lar.errors import UsageError
from lar.files.input_file import FLAG, asked_bytes

if TYPE_CHECKING:
    from zipfile import ZipFile

MAGIC = b"\x1f\x8b"
FREE_BYTES = 1 << 26
MOST_RATIO = 100
MOST_BYTES = 1 << 32
BYTES_AT_ONCE = 1 << 20

RAISE_IT = f"if you trust it, give a larger {FLAG} SIZE, as 8G"


def most_unpacked(packed_bytes: int) -> int:
    """Return the maximum size in bytes to which content of this packed size may unpack."""
    by_size = min(max(FREE_BYTES, MOST_RATIO * packed_bytes), MOST_BYTES)
    return asked_bytes() or max(by_size, 2 * packed_bytes)  # twice the size is always allowed


def check_unpacked(
    size: int, packed_bytes: int, name: str, *, error: type[UsageError] = UsageError, flag: str = ""
) -> None:
    """Refuse packed content if the part that is unpacked so far has too many bytes.

    Raises:
        UsageError: the content is too large.
    """
    if size > (most := most_unpacked(packed_bytes)):
        times = most // max(packed_bytes, 1)
        problem = f"has {packed_bytes} bytes and unpacks to more than {most}"
        problem += f", {times} times as many" if times > 1 else ""
        raise error(problem, RAISE_IT, flag=flag, subject=name)


def check_zip(
    archive: ZipFile, size: int, name: str, error: type[UsageError] = UsageError, flag: str = ""
) -> None:
    """Refuse a zip archive that is too large when unpacked, or is not packed as NumPy packs.

    NumPy packs with deflate, or not at all. Content packed in another way, such as bzip2, is
    refused since Python unpacks it in whole blocks, which may have any size.

    Raises:
        UsageError: the archive is refused.
    """
    check_unpacked(sum(it.file_size for it in archive.filelist), size, name, error=error, flag=flag)
    if any(member.compress_type not in (0, 8) for member in archive.filelist):  # plain, deflated
        raise error("is not packed as NumPy packs", "use numpy.savez", flag=flag, subject=name)


class Unpacked(gzip.GzipFile):
    """The content of an open gzip file, as a stream that raises an error after too many bytes."""

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._packed_bytes, self._name = packed.seek(0, os.SEEK_END), name
        packed.seek(0)
        super().__init__(fileobj=packed)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(BYTES_AT_ONCE), b""))
        content = super().read(size)
        check_unpacked(self.tell(), self._packed_bytes, self._name)
        return content


def unpacked(file: IO[bytes], name: str) -> IO[bytes]:
    """Return a stream with the content of an open file; the file may be packed with gzip.

    Reading the stream raises OSError, EOFError or zlib.error if the gzip is damaged, and UsageError
    if the content is too large. `name` is for messages.
    """
    is_packed = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    return cast(IO[bytes], Unpacked(file, name)) if is_packed else file


def unpack(data: bytes, name: str, hint: str) -> bytes:
    """Return the content of a file, which may be in gzip; `name` and `hint` are for messages.

    Raises:
        UsageError: the gzip is damaged or was cut short, or the content is too large or does not
            fit into memory.
    """
    try:
        return unpacked(io.BytesIO(data), name).read()
    except (OSError, EOFError, zlib.error) as error:
        problem = f"is damaged, or was cut short: {str(error).lower()}"
        raise UsageError(problem, hint, subject=name) from None
    except MemoryError:
        raise UsageError("does not fit into memory", hint, subject=name) from None


def unpack_zlib(data: Any, name: str) -> bytes:
    """Return the content of a zlib stream.

    Raises:
        UsageError: the content is too large.
        ValueError: the data is no zlib stream, is damaged, or was cut short.
    """
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, most_unpacked(len(data)) + 1)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from None
    check_unpacked(len(content), len(data), name)
    if not stream.eof:
        raise ValueError("it was cut short")
    return content
