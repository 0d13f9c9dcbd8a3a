"""Small `.onnx` models for the engines that read them: made of operators, and with a fault."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.engines import engine_named

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / "models"
DIGITS, MOBILENET = MODELS / "digits_cnn.onnx", MODELS / "mobilenet_v2.onnx"

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, Sequence[int | str] | None]


def needs(engine: str) -> pytest.MarkDecorator:
    """Skip where an engine is not installed."""
    return pytest.mark.skipif(
        not engine_named(engine).is_installed, reason=f"{engine} is not installed"
    )


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node whose tensors stand with spaces between them, named after its output."""
    name = outputs.split()[0]
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name, **attributes)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Shapes,
    outputs: Shapes,
    weights: Mapping[str, Array] | None = None,
    **types: int,
) -> Path:
    """Write a model of float32 but for the tensors whose types are given; return its path."""
    ends = [
        [
            helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), shape)
            for name, shape in shapes.items()
        ]
        for shapes in (inputs, outputs)
    ]
    constants = [numpy_helper.from_array(it, name) for name, it in (weights or {}).items()]
    graph = helper.make_graph(nodes, "made", *ends, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return path


def drawn(*shape: int, seed: int = 0) -> Array:
    """Return numbers that are always the same."""
    numbers = np.random.default_rng(seed).normal(0, 0.3, shape)
    return numbers.astype(np.float32)


def write_attention(path: Path) -> Path:
    """Write a block of a transformer, for any batch."""
    nodes = [
        *(node("MatMul", f"x w{it}", it) for it in "qkv"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares v", "mixed"),
        node("Add", "mixed x", "sum"),
        node("LayerNormalization", "sum gain shift", "normal", axis=-1),
        node("MatMul", "normal w1", "wide"),
        node("Relu", "wide", "active"),
        node("Add", "active sum", "out"),
    ]
    weights = {f"w{it}": drawn(16, 16, seed=at) for at, it in enumerate("qkv1")}
    weights |= {name: drawn(16, seed=at) for at, name in enumerate(("gain", "shift"))}
    return save(path, nodes, {"x": ["n", 6, 16]}, {"out": ["n", 6, 16]}, weights)


def write_lstm(path: Path) -> Path:
    """Write a recurrent layer with an output for each step and one for the last."""
    layer = node("LSTM", "x w r b", "y last", hidden_size=8)
    weights = {"w": drawn(1, 32, 4), "r": drawn(1, 32, 8), "b": drawn(1, 64)}
    outputs = {"y": [5, 1, 1, 8], "last": [1, 1, 8]}
    return save(path, [layer], {"x": [5, 1, 4]}, outputs, weights)


def write_residual(path: Path) -> Path:
    """Write convolutions whose results are summed with their inputs, and joined besides."""
    nodes, weights = [node("Conv", "x w0", "r0", pads=[1] * 4)], {"w0": drawn(8, 3, 3, 3)}
    for at in (1, 2, 3):
        weights |= {f"w{it}{at}": drawn(8, 8, 3, 3, seed=at + ord(it)) for it in "ab"}
        nodes += [
            node("Conv", f"r{at - 1} wa{at}", f"a{at}", pads=[1] * 4),
            node("Relu", f"a{at}", f"ra{at}"),
            node("Conv", f"ra{at} wb{at}", f"b{at}", pads=[1] * 4),
            node("Add", f"b{at} r{at - 1}", f"s{at}"),
            node("Relu", f"s{at}", f"r{at}"),
        ]
    nodes.append(node("Concat", "r1 r2 r3", "joined", axis=1))
    return save(path, nodes, {"x": [1, 3, 16, 16]}, {"joined": None}, weights)


def write_optional(path: Path) -> Path:
    """Write a product with a weight that is an input too."""
    weights = {"w": np.array([1, 2, 3], np.float32)}
    ends: tuple[Shapes, Shapes] = {"x": ["batch", 3], "w": [3]}, {"y": ["batch", 3]}
    return save(path, [node("Mul", "x w", "y")], *ends, weights)


def write_resnet18(path: Path) -> Path:
    """Write ResNet-18, with drawn weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "tools"))
        network = importlib.import_module("model_zoo").describe_resnet18()
        model = importlib.import_module("onnx_twin").onnx_of(network)
    path.write_bytes(model.SerializeToString())
    return path


def with_fault(model: Path, weight: str, place: Path) -> Path:
    """Write a model with one number of a weight changed; return its path."""
    found = onnx.load(model)
    tensor = next(it for it in found.graph.initializer if it.name == weight)
    array = numpy_helper.to_array(tensor).copy()
    array.flat[array.size // 2] += 1
    tensor.CopyFrom(numpy_helper.from_array(array, weight))
    onnx.save(found, place)
    return place
