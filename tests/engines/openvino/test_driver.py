"""Runs on OpenVINO: what it computes in, on which threads, of which files, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import lar
from lar.engines.openvino.config import config_of
from lar.records.run import RunResult
from tests.engines.onnx_models import (
    DIGITS,
    MODELS,
    REPOSITORY,
    Shapes,
    needs,
    node,
    save,
    write_attention,
    write_optional,
)
from tests.engines.test_onnx_engines import own_model

pytestmark = needs("openvino")

DIGIT = f"data:{REPOSITORY}/inputs/digits.npy"


def run(model: Path, inputs: Any = None, **options: Any) -> RunResult:
    return lar.run(model, inputs, engine="openvino", **{"iter": 1, **options})


def failure_of(result: RunResult) -> str:
    assert result.failure is not None
    assert result.failure.exit_code == 2, result.failure.message
    return f"{result.failure.message}; {result.failure.hint}"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_precision_is_computed_in_or_refused(precision: str) -> None:
    result = run(DIGITS, DIGIT, precision=precision)
    if result.status == "failed" and precision != "float32":
        refused = f"--precision: the device cpu does not compute in {precision} here"
        assert refused in failure_of(result)
        return
    assert result.engine is not None
    assert result.engine.libraries["precision"] == precision
    assert result.engine.products == ("" if precision == "float32" else precision)
    same = result.outputs == run(DIGITS, DIGIT).outputs
    assert same == (precision == "float32")


def test_a_device_that_is_not_there_names_those_that_are() -> None:
    text = failure_of(run(DIGITS, provider="npu.7"))
    assert "OpenVINO finds no device NPU.7 here; it finds: cpu" in text


@pytest.mark.parametrize(
    ("options", "threads"),
    [({"multithread": 1}, 1), ({"cpu_default": True}, 1), ({"thread": 2, "const_shape": True}, 1)],
)
def test_threads_are_those_that_are_asked_for(options: dict[str, Any], threads: int) -> None:
    result = run(DIGITS, DIGIT, **options, iter=3)
    assert result.status == "ok", result.failure
    assert result.engine is not None
    assert result.engine.threads == threads
    # Copies that gave something else would be warned of.
    assert not [text for text in result.warnings if "gave another" in text]


def test_a_batch_is_taken_as_it_comes_or_compiled_for(tmp_path: Path) -> None:
    model = write_attention(tmp_path / "attention.onnx")
    open_axes = run(model, "x:{3,6,16}", bin_out_dump=str(tmp_path / "open"))
    constant = run(model, "x:{3,6,16}", const_shape=True, bin_out_dump=str(tmp_path / "constant"))
    assert open_axes.status == constant.status == "ok"
    found = lar.compare(str(tmp_path / "open"), str(tmp_path / "constant"))
    assert found.finding == "same"
    assert found.tensors[0].expected.shape == (3, 6, 16)


def test_outputs_that_are_one_tensor_keep_their_names(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y"), node("Identity", "y", "z")]
    model = save(tmp_path / "two.onnx", nodes, {"x": [2]}, {"z": [2], "y": [2]})
    assert [output.name for output in run(model, "x:[-1.0,2.0]").outputs] == ["z", "y"]


def test_single_numbers_are_fed_and_given(tmp_path: Path) -> None:
    ends: tuple[Shapes, Shapes] = {"a": [], "b": []}, {"sum": []}
    model = save(tmp_path / "sum.onnx", [node("Add", "a b", "sum")], *ends)
    arrays = {"a": np.float32(2), "b": np.float32(3)}
    (output,) = run(model, {name: np.asarray(it) for name, it in arrays.items()}).outputs
    assert (output.shape, output.mean) == ((), 5)


def damaged(kind: str, folder: Path) -> Path:
    """A model that cannot be loaded."""
    if kind == "junk":
        path = folder / "bad.onnx"
        path.write_text("this is no model at all")
        return path
    path = own_model("openvino", DIGITS, folder)
    weights = path.with_suffix(".bin")
    if kind == "no weights":
        weights.unlink()
    elif kind == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        path.write_text(path.read_text()[:3000])
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("junk", "damaged or cut short"),
        ("no weights", "its weights digits_cnn.bin are missing; keep them beside the model"),
        ("cut weights", "its weights file is cut short, or belongs to another model"),
        ("cut xml", "it is damaged or cut short"),
    ],
)
def test_a_damaged_model_is_one_clear_line(kind: str, words: str, tmp_path: Path) -> None:
    path = damaged(kind, tmp_path)
    try:
        text = failure_of(run(path))
    except lar.UsageError as error:  # refused without a worker
        text = f"{error}; {error.hint}"
    assert str(path) in text
    assert words in text


def test_properties_are_set() -> None:
    result = run(DIGITS, engine_option=("INFERENCE_NUM_THREADS=1", "ENABLE_CPU_PINNING=NO"))
    assert result.engine is not None
    assert result.engine.threads == 1


def test_importing_it_reports_nothing_to_anybody() -> None:
    program = (
        "import sys; from lar.engines.openvino.driver import import_openvino; import_openvino();"
        "assert 'openvino_telemetry' not in sys.modules; import openvino.tools.ovc"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, timeout=100)
    assert done.returncode == 0


def test_an_integer_model_is_run() -> None:
    labels = np.load(REPOSITORY / "inputs" / "digits_labels.npy")
    result = run(MODELS / "int8.onnx", DIGIT)
    assert result.status == "ok", result.failure
    assert result.outputs[0].shape == (len(labels), 10)


def test_testcases_beside_a_model_are_checked(run_lar: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "digit")
    digit = f"{REPOSITORY}/inputs/digit_7.npy"
    assert run_lar("pack", str(DIGITS), "-d", digit, "-o", folder).returncode == 0
    done = run_lar(folder, "--engine", "openvino", "--iter", "1")
    assert done.returncode == 0, done.stderr
    assert "testcases: 1 of 1 as expected" in done.stdout


@pytest.mark.parametrize(
    ("settings", "copies", "properties"),
    [
        ({}, 1, {}),
        ({"multithread": 3}, 2, {"INFERENCE_NUM_THREADS": "6", "NUM_STREAMS": "2"}),
        ({"hint": "throughput", "streams": 2}, 1, {"NUM_STREAMS": "2"}),
        ({"precision": "bfloat16"}, 1, {"INFERENCE_PRECISION_HINT": "bf16"}),
        ({"profile": "p.json", "verbose": True}, 1, {"PERF_COUNT": "YES"}),
        ({"thread": 4, "engine_option": "NUM_STREAMS=1"}, 4, {"NUM_STREAMS": "1"}),
    ],
)
def test_options_become_properties(
    settings: dict[str, Any], copies: int, properties: dict[str, str]
) -> None:
    found = config_of(settings, copies)
    assert found.items() >= {"INFERENCE_PRECISION_HINT": "f32", **properties}.items()
    assert ("PERFORMANCE_HINT" in found) == ("hint" in settings)


# Inputs of an .onnx file


def test_initializers_are_optional_inputs(tmp_path: Path) -> None:
    model = write_optional(tmp_path / "optional.onnx")
    assert run(model, "x:[[1,1,1]];w:[4,5,6]").outputs[0].mean == 5
    found = lar.compare(
        f"{model} --engine onnxruntime", f"{model} --engine openvino", input="x:{2,3};w:{3}"
    )
    assert found.finding == "same"


def test_an_input_without_rank_is_compiled_for_what_is_fed(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Add", "r r", "y")]
    model = save(tmp_path / "any.onnx", nodes, {"x": None}, {"y": None})
    result = run(model, "x:[[1,2,3]]", thread=2)
    assert result.status == "ok", result.failure
    assert (result.outputs[0].shape, result.outputs[0].mean) == ((1, 1, 3), 4)
    assert "nothing feeds x, which may have any number of axes" in failure_of(run(model))
    ends: tuple[Shapes, Shapes] = {"x": None}, {"y": None}
    weights = {"w": np.ones((1, 1, 1, 1), np.float32)}
    unclear = save(tmp_path / "conv.onnx", [node("Conv", "x w", "y")], *ends, weights)
    text = failure_of(run(unclear, "x:{1,1,2,2}"))
    assert "it does not say how many axes its inputs have" in text


def test_bfloat16_is_fed_and_texts_are_refused(tmp_path: Path) -> None:
    types = {"x": TensorProto.BFLOAT16, "y": TensorProto.BFLOAT16}
    model = save(tmp_path / "a.onnx", [node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}, **types)
    result = run(model, "x:[1.5,2.5]")
    assert (result.outputs[0].dtype, result.outputs[0].mean) == ("bfloat16", 2)
    types = {"x": TensorProto.STRING, "y": TensorProto.STRING}
    model = save(tmp_path / "b.onnx", [node("Identity", "x", "y")], {"x": [2]}, {"y": [2]}, **types)
    assert "a tensor of string, which lar cannot feed to OpenVINO" in failure_of(run(model))
