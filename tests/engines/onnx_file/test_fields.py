"""ONNX files read and written by their fields, against the package onnx."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import lar
from lar.cli.main import main
from lar.engines.onnx_file.fields import (
    ELEMENT_TYPES,
    SCHEMA,
    Message,
    bits_of,
    check_external_data,
    fields_in,
    files_beside,
    open_model,
)
from lar.engines.onnx_file.tensors import array_of, dense_of, tensor_of
from lar.engines.onnxruntime.cache import read_cache
from lar.errors import UsageError
from tests.conftest import RunLar
from tests.engines import onnx_models
from tests.engines.onnx_models import save_model
from tests.refusals import refused
from tests.tables import each_row

EACH = sorted((Path(__file__).resolve().parents[3] / "models").glob("*.onnx"))

PROTOS: dict[str, Any] = {
    **{"Model": onnx.ModelProto, "Opset": onnx.OperatorSetIdProto, "Node": onnx.NodeProto},
    **{"Entry": onnx.StringStringEntryProto, "Training": onnx.TrainingInfoProto},
    **{"Function": onnx.FunctionProto, "Graph": onnx.GraphProto, "Value": onnx.ValueInfoProto},
    **{"Attribute": onnx.AttributeProto, "Tensor": TensorProto, "Type": onnx.TypeProto},
    **{"Sparse": onnx.SparseTensorProto, "TensorType": onnx.TypeProto.Tensor},
    **{"Sequence": onnx.TypeProto.Sequence, "Map": onnx.TypeProto.Map},
    **{"Shape": onnx.TensorShapeProto, "Axis": onnx.TensorShapeProto.Dimension},
}


def test_the_schema_is_that_of_onnx() -> None:
    assert PROTOS.keys() == SCHEMA.keys()
    for message, fields in SCHEMA.items():
        known = {each.name: each for each in PROTOS[message].DESCRIPTOR.fields}
        for name, field in fields.items():
            assert (field.number, field.is_repeated) == (
                known[name].number,
                known[name].is_repeated,
            )
            assert (field.type in SCHEMA) == (known[name].message_type is not None)


@pytest.mark.parametrize("path", EACH, ids=lambda path: path.stem)
def test_a_model_is_read_and_written_as_the_package_does(path: Path) -> None:
    ours, theirs = open_model(path), onnx.load(path)
    for found, expected in zip(ours.graph.node, theirs.graph.node, strict=True):
        assert (found.op_type, found.name, found.domain) == (
            *(expected.op_type, expected.name, expected.domain),
        )
        assert (found.input, found.output) == ([*expected.input], [*expected.output])
    for found, expected in zip(ours.graph.initializer, theirs.graph.initializer, strict=True):
        array = array_of(found, path.parent)
        np.testing.assert_array_equal(array, numpy_helper.to_array(expected), strict=True)
    assert onnx.load_from_string(ours.encode()) == theirs  # all of it has been decoded
    node, *_ = ours.graph.node
    node.input[:] = ["another"]
    node.attribute.append(Message("Attribute", name="a", type=2, i=-3))
    theirs.graph.node[0].input[:] = ["another"]
    theirs.graph.node[0].attribute.append(helper.make_attribute("a", -3))
    assert onnx.load_from_string(ours.encode()) == theirs
    assert not files_beside(path)


def test_what_the_schema_lacks_and_packed_or_merged_fields_stay() -> None:
    tensor = TensorProto(name="w", dims=[2, 3], float_data=[1.5, -2], int64_data=[-1, 2**62])
    tensor.segment.begin = 7
    found = Message("Tensor", tensor.SerializeToString())
    assert (found.dims, found.float_data, found.int64_data) == ([2, 3], [1.5, -2], [-1, 2**62])
    found.name = "v"
    tensor.name = "v"
    assert TensorProto.FromString(found.encode()) == tensor
    twice = Message(
        "Model",
        b"".join(
            helper.make_model(
                onnx.GraphProto(name=name, node=[helper.make_node("Relu", ["x"], [name])])
            ).SerializeToString()
            for name in "ab"
        ),
    )
    assert (twice.graph.name, [each.output for each in twice.graph.node]) == ("b", [["a"], ["b"]])
    assert "doc_string" not in found
    with pytest.raises(AttributeError):
        found.no_such_field  # noqa: B018


def test_a_message_in_parts_inside_such_a_message_is_refused() -> None:
    """Else a file could make lar copy its bytes once for each level."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    inside = field(6, b"") + field(6, b"")  # the graph of an attribute, in two parts
    assert Message("Attribute", inside).g.node == []
    graph = field(1, field(5, inside))
    (node,) = Message("Attribute", field(6, graph) + field(6, b"")).g.node
    with pytest.raises(ValueError, match="a Graph in several parts"):
        node.attribute[0].g  # noqa: B018


@each_row("engines/onnx_file/external_data/numbers")
def test_numbers_are_those_that_protobuf_reads(content: str, numbers: list[int] | None) -> None:
    data = bytes.fromhex(content)
    if numbers is None:
        with pytest.raises(ValueError, match="byte"):
            Message("Tensor", data).dims  # noqa: B018
        return
    assert Message("Tensor", data).dims == TensorProto.FromString(data).dims == numbers
    written = TensorProto(dims=numbers).SerializeToString()
    assert Message("Tensor", dims=numbers).encode() == written


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_a_value_error_and_nothing_else(data: bytes) -> None:
    try:
        fields = list(fields_in(data))
    except ValueError:
        return
    assert b"".join(data[field.begin : field.end] for field in fields) == data


def test_a_message_that_is_cut_short_is_refused_or_has_fewer_fields() -> None:
    tensor = TensorProto(name="weight", dims=[2, 300], raw_data=b"1234", double_data=[1.5])
    data = tensor.SerializeToString()
    fields = list(fields_in(data))
    whole = {field.end: count for count, field in enumerate(fields, start=1)}
    for length in range(1, len(data) + 1):
        if length in whole:
            assert list(fields_in(data[:length])) == fields[: whole[length]]
        else:
            with pytest.raises(ValueError, match="byte"):
                list(fields_in(data[:length]))


@pytest.mark.parametrize(("number", "name"), [*enumerate(ELEMENT_TYPES, start=1)])
def test_tensors_of_all_types_are_read_from_bytes_and_from_numbers(number: int, name: str) -> None:
    if name == "object":
        texts = helper.make_tensor("t", number, [2], ["a", "größer"])
        found = array_of(Message("Tensor", texts.SerializeToString()), Path())
        assert found.tolist() == ["a", "größer"]
        return
    dtype = helper.tensor_dtype_to_np_dtype(number)
    array = np.array([1, 0, 1, 1, -1 if "u" not in name and name != "bool" else 1]).astype(dtype)
    array = np.ones(5).astype(dtype) if "e8m0" in name else array
    for tensor in (
        numpy_helper.from_array(array, "t"),
        helper.make_tensor("t", number, [5], array.tolist()),
    ):
        found = array_of(Message("Tensor", tensor.SerializeToString()), Path())
        np.testing.assert_array_equal(found, array, strict=True)
    if (bits_of(name) or 0) >= 8:
        written = TensorProto.FromString(tensor_of(array, "t", "a note").encode())
        assert (written.name, written.doc_string) == ("t", "a note")
        np.testing.assert_array_equal(numpy_helper.to_array(written), array, strict=True)


@pytest.mark.parametrize("places", [[1, 6], [[0, 1], [3, 2]]])
def test_sparse_tensors_count_elements_or_axes(places: list[Any]) -> None:
    numbers = np.array([1.5, -2], np.float32)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(numbers, "w"), numpy_helper.from_array(np.array(places)), (4, 4)
    )
    found = array_of(dense_of(Message("Sparse", sparse.SerializeToString()), Path()), Path())
    expected = np.zeros((4, 4), np.float32)
    rows = np.unravel_index(places, (4, 4)) if isinstance(places[0], int) else ([0, 3], [1, 2])
    expected[rows] = numbers
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_an_input_of_any_number_of_axes_is_not_a_single_number(
    run_lar: RunLar, tmp_path: Path, engine: str
) -> None:
    number, unknown = (
        save_model(tmp_path / f"{name}.onnx", f"({kind} x) => (float[] y) {{ y = Relu(x) }}")
        for name, kind in {"number": "float", "any": "float[]"}.items()
    )
    ended = run_lar(str(number), "--iter", "1", "--engine", engine, code=0)
    ended = run_lar(str(unknown), "--iter", "1", "--engine", engine, code=2)
    assert "nothing feeds x, which may have any number of axes" in ended.stderr
    assert "Traceback" not in ended.stderr


SECRET = np.arange(4, dtype=np.float32)
FLOATS = TensorProto.FLOAT


def external(location: str, name: str = "W", **entries: str) -> TensorProto:
    """A tensor of four floats whose data is in a file."""
    tensor = TensorProto(name=name, dims=[4], data_type=FLOATS, data_location=1)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def model_of(text: str, *tensors: TensorProto) -> onnx.ModelProto:
    """A model from `x` to `y`."""
    model = onnx_models.model_of(f"(float[4] x) => (float[4] y) {text}")
    model.graph.initializer.extend(tensors)
    return model


ADD = "{ y = Add(x, W) }"


def constant(tensor: TensorProto | onnx.SparseTensorProto) -> onnx.NodeProto:
    kind = "value" if isinstance(tensor, TensorProto) else "sparse_value"
    return helper.make_node("Constant", [], ["W"], **{kind: tensor})


def as_weight(tensor: TensorProto) -> onnx.ModelProto:
    return model_of(ADD, tensor)


def as_constant(tensor: TensorProto | onnx.SparseTensorProto) -> onnx.ModelProto:
    model = model_of(ADD)
    model.graph.node.insert(0, constant(tensor))
    return model


def in_control_flow(tensor: TensorProto) -> onnx.ModelProto:
    model = model_of("""{ y = If (true) <
        then_branch = b () => (float[4] z) { z = Identity(W) },
        else_branch = c () => (float[4] z) { z = Identity(x) }
    > }""")
    model.graph.initializer.append(helper.make_tensor("true", TensorProto.BOOL, [], [True]))
    model.graph.node[0].attribute[0].g.initializer.append(tensor)
    return model


def sparse(tensor: TensorProto) -> onnx.SparseTensorProto:
    indices = helper.make_tensor("i", TensorProto.INT64, [4], range(4))
    return helper.make_sparse_tensor(tensor, indices, [4])


def as_sparse_values(tensor: TensorProto) -> onnx.ModelProto:
    model = model_of(ADD)
    model.graph.sparse_initializer.append(sparse(tensor))
    return model


def as_sparse_attribute(tensor: TensorProto) -> onnx.ModelProto:
    return as_constant(sparse(tensor))


def in_a_function(tensor: TensorProto) -> onnx.ModelProto:
    model = model_of("""{ y = own.F(x) }
        <domain: "own", opset_import: ["": 17]> F (a) => (b) { b = Add(a, W) }""")
    model.functions[0].node.insert(0, constant(tensor))
    return model


Make = Callable[[TensorProto], onnx.ModelProto]

PLACES: list[Make] = [
    *(as_weight, as_constant, in_control_flow),
    *(as_sparse_values, as_sparse_attribute, in_a_function),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the model; the file that nobody should read is beside that folder."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def write(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("make", PLACES)
def test_a_tensor_outside_the_folder_is_found_wherever_it_is(make: Make, folder: Path) -> None:
    for location in (str(folder.parent / "secret.bin"), "../secret.bin", "link.bin"):
        path = write(folder, make(external(location)))
        if location == "link.bin":
            (folder / location).symlink_to("../secret.bin")
        with pytest.raises(UsageError) as caught:
            check_external_data(path)
        assert caught.value.message == (
            f"{path}: tensor 'W': its data is in {location!r}, outside the model's folder"
        )
        assert f"--allow-external-data {folder.parent}" in caught.value.hint
        check_external_data(path, [str(folder.parent)])


@pytest.mark.parametrize("make", PLACES)
def test_a_tensor_in_the_folder_is_taken(make: Make, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "w.bin").write_bytes(SECRET.tobytes())
    (folder / "link.bin").symlink_to("sub/w.bin")
    for location in ("sub/w.bin", "./link.bin"):
        check_external_data(write(folder, make(external(location))))
        check_external_data(write(folder, make(external(location, offset="0", length="16"))))
    for entries in ({}, {"length": "16"}, {"offset": "4"}, {"offset": "4", "length": "8"}):
        tensor, first = external("sub/w.bin", **entries), int(entries.get("offset", 0)) // 4
        numbers = SECRET[first : first + int(entries.get("length", 16)) // 4]
        tensor.dims[:] = [len(numbers)]
        found = array_of(Message("Tensor", tensor.SerializeToString()), folder)
        np.testing.assert_array_equal(found, numbers, strict=True)


def test_a_way_out_of_the_folder_and_back_is_refused(folder: Path) -> None:
    (folder / "w.bin").write_bytes(SECRET.tobytes())
    for location in ("../model/w.bin", str(folder / "w.bin")):
        path = write(folder, as_weight(external(location)))
        refused("outside the model's folder", check_external_data, path)
        check_external_data(path, [str(folder)])


def test_a_folder_with_a_similar_name_is_not_allowed(folder: Path) -> None:
    beside = folder.parent / "model2"
    beside.mkdir()
    (beside / "w.bin").write_bytes(SECRET.tobytes())
    path = write(folder, as_weight(external("../model2/w.bin")))
    refused("outside", check_external_data, path, [str(folder)])
    check_external_data(path, [str(beside), str(folder)])


@each_row("engines/onnx_file/external_data/files")
def test_a_file_that_is_not_there_is_named(
    entries: dict[str, str], problem: str, folder: Path
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    (folder / "w.bin").write_bytes(SECRET.tobytes())
    path = write(folder, as_weight(external(**entries)))
    with pytest.raises(UsageError, match=r"m\.onnx: tensor 'W': ") as caught:
        check_external_data(path)
    assert problem in caught.value.message


def test_a_tensor_whose_data_is_inside_names_no_file(folder: Path) -> None:
    tensor = external("../secret.bin")
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = SECRET.tobytes()
    path = write(folder, as_weight(tensor))
    check_external_data(path)
    # ONNX Runtime agrees.
    assert lar.run(path, {"x": SECRET}, iter=1).status == "ok"


def test_of_two_locations_none_is_taken(folder: Path) -> None:
    (folder / "w.bin").write_bytes(SECRET.tobytes())
    tensor = external("w.bin")
    tensor.external_data.add(key="location", value="../secret.bin")
    refused("without a name, or with two", check_external_data, write(folder, as_weight(tensor)))


def test_what_only_protobuf_can_read_is_refused(folder: Path) -> None:
    # A group, which protobuf skips and lar does not know.
    content = as_weight(external("../secret.bin")).SerializeToString() + b"\xa3\x06\xa4\x06"
    path = folder / "m.onnx"
    path.write_bytes(content)
    refused("is not an ONNX model, or is damaged", check_external_data, path)


# A kind that protobuf skips, and a number and a tag of which protobuf takes 32 bits.
@pytest.mark.parametrize("end", ["70 01 72 01 00", "70 81 80 80 80 10", "f0 80 80 80 10 01"])
def test_a_location_is_read_as_protobuf_reads_it(end: str, folder: Path) -> None:
    tensor = external("../secret.bin")
    tensor.ClearField("data_location")
    content = tensor.SerializeToString() + bytes.fromhex(end)
    for number in (5, 7):  # an initializer of a graph of a model
        content = bytes([number << 3 | 2, len(content)]) + content
    path = folder / "m.onnx"
    path.write_bytes(b"\x08\x08" + content)
    refused("outside the model's folder|or is damaged", check_external_data, path)


def test_the_engine_reads_the_format_that_was_checked(folder: Path, run_lar: RunLar) -> None:
    """The first bytes, or the suffix, are those of a format in which nothing is checked."""
    model = as_weight(external("../secret.bin"))
    model.ClearField("ir_version")
    content = model.SerializeToString()
    for suffix, head, flags, problem in (
        (".pb", b"\x12\x08aaORTMbb\x08\x08", (), "the engine cannot load it"),
        (".onnx", b"\x12\x08aaORTMbb\x08\x08", ("--engine", "onnxruntime"), "cannot load it"),
        (".xml", b"\x12\x01a\x08\x08", ("--engine", "openvino"), "outside the model's folder"),
    ):
        path = folder / f"m{suffix}"
        path.write_bytes(head + content)
        done = run_lar(str(path), *flags, "--iter", "1", code=2)
        assert problem in done.stderr


COMMANDS = [
    ["run", "MODEL", "--iter", "1", "--bin-out-dump", "OUT"],
    ["info", "MODEL"],
    ["pack", "MODEL", "-d", "#rand(0,1)", "-o", "OUT"],
    ["compare", "MODEL --cpu", "MODEL --multithread 1"],
]


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_refuses_it_unless_the_user_allows_it(
    command: list[str], allowed: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link.bin").symlink_to("../secret.bin")
    path, out = write(folder, as_weight(external("link.bin"))), folder.parent / "out"
    allow = f"--allow-external-data {folder.parent}" if allowed else ""
    words = [word.replace("MODEL ", f"MODEL {allow} ") for word in command]
    words = [word.replace("MODEL", str(path)).replace("OUT", str(out)) for word in words]
    given = allow.split() if allowed and command[0] != "compare" else []
    assert main([*words, *given]) == (0 if allowed else 2)
    printed = capsys.readouterr()
    if not allowed:
        assert "tensor 'W': its data is in 'link.bin'" in printed.err
        assert printed.out == ""
        assert not out.exists()
        return
    assert "error" not in printed.err
    if command[0] == "pack":
        packed = out / "link.bin"
        assert packed.read_bytes() == SECRET.tobytes()
        assert not packed.is_symlink()


def test_a_folder_of_testcases_is_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "test_data_set_0").mkdir()
    write(folder, as_weight(external("../secret.bin")))
    assert main([str(folder)]) == 2
    assert "tensor 'W': its data is in '../secret.bin'" in capsys.readouterr().err


def test_a_cache_names_no_file_but_its_own(
    folder: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = folder / "cache"
    model = str(root / "models/digits_cnn.onnx")
    words = [model, "--iter", "1", "--fast-run-algo-policy", str(cache)]
    assert main([*words, "--fast-run"]) == 0
    model = as_weight(external("../secret.bin")).SerializeToString()
    forged = replace(read_cache(cache), model=model, model_crc32=zlib.crc32(model))
    cache.write_bytes(msgspec.json.encode(forged))
    capsys.readouterr()
    assert main(words) == 2
    assert "cache: is not a cache that lar made" in capsys.readouterr().err


@pytest.mark.parametrize("location", ["{}/secret.bin", "../secret.bin"])
def test_weights_that_a_testcase_folder_cannot_hold_are_not_packed(
    run_lar: RunLar, folder: Path, location: str
) -> None:
    model = write(folder, as_weight(external(location.format(folder.parent))))
    done = run_lar(
        *("pack", str(model), "-d", "#rand(0,1)", "-o", str(folder / "packed")),
        *("--allow-external-data", str(folder.parent)),
    )
    assert done.returncode == 2
    assert "outside the model's folder" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["m.onnx"]
