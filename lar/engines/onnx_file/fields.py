"""The facts about an ONNX model that a run needs, read from the file's fields without decoding it.

ONNX files are protobuf messages. What lar needs of one during a run is little, and importing the
library that decodes a whole model takes longer than loading the model. Two properties of protobuf's
format help: a field is skipped by its length, and messages may be concatenated, which adds to
repeated fields and merges embedded messages.

The numbers of fields are those of onnx.proto; `data` is a whole file. The format:
protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

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
        ValueError: these bytes are not a message.
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
            raise ValueError(f"the field at byte {begin} is unknown, or goes beyond the end")
        yield Field(number, kind, begin, value, offset)
        begin = offset


def messages_in(
    data: bytes | memoryview, number: int, begin: int = 0, end: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield where the values of the fields of one number stand: messages, texts or bytes.

    Raises:
        ValueError: these bytes are not a message.
    """
    for field in fields_in(data, begin, end):
        if field.number == number and field.kind == BYTES:
            yield field.value, field.end


def texts_in(
    data: bytes | memoryview, number: int, begin: int = 0, end: int | None = None
) -> list[str]:
    """Return the fields of one number as texts.

    Raises:
        ValueError: these bytes are not a message, or a text is not UTF-8.
    """
    return [str(data[first:last], "utf-8") for first, last in messages_in(data, number, begin, end)]


def varint_at(data: bytes | memoryview, offset: int, end: int) -> tuple[int, int]:
    """Return the number that begins at an offset, and where it ends.

    Raises:
        ValueError: there is no such field.
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


MODEL_GRAPH = 7
MODEL_TRAINING, MODEL_FUNCTION = 20, 25
TRAINING_GRAPHS, FUNCTION_NODE = (1, 2), 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 1, 5, 11, 12
GRAPH_SPARSE_INITIALIZER, SPARSE_TENSORS = 15, (1, 2)
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_TYPE, NODE_ATTRIBUTE, NODE_DOMAIN = 1, 2, 3, 4, 5, 7
ATTRIBUTE_TENSORS, ATTRIBUTE_SPARSE_TENSORS, ATTRIBUTE_GRAPHS = (5, 10), (22, 23), (6, 11)
TENSOR_NAME, TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION, EXTERNAL = 8, 13, 14, 1
ENTRY_KEY, ENTRY_VALUE = 1, 2
VALUE_NAME, VALUE_TYPE = 1, 2
TYPE_TENSOR, TENSOR_SHAPE = 1, 2


class Node(NamedTuple):
    """A node of a graph; inputs and outputs that are left out have empty names."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class ExternalData(NamedTuple):
    """The place of a tensor's data in another file; a length of 0 is the rest of the file."""

    tensor: str
    location: str
    offset: int
    length: int


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a file into memory, so that what is skipped in it is never read.

    Raises:
        OSError: it cannot be read.
        ValueError: it is empty.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            yield view
        finally:
            view.release()


def is_ort_format(data: bytes | memoryview) -> bool:
    """Return whether this is ONNX Runtime's own format: not protobuf, with all weights inside."""
    return data[4:8] == b"ORTM"


def nodes_in(data: bytes | memoryview) -> Iterator[Node]:
    """Yield the nodes of a model in their order, without those inside control flow.

    Raises:
        ValueError: this is not a model.
    """
    for graph in messages_in(data, MODEL_GRAPH):
        for node in messages_in(data, GRAPH_NODE, *graph):
            names, types, domains = (
                texts_in(data, number, *node) for number in (NODE_NAME, NODE_TYPE, NODE_DOMAIN)
            )
            yield Node(
                name="".join(names[-1:]),
                operator="".join(types[-1:]),
                domain="".join(domains[-1:]),
                inputs=tuple(texts_in(data, NODE_INPUT, *node)),
                outputs=tuple(texts_in(data, NODE_OUTPUT, *node)),
            )


def output_names(data: bytes | memoryview) -> list[str]:
    """Return the names of a model's outputs.

    Raises:
        ValueError: this is not a model.
    """
    return [
        name
        for graph in messages_in(data, MODEL_GRAPH)
        for output in messages_in(data, GRAPH_OUTPUT, *graph)
        for name in texts_in(data, VALUE_NAME, *output)
    ]


def input_names(data: bytes | memoryview) -> list[str]:
    """Return the names of a model's inputs, without the initializers that older files have there.

    Raises:
        ValueError: this is not a model.
    """
    graphs = [*messages_in(data, MODEL_GRAPH)]
    held = {
        name
        for graph in graphs
        for tensor in messages_in(data, GRAPH_INITIALIZER, *graph)
        for name in texts_in(data, TENSOR_NAME, *tensor)
    }
    return [
        name
        for graph in graphs
        for value in messages_in(data, GRAPH_INPUT, *graph)
        for name in texts_in(data, VALUE_NAME, *value)
        if name not in held
    ]


def inputs_without_rank(data: bytes | memoryview) -> set[str]:
    """Return the names of a model's inputs whose number of axes the file does not say.

    Raises:
        ValueError: this is not a model.
    """
    names = set()
    for graph in messages_in(data, MODEL_GRAPH):
        for value in messages_in(data, GRAPH_INPUT, *graph):
            shapes = [
                shape
                for kind in messages_in(data, VALUE_TYPE, *value)
                for tensor in messages_in(data, TYPE_TENSOR, *kind)
                for shape in messages_in(data, TENSOR_SHAPE, *tensor)
            ]
            names |= set() if shapes else set(texts_in(data, VALUE_NAME, *value))
    return names


def weights_files(data: bytes | memoryview) -> tuple[str, ...]:
    """Return the names of the files beside a model that hold weights of it.

    Raises:
        ValueError: this is not a model.
    """
    return tuple(sorted({each.location for each in external_data_in(data)}))


def external_data_in(data: bytes | memoryview) -> Iterator[ExternalData]:
    """Yield the data of a model's tensors that stand in other files, wherever the tensors are:
    weights, sparse ones, attributes of nodes, control flow and functions.

    Raises:
        ValueError: this is not a model.
    """
    for field in fields_in(data):
        if field.kind != BYTES:
            continue
        if field.number == MODEL_GRAPH:
            yield from _data_of_graph(data, field.value, field.end)
        elif field.number == MODEL_FUNCTION:
            for node in messages_in(data, FUNCTION_NODE, field.value, field.end):
                yield from _data_of_node(data, *node)
        elif field.number == MODEL_TRAINING:
            for inner in fields_in(data, field.value, field.end):
                if inner.number in TRAINING_GRAPHS and inner.kind == BYTES:
                    yield from _data_of_graph(data, inner.value, inner.end)


def may_have_external_data(
    data: bytes | memoryview, begin: int = 0, end: int | None = None
) -> bool:
    """Return whether the word that names a tensor's file occurs between two offsets: it is fast."""
    content = data.obj if isinstance(data, memoryview) else data
    end = len(data) if end is None else end
    return cast("mmap.mmap | bytes", content).find(b"location", begin, end) >= 0


def _data_of_graph(data: bytes | memoryview, begin: int, end: int) -> Iterator[ExternalData]:
    for field in fields_in(data, begin, end):
        if field.kind != BYTES:
            continue
        if field.number == GRAPH_INITIALIZER:
            yield from _data_of_tensor(data, field.value, field.end)
        elif field.number == GRAPH_SPARSE_INITIALIZER:
            yield from _data_of_sparse(data, field.value, field.end)
        elif field.number == GRAPH_NODE:
            yield from _data_of_node(data, field.value, field.end)


def _data_of_node(data: bytes | memoryview, begin: int, end: int) -> Iterator[ExternalData]:
    if not may_have_external_data(data, begin, end):
        return
    for attribute in messages_in(data, NODE_ATTRIBUTE, begin, end):
        for field in fields_in(data, *attribute):
            if field.kind != BYTES:
                continue
            if field.number in ATTRIBUTE_TENSORS:
                yield from _data_of_tensor(data, field.value, field.end)
            elif field.number in ATTRIBUTE_SPARSE_TENSORS:
                yield from _data_of_sparse(data, field.value, field.end)
            elif field.number in ATTRIBUTE_GRAPHS:
                yield from _data_of_graph(data, field.value, field.end)


def _data_of_sparse(data: bytes | memoryview, begin: int, end: int) -> Iterator[ExternalData]:
    for field in fields_in(data, begin, end):
        if field.number in SPARSE_TENSORS and field.kind == BYTES:
            yield from _data_of_tensor(data, field.value, field.end)


def _data_of_tensor(data: bytes | memoryview, begin: int, end: int) -> Iterator[ExternalData]:
    name, is_external = "", False
    entries: list[tuple[str, str]] = []
    for field in fields_in(data, begin, end):
        if field.number == TENSOR_NAME and field.kind == BYTES:
            name = os.fsdecode(bytes(data[field.value : field.end]))
        elif field.number == TENSOR_DATA_LOCATION:
            is_external = field.value == EXTERNAL
        elif field.number == TENSOR_EXTERNAL_DATA and field.kind == BYTES:
            key, value = (
                b"".join(
                    bytes(data[first:last])
                    for first, last in messages_in(data, number, field.value, field.end)
                )
                for number in (ENTRY_KEY, ENTRY_VALUE)
            )
            entries.append((os.fsdecode(key), os.fsdecode(value)))
    if not is_external:
        return
    numbers = {key: int(value) for key, value in entries if value.isdecimal()}
    locations = [value for key, value in entries if key == "location"]
    for location in locations or [""]:
        yield ExternalData(name, location, numbers.get("offset", 0), numbers.get("length", 0))


class SavedModel(NamedTuple):
    """A saved model: its bytes, and the folder where its weights are."""

    content: bytes
    folder: Path
