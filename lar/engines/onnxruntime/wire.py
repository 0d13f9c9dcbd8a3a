"""Protobuf's wire format: messages read field by field without decoding them, and added to.

ONNX files are protobuf messages. What lar needs of one during a run is little, and importing the
library that decodes a whole model takes longer than loading the model. Two properties of the
format help: a field is skipped by its length, and messages may be concatenated, which adds to
repeated fields and merges embedded messages.

The numbers of fields are those of onnx.proto. The format: protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """One field of a message: where it begins, its tag included, and where its value stands.

    `value` is the number of a varint, and of other fields the offset where the bytes begin.
    """

    number: int
    kind: int
    begin: int
    value: int
    end: int


def fields_in(data: bytes | memoryview, begin: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yield the fields of the message that stands between two offsets.

    Raises:
        ValueError: these bytes are no message.
    """
    end = len(data) if end is None else end
    while begin < end:
        tag, offset = varint_at(data, begin, end)
        number, kind = tag >> 3, tag & 7
        value = offset
        if kind == VARINT:
            value, offset = varint_at(data, offset, end)
        elif kind == BYTES:
            length, value = varint_at(data, offset, end)
            offset = value + length
        elif kind in FIXED_BYTES:
            offset += FIXED_BYTES[kind]
        else:
            raise ValueError(f"no field begins at byte {begin}")
        if number == 0 or offset > end:
            raise ValueError(f"the field at byte {begin} is none, or goes beyond the end")
        yield Field(number, kind, begin, value, offset)
        begin = offset


def messages_in(
    data: bytes | memoryview, number: int, begin: int = 0, end: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield where the values of the fields of one number stand: messages, texts or bytes.

    Raises:
        ValueError: these bytes are no message.
    """
    for field in fields_in(data, begin, end):
        if field.number == number and field.kind == BYTES:
            yield field.value, field.end


def texts_in(
    data: bytes | memoryview, number: int, begin: int = 0, end: int | None = None
) -> list[str]:
    """Return the fields of one number as texts.

    Raises:
        ValueError: these bytes are no message, or a text is not UTF-8.
    """
    return [str(data[first:last], "utf-8") for first, last in messages_in(data, number, begin, end)]


def varint_at(data: bytes | memoryview, offset: int, end: int) -> tuple[int, int]:
    """Return the number that begins at an offset, and where it ends.

    Raises:
        ValueError: there is none.
    """
    number = 0
    for shift in range(0, 70, 7):
        if offset >= end:
            break
        byte = data[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset
    raise ValueError(f"no number ends at byte {offset}")


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field that holds a message, a text or bytes."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value


def encode_varint(number: int) -> bytes:
    """Encode a number from 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number_field(number: int, value: int) -> bytes:
    """Encode a field that holds a number from 0."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)
