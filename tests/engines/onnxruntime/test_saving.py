"""`--model-dump`: one file that runs anywhere on such a processor, and gives the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lar
from lar.dumps.values import Part
from lar.engines.onnxruntime import saving
from lar.engines.onnxruntime.dumps import FedGraph
from lar.errors import UsageError

if TYPE_CHECKING:
    from tests.conftest import RunLar
    from tests.engines.onnxruntime.conftest import MakeDriver, Outputs

MODELS = Path(__file__).resolve().parents[3] / "models"
DIGITS = MODELS / "digits_cnn.onnx"
EACH = sorted(MODELS.glob("*.onnx"))

Run = Callable[[Any], "Outputs"]


def bits_of(outputs: Outputs) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def run_elsewhere(path: Path, load: MakeDriver, run: Run, **settings: Any) -> dict[str, bytes]:
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
    load_driver: MakeDriver, run_driver: Run, tmp_path: Path, model: Path, suffix: str
) -> None:
    path = tmp_path / f"dump{suffix}"
    driver = load_driver(model, model_dump=str(path))
    expected = bits_of(run_driver(driver))
    assert expected == bits_of(run_driver(load_driver(model)))
    assert (path.read_bytes()[4:8] == b"ORTM") == (suffix == ".ort")
    assert (
        run_elsewhere(path, load_driver, run_driver, graph_optimization_level="disable") == expected
    )


def test_the_options_set_are_in_the_dump(load_driver: MakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "dump.onnx"
    load_driver(DIGITS, model_dump=str(path))
    optimized = [node.op_type for node in onnx.load(path).graph.node]
    load_driver(DIGITS, model_dump=str(path), graph_optimization_level="disable")
    original = [node.op_type for node in onnx.load(path).graph.node]
    assert original == [node.op_type for node in onnx.load(DIGITS).graph.node]
    assert len(optimized) < len(original)


def test_weights_of_other_files_come_into_the_dump(
    load_driver: MakeDriver, run_driver: Run, tmp_path: Path
) -> None:
    """Those beside the model, and those of a cache that is built or read."""
    external, path = tmp_path / "external.onnx", tmp_path / "dump.onnx"
    onnx.save(
        onnx.load(DIGITS),
        external,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    cache = {"fast_run": True, "fast_run_algo_policy": str(tmp_path / "model.cache")}
    expected = bits_of(run_driver(load_driver(DIGITS)))
    for settings in ({}, cache, cache):
        driver = load_driver(external, model_dump=str(path), **settings)
        assert bits_of(run_driver(driver)) == expected
        assert not onnx.load(path).metadata_props
        found = run_elsewhere(path, load_driver, run_driver, graph_optimization_level="disable")
        assert found == expected


def test_a_run_writes_the_dump_into_its_place(run_lar: RunLar, tmp_path: Path) -> None:
    ended = run_lar(
        str(DIGITS), "--model-dump", "dump.onnx", "--range", "1e6", "--iter", "0", cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["dump.onnx"]
    assert run_lar("dump.onnx", "--iter", "1", cwd=tmp_path).returncode == 0


def test_a_model_too_large_for_one_file_is_an_error(
    make_driver: MakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of other files get there."""
    path = tmp_path / "external.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, size_threshold=0)
    driver = make_driver(path, model_dump=str(tmp_path / "dump.onnx"))
    monkeypatch.setattr(saving, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="--model-dump: the weights of the model do not fit"):
        driver.load()


def control_flow_model(path: Path) -> Path:
    """Write a model with constants inside control flow: weights, numbers, one that is a branch's
    output, one inside a loop inside a branch."""

    def value(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    def constant(name: str, array: Any) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))

    numbers = np.random.default_rng(0).random((32, 32), np.float32)
    body = helper.make_graph(
        [
            constant("two", np.float32(2)),
            helper.make_node("Mul", ["before", "two"], ["after"]),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            value("turn", [], TensorProto.INT64),
            value("going", [], TensorProto.BOOL),
            value("before", [2, 32]),
        ],
        [value("goes_on", [], TensorProto.BOOL), value("after", [2, 32])],
    )
    then_branch = helper.make_graph(
        [
            helper.make_node("MatMul", ["r", "weight"], ["product"]),
            constant("turns", np.int64(3)),
            helper.make_node("Loop", ["turns", "", "product"], ["looped"], body=body),
        ],
        "then",
        [],
        [value("looped", [2, 32])],
        [numpy_helper.from_array(numbers, "weight")],
    )
    else_branch = helper.make_graph(
        [constant("fixed", np.ones((2, 32), np.float32))], "else", [], [value("fixed", [2, 32])]
    )
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("ReduceSum", ["r"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["asked"], to=TensorProto.BOOL),
            helper.make_node(
                "If", ["asked"], ["chosen"], then_branch=then_branch, else_branch=else_branch
            ),
            helper.make_node("Tanh", ["chosen"], ["y"]),
        ],
        "control_flow",
        [value("x", [2, 32])],
        [value("y", [2, 32])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.mark.parametrize("level", ["all", "disable"])
def test_constants_inside_control_flow_are_saved_once(
    load_driver: MakeDriver, run_driver: Run, tmp_path: Path, level: str
) -> None:
    model = control_flow_model(tmp_path / "model.onnx")
    expected = bits_of(run_driver(load_driver(model, graph_optimization_level=level)))
    cache = {"fast_run": True, "fast_run_algo_policy": str(tmp_path / "model.cache")}
    for settings in (cache, cache):  # built, and read
        driver = load_driver(model, graph_optimization_level=level, **settings)
        assert bits_of(run_driver(driver)) == expected

    driver = load_driver(model, graph_optimization_level=level)
    run_driver(driver)
    values = dict(FedGraph(driver).values())
    assert [name for name in values if "/" not in name][-2:] == ["chosen", "y"]
    (part,) = values["y"]
    assert isinstance(part, Part)
    assert part.array.tobytes() == expected["y"]


def test_models_with_control_flow_are_dumped(run_lar: RunLar, tmp_path: Path) -> None:
    control_flow_model(tmp_path / "model.onnx")
    flags = ("--iter", "1", "--bin-io-dump", "dump", "--io-dump", "dump.txt", "--range", "1e6")
    ended = run_lar("model.onnx", *flags, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [each.name for each in lar.open_dump(tmp_path / "dump")][-1] == "y"


def test_an_input_whose_constant_is_computed_away_is_not_asked_for(tmp_path: Path) -> None:
    """Models of IR version 3 list their constants as inputs; of equal ones the engine keeps one."""
    scales = {"scale": 1.0, "bias": 0.1, "mean": 0.2, "variance": 1.0}
    sizes = {f"size_{name}": [2] for name in scales} | {"shape": [1, 32]}
    filled = [
        helper.make_node(
            "ConstantOfShape",
            [f"size_{name}"],
            [name],
            value=numpy_helper.from_array(np.array([value], np.float32)),
        )
        for name, value in scales.items()
    ]
    nodes = [
        *filled,
        helper.make_node("Conv", ["x", "weight"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", *scales], ["normal"]),
        helper.make_node("Reshape", ["normal", "shape"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4]),
        *(helper.make_tensor_value_info(it, TensorProto.INT64, [len(sizes[it])]) for it in sizes),
    ]
    constants: dict[str, Any] = {name: np.array(it, np.int64) for name, it in sizes.items()}
    constants["weight"] = np.full((2, 2, 1, 1), 0.5, np.float32)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "folded", inputs, [output], weights)
    model = helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 9)])
    path, dump, saved = tmp_path / "m.onnx", tmp_path / "dump", tmp_path / "saved.onnx"
    onnx.save(model, path)
    assert lar.run(path, iter=1, bin_io_dump=str(dump)).status == "ok"
    assert any(dump.iterdir())
    assert lar.run(path, iter=1, model_dump=str(saved)).status == "ok"
    assert lar.run(saved, iter=1).status == "ok"
