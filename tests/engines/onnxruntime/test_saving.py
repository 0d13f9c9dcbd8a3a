"""`--model-dump`: one file that runs anywhere on such a processor, and gives the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from lar.dumps.recording import Part
from lar.engines.onnxruntime import saving
from lar.engines.onnxruntime.dumps import FedGraph
from lar.errors import UsageError
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.onnxruntime.drivers import DIGITS, EACH, MakeDriver, bits_of, run, save_external


def run_elsewhere(path: Path, load: MakeDriver, **settings: Any) -> dict[str, bytes]:
    """Run a model where nothing else is."""
    folder = path.parent / "elsewhere"
    folder.mkdir()
    moved = Path(shutil.move(path, folder))
    assert [each.name for each in folder.iterdir()] == [moved.name]
    outputs = bits_of(run(load(moved, **settings)))
    shutil.rmtree(folder)
    return outputs


@pytest.mark.parametrize("suffix", [".onnx", ".ort"])
@pytest.mark.parametrize("model", EACH, ids=lambda path: path.stem)
def test_a_dumped_model_gives_the_same_bits(
    load_driver: MakeDriver, tmp_path: Path, model: Path, suffix: str
) -> None:
    path = tmp_path / f"dump{suffix}"
    expected = bits_of(run(load_driver(model, model_dump=str(path))))
    assert expected == bits_of(run(load_driver(model)))
    assert (path.read_bytes()[4:8] == b"ORTM") == (suffix == ".ort")
    assert run_elsewhere(path, load_driver, graph_optimization_level="disable") == expected


def test_the_options_set_are_in_the_dump(load_driver: MakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "dump.onnx"
    load_driver(DIGITS, model_dump=str(path))
    optimized = [node.op_type for node in onnx.load(path).graph.node]
    load_driver(DIGITS, model_dump=str(path), graph_optimization_level="disable")
    original = [node.op_type for node in onnx.load(path).graph.node]
    assert original == [node.op_type for node in onnx.load(DIGITS).graph.node]
    assert len(optimized) < len(original)


def test_weights_of_other_files_come_into_the_dump(load_driver: MakeDriver, tmp_path: Path) -> None:
    """Those beside the model, and those of a cache that is built or read."""
    external, path = save_external(DIGITS, tmp_path / "external.onnx"), tmp_path / "dump.onnx"
    cache = {"fast_run": True, "fast_run_algo_policy": str(tmp_path / "model.cache")}
    expected = bits_of(run(load_driver(DIGITS)))
    for settings in ({}, cache, cache):
        assert bits_of(run(load_driver(external, model_dump=str(path), **settings))) == expected
        assert not onnx.load(path).metadata_props
        assert run_elsewhere(path, load_driver, graph_optimization_level="disable") == expected


def test_a_run_writes_the_dump_into_its_place(run_lar: RunLar, tmp_path: Path) -> None:
    words = "--model-dump dump.onnx --range 1e6 --iter 0"
    run_lar(str(DIGITS), *words.split(), cwd=tmp_path, code=0)
    assert [path.name for path in tmp_path.iterdir()] == ["dump.onnx"]
    assert run_lar("dump.onnx", "--iter", "1", cwd=tmp_path).returncode == 0


def test_an_entry_is_left_alone_where_no_weights_are_rearranged(
    load_driver: MakeDriver, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime would warn each time that it is set again, in the log of each profile."""
    driver = load_driver(DIGITS)
    for name in ("one", "other"):
        saving.save_optimized(driver, tmp_path / name, "weights")
    assert saving.PREPACKED not in capfd.readouterr().err


def test_a_model_too_large_for_one_file_is_an_error(
    make_driver: MakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of other files get there."""
    path = save_external(DIGITS, tmp_path / "external.onnx")
    driver = make_driver(path, model_dump=str(tmp_path / "dump.onnx"))
    monkeypatch.setattr(saving, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="--model-dump: the weights of the model do not fit"):
        driver.load()


def control_flow_model(path: Path) -> Path:
    """Write a model with constants inside control flow: weights, numbers, one that is a branch's
    output, one inside a loop inside a branch."""

    model = onnx.load(save_model(path, text_of("constants_in_control_flow")))
    weight = numpy_helper.from_array(
        np.random.default_rng(0).random((32, 32), np.float32), "weight"
    )
    model.graph.node[3].attribute[0].g.initializer.append(weight)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("level", ["all", "disable"])
def test_constants_inside_control_flow_are_saved_once(
    load_driver: MakeDriver, tmp_path: Path, level: str
) -> None:
    model = control_flow_model(tmp_path / "model.onnx")
    expected = bits_of(run(load_driver(model, graph_optimization_level=level)))
    cache = {"fast_run": True, "fast_run_algo_policy": str(tmp_path / "model.cache")}
    for settings in (cache, cache):  # built, and read
        driver = load_driver(model, graph_optimization_level=level, **settings)
        assert bits_of(run(driver)) == expected

    driver = load_driver(model, graph_optimization_level=level)
    run(driver)
    values = dict(FedGraph(driver).values())
    assert [name for name in values if "/" not in name][-2:] == ["chosen", "y"]
    (part,) = values["y"]
    assert isinstance(part, Part)
    assert part.array.tobytes() == expected["y"]


def test_an_input_whose_constant_is_computed_away_is_not_asked_for(tmp_path: Path) -> None:
    """Models of IR version 3 list their constants as inputs; of equal ones the engine keeps one."""
    names = ("scale", "bias", "mean", "variance")
    sizes = {**{f"size_{name}": [2] for name in names}, "shape": [1, 32]}
    weights = {"weight": np.full((2, 2, 1, 1), 0.5, np.float32), **sizes}
    path = save_model(
        tmp_path / "m.onnx", text_of("equal_constants"), weights, opset=9, ir_version=3
    )
    dump, saved = tmp_path / "dump", tmp_path / "saved.onnx"
    assert lar.run(path, iter=1, bin_io_dump=str(dump)).status == "ok"
    assert any(dump.iterdir())
    assert lar.run(path, iter=1, model_dump=str(saved)).status == "ok"
    assert lar.run(saved, iter=1).status == "ok"
