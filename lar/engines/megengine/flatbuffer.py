"""FlatBuffers, in which MegEngine's model files are written, read with every offset checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator


class Table:
    """A table of a FlatBuffers buffer; whatever would lead out of it is a ValueError."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.data, self.position = data, position
        self.fields = position - self.number("<i", position)
        self.fields_size = self.number("<H", self.fields)

    def number(self, kind: str, position: int) -> int:
        if not 0 <= position <= len(self.data) - struct.calcsize(kind):
            raise ValueError(f"it points to byte {position} of {len(self.data)}")
        return int(struct.unpack_from(kind, self.data, position)[0])

    def field(self, index: int) -> int | None:
        """Return the position of a field's value, None where it is left out."""
        entry = 4 + 2 * index
        if entry + 2 > self.fields_size:
            return None
        offset = self.number("<H", self.fields + entry)
        return self.position + offset if offset else None

    def pointed(self, index: int) -> int | None:
        """Return the position that a field points to."""
        position = self.field(index)
        return None if position is None else position + self.number("<I", position)

    def table(self, index: int) -> Table | None:
        position = self.pointed(index)
        return None if position is None else Table(self.data, position)

    def blob(self, index: int) -> tuple[int, memoryview] | None:
        """Return a vector of bytes and its position."""
        position = self.pointed(index)
        if position is None:
            return None
        start, size = position + 4, self.number("<I", position)
        if size > len(self.data) - start:
            raise ValueError(f"{size} bytes should follow byte {start} of {len(self.data)}")
        return start, self.data[start : start + size]

    def text(self, index: int) -> str:
        """Return a string, an empty one where it is left out."""
        found = self.blob(index)
        if found is None:
            return ""
        start, raw = found
        if self.number("<B", start + len(raw)) != 0:
            raise ValueError("a text does not end")
        return bytes(raw).decode()  # a UnicodeDecodeError is a ValueError

    def integer(self, index: int, kind: str = "<I") -> int:
        """Return a number, 0 where it is left out."""
        position = self.field(index)
        return 0 if position is None else self.number(kind, position)

    def real(self, index: int) -> float | None:
        """Return a floating-point number, None where it is left out."""
        position = self.field(index)
        if position is None:
            return None
        return float(struct.unpack("<f", struct.pack("<I", self.number("<I", position)))[0])

    def numbers(self, index: int) -> list[int]:
        """Return the elements of a vector of 32 bits each; one that is left out has none."""
        return [self.number("<I", position) for position in self._elements(index)]

    def tables(self, index: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        for position in self._elements(index):
            yield Table(self.data, position + self.number("<I", position))

    def _elements(self, index: int) -> range:
        start = self.pointed(index)
        if start is None:
            return range(0)
        return range(start + 4, start + 4 + 4 * self.number("<I", start), 4)


def open_root(data: memoryview) -> Table:
    """Return the root of a buffer.

    Raises:
        ValueError: it is cut short.
    """
    if len(data) < 4:
        raise ValueError("it is cut short")
    return Table(data, int.from_bytes(data[:4], "little"))
