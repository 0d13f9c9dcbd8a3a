"""The committed models as files; `engines/test_contract.py` compares what engines make of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from tests.cli.marks import needs_megengine
from tests.command_lines import ROOT

Array = npt.NDArray[Any]

MODELS = ROOT / "models"
NAMES = tuple(sorted(path.stem for path in MODELS.glob("*.mge")))
ROWS = np.random.RandomState(1).randn(5, 16).astype(np.float32)


def logits_of_batches() -> list[Array]:
    """Load a model once with MegEngine, and run it on batches of several sizes."""
    import megenginelite as lite

    network = lite.LiteNetwork()
    network.load(str(MODELS / "dynamic_batch.mge"))
    found = []
    for count in (5, 1, 3):
        network.get_io_tensor("data").set_data_by_copy(ROWS[:count])
        network.forward()
        network.wait()
        found.append(network.get_io_tensor("logits").to_numpy().copy())
    return found


@needs_megengine
def test_the_batch_may_change_between_runs(elsewhere: Callable[..., list[Array]]) -> None:
    first, *others = elsewhere(logits_of_batches)
    assert first.shape == (5, 8)
    for logits in others:
        np.testing.assert_allclose(logits, first[: len(logits)], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small(name: str) -> None:
    limit_bytes = 4_000_000 if name == "mobilenet_v2" else 200_000
    for suffix in (".mge", ".onnx"):
        assert 0 < (MODELS / (name + suffix)).stat().st_size < limit_bytes


@pytest.mark.parametrize("name", NAMES)
def test_onnx_file_is_valid_and_of_a_widely_read_version(name: str) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert [opset.version for opset in model.opset_import] == [17]


def test_onnx_batch_axes_are_symbolic_where_promised() -> None:
    first_axes = {}
    for name in NAMES:
        data = onnx.load(MODELS / f"{name}.onnx").graph.input[0]
        first_axes[name] = data.type.tensor_type.shape.dim[0].dim_param
    symbolic = {name for name, axis in first_axes.items() if axis == "batch"}
    assert symbolic == {"digits_cnn", "int8", "dynamic_batch"}


def test_int8_model_computes_its_convolutions_in_int8() -> None:
    model = onnx.load(MODELS / "int8.onnx")
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("QLinearConv") == 3
    assert "Conv" not in operators
    weights = [
        onnx.numpy_helper.to_array(constant)
        for constant in model.graph.initializer
        if constant.name.startswith("conv") and constant.name.endswith(".weight")
    ]
    assert [weight.dtype for weight in weights] == [np.int8] * 3
    # Greater ones saturate ONNX Runtime's sums on processors without VNNI.
    assert [np.abs(weight).max() for weight in weights] == [64] * 3


@pytest.mark.parametrize("suffix", [".mge", ".onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_the_checksum_beside_the_model_is_right(name: str, suffix: str) -> None:
    model = MODELS / f"{name}{suffix}"
    expected = f"{hashlib.sha256(model.read_bytes()).hexdigest()}  {model.name}\n"
    assert (MODELS / f"{model.name}.sha256").read_text() == expected
