"""Files in the FlatBuffers format whose offsets point to the same bytes again and again."""

from __future__ import annotations

import struct

import pytest

from lar.engines.flatbuffer import MORE_ELEMENTS, open_root


def file_of(count: int, vector: bytes) -> bytes:
    """Return a file: a vector of `count` times one table, whose only field is a vector."""
    root = struct.pack("<I2x3Hii", 12, 6, 8, 4, 6, 4)
    tables = struct.pack("<I", count)
    for number in range(count):
        tables += struct.pack("<I", 4 * (count - number) + 6 + 2)
    table = struct.pack("<3H2xii", 6, 8, 4, 8, 4)
    return root + tables + table + vector


@pytest.mark.parametrize("read", ["numbers", "text", "tables"])
def test_the_elements_that_are_read_are_limited(read: str) -> None:
    size = MORE_ELEMENTS // 4
    vector = struct.pack("<I", size) + bytes(4 * size)
    data = file_of(100, vector)
    few, many = (list(open_root(memoryview(data)).tables(0))[:it] for it in (4, 100))
    assert [len(list(each.numbers(0))) for each in few] == [size] * 4
    with pytest.raises(ValueError, match="again and again"):
        [list(getattr(each, read)(0)) for each in many]
