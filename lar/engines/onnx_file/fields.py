"""Reads and writes ONNX files field by field, without the package onnx.

Importing the package onnx takes longer than loading a model, and lar needs few fields of a file.
ONNX files are protobuf messages, which protobuf.dev/programming-guides/encoding describes. `SCHEMA`
has the fields of each kind of message in onnx.proto. A `Message` keeps its bytes, and decodes a
field when the field is first read. Fields that nobody reads are skipped by their length. If the
file is mapped into memory, the bytes of skipped fields are never loaded. When a changed message is
encoded, fields that were not read, or that the schema lacks, are kept unchanged.

Other modules of this package read the contents of files. `contents` describes a model and counts
its FLOPs, `tensors` reads values of tensors, `bodies` reads graphs inside nodes, and
`numbered_graph` reads the scales of quantised tensors.

This module also checks the paths of the files from which a model reads its weights. ONNX Runtime
1.23 opens any path that a model names. A model from an unknown source must not make lar read, dump
or pack any file of this machine. So lar accepts only files in the model's own folder, and in
folders that `--allow-external-data` names.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines.formats import BROKEN, HEAD_SIZE, begins_like_ort
from lar.errors import UsageError
from lar.files.input_file import open_input

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
EXTERNAL = 1  # the data_location of a tensor whose data is in another file


class FieldKind(NamedTuple):
    """A field in the schema of a message.

    `type` is the type of the field's values, or the name of a kind of message.
    """

    number: int
    type: str
    is_repeated: bool


def read_schema(text: str) -> dict[str, dict[str, FieldKind]]:
    """Parse the text of messages.txt, and return the fields of each kind of message by name."""
    found: dict[str, dict[str, FieldKind]] = {}
    for line in text.strip().replace("\n  ", " ").splitlines():
        message, _, fields = line.partition(": ")
        found[message] = {
            name: FieldKind(int(number), kind.rstrip("*"), kind.endswith("*"))
            for number, name, kind in map(str.split, fields.split(","))
        }
    return found


# For each message: the numbers, names and kinds of its fields; a star marks a repeated field.
SCHEMA = read_schema(Path(__file__).with_name("messages.txt").read_text())

# For values that are not messages: their encoding in a file, their default if they are missing, and
# the format of floating-point numbers.
WIRES = {"int": VARINT, "float": FIXED32, "double": FIXED64}
DEFAULTS: dict[str, Any] = {"int": 0, "float": 0.0, "double": 0.0, "text": "", "bytes": b""}
FORMATS = {"float": "<f", "double": "<d"}


class Field(NamedTuple):
    """The position of one field of a message.

    `begin` is the offset of the field's tag. If the field is a varint, `value` is the number
    itself. If the field is not a varint, `value` is the offset of the value's bytes.
    """

    number: int
    wire: int
    begin: int
    value: int
    end: int


def fields_in(data: bytes | memoryview) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: the bytes are not a message.
    """
    begin, end = 0, len(data)
    while begin < end:
        tag, offset = varint_at(data, begin)
        number, wire = tag >> 3, tag & 7
        if tag >> 32:  # protobuf would take another number
            raise ValueError(f"no field begins at byte {begin}")
        value = offset
        if wire == VARINT:
            value, offset = varint_at(data, offset)
        elif wire == BYTES:
            length, value = varint_at(data, offset)
            offset = value + length
        elif wire in FIXED_BYTES:
            offset += FIXED_BYTES[wire]
        else:
            raise ValueError(f"no field begins at byte {begin}")
        if number == 0 or offset > end:
            raise ValueError(f"the field at byte {begin} is unknown, or goes beyond the end")
        yield Field(number, wire, begin, value, offset)
        begin = offset


def varint_at(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the varint at an offset, and the offset of its end.

    Raises:
        ValueError: the bytes end before the number does.
    """
    number = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            break
        byte = data[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (1 << 64) - 1, offset
    raise ValueError(f"no number ends at byte {offset}")


def encode_varint(number: int) -> bytes:
    """Encode a number as a varint; a negative number has 64 bits."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class Message:
    """A protobuf message, whose fields are attributes of this object, as in the package onnx.

    The kind of a message is a key of `SCHEMA`. A missing field has an empty value. If this empty
    value is a message, its changes are lost, since the field stays missing. Decoding a field raises
    a ValueError if the bytes are not a message of this kind.
    """

    def __init__(self, kind: str, data: bytes | memoryview = b"", **values: Any) -> None:
        # Fields that were decoded or assigned are in `__dict__`.
        self.__dict__.update(kind=kind, _data=memoryview(data), _fields=None, _is_merged=False)
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field to a value."""

    def __getattr__(self, name: str) -> Any:
        """Decode a field; Python calls this method only if the field has no attribute yet."""
        kind = SCHEMA[self.kind].get(name)
        if kind is None:
            raise AttributeError(name)
        found = [each for field in self._raw(kind.number) for each in self._decode(kind, field)]
        value: Any = found
        if not kind.is_repeated:
            value = found[-1] if found else DEFAULTS.get(kind.type)
            if kind.type in SCHEMA and len(found) != 1:  # a repeated message is merged
                if found and self._is_merged:  # each level of a file could copy all its bytes
                    raise ValueError(f"a {kind.type} in several parts, inside such a message")
                merged = b"".join(it._data for it in found)
                value = Message(kind.type, merged, _is_merged=bool(found))
        # Bytes are not kept in memory, as they may be weights.
        if kind.is_repeated or (found and kind.type != "bytes"):
            self.__dict__[name] = value
        return value

    def __contains__(self, name: str) -> bool:
        """Return whether the message has a field, even if its value is empty."""
        if name in self.__dict__:
            return bool(self.__dict__[name] != [])
        return bool(self._raw(SCHEMA[self.kind][name].number))

    def mentions(self, word: re.Pattern[bytes]) -> bool:
        """Return whether the message's bytes contain a word.

        To search for the word is faster than to decode the message.
        """
        return word.search(self._data) is not None

    def _raw(self, number: int) -> list[Field]:
        """Return the positions of all fields that have this number."""
        if self._fields is None:
            found: dict[int, list[Field]] = {}
            for field in fields_in(self._data):
                found.setdefault(field.number, []).append(field)
            self.__dict__["_fields"] = found
        fields: list[Field] = self._fields.get(number, [])
        return fields

    def _decode(self, kind: FieldKind, field: Field) -> list[Any]:
        """Return the values in a field; a field of packed numbers has several values."""
        data, wire = self._data[field.value : field.end], WIRES.get(kind.type, BYTES)
        # Only repeated numbers may be packed; protobuf would skip other fields of a wrong kind.
        if field.wire != wire and not (kind.is_repeated and field.wire == BYTES):
            raise ValueError(f"another field in the place of a {kind.type}")
        if kind.type == "text":
            return [str(data, "utf-8")]
        if wire == BYTES:
            return [
                bytes(data)
                if kind.type == "bytes"
                else Message(kind.type, data, _is_merged=self._is_merged)
            ]
        if kind.type in FORMATS:
            size = struct.calcsize(FORMATS[kind.type])
            data = data[: len(data) // size * size]
            return [number for (number,) in struct.iter_unpack(FORMATS[kind.type], data)]
        if field.wire == VARINT:
            return [signed(field.value)]
        numbers, offset = [], 0
        while offset < len(data):
            number, offset = varint_at(data, offset)
            numbers.append(signed(number))
        return numbers

    def encode(self) -> bytes:
        """Return the message as bytes."""
        schema = SCHEMA[self.kind]
        changed = {schema[name].number: name for name in self.__dict__ if name in schema}
        data: memoryview = self._data
        if not changed:
            return bytes(data)
        self._raw(0)
        pieces = {
            number: b"".join(data[field.begin : field.end] for field in fields)
            for number, fields in self._fields.items()
            if number not in changed
        }
        for number, name in changed.items():
            value, kind = self.__dict__[name], schema[name]
            values = value if kind.is_repeated else [value]
            pieces[number] = b"".join(encode_field(kind, each) for each in values)
        return b"".join(pieces[number] for number in sorted(pieces))


def signed(number: int) -> int:
    """Return the signed number for an unsigned number of 64 bits."""
    return number - (1 << 64) if number >> 63 else number


def encode_field(kind: FieldKind, value: Any) -> bytes:
    """Encode one value with its tag."""
    wire = WIRES.get(kind.type, BYTES)
    tag = encode_varint(kind.number << 3 | wire)
    if wire == VARINT:
        return tag + encode_varint(value)
    if wire in FIXED_BYTES:
        return tag + struct.pack(FORMATS[kind.type], value)
    content: bytes = value if isinstance(value, bytes) else value.encode()
    return tag + encode_varint(len(content)) + content


def open_model(path: Path) -> Message:
    """Return the model in a file, which is mapped into memory but not read yet.

    For a file in ONNX Runtime's own format (ORT), an empty model is returned, since ORT is not
    protobuf and has no weights in other files.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty.
    """
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return Message("Model", b"" if begins_like_ort(bytes(data[:HEAD_SIZE])) else data)


def damaged(path: Path) -> UsageError:
    """Return the error for a file that is not an ONNX model, or is damaged."""
    return UsageError("is not an ONNX model, or is damaged", BROKEN, subject=path)


class Node(NamedTuple):
    """A node of a graph; an input or output that is left out has an empty name."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def node_of(node: Any) -> Node:
    """Return a node of a graph as a `Node`."""
    return Node(node.name, node.op_type, node.domain, tuple(node.input), tuple(node.output))


# The names of the fields with the values of attributes, in the order of the types' numbers.
VALUE_NAMES = "f i s t g floats ints strings tensors graphs sparse_tensor sparse_tensors tp"
VALUES = dict(enumerate(VALUE_NAMES.split(), start=1))


def attributes_of(node: Message) -> dict[str, Any]:
    """Return the values of a node's attributes, by the names of the attributes.

    A value is a number, a string, a list of numbers or strings, or a message.

    Raises:
        LookupError: an attribute has a value of an unknown type.
    """
    return {each.name: value_of(each) for each in node.attribute}


def value_of(attribute: Message) -> Any:
    """Return the value of an attribute, with bytes decoded to strings.

    Raises:
        LookupError: the value has an unknown type.
    """
    value = getattr(attribute, VALUES[attribute.type])
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_texts = VALUES[attribute.type] == "strings"
    return [each.decode(errors="replace") for each in value] if is_texts else value


def graphs_of(node: Message) -> list[Message]:
    """Return the graphs that are attributes of a node."""
    return [it for each in node.attribute for it in (*([each.g] * ("g" in each)), *each.graphs)]


def graphs_in(graph: Message) -> Iterator[Message]:
    """Yield a graph, and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from graphs_in(inner)


def held_in(graph: Message) -> list[Message]:
    """Return the tensors whose values are in a graph.

    For a sparse tensor, the tensor of its elements is returned.
    """
    return [*graph.initializer, *(each.values for each in graph.sparse_initializer)]


class SavedModel(NamedTuple):
    """The bytes of a saved model, and the folder with the files of its weights."""

    content: bytes
    folder: Path


# NumPy's names of element types, in the order of ONNX's numbers, which begin with 1.
ELEMENT_NAMES = """
float32 uint8 int8 uint16 int16 int32 int64 object bool float16 float64 uint32 uint64 complex64
complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4
float4_e2m1fn float8_e8m0fnu uint2 int2
"""

ELEMENT_TYPES = ELEMENT_NAMES.split()
NUMBERS = {name: number for number, name in enumerate(ELEMENT_TYPES, start=1)}


def type_name(number: int) -> str:
    """Return NumPy's name of the element type that has this number in ONNX.

    Raises:
        LookupError: the number is not an element type of ONNX.
    """
    if number < 1:
        raise LookupError(number)
    return ELEMENT_TYPES[number - 1]


def bits_of(type_name: str) -> int | None:
    """Return the number of bits of an element, None if the number is not fixed.

    `type_name` is the name that NumPy or an engine has for the type of the element.
    """
    found = re.search(r"\d+", type_name)
    return int(found[0]) if found else {"bool": 8}.get(type_name)


# The axes of a model's inputs and outputs

# The names that exporters write for an axis without a name.
NO_NAME = re.compile(r"(?i)none|unk__\d+|[\W\d_]*")


def axes_of(axes: Iterable[int | str | None]) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the sizes of axes, with None for any size, and the names of the axes.

    If no axis has a name, the tuple of names is empty.
    """
    sizes, names = [], []
    for axis in axes:
        sizes.append(axis if isinstance(axis, int) and axis >= 0 else None)
        is_name = isinstance(axis, str) and not NO_NAME.fullmatch(axis)
        names.append(str(axis).replace(" ", "") if is_name else "")
    return tuple(sizes), tuple(names) if any(names) else ()


FLAG = "--allow-external-data"

# If a tensor has this location, ONNX Runtime takes its offset for an address in memory.
MEMORY = "*/_ORT_MEM_ADDR_/*"

# The kinds of messages that may contain tensors; others are skipped.
HOLDERS = {"Model", "Training", "Function", "Graph", "Node", "Attribute", "Sparse", "Tensor"}
LOCATION = re.compile(rb"location")  # the key of the entry that names a tensor's file


class Place(NamedTuple):
    """The position of a tensor's data in another file.

    A length of 0 means that the data ends where the file ends.
    """

    tensor: str
    location: str
    offset: int
    length: int


def place_of(tensor: Message) -> Place:
    """Return the position of a tensor's data in another file."""
    entries = {each.key: os.fsdecode(each.value) for each in tensor.external_data}
    numbers = {key: int(value) for key, value in entries.items() if value.isdecimal()}
    offset, length = (numbers.get(key, 0) for key in ("offset", "length"))
    # With two locations it is unknown which of them an engine takes, so neither is used.
    is_clear = len(entries) == len(tensor.external_data)
    return Place(tensor.name, entries.get("location", "") * is_clear, offset, length)


def tensors_outside(message: Message) -> Iterator[Message]:
    """Yield all tensors of a model whose data is in other files.

    A tensor whose data is in another file may be a weight, a part of a sparse tensor, or an
    attribute. Tensors inside control flow and functions are included.

    Raises:
        ValueError: the message is not a model.
    """
    if message.kind == "Tensor":
        if message.data_location & 0xFFFFFFFF == EXTERNAL:  # protobuf reads 32 bits
            yield message
    # Most nodes do not contain this word, and need not be decoded.
    elif message.kind != "Node" or message.mentions(LOCATION):
        for name, field in SCHEMA[message.kind].items():
            if field.type in HOLDERS and name in message:
                value = getattr(message, name)
                for each in value if field.is_repeated else [value]:
                    yield from tensors_outside(each)


def files_beside(model: Path) -> tuple[str, ...]:
    """Return the names of the files with a model's weights, as written in the model.

    Raises:
        ValueError, OSError: the model cannot be read.
    """
    return tuple(sorted({place_of(each).location for each in tensors_outside(open_model(model))}))


def check_external_data(model: Path, allowed: Sequence[str] = ()) -> None:
    """Refuse a model whose weights are in files outside the allowed folders.

    Call this function before an engine loads the model.

    Raises:
        UsageError: a file is outside the allowed folders, missing or cut short; the error names the
            tensor.
    """
    for folder in allowed:
        if not os.path.isdir(folder):
            raise UsageError("no such folder", "check the path", flag=FLAG, subject=folder)
    content = open_model(model)
    try:
        found = {*map(place_of, tensors_outside(content))}
    except (ValueError, RecursionError):
        # The engine reports the damage later. But if the file names locations, the engine might
        # load it in spite of the damage, so it is refused here.
        if content.mentions(LOCATION):
            raise damaged(model) from None
        return
    sizes: dict[str, int] = {}
    for each in sorted(found):
        check_folder(each, model, allowed)
        check_size(each, model, sizes)


def subject_of(place: Place, model: Path) -> str:
    return f"{model}: tensor {place.tensor!r}" if place.tensor else str(model)


def check_folder(place: Place, model: Path, allowed: Sequence[str]) -> None:
    """Refuse a tensor, or a weight file without tensors' names, outside the allowed folders.

    Raises:
        UsageError: the file is outside the allowed folders; the error names the tensor.
    """
    location = place.location
    if not location or "\0" in location or location == MEMORY:
        problem = "its data is in a file without a name, or with two"
        raise UsageError(problem, BROKEN, subject=subject_of(place, model))
    folders = [os.path.realpath(folder) for folder in allowed]
    if not os.path.isabs(location) and ".." not in Path(location).parts:
        folders.append(os.path.realpath(model.parent))
    real = os.path.realpath(model.parent / location)
    if not any(os.path.commonpath([folder, real]) == folder for folder in folders):
        problem = f"its data is in {location!r}, outside the model's folder"
        hint = f"move the file there; or, if you trust the model, {FLAG} {os.path.dirname(real)}"
        raise UsageError(problem, hint, subject=subject_of(place, model))


def check_size(place: Place, model: Path, sizes: dict[str, int]) -> None:
    """Refuse a tensor whose data is missing or cut short.

    `sizes` stores the sizes of files for later calls.

    Raises:
        UsageError: the file is missing or too short; the error names the tensor.
    """
    path = str(model.parent / place.location)
    if path not in sizes:
        try:
            with open_input(path) as file:
                sizes[path] = os.fstat(file.fileno()).st_size
        except UsageError as error:
            problem, hint = f"its weights file {path}: {error.problem}", "keep it beside the model"
            raise UsageError(problem, hint, subject=subject_of(place, model)) from None
    if sizes[path] < place.offset + place.length:
        problem = f"its weights file {path} is cut short"
        raise UsageError(problem, BROKEN, subject=subject_of(place, model))
