"""Small models for OpenVINO: made of ONNX's operators, and in its own format."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.engines import engine_named
from lar.engines.openvino.driver import import_openvino

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
DIGITS = MODELS / "digits_cnn.onnx"
MOBILENET = MODELS / "mobilenet_v2.onnx"

needs_openvino = pytest.mark.skipif(
    not engine_named("openvino").is_installed, reason="OpenVINO is not installed"
)

Tensors = dict[str, Sequence[int | str] | None]


def write_model(
    path: Path,
    nodes: Sequence[Any],
    inputs: Tensors,
    outputs: Tensors,
    *,
    weights: Sequence[Any] = (),
    element: int = TensorProto.FLOAT,
) -> Path:
    """Write a model of nodes; its tensors are of one type."""
    ends = [
        [helper.make_tensor_value_info(name, element, shape) for name, shape in tensors.items()]
        for tensors in (inputs, outputs)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]
    graph = helper.make_graph(nodes, "graph", *ends, list(weights))
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def drawn(name: str, *shape: int) -> Any:
    """A tensor of numbers that are always the same."""
    numbers = np.random.default_rng(len(name)).normal(0, 0.3, shape)
    return numpy_helper.from_array(numbers.astype(np.float32), name)


def write_attention(path: Path) -> Path:
    """A block of a transformer, for any batch."""
    node = helper.make_node
    nodes = [
        *(node("MatMul", ["x", f"w{it}"], [it]) for it in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Add", ["mixed", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "shift"], ["normal"], axis=-1),
        node("MatMul", ["normal", "w1"], ["wide"]),
        node("Relu", ["wide"], ["active"]),
        node("Add", ["active", "sum"], ["out"]),
    ]
    weights = [drawn(f"w{it}", 16, 16) for it in "qkv1"]
    weights += [drawn("gain", 16), drawn("shift", 16)]
    return write_model(path, nodes, {"x": ["n", 6, 16]}, {"out": ["n", 6, 16]}, weights=weights)


def write_lstm(path: Path) -> Path:
    """A recurrent layer with an output for each step and one for the last."""
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "last"], hidden_size=8)
    weights = [drawn("w", 1, 32, 4), drawn("r", 1, 32, 8), drawn("b", 1, 64)]
    outputs: Tensors = {"y": [5, 1, 1, 8], "last": [1, 1, 8]}
    return write_model(path, [node], {"x": [5, 1, 4]}, outputs, weights=weights)


def write_resnet18(path: Path) -> Path:
    """ResNet-18, with drawn weights."""
    sys.path.insert(0, str(REPOSITORY / "tools"))
    network = importlib.import_module("model_zoo").describe_resnet18()
    model = importlib.import_module("onnx_twin").onnx_of(network)
    path.write_bytes(model.SerializeToString())
    return path


def write_xml(model: Path, path: Path) -> Path:
    """Convert a model to OpenVINO's own format."""
    openvino = import_openvino()
    openvino.save_model(openvino.Core().read_model(model), path, compress_to_fp16=False)
    return path


def with_wrong_weight(model: Path, path: Path, name: str) -> Path:
    """Copy a model with one number of a weight changed."""
    changed = onnx.load(model)
    weight = next(it for it in changed.graph.initializer if it.name == name)
    array = numpy_helper.to_array(weight).copy()
    array.flat[array.size // 2] += 1.0
    weight.CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(changed, path)
    return path


def write_residual(path: Path) -> Path:
    """Convolutions whose results are summed with their inputs, and joined besides."""
    node = helper.make_node
    nodes, weights = [node("Conv", ["x", "w0"], ["r0"], pads=[1] * 4)], [drawn("w0", 8, 3, 3, 3)]
    for number in (1, 2, 3):
        a, b = f"wa{number}", f"wb{number}"
        weights += [drawn(a, 8, 8, 3, 3), drawn(b, 8, 8, 3, 3)]
        nodes += [
            node("Conv", [f"r{number - 1}", a], [f"a{number}"], pads=[1] * 4),
            node("Relu", [f"a{number}"], [f"ra{number}"]),
            node("Conv", [f"ra{number}", b], [f"b{number}"], pads=[1] * 4),
            node("Add", [f"b{number}", f"r{number - 1}"], [f"s{number}"]),
            node("Relu", [f"s{number}"], [f"r{number}"]),
        ]
    nodes.append(node("Concat", ["r1", "r2", "r3"], ["joined"], axis=1))
    return write_model(path, nodes, {"x": [1, 3, 16, 16]}, {"joined": None}, weights=weights)
