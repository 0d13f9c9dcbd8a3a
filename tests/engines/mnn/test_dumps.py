"""Dumps of MNN, compared with those of ONNX Runtime: names, values, faults that were planted."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import lar
from tests.engines.mnn.models import (
    DIGITS,
    FLOAT,
    MOBILENET,
    REPOSITORY,
    needs_mnn,
    node,
    save,
    with_fault,
)

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs_mnn


def sides(first: Path, second: Path, ours_first: bool = False) -> tuple[str, str]:
    """Return the sides of a comparison between ONNX Runtime and MNN."""
    engines = ("mnn", "onnxruntime") if ours_first else ("onnxruntime", "mnn")
    return f"{first} --engine {engines[0]}", f"{second} --engine {engines[1]}"


def test_a_dump_has_every_tensor_under_the_names_of_the_model(tmp_path: Path) -> None:
    plain = lar.run(DIGITS, engine="mnn", iter=1)
    dumped = lar.run(DIGITS, engine="mnn", iter=1, bin_io_dump=str(tmp_path / "dump"))
    assert [it.sha256 for it in plain.outputs] == [it.sha256 for it in dumped.outputs]
    dump = lar.open_dump(tmp_path / "dump")
    shapes = {it.name: dump.read(it.key).shape for it in dump}
    expected = {
        **{"data": (1, 1, 8, 8), "relu1": (1, 16, 8, 8), "relu2": (1, 32, 8, 8)},
        **{"pool2": (1, 32, 4, 4), "relu3": (1, 32, 4, 4), "pool3": (1, 32, 2, 2)},
        **{"features": (1, 128), "logits": (1, 10)},
    }
    assert {name: shape for name, shape in shapes.items() if name in expected} == expected
    # Conversions of layouts and what is computed of shapes are left out.
    assert not any("Convert" in name or "Shape" in name for name in shapes)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_healthy_layers_have_twins_and_no_culprit(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MOBILENET
    if name == "resnet18":
        monkeypatch.syspath_prepend(str(REPOSITORY / "tools"))
        network = importlib.import_module("model_zoo").describe_resnet18()
        model = tmp_path / "resnet18.onnx"
        model.write_bytes(importlib.import_module("onnx_twin").onnx_of(network).SerializeToString())
    found = lar.compare(*sides(model, model))
    assert found.same, [(it.actual.name, it.figures) for it in found.tensors if not it.passed][:3]
    assert not found.culprits
    # Of what either side fused into another operator, or merely moved, the other has nothing.
    paired = [it for it in found.tensors if not it.constant]
    lonely = [
        it for it in found.unmatched if not (it.constant or it.fused) and "data" not in it.reason
    ]
    assert len(paired) >= 25
    assert len(lonely) <= 0.05 * len(paired)


@pytest.mark.parametrize("ours_first", [False, True])
def test_a_planted_fault_is_named_in_either_direction(
    run_lar: RunLar, tmp_path: Path, ours_first: bool
) -> None:
    bad = with_fault(MOBILENET, "block5.expand.weight", tmp_path / "bad.onnx")
    done = run_lar("compare", *sides(bad, MOBILENET, ours_first))
    assert done.returncode == 1
    (suspect,) = (it for it in done.stdout.splitlines() if it.startswith(("suspect", "culprit")))
    assert "block5.expand" in suspect


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
        [("x", FLOAT, [4, 3]), ("side", FLOAT, [3, 2])],
        [("y", FLOAT, [3, 6]), ("right", FLOAT, [4, 3])],
        {"w": np.random.RandomState(0).randn(3, 6).astype(np.float32)},
    )
    found = lar.compare(*sides(model, model))
    assert found.same
    assert {"product", "weights", "erf", "y"} <= {pair.actual.name for pair in found.tensors}


def test_a_dump_as_text_and_outputs_of_each_iteration(run_lar: RunLar, tmp_path: Path) -> None:
    text, outputs = tmp_path / "dump.txt", tmp_path / "outputs"
    flags = ["--io-dump", str(text), "--bin-out-dump", str(outputs), "--iter", "2"]
    assert run_lar(str(DIGITS), "--engine", "mnn", *flags).returncode == 0
    assert "relu1" in text.read_text()
    assert len(list(outputs.iterdir())) == 3  # with the warm-up's


if sys.platform == "linux":

    def test_a_filter_keeps_some(run_lar: RunLar, tmp_path: Path) -> None:
        flags = ["--bin-io-dump", str(tmp_path / "dump"), "--dump-filter", "relu"]
        assert run_lar(str(DIGITS), "--engine", "mnn", *flags).returncode == 0
        assert {it.name for it in lar.open_dump(tmp_path / "dump")} == {"relu1", "relu2", "relu3"}
