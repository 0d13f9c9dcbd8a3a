"""An ONNX file, read and written by its fields: the one reader of lar, without the package onnx.

Importing that package takes longer than loading a model, and lar looks at little of a file. ONNX
files are protobuf messages (protobuf.dev/programming-guides/encoding); `SCHEMA` has the fields of
onnx.proto by message. A `Message` keeps the bytes that it was made of, and decodes a field when it
is first asked for: what nobody looks at is skipped by its length, and of a file that is mapped
into memory it is never read. A message that is changed is encoded with the fields that nobody
looked at, or that this schema lacks, as they were.

What a file says stands in the modules beside this one: `contents` describes a model and counts
its FLOPs, `external_data` has weights in other files, `tensors` the values of tensors, `bodies` the
graphs inside nodes, `quantization` the scales of integers.

Weights in files beside a model: which files a model may have ONNX Runtime read.

ONNX Runtime 1.23 opens whatever path a model names. So that a model from elsewhere cannot have
any file of this machine read, dumped or packed, lar takes files in the model's own folder only,
and in those that `--allow-external-data` names.
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
EXTERNAL = 1  # the data_location of a tensor whose data is in a file of its own


class FieldKind(NamedTuple):
    """A field of the schema; `type` is that of its values, or the name of a message."""

    number: int
    type: str
    is_repeated: bool


def read_schema(text: str) -> dict[str, dict[str, FieldKind]]:
    """Return the fields of messages by their names."""
    found: dict[str, dict[str, FieldKind]] = {}
    for line in text.strip().replace("\n  ", " ").splitlines():
        message, _, fields = line.partition(": ")
        found[message] = {
            name: FieldKind(int(number), kind.rstrip("*"), kind.endswith("*"))
            for number, name, kind in map(str.split, fields.split(","))
        }
    return found


# By message: the numbers, names and kinds of fields; a star is behind those that are repeated.
SCHEMA = read_schema(Path(__file__).with_name("messages.txt").read_text())

# How values that are no messages stand in a file, the defaults of missing ones, and the format of
# numbers with a fraction.
WIRES = {"int": VARINT, "float": FIXED32, "double": FIXED64}
DEFAULTS: dict[str, Any] = {"int": 0, "float": 0.0, "double": 0.0, "text": "", "bytes": b""}
FORMATS = {"float": "<f", "double": "<d"}


class Field(NamedTuple):
    """One field of a message: where it begins, its tag included, and where its value stands.

    `value` is the number of a varint, and of other fields the offset where the bytes begin.
    """

    number: int
    wire: int
    begin: int
    value: int
    end: int


def fields_in(data: bytes | memoryview) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: these bytes are not a message.
    """
    begin, end = 0, len(data)
    while begin < end:
        tag, offset = varint_at(data, begin)
        number, wire = tag >> 3, tag & 7
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
    """Return the number that begins at an offset, and where it ends.

    Raises:
        ValueError: there is no such field.
    """
    number = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            break
        byte = data[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset
    raise ValueError(f"no number ends at byte {offset}")


def encode_varint(number: int) -> bytes:
    """Encode a number; a negative one as 64 bits."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class Message:
    """A message of a kind in `SCHEMA`, whose fields are attributes, as in the package onnx.

    A missing field is empty; changing a missing message does not make it part of this one.
    Decoding a field raises a ValueError if the bytes are not such a message.
    """

    def __init__(self, kind: str, data: bytes | memoryview = b"", **values: Any) -> None:
        # What has been decoded or was assigned stands among the attributes themselves.
        self.__dict__.update(values, kind=kind, _data=memoryview(data), _fields=None)

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Change a field."""

    def __getattr__(self, name: str) -> Any:
        """Decode a field; only called for one that has not been."""
        kind = SCHEMA[self.kind].get(name)
        if kind is None:
            raise AttributeError(name)
        found = [each for field in self._raw(kind.number) for each in self._decode(kind, field)]
        value: Any = found
        if not kind.is_repeated:
            value = found[-1] if found else DEFAULTS.get(kind.type)
            if kind.type in SCHEMA and len(found) != 1:  # a repeated message is merged
                value = Message(kind.type, b"".join(it._data for it in found))
        # Bytes are not kept: they may be weights.
        if kind.is_repeated or (found and kind.type != "bytes"):
            self.__dict__[name] = value
        return value

    def __contains__(self, name: str) -> bool:
        """Return whether a field is there, even if it is empty."""
        if name in self.__dict__:
            return bool(self.__dict__[name] != [])
        return bool(self._raw(SCHEMA[self.kind][name].number))

    def mentions(self, word: re.Pattern[bytes]) -> bool:
        """Return whether a word stands anywhere in the bytes, faster than decoding them does."""
        return word.search(self._data) is not None

    def _raw(self, number: int) -> list[Field]:
        """Return the fields of a number as they stand in the bytes."""
        if self._fields is None:
            found: dict[int, list[Field]] = {}
            for field in fields_in(self._data):
                found.setdefault(field.number, []).append(field)
            self.__dict__["_fields"] = found
        fields: list[Field] = self._fields.get(number, [])
        return fields

    def _decode(self, kind: FieldKind, field: Field) -> list[Any]:
        """Return the values in a field: several in one of packed numbers."""
        data, wire = self._data[field.value : field.end], WIRES.get(kind.type, BYTES)
        if field.wire not in (wire, BYTES):
            raise ValueError(f"another field in the place of a {kind.type}")
        if kind.type == "text":
            return [str(data, "utf-8")]
        if wire == BYTES:
            return [bytes(data) if kind.type == "bytes" else Message(kind.type, data)]
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
    """Return a number of 64 bits with its sign."""
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
    """Return the model in a file, which is mapped into memory and not read yet; an empty one for a
    file in ONNX Runtime's own format, which is no protobuf and has all weights inside.

    Raises:
        OSError: it cannot be read.
        ValueError: it is empty.
    """
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return Message("Model", b"" if begins_like_ort(bytes(data[:HEAD_SIZE])) else data)


def damaged(path: Path) -> UsageError:
    """Return the error of a file that is no model."""
    return UsageError("not an ONNX model, or a damaged one", BROKEN, subject=path)


class Node(NamedTuple):
    """A node of a graph; inputs and outputs that are left out have empty names."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def node_of(node: Any) -> Node:
    """Return what a graph says of a node."""
    return Node(node.name, node.op_type, node.domain, tuple(node.input), tuple(node.output))


# The fields that the values of attributes are in, in the order of the numbers of their types.
VALUE_NAMES = "f i s t g floats ints strings tensors graphs sparse_tensor sparse_tensors tp"
VALUES = dict(enumerate(VALUE_NAMES.split(), start=1))


def attributes_of(node: Message) -> dict[str, Any]:
    """Return a node's attributes by name: numbers, texts, lists of them, or messages.

    Raises:
        LookupError: one has no value that lar knows.
    """
    return {each.name: value_of(each) for each in node.attribute}


def value_of(attribute: Message) -> Any:
    """Return the value of an attribute, bytes as the text that they are.

    Raises:
        LookupError: it has none that lar knows.
    """
    value = getattr(attribute, VALUES[attribute.type])
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_texts = VALUES[attribute.type] == "strings"
    return [each.decode(errors="replace") for each in value] if is_texts else value


def graphs_of(node: Message) -> list[Message]:
    """Return the graphs that a node has as attributes."""
    return [it for each in node.attribute for it in (*([each.g] * ("g" in each)), *each.graphs)]


def graphs_in(graph: Message) -> Iterator[Message]:
    """Yield a graph, and all graphs inside it."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node):
            yield from graphs_in(inner)


def held_in(graph: Message) -> list[Message]:
    """Return the tensors that have values in a graph; of sparse ones, their elements."""
    return [*graph.initializer, *(each.values for each in graph.sparse_initializer)]


class SavedModel(NamedTuple):
    """A saved model: its bytes, and the folder where its weights are."""

    content: bytes
    folder: Path


# NumPy's names of the types of elements, in the order of ONNX's numbers from 1.
ELEMENT_NAMES = """
float32 uint8 int8 uint16 int16 int32 int64 object bool float16 float64 uint32 uint64 complex64
complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4
float4_e2m1fn float8_e8m0fnu uint2 int2
"""

ELEMENT_TYPES = ELEMENT_NAMES.split()
NUMBERS = {name: number for number, name in enumerate(ELEMENT_TYPES, start=1)}


def type_name(number: int) -> str:
    """Return NumPy's name of a type of elements.

    Raises:
        LookupError: ONNX has none of that number.
    """
    if number < 1:
        raise LookupError(number)
    return ELEMENT_TYPES[number - 1]


def bits_of(type_name: str) -> int | None:
    """Return how many bits an element has, by the number in the name of its type, which may also be
    the engine's; None if they differ."""
    found = re.search(r"\d+", type_name)
    return int(found[0]) if found else {"bool": 8}.get(type_name)


# The axes of a model's inputs and outputs

# What exporters write for an axis that they have no name for.
NO_NAME = re.compile(r"(?i)none|unk__\d+|[\W\d_]*")


def axes_of(axes: Iterable[int | str | None]) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the sizes of axes, None for any size, and their names; without any name, ()."""
    sizes, names = [], []
    for axis in axes:
        sizes.append(axis if isinstance(axis, int) and axis >= 0 else None)
        is_name = isinstance(axis, str) and not NO_NAME.fullmatch(axis)
        names.append(str(axis).replace(" ", "") if is_name else "")
    return tuple(sizes), tuple(names) if any(names) else ()


FLAG = "--allow-external-data"

# ONNX Runtime takes the offset of a tensor with this location for an address in memory.
MEMORY = "*/_ORT_MEM_ADDR_/*"

# Messages that hold tensors: all others are passed over.
HOLDERS = {"Model", "Training", "Function", "Graph", "Node", "Attribute", "Sparse", "Tensor"}
LOCATION = re.compile(rb"location")  # the word that names a tensor's file


class Place(NamedTuple):
    """The place of a tensor's data in another file; a length of 0 is the rest of the file."""

    tensor: str
    location: str
    offset: int
    length: int


def place_of(tensor: Message) -> Place:
    """Return where the data of a tensor stands that is not in the model itself."""
    entries = {each.key: os.fsdecode(each.value) for each in tensor.external_data}
    numbers = {key: int(value) for key, value in entries.items() if value.isdecimal()}
    offset, length = (numbers.get(key, 0) for key in ("offset", "length"))
    # If there are two locations, nobody knows which one an engine takes.
    is_clear = len(entries) == len(tensor.external_data)
    return Place(tensor.name, entries.get("location", "") * is_clear, offset, length)


def tensors_outside(message: Message) -> Iterator[Message]:
    """Yield the tensors whose data is in other files, wherever in a model they are: weights, sparse
    ones, attributes of nodes, control flow and functions.

    Raises:
        ValueError: this is not a model.
    """
    if message.kind == "Tensor":
        if message.data_location == EXTERNAL:
            yield message
    # Most nodes need not be decoded.
    elif message.kind != "Node" or message.mentions(LOCATION):
        for name, field in SCHEMA[message.kind].items():
            if field.type in HOLDERS and name in message:
                value = getattr(message, name)
                for each in value if field.is_repeated else [value]:
                    yield from tensors_outside(each)


def files_beside(model: Path) -> tuple[str, ...]:
    """Return the files that a model's weights are in, as it names them.

    Raises:
        ValueError, OSError: it cannot be read.
    """
    return tuple(sorted({place_of(each).location for each in tensors_outside(open_model(model))}))


def check_external_data(model: Path, allowed: Sequence[str] = ()) -> None:
    """Refuse a model whose weights are in files that it may not name, before it is loaded.

    Raises:
        UsageError: naming the tensor; a file is outside the folders, missing or cut short.
    """
    for folder in allowed:
        if not os.path.isdir(folder):
            raise UsageError("no such folder", "check the path", flag=FLAG, subject=folder)
    content = open_model(model)
    try:
        found = {*map(place_of, tensors_outside(content))}
    except (ValueError, RecursionError):
        # The engine says what is wrong with the file, unless it might take it all the same.
        if content.mentions(LOCATION):
            raise damaged(model) from None
        return
    sizes: dict[str, int] = {}
    for each in sorted(found):
        check_folder(each, model, allowed)
        check_size(each, model, sizes)


def subject_of(place: Place, model: Path) -> str:
    return f"{model}: tensor {place.tensor!r}"


def check_folder(place: Place, model: Path, allowed: Sequence[str]) -> None:
    """Refuse a tensor whose data is in a file that the model may not name.

    Raises:
        UsageError: naming the tensor.
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
    """Refuse a tensor whose data is not all there; `sizes` keeps those of files seen before.

    Raises:
        UsageError: naming the tensor.
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
