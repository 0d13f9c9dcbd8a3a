"""Models of a few nodes that tests of the reference engine make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

HEAD = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3, "com.microsoft": 1, "mine": 1]> g'


def save(folder: Path, text: str, **weights: Any) -> Path:
    """Save a model: its graph, and its functions, as onnx.parser reads them, from the inputs on."""
    model = onnx.parser.parse_model(f"{HEAD} {text}")
    arrays = {name: np.asarray(it) for name, it in weights.items()}
    model.graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in arrays.items())
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path
