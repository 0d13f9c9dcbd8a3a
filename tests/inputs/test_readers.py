from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cv2
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from onnx import numpy_helper

from lar.errors import UsageError
from lar.inputs import Loaded
from lar.inputs.grammar import RawForm
from lar.inputs.readers import READERS, array_of_values, read_numbers, read_path, shape_raw
from tests.refusals import refused
from tests.tables import each_row

SHAPES = st_np.array_shapes(min_dims=0, max_dims=4, max_side=4)
ARRAYS = st_np.arrays(
    st_np.boolean_dtypes()
    | st_np.integer_dtypes(endianness="=")
    | st_np.unsigned_integer_dtypes(endianness="=")
    | st_np.floating_dtypes(endianness="="),
    SHAPES,
)


def read_bytes(data: bytes, path: Path, wanted: str = "") -> tuple[Loaded, ...]:
    path.write_bytes(data)
    return read_path(str(path), wanted)


def read_document(document: object, path: Path, wanted: str = "") -> tuple[Loaded, ...]:
    return read_bytes(json.dumps(document).encode(), path, wanted)


@given(st.dictionaries(st.text(min_size=1), ARRAYS, min_size=1, max_size=3))
def test_json_holds_named_tensors(tmp_path: Path, arrays: dict[str, Any]) -> None:
    document = {
        name: {"shape": array.shape, "type": array.dtype.name, "raw": array.ravel().tolist()}
        for name, array in arrays.items()
    }
    for read in read_document(document, tmp_path / "a.json"):
        expected = arrays[read.name]
        assert (read.array.dtype, read.kind, read.name_binds) == (expected.dtype, "tensor", True)
        np.testing.assert_array_equal(read.array, expected)


@pytest.mark.parametrize(("name", "dtype"), [("float", "float32"), ("int", "int32")])
def test_json_takes_the_type_names_of_load_and_run(tmp_path: Path, name: str, dtype: str) -> None:
    document = {"a": {"shape": [1, 2], "type": name, "raw": [1, 2.0]}}
    (read,) = read_document(document, tmp_path / "a.json")
    assert read.array.dtype == dtype
    assert read.array.tolist() == [[1, 2]]


def test_json_without_a_type_is_numbers_only(tmp_path: Path) -> None:
    document = {"a": {"shape": [2], "raw": [1, 2]}, "b": {"shape": [1], "raw": [0.5]}}
    first, second = read_document(document, tmp_path / "a.json")
    assert (first.kind, second.kind) == ("text", "text")
    (only,) = read_document(document, tmp_path / "a.json", "b")
    assert only.name == "b"


def entry_with(**changes: object) -> dict[str, object]:
    return {"a": {"shape": [2], "type": "int8", "raw": [1, 2], **changes}}


@each_row("inputs/readers/json")
def test_wrong_json_is_refused(tmp_path: Path, document: object, problem: str) -> None:
    refused(problem, read_document, document, tmp_path / "a.json")


@pytest.mark.parametrize(
    "data", [b"{", b"\xff\xfe\x00", b'{"a": ' + b"[" * 100_000, b"\x00", b'{"a": 1} 2']
)
def test_what_is_no_json_is_refused(tmp_path: Path, data: bytes) -> None:
    refused(r"not JSON|nested", read_bytes, data, tmp_path / "a.json")


@given(ARRAYS, st.text("abc"))
def test_onnx_tensors_are_read(tmp_path: Path, array: Any, name: str) -> None:
    data = numpy_helper.from_array(array, name).SerializeToString()
    (read,) = read_bytes(data, tmp_path / "input_7.pb")
    assert (read.name, read.position, read.array.dtype) == (name, 7, array.dtype)
    np.testing.assert_array_equal(read.array, array)


@each_row("inputs/readers/onnx")
def test_wrong_onnx_tensors_are_refused(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    if "raw_data" in fields:
        fields = {**fields, "raw_data": fields["raw_data"].encode()}
    data = onnx.TensorProto(**fields).SerializeToString()
    refused(problem, read_bytes, data, tmp_path / "a.pb")
    refused("cannot be read", read_bytes, b"\xff" * 20, tmp_path / "a.pb")


def test_a_test_set_folder_gives_its_inputs_in_order(tmp_path: Path) -> None:
    for position in (10, 2):
        tensor = numpy_helper.from_array(np.array([position]), "x")
        (tmp_path / f"input_{position}.pb").write_bytes(tensor.SerializeToString())
    (tmp_path / "output_0.pb").write_bytes(b"no input")
    read = read_path(str(tmp_path))
    assert [(each.position, each.array.tolist()) for each in read] == [(2, [2]), (10, [10])]
    refused("names its inputs itself", read_path, str(tmp_path), "data")


def test_the_items_of_an_onnx_sequence_are_numbered(tmp_path: Path) -> None:
    arrays: list[Any] = [np.arange(6, dtype=np.int8).reshape(2, 3), np.ones(1, np.float32)]
    content = numpy_helper.from_list(arrays, "s").SerializeToString()
    read = read_bytes(content, tmp_path / "input_4.pb")
    told = [(f"s[{at}]", 4, it.dtype, it.tolist()) for at, it in enumerate(arrays)]
    assert [(it.name, it.position, it.array.dtype, it.array.tolist()) for it in read] == told


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_what_the_system_cannot_read_or_hold_is_told(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {"input/output error": OSError(5, "Input/output error"), "fit into": MemoryError()}
    for problem, error in errors.items():
        monkeypatch.setattr("lar.inputs.readers._read_array", Mock(side_effect=error))
        refused(problem, read_bytes, valid_files()[suffix], tmp_path / f"a{suffix}")


def test_raw_bytes_get_a_dtype_and_a_shape(tmp_path: Path) -> None:
    expected = np.arange(6, dtype="<i2").reshape(2, 3)
    (raw,) = read_bytes(expected.tobytes(), tmp_path / "a.bin")
    assert raw.kind == "raw"
    shaped = shape_raw(raw, RawForm("int16", (2, 3)))
    np.testing.assert_array_equal(shaped.array, expected)
    assert shaped.kind == "tensor"
    with pytest.raises(UsageError, match=r"holds 12 bytes, float32 of shape \{2,3\} takes 24"):
        shape_raw(raw, RawForm("float32", (2, 3)))
    refused("'float31' is not a dtype", shape_raw, raw, RawForm("float31", (2, 3)))


def test_paths_without_a_reader_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(b"1")
    for name, problem in {"a.xyz": "unknown format", "b.npy": "no such file", "": "folder"}.items():
        refused(problem, read_path, str(tmp_path / name))
    refused("no such file", read_path, "a\0.npy")
    refused("not a regular file", read_path, "/dev/null")


def valid_files() -> dict[str, bytes]:
    """Return a small valid file of every format."""
    array = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array)
    np.savez_compressed(npz, a=array, b=array)
    files = {
        ".npy": npy.getvalue(),
        ".npz": npz.getvalue(),
        ".json": b'{"a": {"shape": [2], "type": "float", "raw": [1.5, 2]}}',
        ".ppm": b"P6 # a\n2 2\n255\n" + bytes(12),
        ".pgm": b"P2 2 2 15 1 2 3 4",
        ".pb": numpy_helper.from_array(array, "a").SerializeToString(),
        ".bin": array.tobytes(),
        ".raw": array.tobytes(),
    }
    noise = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    for suffix in READERS.keys() - files.keys():
        files[suffix] = cv2.imencode(suffix, noise)[1].tobytes()
    return files


VALID = valid_files()


@pytest.mark.parametrize("suffix", sorted(READERS))
@settings(max_examples=25)
@given(st.data())
def test_any_bytes_are_read_or_refused(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    content = bytearray(VALID[suffix])
    if data.draw(st.booleans()):
        content = bytearray(data.draw(st.binary(max_size=300)))
        content[:0] = VALID[suffix][: data.draw(st.integers(0, 12))]
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6)
    ):
        if content:
            content[place % len(content)] = byte
    del content[data.draw(st.integers(len(content) // 2, len(content) * 3)) :]
    with contextlib.suppress(UsageError):
        for loaded in read_bytes(bytes(content), tmp_path / f"a{suffix}"):
            assert loaded.array.dtype.kind in "biufc"


@each_row("inputs/literals/shapes")
def test_nesting_and_an_outer_one_are_the_shape(text: str, shape: list[int], dtype: str) -> None:
    array = read_numbers(text)
    assert ([*array.shape], array.dtype.name) == (shape, dtype)


@each_row("inputs/literals/refused")
def test_what_is_no_array_of_values_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_numbers(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    for text, problem in (("[" * 100_000, "levels"), ("9" * 5000, "not a list of numbers")):
        with pytest.raises(ValueError, match=problem):
            read_numbers(text)


@given(
    st_np.arrays(
        st.sampled_from([np.int64, np.float64]),
        st_np.array_shapes(max_dims=4, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_what_is_written_is_read(array: np.ndarray[Any, Any]) -> None:
    read = read_numbers(json.dumps(array.tolist()))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array[np.newaxis])


@settings(max_examples=200)
@given(st.text(alphabet="[],.-+eE0123456789 "))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert read_numbers(text).dtype.kind in "iuf"


def test_booleans_are_an_array_of_their_own() -> None:
    assert array_of_values([True, False]).dtype == np.bool_
