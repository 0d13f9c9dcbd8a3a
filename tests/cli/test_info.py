"""`lar info`: what a model holds; the two formats of a model agree."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from lar.records.record import record_from_json
from lar.records.run import ModelInfo
from tests.cli.marks import each_format, needs_megengine
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript

NAMES = (
    *("digits_cnn", "dynamic_batch", "int8", "mobilenet_v2", "multi_input", "one_operator"),
    "uint8_input",
)
SUFFIXES = ("mge", "onnx")
each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def infos() -> dict[str, ModelInfo]:
    """What `lar info --json -` says about each file of models/."""

    def read(name: str) -> ModelInfo:
        done = run_lar("info", f"models/{name}", "--json", "-", cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return record_from_json(done.stdout, ModelInfo)

    suffixes = SUFFIXES if importlib.util.find_spec("megengine") else ("onnx",)
    files = [f"{name}.{suffix}" for name in NAMES for suffix in suffixes]
    return {file: read(file) for file in files}


def test_all_models_are_here() -> None:
    found = {path.name for path in (ROOT / "models").iterdir() if path.suffix in (".mge", ".onnx")}
    assert found == {f"{name}.{suffix}" for name in NAMES for suffix in SUFFIXES}


@needs_megengine
@each_name
def test_twins_agree(infos: dict[str, ModelInfo], name: str) -> None:
    mge, ort = (infos[f"{name}.{suffix}"] for suffix in SUFFIXES)
    assert (mge.engine, ort.engine) == ("megengine", "onnxruntime")
    for group in ("inputs", "outputs"):
        expected = {info.name: info for info in getattr(ort, group)}
        actual = {info.name: info for info in getattr(mge, group)}
        assert actual.keys() == expected.keys()
        for key, info in actual.items():
            assert info.dtype == expected[key].dtype
            # MegEngine stores the shape that was traced where ONNX leaves an axis open.
            assert len(info.shape) == len(expected[key].shape)
            for size, open_size in zip(info.shape, expected[key].shape, strict=True):
                assert open_size in (None, size)
    assert mge.parameter_count == ort.parameter_count
    assert mge.operators
    assert ort.operators


@needs_megengine
@each_name
def test_twins_compute_the_same(infos: dict[str, ModelInfo], name: str) -> None:
    mge, ort = (infos[f"{name}.{suffix}"] for suffix in SUFFIXES)
    assert mge.flops
    assert ort.flops
    # The quantised twin is written with other operators around the same convolutions.
    assert mge.flops == pytest.approx(ort.flops, rel=0.15 if name == "int8" else 1e-9)


@needs_megengine
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mobilenet_v2", 744_072), ("dynamic_batch", 808), ("multi_input", 0), ("one_operator", 0)],
)
def test_known_counts(infos: dict[str, ModelInfo], name: str, parameters: int) -> None:
    for suffix in SUFFIXES:
        info = infos[f"{name}.{suffix}"]
        assert info.parameter_count == parameters
        assert (info.weight_bytes > 0) == (parameters > 0)


@each_format
def test_text(suffix: str) -> None:
    done = run_lar("info", f"models/mobilenet_v2.{suffix}", cwd=ROOT, code=0)
    text = Path(__file__).with_name(f"mobilenet_v2.{suffix}.txt").read_text()
    assert (done.stdout, done.stderr) == (text, "")


def test_json_file(tmp_path: Path, write_script: WriteScript) -> None:
    script = write_script(outputs={"prob": [0.5, 0.5]})
    file = tmp_path / "info.json"
    done = run_lar("info", script, "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_lar("info", script).stdout
    described = json.loads(file.read_text())
    assert described["engine"] == "fake"
    assert described["outputs"][0]["shape"] == [2]
    assert json.loads(run_lar("info", "--json=-", script).stdout) == described
    assert {path.name for path in tmp_path.iterdir()} == {"info.json", Path(script).name}


@needs_megengine
def test_engine_by_name(tmp_path: Path, infos: dict[str, ModelInfo]) -> None:
    for suffix, engine in (("mge", "megengine"), ("onnx", "onnxruntime")):
        shutil.copy(ROOT / f"models/one_operator.{suffix}", tmp_path / "model.xyz")
        done = run_lar("info", str(tmp_path / "model.xyz"), "--engine", engine, "--json", "-")
        assert record_from_json(done.stdout, ModelInfo) == infos[f"one_operator.{suffix}"]
