"""The committed models: both engines run them, on the committed inputs, and agree."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

REPOSITORY = Path(__file__).resolve().parent.parent
MODELS = REPOSITORY / "models"
INPUTS = REPOSITORY / "inputs"

NAMES = (
    "digits_cnn",
    "mobilenet_v2",
    "int8",
    "uint8_input",
    "multi_input",
    "dynamic_batch",
    "one_operator",
)


def feeds_of(name: str) -> Feeds:
    """What the repository offers to feed the model `name` with."""
    if name in ("digits_cnn", "int8"):
        return {"data": np.load(INPUTS / "digits.npy")}
    if name == "mobilenet_v2":
        return {"data": np.load(INPUTS / "cat.npy")}
    if name == "uint8_input":
        return {"data": np.asarray(cv2.imread(str(INPUTS / "cat.ppm")))[np.newaxis]}
    if name == "multi_input":
        random = np.random.RandomState(1)
        shapes = {"a": (2, 3), "b": (3, 4)}
        return {key: random.randn(*shape).astype(np.float32) for key, shape in shapes.items()}
    if name == "dynamic_batch":
        return {"data": np.random.RandomState(1).randn(3, 16).astype(np.float32)}
    return {"data": np.array([-1, 0, 1, 2], np.float32)}


def run_megengine(name: str, *runs: Feeds) -> list[Feeds]:
    """Load the model once and run it on each of `runs`."""
    lite = pytest.importorskip("megenginelite")
    network = lite.LiteNetwork()
    network.load(str(MODELS / f"{name}.mge"))
    results = []
    for feeds in runs:
        assert sorted(network.get_all_input_name()) == sorted(feeds)
        for key, array in feeds.items():
            network.get_io_tensor(key).set_data_by_copy(array)
        network.forward()
        network.wait()
        outputs = network.get_all_output_name()
        results.append({key: network.get_io_tensor(key).to_numpy().copy() for key in outputs})
    return results


def run_onnx(name: str, *runs: Feeds) -> list[Feeds]:
    """Load the model once and run it on each of `runs`."""
    session = onnxruntime.InferenceSession(
        str(MODELS / f"{name}.onnx"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in runs]


ENGINES = pytest.mark.parametrize("run", [run_megengine, run_onnx])


@pytest.mark.parametrize("name", NAMES)
def test_engines_agree(name: str) -> None:
    feeds = feeds_of(name)
    (actual,), (expected,) = run_megengine(name, feeds), run_onnx(name, feeds)
    assert list(actual) == list(expected)
    tolerance = 1e-4 if name == "mobilenet_v2" else 1e-5
    for key in expected:
        assert actual[key].shape == expected[key].shape
        np.testing.assert_allclose(actual[key], expected[key], rtol=0, atol=tolerance)


@ENGINES
@pytest.mark.parametrize("name", ["digits_cnn", "int8"])
def test_committed_digits_are_classified_right(name: str, run: Any) -> None:
    digits, seven = np.load(INPUTS / "digits.npy"), np.load(INPUTS / "digit_7.npy")
    all_at_once, alone = run(name, {"data": digits}, {"data": seven})
    labels = np.load(INPUTS / "digits_labels.npy")
    assert all_at_once["logits"].argmax(axis=1).tolist() == labels.tolist()
    assert alone["logits"].argmax(axis=1).tolist() == [7]


@ENGINES
def test_mobilenet_is_far_from_saturated(run: Any) -> None:
    (outputs,) = run("mobilenet_v2", feeds_of("mobilenet_v2"))
    logits = outputs["logits"].astype(np.float64)
    assert logits.shape == (1, 1000)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    assert probabilities.max() < 0.5
    assert logits.std() > 0.5


@ENGINES
def test_batch_size_may_change_between_runs(run: Any) -> None:
    rows = np.random.RandomState(2).randn(5, 16).astype(np.float32)
    batches = [rows, rows[:1], rows[:3]]
    results = run("dynamic_batch", *({"data": batch} for batch in batches))
    for batch, outputs in zip(batches, results, strict=True):
        assert outputs["logits"].shape == (len(batch), 8)
        np.testing.assert_allclose(
            outputs["logits"], results[0]["logits"][: len(batch)], rtol=0, atol=1e-5
        )


@ENGINES
def test_multi_input_multiplies_matrices(run: Any) -> None:
    feeds = feeds_of("multi_input")
    (outputs,) = run("multi_input", feeds)
    np.testing.assert_allclose(outputs["product"], feeds["a"] @ feeds["b"], atol=1e-6)
    np.testing.assert_array_equal(outputs["rectified"], feeds["a"].clip(min=0))


@ENGINES
def test_one_operator_is_a_relu(run: Any) -> None:
    (outputs,) = run("one_operator", {"data": np.array([-2, -0.5, 0.5, 2], np.float32)})
    assert outputs["output"].tolist() == [0, 0, 0.5, 2]


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
