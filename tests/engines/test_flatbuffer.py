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


def test_a_file_is_read_to_its_last_byte() -> None:
    data = memoryview(file_of(1, struct.pack("<I", 2) + b"ab\0"))
    (table,) = open_root(data).tables(0)
    assert table.text(0) == "ab"
    (table,) = open_root(data[:-1]).tables(0)
    with pytest.raises(ValueError, match="3 bytes should follow byte"):
        table.text(0)
    (table,) = open_root(memoryview(file_of(1, struct.pack("<I", 2) + b"abc"))).tables(0)
    with pytest.raises(ValueError, match="a text does not end"):
        table.text(0)
    assert not open_root(memoryview(bytes(4)))  # a table without fields
    with pytest.raises(ValueError, match="cut short"):
        open_root(memoryview(bytes(3)))


def test_elements_are_read_up_to_the_limit() -> None:
    size = len(file_of(20, b"")) + MORE_ELEMENTS // 4 - 1
    data = memoryview(file_of(20, struct.pack("<I", size) + bytes(4 * size)))
    tables = list(open_root(data).tables(0))
    assert 20 + 20 * size == 4 * len(data) + MORE_ELEMENTS
    assert [len(each.numbers(0)) for each in tables] == [size] * 20
    with pytest.raises(ValueError, match="again and again"):
        tables[0].numbers(0)


@pytest.mark.parametrize("read", ["numbers", "text", "tables"])
def test_the_elements_that_are_read_are_limited(read: str) -> None:
    size = MORE_ELEMENTS // 4
    vector = struct.pack("<I", size) + bytes(4 * size)
    data = file_of(100, vector)
    few, many = (list(open_root(memoryview(data)).tables(0))[:it] for it in (4, 100))
    assert [len(list(each.numbers(0))) for each in few] == [size] * 4
    with pytest.raises(ValueError, match="again and again"):
        [list(getattr(each, read)(0)) for each in many]
