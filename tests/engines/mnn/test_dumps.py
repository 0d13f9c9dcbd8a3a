"""Dumps of MNN: operators that it splits or only moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import lar
from tests.engines.onnx_models import needs, node, save

pytestmark = needs("mnn")


def test_operators_that_mnn_splits_or_only_moves_are_compared_too(tmp_path: Path) -> None:
    model = save(
        tmp_path / "parts.onnx",
        [
            node("MatMul", "x w", "product"),
            node("Softmax", "product", "weights", axis=-1),
            node("Split", "weights", "left right", axis=1),
            node("Transpose", "left", "turned", perm=[1, 0]),
            node("Erf", "turned", "erf"),
            node("Concat", "erf side", "y", axis=1),
        ],
        {"x": [4, 3], "side": [3, 2]},
        {"y": [3, 6], "right": [4, 3]},
        {"w": np.random.RandomState(0).randn(3, 6).astype(np.float32)},
    )
    found = lar.compare(f"{model} --engine onnxruntime", f"{model} --engine mnn")
    assert found.same
    assert {"product", "weights", "erf", "y"} <= {pair.actual.name for pair in found.tensors}
