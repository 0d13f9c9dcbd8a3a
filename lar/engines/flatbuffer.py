"""A reader of files in the FlatBuffers format, which several engines use for models.

The reader checks every offset. Many offsets may point to the same long vector or text, so the
number of elements that are read is limited too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# How many elements of vectors and texts may be read, for each byte of the file and in addition.
ELEMENTS_FOR_A_BYTE, MORE_ELEMENTS = 4, 100_000


class Table:
    """A table in a FlatBuffers buffer; an offset that points out of the buffer raises a ValueError.

    A table that is missing in the file has no position and no fields, and its truth value is false.
    """

    def __init__(self, data: memoryview, position: int | None, left: list[int]) -> None:
        # `left`, which all tables of a file share, has the number of elements that may be read yet.
        self.data, self.position, self.fields_size, self.left = data, position or 0, 0, left
        if position is not None:
            self.fields = position - self.number("<i", position)
            self.fields_size = self.number("<H", self.fields)

    def __bool__(self) -> bool:
        return self.fields_size > 0

    def number(self, kind: str, position: int) -> int:
        if not 0 <= position <= len(self.data) - struct.calcsize(kind):
            raise ValueError(f"it points to byte {position} of {len(self.data)}")
        return int(struct.unpack_from(kind, self.data, position)[0])

    def field(self, index: int) -> int | None:
        """Return the position of a field's value, or None if the field is missing in the file."""
        entry = 4 + 2 * index
        if entry + 2 > self.fields_size:
            return None
        offset = self.number("<H", self.fields + entry)
        return self.position + offset if offset else None

    def pointed(self, index: int) -> int | None:
        """Return the position that a field points to, or None if the file lacks the field."""
        position = self.field(index)
        return None if position is None else position + self.number("<I", position)

    def table(self, index: int) -> Table:
        return Table(self.data, self.pointed(index), self.left)

    def blob(self, index: int, behind: int = 0) -> memoryview | None:
        """Return a vector of bytes, followed by the next `behind` bytes of the file.

        The result is None if the vector is missing.
        """
        position = self.pointed(index)
        return None if position is None else self._bytes_at(position, behind)

    def _bytes_at(self, position: int, behind: int = 0) -> memoryview:
        start, size = position + 4, self.number("<I", position) + behind
        if size > len(self.data) - start:
            raise ValueError(f"{size} bytes should follow byte {start} of {len(self.data)}")
        return self.data[start : start + size]

    def text(self, index: int) -> str:
        """Return a string; the string is empty if the field is missing in the file."""
        raw = bytes(self.blob(index, behind=1) or b"\0")
        if raw[-1] != 0:
            raise ValueError("a text does not end")
        return self._decode(raw[:-1])

    def integer(self, index: int, kind: str = "<I", default: int = 0) -> int:
        """Return an integer, or the default if the field is missing in the file."""
        position = self.field(index)
        return default if position is None else self.number(kind, position)

    def real(self, index: int) -> float | None:
        """Return a floating-point number, or None if the field is missing in the file."""
        if self.field(index) is None:
            return None
        return float(struct.unpack("<f", struct.pack("<I", self.integer(index)))[0])

    def numbers(self, index: int, kind: str = "<I") -> list[int]:
        """Return the 32-bit elements of a vector; the list is empty if the vector is left out."""
        return [self.number(kind, position) for position in self._elements(index)]

    def tables(self, index: int) -> Iterator[Table]:
        """Yield the tables in a vector of tables."""
        for position in self._elements(index):
            yield Table(self.data, position + self.number("<I", position), self.left)

    def texts(self, index: int) -> Iterator[str]:
        """Yield the strings in a vector of strings."""
        for position in self._elements(index):
            yield self._decode(self._bytes_at(position + self.number("<I", position)))

    def _decode(self, raw: bytes | memoryview) -> str:
        self._spend(len(raw))
        return str(raw, "utf-8")  # a UnicodeDecodeError is a ValueError

    def _spend(self, elements: int) -> None:
        self.left[0] -= elements
        if self.left[0] < 0:
            raise ValueError("it points to the same bytes again and again")

    def _elements(self, index: int) -> range:
        start = self.pointed(index)
        if start is None:
            return range(0)
        count = self.number("<I", start)
        self._spend(count)
        return range(start + 4, start + 4 + 4 * count, 4)


def open_root(data: memoryview) -> Table:
    """Return the root table of a FlatBuffers buffer.

    Raises:
        ValueError: the buffer is cut short.
    """
    if len(data) < 4:
        raise ValueError("it is cut short")
    left = ELEMENTS_FOR_A_BYTE * len(data) + MORE_ELEMENTS
    return Table(data, int.from_bytes(data[:4], "little"), [left])
