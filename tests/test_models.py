"""The committed models: both engines run them, on the committed inputs, and agree."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from tests.command_lines import ROOT

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
Runs = Callable[[str], list[Feeds]]

MODELS = ROOT / "models"
INPUTS = ROOT / "inputs"


def load_digits() -> list[Feeds]:
    return [{"data": np.load(INPUTS / name)} for name in ("digits.npy", "digit_7.npy")]


def draw(*shape: int) -> Array:
    return np.random.RandomState(1).randn(*shape).astype(np.float32)


# Each model, and what it is fed one time after another.
FEEDS: Mapping[str, Callable[[], list[Feeds]]] = {
    "digits_cnn": load_digits,
    "mobilenet_v2": lambda: [{"data": np.load(INPUTS / "cat.npy")}],
    "int8": load_digits,
    "uint8_input": lambda: [{"data": np.asarray(cv2.imread(str(INPUTS / "cat.ppm")))[np.newaxis]}],
    "multi_input": lambda: [{"a": draw(2, 3), "b": draw(3, 4)}],
    "dynamic_batch": lambda: [{"data": draw(5, 16)[:count]} for count in (5, 1, 3)],
    "one_operator": lambda: [
        {"data": np.array(values, np.float32)} for values in ([-1, 0, 1, 2], [-2, -0.5, 0.5, 2])
    ],
}
NAMES = tuple(FEEDS)


def run_megengine(name: str) -> list[Feeds]:
    """Load the model once and run it on each of its feeds."""
    import megenginelite as lite

    network = lite.LiteNetwork()
    network.load(str(MODELS / f"{name}.mge"))
    results = []
    for feeds in FEEDS[name]():
        assert sorted(network.get_all_input_name()) == sorted(feeds)
        for key, array in feeds.items():
            network.get_io_tensor(key).set_data_by_copy(array)
        network.forward()
        network.wait()
        outputs = network.get_all_output_name()
        results.append({key: network.get_io_tensor(key).to_numpy().copy() for key in outputs})
    return results


def run_onnx(name: str) -> list[Feeds]:
    """Load the model once and run it on each of its feeds."""
    session = onnxruntime.InferenceSession(
        str(MODELS / f"{name}.onnx"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, feeds), strict=True)) for feeds in FEEDS[name]()]


@pytest.fixture(scope="module")
def megengine(elsewhere: Callable[..., list[Feeds]]) -> Runs:
    """What MegEngine gives for each feed of a model."""
    if importlib.util.find_spec("megenginelite") is None:
        pytest.skip("MegEngine is not installed")
    return functools.cache(lambda name: elsewhere(run_megengine, name))


@pytest.fixture(params=["megengine", "onnx"])
def run(request: pytest.FixtureRequest) -> Runs:
    """What an engine gives for each feed of a model: `run(name)`."""
    if request.param == "onnx":
        return run_onnx
    runs: Runs = request.getfixturevalue("megengine")
    return runs


@pytest.mark.parametrize("name", NAMES)
def test_engines_agree(megengine: Runs, name: str) -> None:
    tolerance = 1e-4 if name == "mobilenet_v2" else 1e-5
    for actual, expected in zip(megengine(name), run_onnx(name), strict=True):
        assert list(actual) == list(expected)
        for key in expected:
            assert actual[key].shape == expected[key].shape
            np.testing.assert_allclose(actual[key], expected[key], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["digits_cnn", "int8"])
def test_committed_digits_are_classified_right(name: str, run: Runs) -> None:
    all_at_once, alone = run(name)
    labels = np.load(INPUTS / "digits_labels.npy")
    assert all_at_once["logits"].argmax(axis=1).tolist() == labels.tolist()
    assert alone["logits"].argmax(axis=1).tolist() == [7]


def test_mobilenet_is_far_from_saturated(run: Runs) -> None:
    (outputs,) = run("mobilenet_v2")
    logits = outputs["logits"].astype(np.float64)
    assert logits.shape == (1, 1000)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    assert probabilities.max() < 0.5
    assert logits.std() > 0.5


def test_batch_size_may_change_between_runs(run: Runs) -> None:
    results = run("dynamic_batch")
    for feeds, outputs in zip(FEEDS["dynamic_batch"](), results, strict=True):
        count = len(feeds["data"])
        assert outputs["logits"].shape == (count, 8)
        np.testing.assert_allclose(
            outputs["logits"], results[0]["logits"][:count], rtol=0, atol=1e-5
        )


def test_multi_input_multiplies_matrices(run: Runs) -> None:
    (feeds,) = FEEDS["multi_input"]()
    (outputs,) = run("multi_input")
    np.testing.assert_allclose(outputs["product"], feeds["a"] @ feeds["b"], atol=1e-6)
    np.testing.assert_array_equal(outputs["rectified"], feeds["a"].clip(min=0))


def test_one_operator_is_a_relu(run: Runs) -> None:
    first, second = run("one_operator")
    assert first["output"].tolist() == [0, 0, 1, 2]
    assert second["output"].tolist() == [0, 0, 0.5, 2]


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
