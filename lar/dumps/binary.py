"""Reads and writes MegEngine's binary tensor file: one array and its name.

The file begins with u32 numbers: the length of the name, the code of the dtype, the number of axes,
and the size of each axis. After these numbers come the name and the elements of the tensor.

The file is little-endian and has no gaps (mgb::debug::dump_tensor). MegEngine always writes seven
axes, with size 0 for unused axes. MegEngine has no arrays without axes, and hardly any arrays
without elements. Zeros for unused axes would make the shape of an array without elements ambiguous.
For an array without elements, lar writes only the axes of the array. For an array without axes, lar
writes one axis of size 1.

MegEngine's own reader expects names in ASCII. lar writes other characters as `\\u4e2d`, and a
backslash as `\\u005c`.

In a dump, the name is a text that describes the array's variable, the operator that computed the
variable, and this operator's inputs:

    var={id:15, layout:{1(16384),16(1024),32(32),32(1) Float32}, Float32,
    owner:conv(data,c0.weight)[14]{ConvolutionForward}, name:c0.Convolution, slot:0,
    CompNode("cpu0:0" from "cpu0:0"), s, 4, 1} owner_opr_inputs=0={id:9, ...} 1={id:11, ...}

This is one line, as mgb::cg::dump_var_info writes it. If the operator has only one input, the name
lacks the `0=` before the input. A variable without storage has `shape:{2}` in place of the layout.
load_and_run's bin-out-dump writes a space before the inputs.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from io import BufferedReader
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import NamedTuple

from lar.dumps import Array, Stored
from lar.errors import DumpError
from lar.files.input_file import open_input
from lar.records.record import Record, ShortRecord

# The name of an element is the name of its sequence or map, and this.
ELEMENT = re.compile(r"\[[^][]*\]$")

HEAD = re.compile(
    r"\{id:(?P<id>\d{1,19}), (?P<kind>layout|shape):\{(?P<axes>[\d(),-]*)"
    r"(?: @ (?P<format>\w+\{[\d,]*\}))?(?: \w+)?\}, (?P<dtype>\w+), owner:"
)
TAIL = re.compile(
    r", slot:(\d{1,9}), (?:CompNode\(\"[^\"]*\"(?: from \"[^\"]*\")?\)|[\w:]*)"
    r", [sd], \d{1,9}, \d{1,9}\}"
)
AXIS = re.compile(r"(\d{1,19})(?:\(-?\d{1,19}\))?(?:,|$)")
OWNER_END = re.compile(r"\{([^{}]*)\}, name:")
INPUTS = re.compile(r" owner_opr_inputs= ?(?=\{id:\d|0=\{id:\d|$)")
NEXT_INPUT = re.compile(r" \d{1,9}=(?=\{id:\d)")
MOST_ATTEMPTS = 100  # attempts to find the end of a part: names may contain separators


class Variable(Record):
    """A variable of the engine's graph.

    `shape` is the shape of the array. A variable that is not `stored` has no array, and its shape
    may be unknown. `format` is the format of a tensor that is not a plain array, such as
    `I2D{2,1}`. `operator` and `operator_type` are the name and the type of the operator that
    computes the variable. `slot` is the number of the variable among the outputs of its operator.
    """

    id: int
    shape: tuple[int, ...] = ()
    stored: bool = True
    format: str = ""
    dtype: str = "Float32"
    operator: str = ""
    operator_type: str = ""
    name: str = ""
    slot: int = 0

    @property
    def operator_id(self) -> int:
        """The number of the operator; the engine gives the operator's outputs the next numbers."""
        return self.id - 1 - self.slot


class Numbering:
    """The numbered variables of a graph by name.

    As in MegEngine, an operator gets a number, and then its outputs get the next numbers.
    """

    def __init__(self, fed: Iterable[str]) -> None:
        self.variables: dict[str, Variable] = {}
        self._next_id = 0
        self.add_constants(fed, "Input")

    def add_node(self, kind: str, name: str, inputs: Iterable[str], outputs: Sequence[str]) -> None:
        """Number the inputs that have no number yet, then the operator and its outputs.

        The model may omit optional inputs and outputs: their names are empty.
        """
        self.add_constants(filter(None, inputs))
        number = self._next_id
        for slot, output in enumerate(outputs):
            if output:
                self.variables[output] = Variable(
                    id=number + 1 + slot,
                    operator=f"{name or kind}[{number}]",
                    operator_type=kind,
                    name=output,
                    slot=slot,
                    stored=False,
                )
        self._next_id += 1 + len(outputs)

    def add_constants(self, names: Iterable[str], kind: str = "Initializer") -> None:
        """Number the tensors that have no number yet."""
        for name in names:
            if name not in self.variables:
                self.add_node(kind, name, (), [name])

    def add_part(self, whole: str, name: str) -> None:
        """Number a part of an operator's output with the next free number."""
        variable = self.variables[whole]
        slot = self._next_id - 1 - variable.operator_id
        self.variables[name] = replace(variable, id=self._next_id, name=name, slot=slot)
        self._next_id += 1


class DumpedName(NamedTuple):
    """The content of a dumped tensor's name: a variable, and the inputs of its operator."""

    variable: Variable
    inputs: tuple[Variable, ...] = ()


def parse_name(text: str) -> DumpedName | None:
    """Parse the name of a dumped tensor; return None for a name in another format.

    Names of variables and operators may contain any characters, even separators. If a name can be
    parsed in several ways, the number of the operator decides, since most operator names end with
    this number.
    """
    if not text.startswith("var="):
        return None
    # The last separator is tried first, since earlier ones may be parts of names.
    for separator in reversed([*INPUTS.finditer(text)][-MOST_ATTEMPTS:]):
        variable = parse_variable(text[len("var=") : separator.start()])
        inputs = parse_inputs(text[separator.end() :])
        if variable is not None and inputs is not None:
            return DumpedName(variable, inputs)
    return None


def parse_inputs(text: str) -> tuple[Variable, ...] | None:
    """Parse the inputs of an operator; return None if the text is something else."""
    if not text:
        return ()
    text = f"0={text}" if text.startswith("{") else text
    variables: list[Variable] = []
    begin, failures = len("0="), 0
    ends = [found.span() for found in NEXT_INPUT.finditer(text)]
    for end, following in (*ends, (len(text), len(text))):
        if variable := parse_variable(text[begin:end]):
            variables.append(variable)
            begin, failures = following, 0
        elif (failures := failures + 1) > MOST_ATTEMPTS:  # no engine wrote this name
            break
    return tuple(variables) if begin == len(text) else None


@lru_cache(maxsize=4096)  # most variables occur again as inputs
def parse_variable(text: str) -> Variable | None:
    """Parse a variable; return None if the text is not one variable."""
    head = HEAD.match(text)
    tail = TAIL.fullmatch(text, max(text.rfind(", slot:"), 0))
    if head is None or tail is None or tail.start() < head.end():
        return None
    number, slot = int(head["id"]), int(tail[1])
    body = text[head.end() : tail.start()]
    owner_ends = [*OWNER_END.finditer(body)]
    certain = (it for it in owner_ends if body[: it.start()].endswith(f"[{number - 1 - slot}]"))
    owner_end = next(certain, owner_ends[0] if owner_ends else None)
    if owner_end is None:
        return None
    return Variable(
        id=number,
        shape=tuple(map(int, AXIS.findall(head["axes"]))),
        stored=head["kind"] == "layout",
        format=head["format"] or "",
        dtype=head["dtype"],
        operator=body[: owner_end.start()],
        operator_type=owner_end[1],
        name=body[owner_end.end() :],
        slot=slot,
    )


def format_name(variable: Variable, inputs: Sequence[Variable] = ()) -> str:
    """Format the name of a dumped tensor as the engine does."""
    taken = [format_variable(each) for each in inputs]
    if len(taken) > 1:
        taken = [f"{index}={text}" for index, text in enumerate(taken)]
    return f"var={format_variable(variable)} owner_opr_inputs={' '.join(taken)}"


def format_variable(variable: Variable) -> str:
    return (
        f"{{id:{variable.id}, {format_layout(variable)}, {variable.dtype}, "
        f"owner:{variable.operator}{{{variable.operator_type}}}, name:{variable.name}, "
        f"slot:{variable.slot}, , s, 4, 1}}"
    )


def format_layout(variable: Variable) -> str:
    """Format a layout with its strides in elements, or a shape for a variable without storage.

    The last axis has stride 1.
    """
    if not variable.stored:
        return f"shape:{{{','.join(map(str, variable.shape))}}}"
    strides = accumulate((max(size, 1) for size in variable.shape[:0:-1]), mul, initial=1)
    axes = [
        f"{size}({stride})" for size, stride in zip(variable.shape[::-1], strides, strict=False)
    ]
    kind = f" @ {variable.format}" if variable.format else ""
    return f"layout:{{{','.join(axes[::-1])}{kind} {variable.dtype}}}"


# The file


COUNTS = struct.Struct("<3I")
AXES = 7
MOST_NAME_BYTES = 1 << 22
MOST_ELEMENTS = 1 << 58
LIKELY_HEAD = 1 << 10  # the bytes before the elements are fewer, unless a name is very long
HINT = "give a dump's folder or text file, a tensor file, a .npy, a .npz or a folder of .npy files"
NOT_PLAIN = re.compile(r"[^\x00-\x7f]|\\")
ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


class ElementType(NamedTuple):
    """A dtype of MegEngine: its number, its name, and the NumPy dtype of its values.

    `bits` is the number of bits of an element in a file, or 0 if the NumPy dtype has the same
    number of bits. If an element has fewer than 8 bits, several elements share a byte, and the
    first element is in the lowest bits. The value of an element is the integer in its bits,
    multiplied by `step`, plus `lowest`.
    """

    code: int
    name: str
    storage: str
    bits: int = 0
    step: int = 1
    lowest: int = 0

    @property
    def dtype(self) -> str:
        """The name of the NumPy dtype, or MegEngine's name if NumPy lacks the type."""
        return self.name.lower() if PLAIN.fullmatch(self.name) else self.name


# Types that NumPy has too, under the same name in small letters, and lar's type for strings.
PLAIN = re.compile(r"Float(16|32|64)|U?[Ii]nt(8|16|32|64)|Bool|Complex(64|128)|String")

# The rows have the fields of ElementType. Codes are those of megdnn's DTypeEnum. Codes from 200000
# on are lar's own, for types that MegEngine lacks.
_, *ROWS = Path(__file__).with_name("elements.txt").read_text().splitlines()
ELEMENT_TYPES = tuple(
    ElementType(int(code), name, storage, *map(int, rest))
    for code, name, storage, *rest in map(str.split, ROWS)
)
# Strings, stored as bytes. Only the tensor's name shows that these bytes are no numbers.
TEXT = ElementType(1, "String", "u1")
BY_CODE: Mapping[int, ElementType] = {element.code: element for element in ELEMENT_TYPES}
BY_NAME: Mapping[str, ElementType] = {each.name: each for each in (*ELEMENT_TYPES, TEXT)}
BY_DTYPE: Mapping[str, ElementType] = {
    **{element.dtype: element for element in ELEMENT_TYPES},
    "bfloat16": BY_NAME["BFloat16"],  # from ml_dtypes, as NumPy has no such type
}
# The types that the name of a tensor may declare, by the type in the file.
DECLARED = {"Int32": ("Int64", "Uint32", "Uint64"), "Uint8": (TEXT.name,)}


class TensorHeader(ShortRecord):
    """The header of a tensor file; the elements begin at `offset` and take `size` bytes."""

    path: Path
    name: str
    element: ElementType
    shape: tuple[int, ...]
    offset: int
    size: int

    @cached_property
    def meaning(self) -> DumpedName | None:
        """The parsed name, or None if the name of the tensor does not describe a variable."""
        return parse_name(self.name)

    @property
    def declared(self) -> ElementType:
        """The type of the elements: the type that the tensor's name declares, or the file's type.

        A file of 32-bit integers may stand for other integers, and bytes may stand for strings.
        MegEngine lacks the declared types, but the tools of MegEngine can read the stored values.
        """
        others = DECLARED.get(self.element.name)
        named = self.meaning.variable.dtype if others and self.meaning else ""
        return BY_NAME[named] if others and named in others else self.element


def load_tensor_binary(path: str | os.PathLike[str]) -> tuple[Array, str]:
    """Read a tensor that MegEngine, load_and_run or lar dumped; return its values and its name.

    Raises:
        DumpError: the file is missing, damaged or not a dumped tensor.
    """
    header, stored = read_tensor(Path(path))
    return stored.values, header.name


def read_tensor(path: Path) -> tuple[TensorHeader, Stored]:
    """Read the header and the elements of a tensor file.

    Raises:
        DumpError: the file is missing, damaged or not a dumped tensor.
    """
    with open_input(path, error=DumpError) as file:
        header = header_in(file, path)
        return header, elements_in(file, header)


def read_header(path: Path) -> TensorHeader:
    """Read the header of a tensor file.

    Raises:
        DumpError: the file is missing, damaged or not a dumped tensor.
    """
    with open_input(path, error=DumpError) as file:
        return header_in(file, path)


def header_in(file: BufferedReader, path: Path) -> TensorHeader:
    """Read the header of an open tensor file.

    Raises:
        DumpError: the file is damaged or not a dumped tensor.
    """
    head, file_size = file.read(LIKELY_HEAD), os.fstat(file.fileno()).st_size
    name_bytes, code, axes = COUNTS.unpack(head[: COUNTS.size].ljust(COUNTS.size, b"\xff"))
    if code not in BY_CODE or axes > AXES or name_bytes > MOST_NAME_BYTES:
        raise DumpError("holds no tensors that lar reads", HINT, subject=path)
    offset = COUNTS.size + 4 * axes + name_bytes
    head += file.read(max(offset - len(head), 0))
    if offset > len(head):
        raise truncated(path, f"its name should end at byte {offset}, but it has {file_size} bytes")
    name = decode_name(head[offset - name_bytes : offset])
    sizes = struct.unpack_from(f"<{axes}I", head, COUNTS.size)
    element, size = BY_CODE[code], file_size - offset
    shape = shape_of(sizes, name, size)
    # An array without elements may have axes of any size, so zeros are left out of the product.
    if math.prod(filter(None, shape)) > MOST_ELEMENTS or size not in sizes_of(element, shape):
        listed = ", ".join(map(str, sizes))
        raise truncated(path, f"{size} bytes do not make an array of {element.name} {{{listed}}}")
    return TensorHeader(path, name, element, shape, offset, size)


def shape_of(sizes: tuple[int, ...], name: str, size: int) -> tuple[int, ...]:
    """Return the shape of a tensor.

    `sizes` are the sizes of the axes in the file, and `size` is the number of bytes of all
    elements.

    If a file has no elements, a size of 0 may belong to an axis of the tensor or to an unused axis.
    In this case, the tensor's name shows which axes the tensor has. If there is only one element,
    the name shows whether the tensor has an axis.
    """
    if size and sizes != (1,):
        used = max((place for place, each in enumerate(sizes, 1) if each), default=len(sizes))
        return sizes[:used]
    meaning = parse_name(name)
    if meaning and sizes == (*(named := meaning.variable.shape), *[0] * (len(sizes) - len(named))):
        return named
    return () if sizes == (1,) else sizes


def sizes_of(element: ElementType, shape: tuple[int, ...]) -> Iterator[int]:
    """Yield the possible sizes of an array in bytes; the size without gaps comes first."""
    count = math.prod(shape)
    bits = element.bits or 8 * int(element.storage.lstrip("<")[1:] or 1)
    yield (count * bits + 7) // 8
    if element.name.startswith("Quantized") and bits < 8 and count and shape:
        yield count // shape[-1] * ((shape[-1] * bits + 7) // 8)  # each row begins a byte


def elements_in(file: BufferedReader, header: TensorHeader) -> Stored:
    """Read the elements that follow a header.

    If the values take more memory than the elements in the file, the values are computed later, in
    parts.

    The values of BFloat16 are float32. The values of a quantised type are its integers, as int8 or
    uint8 if they have fewer than 8 bits.

    Raises:
        DumpError: the file was cut off after its header was read.
    """
    import numpy as np

    element, wanted = header.element, np.dtype(header.declared.storage)
    array: Array = np.empty(header.size, np.uint8)
    file.seek(header.offset)
    if (count := file.readinto(array.data)) != header.size:
        raise truncated(header.path, f"it holds {count} of {header.size} bytes")
    array = array.view({0: element.storage, 16: "<u2"}.get(element.bits, "u1"))
    if 0 < element.bits < 8:
        array = unpack(array, element, header.shape)
    array = array.reshape(header.shape)
    if array.dtype == wanted:
        return Stored(array)
    return Stored(array, wanted, widen if element.bits else lambda part: part.astype(wanted))


def widen(stored: Array) -> Array:
    """Convert BFloat16 to float32: the stored bits are the upper half of a float32."""
    import numpy as np

    wide = stored.astype("<u4")
    np.left_shift(wide, np.uint32(16), out=wide)
    return wide.view("<f4")


def write_tensor(path: Path, array: Array, name: str) -> None:
    """Write an array to a tensor file.

    Integers of a type that MegEngine lacks are stored as int32 if all values fit, and if the name
    declares the type.

    Raises:
        DumpError: the format lacks the dtype, or allows fewer axes than the array has.
        OSError: the file cannot be written.
    """
    import numpy as np

    element = BY_DTYPE.get(array.dtype.name)
    if element is None or array.ndim > AXES:
        what = f"{array.ndim} axes" if element else f"the dtype {array.dtype.name}"
        raise DumpError(f"MegEngine's tensor files cannot hold arrays with {what}", subject=path)
    meaning = parse_name(name)
    if meaning and meaning.variable.dtype == element.name in DECLARED["Int32"]:
        narrow = array.astype("<i4")
        if np.array_equal(narrow, array):
            element, array = BY_NAME["Int32"], narrow
    if element.bits == 16:
        array, element = array.view("<u2"), element._replace(storage="<u2")
    values: Array = np.ascontiguousarray(array, element.storage)
    encoded = encode_name(name)
    with path.open("wb") as file:
        file.write(head_of(array.shape, element, len(encoded)) + encoded)
        file.write(values.data if values.size else b"")


def make_readable(header: TensorHeader) -> None:
    """Rewrite a tensor's name in ASCII, so that MegEngine's own reader can read the file.

    Raises:
        OSError: the file cannot be written.
    """
    data, encoded = header.path.read_bytes(), encode_name(header.name)
    name_bytes, *counts = COUNTS.unpack_from(data)
    begin = header.offset - name_bytes
    if not data[begin : header.offset].isascii():
        head = COUNTS.pack(len(encoded), *counts) + data[COUNTS.size : begin]
        header.path.write_bytes(head + encoded + data[header.offset :])


def head_of(shape: tuple[int, ...], element: ElementType, name_bytes: int) -> bytes:
    """Return the part of the header before the name."""
    padded = (*shape, *[0] * (AXES - len(shape)))
    sizes = padded if math.prod(shape) and shape else shape or (1,)
    counts = COUNTS.pack(name_bytes, element.code, len(sizes))
    return counts + struct.pack(f"<{len(sizes)}I", *sizes)


def encode_name(name: str) -> bytes:
    """Encode a name in ASCII."""
    escaped = NOT_PLAIN.sub(lambda it: f"\\U{ord(it[0]):08x}".replace("\\U0000", "\\u"), name)
    return escaped.encode("ascii")


def unescape(found: re.Match[str]) -> str:
    number = int(found[1] or found[2], 16)
    # Half of a surrogate pair stays escaped: a report cannot contain it.
    return found[0] if number > 0x10FFFF or 0xD800 <= number < 0xE000 else chr(number)


def decode_name(data: bytes) -> str:
    """Decode a name that lar wrote in ASCII, or that another program wrote in UTF-8."""
    return ESCAPED.sub(unescape, data.decode("utf-8", "backslashreplace"))


def truncated(path: Path, why: str) -> DumpError:
    return DumpError(f"the dump is damaged or cut off: {why}", "dump it again", subject=path)


def unpack(stored: Array, element: ElementType, shape: tuple[int, ...]) -> Array:
    """Unpack elements of fewer than 8 bits: each byte (uint8) holds several elements."""
    import numpy as np

    bits, count = element.bits, math.prod(shape)
    places = np.arange(0, 8, bits, dtype=np.uint8)
    codes: Array = stored[:, None] >> places & np.uint8((1 << bits) - 1)
    if len(stored) != (count * bits + 7) // 8:  # each row begins with a byte of its own
        codes = codes.reshape(count // shape[-1], -1)[:, : shape[-1]]
    values = codes.reshape(-1)[:count].astype(element.storage)
    if element.name == "QuantizedS4":
        values = (values ^ 8) - np.int8(8)  # two's complement
    unpacked: Array = values * values.dtype.type(element.step) + values.dtype.type(element.lowest)
    return unpacked
