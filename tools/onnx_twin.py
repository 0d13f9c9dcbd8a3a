"""Translates networks to ONNX and runs the files with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from network import InputSpec, Network, Node
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


def _add_weights(graph: OnnxGraph, node: Node) -> list[str]:
    return [
        graph.add_constant(f"{node.name}.{name}", weight) for name, weight in node.weights.items()
    ]


def _add_numbers(graph: OnnxGraph, node: Node, **values: float) -> list[str]:
    return [
        graph.add_constant(f"{node.name}.{name}", np.float32(value))
        for name, value in values.items()
    ]


def _sizes_of(node: Node) -> dict[str, Any]:
    """Return the attributes of a convolution or a pooling."""
    settings = node.settings
    sizes = {
        "strides": [settings["stride"]] * 2,
        "pads": settings.get("pads", [settings["padding"]] * 4),
    }
    if node.weights:
        sizes |= {"kernel_shape": node.weights["weight"].shape[2:], "group": settings["groups"]}
    else:
        sizes["kernel_shape"] = [settings["kernel_size"]] * 2
    if "dilation" in settings:
        sizes["dilations"] = [settings["dilation"]] * 2
    if node.kind == "average_pool":
        sizes["count_include_pad"] = int(settings["count_pad"])
    return sizes


def _add_sized(graph: OnnxGraph, node: Node) -> None:
    inputs = [*node.inputs, *_add_weights(graph, node)]
    graph.add(SIZED[node.kind], inputs, node.name, **_sizes_of(node))


def _add_relu6(graph: OnnxGraph, node: Node) -> None:
    graph.add("Clip", [*node.inputs, *_add_numbers(graph, node, low=0, high=6)], node.name)


def _add_half(graph: OnnxGraph, node: Node) -> None:
    half = graph.add("Cast", list(node.inputs), f"{node.name}.narrow", to=TensorProto.FLOAT16)
    graph.add("Cast", [half], node.name, to=TensorProto.FLOAT)


def _add_gelu(graph: OnnxGraph, node: Node) -> None:
    (x,), name = node.inputs, node.name
    root, one, half = _add_numbers(graph, node, root=2**0.5, one=1, half=0.5)
    y = graph.add("Erf", [graph.add("Div", [x, root], f"{name}.divided")], f"{name}.erf")
    y = graph.add("Mul", [x, graph.add("Add", [y, one], f"{name}.shifted")], f"{name}.product")
    graph.add("Mul", [y, half], name)


def _add_affine(graph: OnnxGraph, node: Node) -> None:
    scale, shift = _add_numbers(graph, node, **node.settings)
    scaled = graph.add("Mul", [*node.inputs, scale], f"{node.name}.scaled")
    graph.add("Add", [scaled, shift], node.name)


def _add_scale(graph: OnnxGraph, node: Node, setting: str) -> list[str]:
    """Add a quantisation scale and its zero point, which is always 0."""
    return [
        *_add_numbers(graph, node, **{setting: node.settings[setting]}),
        graph.add_constant(f"{node.name}.{setting}_zero_point", np.int8(0)),
    ]


def _add_conversion(graph: OnnxGraph, node: Node) -> None:
    """Translate quantize and dequantize."""
    operator = f"{node.kind.title()}Linear"
    graph.add(operator, [*node.inputs, *_add_scale(graph, node, "scale")], node.name)


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
    signed = graph.add("QLinearConv", inputs, f"{node.name}.signed", **_sizes_of(node))
    graph.add("Relu", [signed], node.name)


# Kinds that are one operator, which takes the weights too; its attributes are those settings, or
# these numbers.
SIMPLE: dict[str, tuple[str, dict[str, str | int]]] = {
    "linear": ("Gemm", {"transB": 1}),
    "layer_norm": ("LayerNormalization", {"epsilon": "epsilon"}),
    "cast": ("Cast", {"to": TensorProto.FLOAT}),
    "transpose": ("Transpose", {"perm": "axes"}),
    "leaky_relu": ("LeakyRelu", {"alpha": "slope"}),
    "softmax": ("Softmax", {"axis": "axis"}),
    "concat": ("Concat", {"axis": "axis"}),
    "matmul": ("MatMul", {}),
    "global_average": ("GlobalAveragePool", {}),
    **{kind: (kind.title(), {}) for kind in ("relu", "tanh", "sigmoid", "flatten")},
    **{kind: (kind.title(), {}) for kind in ("add", "sub", "mul")},
}
SIZED = {"conv": "Conv", "max_pool": "MaxPool", "average_pool": "AveragePool"}
OPERATORS: dict[str, Callable[[OnnxGraph, Node], None]] = {
    **dict.fromkeys(SIZED, _add_sized),
    "relu6": _add_relu6,
    "half": _add_half,
    "gelu": _add_gelu,
    "affine": _add_affine,
    "quantize": _add_conversion,
    "dequantize": _add_conversion,
    "quantized_conv": _add_quantized_conv,
}


def _add_node(graph: OnnxGraph, node: Node) -> None:
    if node.kind in OPERATORS:
        OPERATORS[node.kind](graph, node)
        return
    operator, attributes = SIMPLE[node.kind]
    values = {
        name: node.settings[value] if isinstance(value, str) else value
        for name, value in attributes.items()
    }
    graph.add(operator, [*node.inputs, *_add_weights(graph, node)], node.name, **values)


def onnx_of(network: Network) -> onnx.ModelProto:
    """Translate the network, the shapes of all its tensors included."""
    graph = OnnxGraph()
    for node in network.nodes:
        _add_node(graph, node)
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


def run_onnx(
    model: str | bytes, feeds: Mapping[str, Any], *, is_optimised: bool = True
) -> dict[str, Any]:
    """Run a model, of a file or its contents, once on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))
