"""Small `.onnx` models, and what MNN and ONNX Runtime make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.engines import engine_named

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
DIGITS, MOBILENET = MODELS / "digits_cnn.onnx", MODELS / "mobilenet_v2.onnx"

needs_mnn = pytest.mark.skipif(not engine_named("mnn").is_installed, reason="MNN is not installed")

Array = np.ndarray[Any, Any]
Value = tuple[str, int, Sequence[int | str]]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node whose tensors stand with spaces between them, named after its output."""
    name = outputs.split()[0]
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name, **attributes)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    weights: Mapping[str, Array] | None = None,
) -> Path:
    """Write a model; return its path."""
    value = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(it, name) for name, it in (weights or {}).items()]
    graph = helper.make_graph(
        nodes, "made", [value(*it) for it in inputs], [value(*it) for it in outputs], constants
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return path


def with_fault(model: Path, weight: str, place: Path) -> Path:
    """Write a model with one number of a weight changed; return its path."""
    found = onnx.load(model)
    for tensor in found.graph.initializer:
        if tensor.name == weight:
            array = numpy_helper.to_array(tensor).copy()
            array.flat[0] += 1
            tensor.CopyFrom(numpy_helper.from_array(array, weight))
    onnx.save(found, place)
    return place
