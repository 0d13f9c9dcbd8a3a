"""OpenVINO: what it computes in, of which files, its errors, its caches and profiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines.openvino.driver import config_of
from lar.records.profile import Profile
from lar.records.run import RunResult
from tests.conftest import RunLar
from tests.engines.onnx_models import (
    DIGITS,
    REPOSITORY,
    needs,
    save_named,
    write_attention,
    write_optional,
)
from tests.engines.runs import failure_of, run_ok
from tests.engines.test_caches import run_cached
from tests.engines.test_onnx_engines import own_model
from tests.tables import each_row

pytestmark = needs("openvino")

DIGIT = f"data:{REPOSITORY}/inputs/digits.npy"


def run(model: Path, inputs: Any = None, **options: Any) -> RunResult:
    return lar.run(model, inputs, engine="openvino", **{"iter": 1, **options})


def refusal_of(result: RunResult) -> str:
    failure = failure_of(result, 2)
    return f"{failure.message}; {failure.hint}"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_precision_is_computed_in_or_refused(precision: str) -> None:
    result = run(DIGITS, DIGIT, precision=precision)
    if result.status == "failed" and precision != "float32":
        refused = f"--precision: the device cpu does not compute in {precision} here"
        assert refused in refusal_of(result)
        return
    assert result.engine is not None
    assert result.engine.libraries["precision"] == precision
    assert result.engine.products == ("" if precision == "float32" else precision)
    assert (result.outputs == run(DIGITS, DIGIT).outputs) == (precision == "float32")


@each_row("engines/openvino/driver/one thread")
def test_one_thread_is_what_is_asked_for(options: dict[str, Any]) -> None:
    result = run(DIGITS, DIGIT, **options, iter=3)
    assert result.status == "ok", result.failure
    assert result.engine is not None
    assert result.engine.threads == 1
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


@each_row("engines/openvino/driver/models")
def test_a_small_model_is_computed(
    text: str, fed: str, outputs: list[list[Any]], tmp_path: Path
) -> None:
    result = run(save_named(tmp_path / "small.onnx", text), fed)
    assert [[it.name, it.dtype, [*it.shape], it.mean] for it in result.outputs] == outputs


@each_row("engines/openvino/driver/damaged")
def test_a_damaged_model_is_one_clear_line(
    suffix: str, size: int, words: str, tmp_path: Path
) -> None:
    """A file of it has only some of its bytes, or is missing."""
    path = own_model("openvino", DIGITS, tmp_path)
    part = path.with_suffix(suffix)
    if suffix == ".onnx":
        path = part
        part.write_bytes(DIGITS.read_bytes())
    content = part.read_bytes()[:size]
    part.unlink()
    if content:
        part.write_bytes(content)
    try:
        text = refusal_of(run(path))
    except lar.UsageError as error:  # refused without a worker
        text = f"{error}; {error.hint}"
    assert str(path) in text
    assert words in text


def test_importing_it_reports_nothing_to_anybody() -> None:
    program = (
        "import sys; from lar.engines.openvino.driver import import_openvino; import_openvino();"
        "assert 'openvino_telemetry' not in sys.modules; import openvino.tools.ovc"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, timeout=100)
    assert done.returncode == 0


@each_row("engines/openvino/properties/properties")
def test_options_become_properties(
    settings: dict[str, Any], copies: int, properties: dict[str, str]
) -> None:
    expected = {"INFERENCE_PRECISION_HINT": "f32", **properties}
    assert config_of(settings, copies) == expected


# Inputs of an .onnx file


def test_initializers_are_optional_inputs(tmp_path: Path) -> None:
    model = write_optional(tmp_path / "optional.onnx")
    assert run(model, "x:[[1,1,1]];w:[4,5,6]").outputs[0].mean == 5
    found = lar.compare(
        f"{model} --engine onnxruntime", f"{model} --engine openvino", input="x:{2,3};w:{3}"
    )
    assert found.finding == "same"


def test_an_input_without_rank_is_compiled_for_what_is_fed(tmp_path: Path) -> None:
    text = "(float[] x) => (float[] y) { r = Relu(x) y = Add(r, r) }"
    model = save_named(tmp_path / "any.onnx", text)
    result = run(model, "x:[[1,2,3]]", thread=2)
    assert result.status == "ok", result.failure
    assert (result.outputs[0].shape, result.outputs[0].mean) == ((1, 1, 3), 4)
    assert "nothing feeds x, which may have any number of axes" in refusal_of(run(model))
    weights = {"w": np.ones((1, 1, 1, 1), np.float32)}
    text = "(float[] x) => (float[] y) { y = Conv(x, w) }"
    text = refusal_of(run(save_named(tmp_path / "conv.onnx", text, weights), "x:{1,1,2,2}"))
    assert "it does not say how many axes some of its tensors have" in text


def test_texts_are_refused(tmp_path: Path) -> None:
    text = "(string[2] x) => (string[2] y) { y = Identity(x) }"
    model = save_named(tmp_path / "b.onnx", text)
    assert "a tensor of string, which lar cannot feed to OpenVINO" in refusal_of(run(model))


# The compiled model that --fast-run-algo-policy keeps


def test_lar_cache_shows_what_it_was_made_for(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "digits.cache"
    assert run_cached(run_lar, "openvino", cache, "--fast-run").returncode == 0
    assert "INFERENCE_PRECISION_HINT=f32" in run_lar("cache", "show", str(cache)).stdout
    assert "the same: 6" in run_lar("cache", "diff", str(cache), str(cache)).stdout
    merged = run_lar("cache", "merge", str(cache), str(cache), "-o", str(cache) + "2")
    assert "this cache has one model and no algorithms to merge" in merged.stderr


# Profiles: the mean time of each node, and what it works on


def profiled(model: Path, place: Path, **options: Any) -> Profile:
    run_ok(model, engine="openvino", profile=str(place), **{"iter": 4, **options})
    return lar.read_profile(place)


def test_work_is_that_of_the_model(tmp_path: Path, run_lar: RunLar) -> None:
    profile = profiled(DIGITS, tmp_path / "profile.json")
    conv = next(it for it in profile.operators if it.name == "conv2")
    assert (conv.inputs[0].shape, conv.outputs[0].layout) == ((1, 16, 8, 8), "acdb")
    assert "conv" in (conv.algorithm or "")
    text = run_lar("report", str(tmp_path / "profile.json")).stdout
    assert "Operator times are means over all iterations" in text
    assert "not recorded: when operators begin" in text
