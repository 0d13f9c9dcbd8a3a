"""Runs on MNN: what is fed and given, how models are converted, and what is refused."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

import lar
from lar.engines.mnn.conversion import convert, error_of
from tests.engines.onnx_models import DIGITS, MOBILENET, Shapes, needs, node, save, write_optional
from tests.engines.test_onnx_engines import own_model

if TYPE_CHECKING:
    from tests.conftest import RunLar

pytestmark = needs("mnn")

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def test_a_converted_model_runs_and_says_so(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "2")
    assert done.returncode == 0
    assert "using MNN 3" in done.stdout
    assert "iter 1/2" in done.stdout
    assert "MNN's converter has made an .mnn model of it" in done.stderr
    assert "--model-dump FILE keeps that" in done.stderr


def test_onnx_runtime_stays_the_engine_of_such_files(run_lar: RunLar) -> None:
    assert "using ONNX Runtime" in run_lar(str(DIGITS), "--iter", "1").stdout


def test_a_converted_model_is_told_by_its_content(run_lar: RunLar, tmp_path: Path) -> None:
    kept = own_model("mnn", DIGITS, tmp_path)
    assert "converter" not in run_lar(str(kept), "--iter", "1").stderr
    other = kept.rename(tmp_path / "digits.bin")
    assert lar.run(other, iter=1).spec.engine == "mnn"


@pytest.mark.parametrize("threads", [1, 2])
def test_inputs_stay_what_they_are_although_mnn_computes_in_their_memory(
    tmp_path: Path, threads: int
) -> None:
    one, many = (
        lar.run(MOBILENET, engine="mnn", multithread=threads, iter=count, warmup_iter=0)
        for count in (1, 5)
    )
    assert [it.sha256 for it in one.outputs] == [it.sha256 for it in many.outputs]


def test_types_that_the_converter_changes_are_those_of_the_model(tmp_path: Path) -> None:
    model = save(
        tmp_path / "types.onnx",
        [node("Add", "ids three", "sum"), node("Greater", "x half", "more")],
        {"ids": [2], "x": [2], "unused": [1]},
        {"sum": [2], "more": [2]},
        {"three": np.array([3], np.int64), "half": np.array([0.5], np.float32)},
        **{"ids": INT64, "sum": INT64, "more": BOOL},
    )
    result = lar.run(model, "ids:[4,5];x:[0,1];unused:[0]", engine="mnn", iter=1)
    assert result.status == "ok", result.failure
    found = [(it.name, it.dtype, it.mean) for it in result.outputs]
    assert found == [("sum", "int64", 7.5), ("more", "bool", 0.5)]
    assert {info.name: info.dtype for info in result.inputs}["ids"] == "int64"


def test_an_optional_input_is_not_fed(run_lar: RunLar, tmp_path: Path) -> None:
    model = write_optional(tmp_path / "optional.onnx")
    done = run_lar(str(model), "--engine", "mnn", "--input", "x:{1,3};w:[4,5,6]")
    assert done.returncode == 2
    assert "MNN's converter makes a constant of the optional input w" in done.stderr


def test_a_model_without_inputs_is_run_and_dumped(tmp_path: Path) -> None:
    numbers = node("RandomUniform", "", "r", shape=[2, 3], seed=1.0)
    nodes = [numbers, node("Relu", "r", "y")]
    model = save(tmp_path / "drawn.onnx", nodes, {}, {"y": [2, 3]})
    folder = tmp_path / "dump"
    result = lar.run(model, engine="mnn", iter=1, bin_io_dump=str(folder))
    assert result.status == "ok", result.failure
    assert "y" in {tensor.name for tensor in lar.open_dump(folder)}


def test_what_mnn_prints_is_not_in_the_way_of_json(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "1", "--in-process", "--json", "-")
    assert json.loads(done.stdout)["engine"]["name"] == "mnn"


def test_what_the_converter_prints_is_shown_when_asked_for(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "1", "--verbose")
    assert "Converted Success" in done.stderr


def test_modes_are_taken(run_lar: RunLar) -> None:
    modes = ["memory=low", "power=high", "winograd_memory_level=0", "cpu_core_ids=0,1"]
    flags = [word for mode in modes for word in ("--engine-option", mode)]
    done = run_lar(str(DIGITS), "--engine", "mnn", "--precision", "float32", "--iter", "1", *flags)
    assert done.returncode == 0, done.stderr


# What is refused


def test_a_shape_that_depends_on_values_is_one_clear_line(run_lar: RunLar, tmp_path: Path) -> None:
    ends: tuple[Shapes, Shapes] = {"x": [6], "s": [2]}, {"y": ["a", "b"]}
    model = save(tmp_path / "made.onnx", [node("Reshape", "x s", "y")], *ends, s=INT64)
    done = run_lar(str(model), "--engine", "mnn")
    assert done.returncode == 4
    (line,) = (line for line in done.stderr.splitlines() if "lar: error" in line)
    assert "shapes depend on the values fed" in line


def test_control_flow_is_refused(run_lar: RunLar, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("t", TensorProto.FLOAT, [3])
    bodies = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, ["x"], ["t"])], name, [], [value]
        )
        for name, kind in {"then": "Relu", "else": "Neg"}.items()
    }
    branch = node("If", "b", "y", **bodies)
    model = save(tmp_path / "if.onnx", [branch], {"b": [1], "x": [3]}, {"y": [3]}, b=BOOL)
    done = run_lar(str(model), "--engine", "mnn")
    assert done.returncode == 4
    assert "MNN's sessions run no control flow, as If y" in done.stderr


@pytest.mark.skipif("aarch64" in sys.platform, reason="this processor has float16")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_precision_that_mnn_ignores_is_refused(run_lar: RunLar, precision: str) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--precision", precision)
    assert done.returncode == 2
    assert f"--precision {precision}: MNN computes in float32 here" in done.stderr


@pytest.mark.parametrize("size", [0, 40, 2000])
def test_a_damaged_file_is_a_usage_error(run_lar: RunLar, tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.mnn"
    cut.write_bytes(own_model("mnn", DIGITS, tmp_path).read_bytes()[:size])
    for arguments in ([str(cut)], ["info", str(cut)]):
        done = run_lar(*arguments)
        assert done.returncode == 2
        assert f"lar: error: {cut}" in done.stderr


def test_a_shape_that_does_not_fit_names_what_mnn_says(run_lar: RunLar, tmp_path: Path) -> None:
    kept = own_model("mnn", DIGITS, tmp_path)
    done = run_lar(str(kept), "--input", "{1,1,16,16}")
    assert done.returncode == 2
    assert "MNN cannot compute it with data of shape {1,1,16,16}" in done.stderr
    assert "MNN says: Compute Shape Error for logits" in done.stderr
    assert run_lar(str(kept), "--input", "{4,1,8,8}", "--iter", "1").returncode == 0


def test_runs_of_other_engines_import_no_mnn(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--iter", "1", "--in-process", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "numpy" in done.stderr
    assert "_mnncengine" not in done.stderr


def test_models_that_are_converted_at_once_do_not_mix_their_weights(tmp_path: Path) -> None:
    weights = np.random.RandomState(0).randn(512, 1000).astype(np.float32)
    ends: tuple[Shapes, Shapes] = {"x": [1, 512]}, {"y": [1, 1000]}
    model = save(tmp_path / "large.onnx", [node("Gemm", "x w", "y")], *ends, {"w": weights})
    places = [tmp_path / str(number) / "converted.mnn" for number in range(6)]
    for place in places:
        place.parent.mkdir()
    with ThreadPoolExecutor(3) as threads:
        [*threads.map(lambda place: convert(model, place), places)]
    # Behind a number of its own, a file holds the same as the others.
    assert len({place.read_bytes()[200:] for place in places}) == 1


def test_a_converter_that_crashes_is_one_line() -> None:
    crashed = error_of(Path("a.onnx"), "[10:00:00] :35: Check failed: ranks differ\n", -11)
    assert crashed.message == "a.onnx: MNN's converter failed: Check failed: ranks differ"
    assert error_of(Path("a.onnx"), "", -11).message.endswith("failed: status -11")
