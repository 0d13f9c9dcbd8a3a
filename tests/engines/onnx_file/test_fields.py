"""ONNX files read and written by their fields, against the package onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lar.engines.onnx_file.external_data import files_beside
from lar.engines.onnx_file.fields import (
    ELEMENT_TYPES,
    SCHEMA,
    Message,
    bits_of,
    fields_in,
    open_model,
)
from lar.engines.onnx_file.tensors import array_of, dense_of, tensor_of
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model

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
