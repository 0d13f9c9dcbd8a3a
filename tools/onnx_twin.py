"""Translates networks to ONNX and runs the files with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from network import Array, InputSpec, Network, Node
from onnx import TensorProto, helper, numpy_helper

# The newest that ONNX Runtime 1.19 and all later ones load.
OPSET_VERSION = 17
IR_VERSION = 8

BATCH_AXIS = "batch"


class OnnxGraph:
    """Collects ONNX nodes and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def add_constant(self, name: str, value: npt.ArrayLike) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output


def _add_plain(operator: str) -> Callable[[OnnxGraph, Node], None]:
    """Translate a node that has neither weights nor settings."""

    def add(graph: OnnxGraph, node: Node) -> None:
        graph.add(operator, list(node.inputs), node.name)

    return add


def _add_weights(graph: OnnxGraph, node: Node) -> list[str]:
    return [
        graph.add_constant(f"{node.name}.{name}", weight) for name, weight in node.weights.items()
    ]


def _conv_attributes(node: Node) -> dict[str, Any]:
    return {
        "kernel_shape": node.weights["weight"].shape[2:],
        "strides": [node.settings["stride"]] * 2,
        "pads": [node.settings["padding"]] * 4,
        "group": node.settings["groups"],
    }


def _add_conv(graph: OnnxGraph, node: Node) -> None:
    inputs = [*node.inputs, *_add_weights(graph, node)]
    graph.add("Conv", inputs, node.name, **_conv_attributes(node))


def _add_linear(graph: OnnxGraph, node: Node) -> None:
    graph.add("Gemm", [*node.inputs, *_add_weights(graph, node)], node.name, transB=1)


def _add_relu6(graph: OnnxGraph, node: Node) -> None:
    low = graph.add_constant(f"{node.name}.low", np.float32(0))
    high = graph.add_constant(f"{node.name}.high", np.float32(6))
    graph.add("Clip", [*node.inputs, low, high], node.name)


def _add_max_pool(graph: OnnxGraph, node: Node) -> None:
    settings = node.settings
    graph.add(
        "MaxPool",
        list(node.inputs),
        node.name,
        kernel_shape=[settings["kernel_size"]] * 2,
        strides=[settings["stride"]] * 2,
        pads=[settings["padding"]] * 4,
    )


def _add_cast(graph: OnnxGraph, node: Node) -> None:
    graph.add("Cast", list(node.inputs), node.name, to=TensorProto.FLOAT)


def _add_transpose(graph: OnnxGraph, node: Node) -> None:
    graph.add("Transpose", list(node.inputs), node.name, perm=node.settings["axes"])


def _add_affine(graph: OnnxGraph, node: Node) -> None:
    scale = graph.add_constant(f"{node.name}.scale", np.float32(node.settings["scale"]))
    shift = graph.add_constant(f"{node.name}.shift", np.float32(node.settings["shift"]))
    scaled = graph.add("Mul", [*node.inputs, scale], f"{node.name}.scaled")
    graph.add("Add", [scaled, shift], node.name)


def _add_scale(graph: OnnxGraph, node: Node, setting: str) -> list[str]:
    """Add a quantisation scale and its zero point, which is always 0."""
    return [
        graph.add_constant(f"{node.name}.{setting}", np.float32(node.settings[setting])),
        graph.add_constant(f"{node.name}.{setting}_zero_point", np.int8(0)),
    ]


def _add_quantize(graph: OnnxGraph, node: Node) -> None:
    graph.add("QuantizeLinear", [*node.inputs, *_add_scale(graph, node, "scale")], node.name)


def _add_dequantize(graph: OnnxGraph, node: Node) -> None:
    graph.add("DequantizeLinear", [*node.inputs, *_add_scale(graph, node, "scale")], node.name)


def _add_quantized_conv(graph: OnnxGraph, node: Node) -> None:
    weight, bias = _add_weights(graph, node)
    inputs = [
        *node.inputs,
        *_add_scale(graph, node, "input_scale"),
        weight,
        *_add_scale(graph, node, "weight_scale"),
        *_add_scale(graph, node, "output_scale"),
        bias,
    ]
    signed = graph.add("QLinearConv", inputs, f"{node.name}.signed", **_conv_attributes(node))
    graph.add("Relu", [signed], node.name)


OPERATORS: dict[str, Callable[[OnnxGraph, Node], None]] = {
    "conv": _add_conv,
    "linear": _add_linear,
    "relu": _add_plain("Relu"),
    "relu6": _add_relu6,
    "add": _add_plain("Add"),
    "matmul": _add_plain("MatMul"),
    "flatten": _add_plain("Flatten"),
    "max_pool": _add_max_pool,
    "global_average": _add_plain("GlobalAveragePool"),
    "cast": _add_cast,
    "transpose": _add_transpose,
    "affine": _add_affine,
    "quantize": _add_quantize,
    "dequantize": _add_dequantize,
    "quantized_conv": _add_quantized_conv,
}


def onnx_of(network: Network) -> onnx.ModelProto:
    """Translate the network, the shapes of all its tensors included."""
    graph = OnnxGraph()
    for node in network.nodes:
        OPERATORS[node.kind](graph, node)
    inputs = [_input_of(spec) for spec in network.inputs]
    # Outputs without a shape: shape inference fills it in.
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in network.outputs
    ]
    model = helper.make_model(
        helper.make_graph(graph.nodes, network.name, inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
        ir_version=IR_VERSION,
        producer_name="lar",
    )
    model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    onnx.checker.check_model(model)
    return model


def _input_of(spec: InputSpec) -> onnx.ValueInfoProto:
    shape: list[int | str] = list(spec.shape)
    if spec.any_batch:
        shape[0] = BATCH_AXIS
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return helper.make_tensor_value_info(spec.name, dtype, shape)


def count_macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of convolutions and linear layers, for a batch of one."""
    weight_shapes = {constant.name: constant.dims for constant in model.graph.initializer}
    described = [*model.graph.value_info, *model.graph.output]
    output_shapes = {
        info.name: [axis.dim_value for axis in info.type.tensor_type.shape.dim]
        for info in described
    }
    weight_position = {"Conv": 1, "QLinearConv": 3, "Gemm": 1}
    macs = 0
    for node in model.graph.node:
        if node.op_type in weight_position:
            weight = node.input[weight_position[node.op_type]]
            pixels = np.prod(output_shapes[node.output[0]][2:], dtype=int)
            macs += int(np.prod(weight_shapes[weight]) * pixels)
    return macs


def run_onnx(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """Load an .onnx file and run it once, on the CPU."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))
