"""MNN: what is fed and given, how models are converted, what is refused, dumps and profiles."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lar
from lar.engines.mnn.model_file import read_net
from lar.engines.mnn.session import convert, error_of
from tests.conftest import RunLar
from tests.engines.onnx_models import (
    DIGITS,
    MOBILENET,
    drawn,
    needs,
    save_named,
    text_of,
    write_optional,
)
from tests.engines.runs import run_ok
from tests.engines.test_onnx_engines import own_model

pytestmark = needs("mnn")


def test_a_converted_model_runs_and_says_so(
    run_lar: RunLar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "2", code=0)
    assert "using MNN 3" in done.stdout
    assert "iter 1/2" in done.stdout
    assert "MNN's converter has made an .mnn model of it" in done.stderr
    assert "--model-dump FILE keeps that" in done.stderr
    assert not [*tmp_path.rglob("*.mnn")]


def test_a_converted_model_is_told_by_its_content(run_lar: RunLar, tmp_path: Path) -> None:
    kept = own_model("mnn", DIGITS, tmp_path)
    assert "converter" not in run_lar(str(kept), "--iter", "1").stderr
    assert lar.run(kept.rename(tmp_path / "digits.bin"), iter=1).spec.engine == "mnn"


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
    weights = {"three": np.array([3], np.int64), "half": np.array([0.5], np.float32)}
    model = save_named(tmp_path / "types.onnx", text_of("types_of_mnn"), weights)
    result = run_ok(model, "ids:[4,5];x:[0,1];unused:[0]", engine="mnn", iter=1)
    found = [(it.name, it.dtype, it.mean) for it in result.outputs]
    assert found == [("sum", "int64", 7.5), ("more", "bool", 0.5)]
    assert {info.name: info.dtype for info in result.inputs}["ids"] == "int64"


def test_an_optional_input_is_not_fed(run_lar: RunLar, tmp_path: Path) -> None:
    model = write_optional(tmp_path / "optional.onnx")
    done = run_lar(str(model), "--engine", "mnn", "--input", "x:{1,3};w:[4,5,6]", code=2)
    assert "MNN's converter makes a constant of the optional input w" in done.stderr


def test_what_mnn_prints_is_not_in_the_way_of_json(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "1", "--in-process", "--json", "-")
    assert json.loads(done.stdout)["engine"]["name"] == "mnn"


def test_what_the_converter_prints_is_shown_when_asked_for(run_lar: RunLar) -> None:
    done = run_lar(str(DIGITS), "--engine", "mnn", "--iter", "1", "--verbose")
    assert "Converted Success" in done.stderr


def test_modes_are_taken(run_lar: RunLar) -> None:
    modes = ["memory=low", "power=high", "winograd_memory_level=0", "cpu_core_ids=0,1"]
    flags = [word for mode in modes for word in ("--engine-option", mode)]
    run_lar(str(DIGITS), "--engine", "mnn", "--precision", "float32", "--iter", "1", *flags, code=0)


# What is refused


def test_a_shape_that_depends_on_values_is_one_clear_line(run_lar: RunLar, tmp_path: Path) -> None:
    text = "(float[6] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }"
    done = run_lar(str(save_named(tmp_path / "made.onnx", text)), "--engine", "mnn", code=4)
    (line,) = (line for line in done.stderr.splitlines() if "lar: error" in line)
    assert "shapes depend on the values fed" in line


def test_control_flow_is_refused(
    run_lar: RunLar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    model = save_named(tmp_path / "if.onnx", text_of("branch"))
    done = run_lar(str(model), "--engine", "mnn", code=4)
    assert "MNN's sessions run no control flow, as If y" in done.stderr
    assert not [*tmp_path.rglob("*.mnn")]


@pytest.mark.parametrize("size", [0, 40, 2000])
def test_a_damaged_file_is_a_usage_error(run_lar: RunLar, tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.mnn"
    cut.write_bytes(own_model("mnn", DIGITS, tmp_path).read_bytes()[:size])
    for arguments in ([str(cut)], ["info", str(cut)]):
        assert f"lar: error: {cut}" in run_lar(*arguments, code=2).stderr


def test_a_shape_that_does_not_fit_names_what_mnn_says(run_lar: RunLar, tmp_path: Path) -> None:
    kept = own_model("mnn", DIGITS, tmp_path)
    done = run_lar(str(kept), "--input", "{1,1,16,16}", code=2)
    assert "cannot compute it with data of shape {1,1,16,16}: Compute Shape Error" in done.stderr
    assert run_lar(str(kept), "--input", "{4,1,8,8}", "--iter", "1").returncode == 0


def test_runs_of_other_engines_import_no_mnn(run_lar: RunLar) -> None:
    done = run_lar(
        str(DIGITS), "--iter", "1", "--in-process", env={"PYTHONPROFILEIMPORTTIME": "1"}, code=0
    )
    assert "numpy" in done.stderr
    assert "_mnncengine" not in done.stderr


def test_models_that_are_converted_at_once_do_not_mix_their_weights(tmp_path: Path) -> None:
    weights = np.random.RandomState(0).randn(512, 1000).astype(np.float32)
    text = "(float[1,512] x) => (float[1,1000] y) { y = Gemm(x, w) }"
    model = save_named(tmp_path / "large.onnx", text, {"w": weights})
    places = [tmp_path / str(number) / "converted.mnn" for number in range(6)]
    for place in places:
        place.parent.mkdir()
    with ThreadPoolExecutor(3) as threads:
        [*threads.map(lambda place: convert(model, place), places)]
    # Behind a number of its own, a file holds the same as the others.
    assert len({place.read_bytes()[200:] for place in places}) == 1


def test_a_converter_that_crashes_is_one_line() -> None:
    crashed = error_of(Path("a.onnx"), f"[10:00:00] :35: Check failed: {'r' * 200}\nTrue\n", -11)
    assert crashed.message == f"a.onnx: MNN's converter failed: Check failed: {'r' * 146}"
    for printed in ("", "[05:26:24] :47: ONNX Model opset version: 17\nStart to Optimize..."):
        assert error_of(Path("a.onnx"), printed, -11).message.endswith("failed: status -11")


# Dumps


def test_operators_that_mnn_splits_or_only_moves_are_compared_too(tmp_path: Path) -> None:
    weights = {"w": np.random.RandomState(0).randn(3, 6).astype(np.float32)}
    model = save_named(tmp_path / "parts.onnx", text_of("split"), weights)
    found = lar.compare(f"{model} --engine onnxruntime", f"{model} --engine mnn")
    assert found.same
    assert {"product", "weights", "erf", "y"} <= {pair.actual.name for pair in found.tensors}


# Profiles: a time for each operator of each iteration


def test_operators_have_names_shapes_and_work(tmp_path: Path) -> None:
    place = tmp_path / "mobilenet.json"
    run_ok(MOBILENET, engine="mnn", iter=1, profile=str(place))
    profile = lar.read_profile(place)
    stem = next(it for it in profile.operators if it.name == "stem")
    assert stem.type == "Convolution"
    assert [it.shape for it in stem.inputs] == [(1, 3, 224, 224)]
    assert [it.shape for it in stem.outputs] == [(1, 16, 112, 112)]
    assert stem.flops == 2 * 16 * 112 * 112 * 27
    assert stem.writes == ("stem.relu",)
    assert stem.size_bytes == 4 * (3 * 224 * 224 + 16 * 112 * 112 + 27 * 16 + 16)
    block = next(it for it in profile.operators if it.name == "block2.sum")
    assert (block.module, block.parameters) == ("block2", {"mode": "add"})
    assert profile.facts.threads in (1, 2, 3, 4)
    assert any("MNN calls lar around each operator" in line for line in profile.facts.dropped)


def test_a_converted_model_is_described_whole(tmp_path: Path) -> None:
    told = json.loads(Path(__file__).with_name("windows.json").read_text())
    weights = {name: drawn(*shape) for name, shape in told["shapes"].items()}
    model = save_named(tmp_path / "windows.onnx", text_of("windows"), weights)
    path = own_model("mnn", model, tmp_path)
    assert json.loads(json.dumps(read_net(path))) == told["net"]
    info = lar.read_info(path)
    assert {name: getattr(info, name) for name in told["info"]} == told["info"]
