"""Translates networks to ONNX by `onnx_twin.txt`, and runs models with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from network import InputSpec, Network, Node
from onnx import TensorProto, helper, numpy_helper
from tables import read_lines

# The newest versions that ONNX Runtime 1.19 and later versions load.
OPSET_VERSION = 17
IR_VERSION = 8

BATCH_AXIS = "batch"


OPERATORS = [line.split() for line in read_lines(__file__)]


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


def _add_node(graph: onnx.GraphProto, node: Node) -> None:
    """Add the ONNX operators of a node, and the constants of these operators."""

    def add_constant(name: str, value: npt.ArrayLike) -> list[str]:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"{node.name}.{name}"))
        return [f"{node.name}.{name}"]

    weights = {name: add_constant(name, weight) for name, weight in node.weights.items()}
    known = {**weights, "x": [*node.inputs], "*": [*node.inputs, *chain(*weights.values())]}
    for result, operator, *words in (words for kind, *words in OPERATORS if kind == node.kind):
        inputs: list[str] = []
        attributes: dict[str, Any] = {}
        for word in words:
            name, sign, value = word.partition("=")
            if name == "sizes":
                attributes |= _sizes_of(node)
            elif sign:
                attributes[name] = int(value) if value.isdigit() else node.settings[value]
            elif word not in known:
                known[word] = add_constant(*_number_of(word, node))
            inputs += known.get(word, [])
        output = node.name if result == "y" else f"{node.name}.{result}"
        graph.node.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        known[result] = [output]


def _number_of(word: str, node: Node) -> tuple[str, npt.ArrayLike]:
    """Return the name and the number of a constant; if no number is given, the node's setting."""
    name, _, number = word.partition(":")
    if name.endswith("_zero_point"):
        return name, np.int8(0)
    return name, np.float32(number or node.settings[name])


def onnx_of(network: Network) -> onnx.ModelProto:
    """Translate a network to ONNX, including the shapes of all tensors."""
    # Outputs have no shape here: shape inference adds the shape.
    graph = helper.make_graph(
        [],
        network.name,
        [_input_of(spec) for spec in network.inputs],
        [helper.make_tensor_value_info(it, TensorProto.FLOAT, None) for it in network.outputs],
    )
    for node in network.nodes:
        _add_node(graph, node)
    model = helper.make_model(
        graph,
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
    """Return the number of multiply-accumulates in convolutions and linear layers, for batch 1."""
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
    """Run a model once on the CPU; `model` is a file's name or a file's content."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))
