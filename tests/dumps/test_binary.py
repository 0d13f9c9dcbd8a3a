"""MegEngine's binary tensor file, and the names in dumps: what is written is read again, and what
is none is told."""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lar
from lar.dumps.binary import (
    BY_DTYPE,
    BY_NAME,
    ELEMENT_TYPES,
    DumpedName,
    ElementType,
    TensorHeader,
    Variable,
    decode_name,
    encode_name,
    format_name,
    make_readable,
    parse_name,
    read_header,
    unpack,
    write_tensor,
)
from lar.errors import DumpError
from tests.dumps.typed_tensors import read_by_megengine, write_typed
from tests.refusals import refused
from tests.tables import each_row

Array = np.ndarray[Any, Any]

shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=7).map(tuple)
elements = st.sampled_from(ELEMENT_TYPES)


def draw_array(element: ElementType, shape: tuple[int, ...], seed: int) -> Array:
    """Draw values that a file of that element type can hold."""
    random, count = np.random.default_rng(seed), math.prod(shape)
    if element.name == "BFloat16":
        halves = random.integers(0, 1 << 16, count).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    if element.bits:
        codes = random.integers(0, 1 << element.bits, count)
        values = codes * element.step + element.lowest
        if element.name == "QuantizedS4":
            values = codes - 8
        return values.astype(element.storage).reshape(shape)
    dtype = np.dtype(element.storage)
    if element.name == "Bool":
        return random.integers(0, 2, count).astype(dtype).reshape(shape)
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(shape)


def assert_same(actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes()


@given(elements, shapes, st.integers(0, 99), st.text(max_size=20) | st.just("n" * 2000))
def test_what_is_written_is_read_again(
    tmp_path: Path, element: ElementType, shape: tuple[int, ...], seed: int, name: str
) -> None:
    array = draw_array(element, shape, seed)
    write_typed(tmp_path / "tensor", array, name, element.dtype)
    assert_same(lar.load_tensor_binary(tmp_path / "tensor")[0], array)
    header = read_header(tmp_path / "tensor")
    assert (header.name, header.element, header.declared.dtype) == (name, element, element.dtype)


@given(elements, shapes, st.integers(0, 99), st.integers(0, 10**6))
def test_what_is_cut_off_is_told(
    tmp_path: Path, element: ElementType, shape: tuple[int, ...], seed: int, length: int
) -> None:
    path, array = tmp_path / "tensor", draw_array(element, shape, seed)
    write_typed(path, array, "var", element.dtype)
    whole = path.read_bytes()
    path.write_bytes(whole[: length % len(whole)])
    # Without its elements, what is left may be the file of a tensor that has none.
    if array.size and length % len(whole) > len(whole) - array.nbytes // 16:
        refused(re.escape(str(path)), read_header, path, kind=DumpError)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_tensor_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tensor").write_bytes(content)
    try:
        array, _ = lar.load_tensor_binary(tmp_path / "tensor")
    except DumpError:
        return
    assert array.nbytes <= 8 * len(content)


@each_row("dumps/binary/hostile")
def test_a_hostile_file_ends_in_a_clear_error(
    tmp_path: Path, numbers: list[int], more: int, message: str
) -> None:
    """Of these numbers, and zeros behind them."""
    path = tmp_path / "tensor"
    path.write_bytes(struct.pack(f"<{len(numbers)}I", *numbers) + bytes(more))
    caught = refused(message, lar.load_tensor_binary, path, kind=DumpError)
    assert str(path) in caught.message
    assert caught.exit_code == 2


@each_row("dumps/binary/characters")
def test_characters_of_names_are_written_as_numbers(name: str, written: str) -> None:
    """But for numbers of no characters, which stay as they are written."""
    assert decode_name(written.encode()) == name
    if len(name) == 1:
        assert encode_name(name) == written.encode()


def test_the_types_that_lar_adds_keep_their_numbers(tmp_path: Path) -> None:
    """Files that are there already have them."""
    dtypes = (np.int64, np.uint32, np.uint64, np.float64, np.complex128)
    for number, dtype in enumerate(dtypes, 200000):
        write_tensor(tmp_path / "tensor", np.ones(3, dtype), "x")
        assert struct.unpack_from("<I", (tmp_path / "tensor").read_bytes(), 4) == (number,)


@each_row("dumps/binary/megengine")
def test_elements_are_those_that_megengine_writes(
    tmp_path: Path, dtype: str, code: int, shape: list[int], data: str, values: list[Any]
) -> None:
    """Numbers of types, and bytes behind the names in files that MegEngine 1.13 wrote."""
    path, element = tmp_path / "tensor", BY_DTYPE[dtype]
    expected = np.array(values, np.dtype(element.storage)).reshape(shape)
    write_typed(path, expected, "name", dtype)
    sizes = (*shape, *[0] * (7 - len(shape)))
    assert path.read_bytes() == (
        struct.pack("<10I", 4, code, 7, *sizes) + b"name" + bytes.fromhex(data)
    )
    assert_same(lar.load_tensor_binary(path)[0], expected)


def name_of(dtype: str) -> str:
    return format_name(Variable(id=1, shape=(2,), dtype=dtype))


@each_row("dumps/binary/wide")
def test_wide_integers_are_stored_narrow_where_they_fit(
    tmp_path: Path, dtype: str, values: list[int], code: int
) -> None:
    array, path = np.array(values, dtype), tmp_path / "tensor"
    write_tensor(path, array, name_of(dtype.capitalize()))
    assert struct.unpack_from("<3I", path.read_bytes())[1] == code
    assert_same(lar.load_tensor_binary(path)[0], array)
    assert read_header(path).declared.dtype == dtype


def test_a_dtype_or_rank_that_the_format_lacks_is_refused(tmp_path: Path) -> None:
    for array in (np.zeros(2, "S3"), np.zeros([1] * 8, np.float32)):
        with pytest.raises(DumpError, match="MegEngine's tensor files cannot hold arrays with"):
            write_tensor(tmp_path / "tensor", array, "name")


def test_a_name_in_utf8_is_read_and_made_readable(tmp_path: Path) -> None:
    """MegEngine writes names as they are, and then cannot read them itself."""
    path, name, values = tmp_path / "t", "卷积 \\ é 🐈", np.arange(3, dtype=np.float32)
    raw = name.encode()
    path.write_bytes(struct.pack("<10I", len(raw), 0, 7, 3, *[0] * 6) + raw + values.tobytes())
    assert read_header(path).name == name
    make_readable(read_header(path))
    assert path.read_bytes()[40 : -values.nbytes].isascii()
    array, read = lar.load_tensor_binary(path)
    assert read == name
    assert_same(array, values)
    (tmp_path / "bad").write_bytes(struct.pack("<10I", 2, 1, 7, 1, *[0] * 6) + b"\xff\xfe\x01")
    assert lar.load_tensor_binary(tmp_path / "bad")[1] == r"\xff\xfe"


def test_megengines_own_reader_reads_what_lar_writes(
    elsewhere: Callable[..., Any], tmp_path: Path
) -> None:
    known = ("float32", "uint8", "int8", "int16", "int32", "float16")
    wide = np.array([3, -4], np.int64)
    arrays = [np.arange(6).reshape(2, 3).astype(dtype) for dtype in known]
    arrays += [np.zeros((), np.float32), np.zeros((0, 3), np.float32), wide]
    names = ["卷积"] * (len(arrays) - 1) + [name_of("Int64")]
    paths = [tmp_path / str(index) for index in range(len(arrays))]
    for path, array, name in zip(paths, arrays, names, strict=True):
        write_tensor(path, array, name)
    for (found, _), array in zip(elsewhere(read_by_megengine, paths), arrays, strict=True):
        expected = array.astype(np.int32) if array is wide else array
        # It knows no array without axes, and shows it as one of a single element.
        shape = list(array.shape) or [1]
        assert (found.dtype, [*found.shape]) == (expected.dtype, shape)
        assert found.tobytes() == expected.tobytes()


def test_rows_that_fill_their_bytes_have_no_padding(tmp_path: Path) -> None:
    path = tmp_path / "tensor"
    name = "a tensor"
    for width, size in ((1, 2), (2, 2), (3, 4), (4, 4)):
        array = np.arange(2 * width, dtype=np.uint8).reshape(2, width)
        write_typed(path, array, name, "Quantized4Asymm")
        assert read_header(path).size == size
        assert np.array_equal(lar.load_tensor_binary(path)[0], array)
    # A byte more for each row is not a way that such a file is written.
    write_typed(path, np.zeros((2, 2), np.uint8), name, "Quantized4Asymm")
    path.write_bytes(path.read_bytes() + bytes(2))
    refused("do not make an array", lar.load_tensor_binary, path, kind=DumpError)


@each_row("dumps/binary/declared")
def test_only_integers_of_another_width_are_stored_in_32_bits(
    stored: str, declared: str, dtype: str
) -> None:
    name = format_name(Variable(id=3, dtype=declared))
    header = TensorHeader(Path("t"), name, BY_NAME[stored], (), 0, 4)
    assert header.declared.dtype == dtype
    assert replace(header, name="no variable").declared == BY_NAME[stored]


@each_row("dumps/binary/shapes")
def test_the_name_tells_the_shape_where_the_axes_do_not(
    tmp_path: Path, named: list[int], sizes: list[int], shape: list[int]
) -> None:
    """MegEngine writes seven axes whatever the shape is, zeros behind those there are."""
    name = encode_name(format_name(Variable(id=3, shape=tuple(named))))
    head = struct.pack(f"<{3 + len(sizes)}I", len(name), 0, len(sizes), *sizes)
    path = tmp_path / "t"
    path.write_bytes(head + name + bytes(4 * math.prod(shape)))
    assert lar.load_tensor_binary(path)[0].shape == tuple(shape)


# From MegEngine 1.13: a convolution, an operator of one input, one in a blocked layout whose
# operator has a name of its own, a model's input, weights of an image format.
BY_MEGENGINE = (Path(__file__).parents[1] / "data" / "megengine_names.txt").read_text().splitlines()
CONVOLUTION = BY_MEGENGINE[0]
# load_and_run writes a space before the inputs of an output.
CPP_OUTPUT = CONVOLUTION.replace("owner_opr_inputs=", "owner_opr_inputs= ")


def parsed(text: str) -> DumpedName:
    found = parse_name(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", BY_MEGENGINE)
def test_what_megengine_writes_is_understood_to_the_last_letter(text: str) -> None:
    found = parsed(text)
    # lar neither needs nor keeps the device, and how the shape and the value are known.
    places = re.compile(r'(?<=, slot:\d, )CompNode\("[\w:]+" from "[\w:]+"\), s, \d, \d')
    assert format_name(found.variable, found.inputs) == places.sub(", s, 4, 1", text)


def test_the_parts_of_a_convolutions_name() -> None:
    for text in (CONVOLUTION, CPP_OUTPUT):
        variable, (data, weight) = parsed(text).variable, parsed(text).inputs
        assert (variable.id, variable.slot, variable.operator_id) == (13, 0, 12)
        assert variable.shape == (1, 16, 8, 8)
        assert (variable.dtype, variable.name) == ("Float32", "Convolution[0]")
        assert variable.operator == "conv(data,conv1.weight)[12]"
        assert variable.operator_type == "ConvolutionForward"
        assert (data.id, data.name, data.operator_type) == (9, "data", "Host2DeviceCopy")
        assert (weight.name, weight.operator) == ("conv1.weight", "const{16,1,3,3}[10]")


# Names made of what separates the parts, and of anything.
PIECES = ["{", "}", "[", "]", "(", ")", ",", ":", "=", " ", "name", "owner", "slot:0", "var={id:1"]
PIECES += [" owner_opr_inputs=", " 1={id:7, ", "s, 4, 1}", "卷积", "{Elemwise}", '"', "\n"]
names = st.one_of(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(max_size=12))
types = st.from_regex(r"[A-Z][A-Za-z0-9:]{0,20}", fullmatch=True)


@st.composite
def variables(draw: st.DrawFn) -> Variable:
    slot = draw(st.integers(0, 3))
    number = draw(st.integers(slot + 1, 10**9))
    shape = tuple(draw(st.lists(st.integers(0, 300), max_size=7)))
    stored = draw(st.booleans())
    return Variable(
        id=number,
        shape=shape,
        stored=stored,
        format=draw(st.sampled_from(["", "I2D{2,64}", "LOWBITS{4,8}"])) if stored else "",
        dtype=draw(st.sampled_from(["Float32", "QuantizedS8", "Int64"])),
        # Its end is what tells where the name begins, if the name looks like another operator.
        operator=f"{draw(names)}[{number - 1 - slot}]",
        operator_type=draw(types),
        name=draw(names),
        slot=slot,
    )


@given(variables(), st.lists(variables(), max_size=3))
def test_any_names_survive(variable: Variable, inputs: list[Variable]) -> None:
    assert parse_name(format_name(variable, inputs)) == DumpedName(variable, tuple(inputs))


@given(st.text())
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse_name(text) is None
    parse_name("var=" + text)


def test_a_hostile_name_takes_no_time() -> None:
    began = time.process_time()
    for unit in (" 1={id:1", " owner_opr_inputs={id:1, ", ", slot:0", "{A}, name:"):
        start = "var={id:1, shape:{}, Float32, owner:"
        parse_name((start + unit * (1 << 17))[: 1 << 20])
        inputs = CONVOLUTION.partition(" owner_opr")[0] + " owner_opr_inputs=0={id:1"
        parse_name((inputs + unit * (1 << 17))[: 1 << 20])
    assert time.process_time() - began < 3


def test_rows_of_four_bits_need_not_begin_with_a_byte() -> None:
    stored = np.array([0x21, 0x43, 0x65, 0x87, 0x09], np.uint8)
    rows = unpack(stored, BY_NAME["QuantizedS4"], (3, 3)).reshape(3, 3)
    assert rows.tolist() == [[1, 2, 3], [4, 5, 6], [7, -8, -7]]
