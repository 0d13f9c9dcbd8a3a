"""Models of a few nodes that tests of the reference engine make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(
    folder: Path,
    nodes: list[Any],
    outputs: Sequence[str] = ("y",),
    shape: Any = (4,),
    **weights: Any,
) -> Path:
    """Save a model from the float32 tensor `x`."""
    arrays = [numpy_helper.from_array(np.asarray(it), name) for name, it in weights.items()]
    fed = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "model", [fed], results, arrays)
    versions = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1}
    opsets = [helper.make_opsetid(*each) for each in versions.items()]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return path
