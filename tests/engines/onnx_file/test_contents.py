"""Reading .onnx files: shapes, weights wherever they lie, control flow, and broken files."""

from __future__ import annotations

import contextlib
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lar.engines.onnx_file.contents import operation_of, read_model
from lar.engines.onnx_file.fields import Message
from lar.errors import UsageError
from lar.records.run import ModelInfo, TensorInfo
from tests.engines import onnx_models
from tests.tables import each_row

FLOAT = TensorProto.FLOAT


def weights(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).integers(1, 9, shape).astype(dtype)


def model_of(text: str, **constants: Any) -> Any:
    return onnx_models.model_of(text, constants, domains={"own": 1})


def network() -> Any:
    """A convolution with bias, ReLU, pooling and a classifier."""
    return model_of(
        onnx_models.text_of("classifier"),
        **{"w": weights(16, 3, 3, 3), "b": weights(16), "fw": weights(5, 16), "fb": weights(5)},
    )


def message_of(node: Any) -> Message:
    return Message("Node", node.SerializeToString())


PARAMETERS = 16 * 27 + 16 + 5 * 16 + 5
CONVOLUTION = 2 * 64 * 16 * 27
FLOPS = CONVOLUTION + 3 * 64 * 16 + 2 * 16 * 5 + 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def read(path: Path, model: Any) -> ModelInfo:
    path.write_bytes(model.SerializeToString())
    return read_model(path)


def test_a_model_is_described_whole(path: Path) -> None:
    model = network()
    model.producer_name, model.producer_version = "torch", "2.1"
    helper.set_model_props(model, {"author": "someone"})
    names = ("Conv", "Relu", "GlobalAveragePool", "Flatten", "Gemm")
    assert read(path, model) == ModelInfo(
        engine="onnxruntime",
        inputs=(TensorInfo(name="data", dtype="float32", shape=(1, 3, 8, 8)),),
        outputs=(TensorInfo(name="logits", dtype="float32", shape=(1, 5)),),
        operators=dict.fromkeys(names, 1),
        parameter_count=PARAMETERS,
        weight_bytes=4 * PARAMETERS,
        flops=FLOPS,
        input_bytes=4 * 3 * 64,
        output_bytes=4 * 5,
        activation_bytes=4 * (2 * 16 * 64 + 2 * 16),
        metadata={
            "author": "someone",
            "ir_version": "8",
            "opset": "ai.onnx 17, own 1",
            "producer": "torch 2.1",
        },
    )


def test_weights_that_are_also_inputs_are_weights(path: Path) -> None:
    model = network()
    for tensor in model.graph.initializer:
        info = helper.make_tensor_value_info(tensor.name, FLOAT, tensor.dims)
        model.graph.input.append(info)
    info = read(path, model)
    names = [tensor.name for tensor in model.graph.initializer]
    assert [(it.name, it.optional) for it in info.inputs] == [
        ("data", False),
        *((name, True) for name in names),
    ]
    assert info.parameter_count == PARAMETERS
    for version, given in ((3, ["data"]), (4, ["data", *names])):  # 3 allows no other values
        model.ir_version = version
        assert [it.name for it in read(path, model).inputs] == given


def test_an_open_batch_counts_as_one_and_is_said(path: Path) -> None:
    model = network()
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    model = onnx.shape_inference.infer_shapes(model)
    assert model.graph.value_info
    read_info = read(path, model)
    assert read_info.inputs[0].shape == (None, 3, 8, 8)
    assert read_info.outputs[0].shape == (None, 5)
    assert read_info.flops == FLOPS
    assert read_info.metadata["flops_at"] == "data[0]=1"


def test_another_open_axis_leaves_the_flops_unknown(path: Path) -> None:
    model = network()
    height, width = model.graph.input[0].type.tensor_type.shape.dim[2:]
    height.dim_param, width.dim_param = "height", ""
    model.graph.node.append(onnx.helper.make_node("Mystery", ["data"], ["it"], domain="own"))
    info = read(path, model)
    assert info.inputs[0].shape == (1, 3, None, None)
    assert info.flops is None
    assert (info.flops_unknown, info.open_axes) == (("Mystery",), ("height", "data[3]"))


def test_shapes_follow_what_a_model_computes_from_shapes(path: Path) -> None:
    text = onnx_models.text_of("shapes")
    model = model_of(text, zero=[0], rest=[192], w=weights(192, 7))
    info = read(path, model)
    assert info.outputs[0].shape == (1, 7)
    assert info.parameter_count == 192 * 7
    assert info.flops == 2 * 192 * 7
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert read_model(path) == info


def test_external_weights_count_and_must_be_there(path: Path) -> None:
    expected = read(path, network())
    data = path.with_name("weights.bin")
    onnx.save(network(), path, save_as_external_data=True, location=data.name, size_threshold=0)
    assert read_model(path) == expected
    data.write_bytes(data.read_bytes()[:-1])
    assert "weights.bin is cut short" in str(check_refused(path))
    data.unlink()
    error = check_refused(path)
    assert "weights.bin: no such file" in str(error)
    assert "beside" in error.hint


def test_weights_beyond_protobufs_limit_are_never_read(path: Path) -> None:
    side = 30_000
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[side, side])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    model = model_of(f"(float[1, {side}] data) => (float[] out) {{ out = MatMul(data, w) }}")
    model.graph.initializer.append(tensor)
    with path.with_name("weights.bin").open("wb") as file:
        file.truncate(4 * side * side)
    info = read(path, model)
    assert info.weight_bytes == 4 * side * side > 2**31
    assert info.flops == 2 * side * side


@each_row("engines/onnx_file/operators/described")
def test_what_is_in_a_model_is_counted(
    path: Path, rule: str, text: str, values: Any, shapes: Any, unknown: list[str], told: Any
) -> None:
    """Constants have the `values`, or those of `shapes` any."""
    drawn = {name: weights(*shape) for name, shape in shapes.items()}
    text = text if text.startswith("(") else onnx_models.text_of(text)
    info = read(path, model_of(text, **drawn, **values))
    assert {name: getattr(info, name) for name in told} == told, rule
    assert info.flops_unknown == tuple(unknown)


def test_inputs_of_any_kind_are_named(path: Path) -> None:
    model = network()
    tensor = helper.make_tensor_type_proto(FLOAT, [3])
    infos = [
        helper.make_tensor_value_info(
            "bytes", TensorProto.UINT8, [2, 0, -1, "a b", "unk__5", None]
        ),
        helper.make_tensor_value_info("texts", TensorProto.STRING, []),
        helper.make_tensor_value_info("brain", TensorProto.BFLOAT16, None),
        helper.make_tensor_sequence_value_info("list", FLOAT, None),
        helper.make_value_info("map", helper.make_map_type_proto(TensorProto.INT64, tensor)),
        helper.make_value_info("maybe", helper.make_optional_type_proto(tensor)),
    ]
    model.graph.input.extend(infos)
    sizes, axes = (2, 0, None, None, None, None), ("", "", "", "ab", "", "")
    assert read(path, model).inputs[1:] == (
        TensorInfo(name="bytes", dtype="uint8", shape=sizes, axes=axes),
        TensorInfo(name="texts", dtype="string", shape=()),
        TensorInfo(name="brain", dtype="bfloat16", shape=(), any_rank=True),
        TensorInfo(name="list", dtype="float32", shape=(), any_rank=True, sequence=True),
        TensorInfo(name="map", dtype="map", shape=(), any_rank=True),
        TensorInfo(name="maybe", dtype="optional", shape=(), any_rank=True),
    )


@each_row("engines/onnx_file/operators/flops")
def test_operators_have_their_formulas(
    path: Path, operator: str, shapes: list[list[int]], attributes: Any, factors: list[int]
) -> None:
    names = [f"x{index}" for index in range(len(shapes))]
    inputs = ", ".join(f"float{it} {name}" for name, it in zip(names, shapes, strict=True))
    model = model_of(f"({inputs}) => (float[] out) {{ }}")
    model.graph.node.append(helper.make_node(operator, names, ["out"], **attributes))
    assert read(path, model).flops == math.prod(factors)


def check_refused(path: Path) -> UsageError:
    """Read a broken file; the message must be one line that names it."""
    with pytest.raises(UsageError) as caught:
        read_model(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert "\n" not in caught.value.message
    return caught.value


def test_a_single_wrong_bit_is_refused_or_read_but_raises_nothing_else(path: Path) -> None:
    data = network().SerializeToString()
    random_bits = random.Random(5)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[random_bits.randrange(len(data))] ^= 1 << random_bits.randrange(8)
        path.write_bytes(damaged)
        with contextlib.suppress(UsageError):
            assert all(isinstance(name, str) for name in read_model(path).operators)


@each_row("engines/onnx_file/operators/biases")
def test_a_bias_is_counted_where_it_is_given(type: str, given: int, fused: int) -> None:
    domain = "com.microsoft" if "Fused" in type or "Nhwc" in type else ""
    names = [f"input{index}" for index in range(given)]
    node = helper.make_node(type, names, ["output"], domain=domain)
    assert operation_of(message_of(node), {}).fused == fused
    node.input[-1] = ""
    assert operation_of(message_of(node), {}).fused == max(0, fused - 1)
    node.attribute.append(helper.make_attribute("activation", "Relu"))
    assert operation_of(message_of(node), {}).fused == max(0, fused - 1) + 1


@each_row("engines/onnx_file/operators/taps")
def test_the_operations_for_each_element(
    type: str, attributes: dict[str, Any], given: int, taps: int
) -> None:
    node = helper.make_node(type, [f"input{index}" for index in range(given)], ["y"], **attributes)
    assert operation_of(message_of(node), {}).taps == taps


@pytest.mark.parametrize(
    ("type", "attributes"), [("NhwcConv", {}), ("QLinearConv", {"channels_last": 1})]
)
def test_channels_may_come_last(type: str, attributes: dict[str, int]) -> None:
    names = [f"x{index}" for index in range(4)]
    node = helper.make_node(type, names, ["y"], domain="com.microsoft", **attributes)
    filters = (8, 3, 2, 2)
    shapes = {"x0": (1, 5, 6, 3), **dict.fromkeys(names[1:], filters), "y": (1, 4, 5, 8)}
    found = operation_of(message_of(node), shapes)
    assert (found.inputs[:2], found.outputs) == (((1, 3, 5, 6), filters), ((1, 8, 4, 5),))
