"""Dumps of MNN: operators that it splits or only moves, and filters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import lar
from tests.engines.onnx_models import DIGITS, needs, node, save

if TYPE_CHECKING:
    from tests.conftest import RunLar

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


if sys.platform == "linux":

    def test_a_filter_keeps_some(run_lar: RunLar, tmp_path: Path) -> None:
        flags = ["--bin-io-dump", str(tmp_path / "dump"), "--dump-filter", "relu"]
        assert run_lar(str(DIGITS), "--engine", "mnn", *flags).returncode == 0
        assert {it.name for it in lar.open_dump(tmp_path / "dump")} == {"relu1", "relu2", "relu3"}
