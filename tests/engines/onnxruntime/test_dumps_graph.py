"""Every tensor of a model: the same graph runs, and its outputs are the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.dumps.layouts import to_plain
from lar.dumps.values import Part
from lar.engines.onnxruntime.blocked_layout import block_size, split_blocks
from lar.engines.onnxruntime.dumps import FedGraph

if TYPE_CHECKING:
    from tests.engines.onnxruntime.conftest import MakeDriver, Outputs

MODELS = Path(__file__).resolve().parents[3] / "models"
MOBILENET = MODELS / "mobilenet_v2.onnx"
DIGITS = MODELS / "digits_cnn.onnx"
LEVELS = ("disable", "basic", "extended", "all")

Run = Callable[[Any], "Outputs"]
Tensors = dict[str, np.ndarray[Any, Any]]


class Producer(NamedTuple):
    """A tensor of the graph itself, and the node that gives it."""

    tensor: str
    operator: str
    node: str
    inputs: tuple[str, ...]
    blocked: bool


def run_instrumented(driver: Any) -> tuple[tuple[Producer, ...], Tensors]:
    """Run every tensor of a driver that was fed; those that are arrays of numbers are returned."""
    graph = FedGraph(driver)
    producers = tuple(
        Producer(name, it.node.operator, it.node.name, it.node.inputs, name in graph.blocked)
        for name, it in graph.makers.items()
        if not it.body.path
    )
    tensors = {
        name: part.array
        for name, parts in graph.values()
        for part in parts
        if isinstance(part, Part) and part.name == name
    }
    return producers, tensors


def assert_same_bits(actual: Any, expected: Outputs) -> None:
    for name, array in expected.items():
        assert actual[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model", [MOBILENET, DIGITS], ids=lambda path: path.stem)
def test_outputs_are_those_of_production_bit_by_bit(
    load_driver: MakeDriver, run_driver: Run, model: Path, level: str
) -> None:
    driver = load_driver(model, graph_optimization_level=level)
    expected = run_driver(driver)
    producers, tensors = run_instrumented(driver)
    assert_same_bits(tensors, expected)
    assert {each.tensor for each in producers} == tensors.keys()
    # Nothing but constants and inputs comes from elsewhere, and nothing before it is there.
    known = {info.name for info in driver.inputs()}
    for each in producers:
        assert known.isdisjoint({each.tensor})
        assert set(each.inputs) & tensors.keys() <= known
        known.add(each.tensor)


@pytest.mark.parametrize("model", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_all_models_give_all_tensors(load_driver: MakeDriver, run_driver: Run, model: Path) -> None:
    driver = load_driver(model)
    expected = run_driver(driver)
    producers, tensors = run_instrumented(driver)
    assert_same_bits(tensors, expected)
    assert len(producers) == len(tensors) >= 1


def test_without_optimisation_the_tensors_are_the_originals(
    load_driver: MakeDriver, run_driver: Run
) -> None:
    driver = load_driver(DIGITS, graph_optimization_level="disable")
    run_driver(driver)
    producers, _ = run_instrumented(driver)
    assert [(each.tensor, each.operator, each.node, each.inputs) for each in producers] == [
        (name, node.op_type, node.name, tuple(node.input))
        for node in onnx.load(DIGITS).graph.node
        for name in node.output
    ]


def test_blocked_tensors_are_marked_and_read_back(load_driver: MakeDriver, run_driver: Run) -> None:
    """Each of them is some tensor of the plain layout, which is computed in another order."""
    blocked_driver = load_driver(MOBILENET)
    plain_driver = load_driver(MOBILENET, disable_optimizer="NchwcTransformer")
    block = block_size(blocked_driver.onnxruntime)
    if block == 1:
        pytest.skip("ONNX Runtime has no blocked layout for this CPU")
    run_driver(blocked_driver), run_driver(plain_driver)
    producers, tensors = run_instrumented(blocked_driver)
    plain_producers, plain = run_instrumented(plain_driver)
    assert not any(each.blocked for each in plain_producers)
    blocked = [each.tensor for each in producers if each.blocked]
    assert len(blocked) > 40
    for name in blocked:
        array = to_plain(split_blocks(tensors[name], block), f"nchw{block}c")
        assert any(
            array[:, : other.shape[1]].shape == other.shape
            and np.allclose(array[:, : other.shape[1]], other, rtol=1e-4, atol=1e-4)
            for other in plain.values()
            if other.ndim == array.ndim
        ), name
    for each in producers:
        if not each.blocked and each.tensor in plain:
            np.testing.assert_allclose(tensors[each.tensor], plain[each.tensor], 1e-4, 1e-4)


def test_a_plain_operator_between_blocked_ones_is_blocked_too(
    load_driver: MakeDriver, run_driver: Run, tmp_path: Path
) -> None:
    numbers = np.random.default_rng(0)
    weights = {"a": (16, 16, 1, 1), "b": (16, 16, 1, 1), "c": (16, 32, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["first"]),
        helper.make_node("Conv", ["x", "b"], ["second"]),
        helper.make_node("Concat", ["first", "second"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(numbers.random(shape, np.float32), name)
            for name, shape in weights.items()
        ],
    )
    path = tmp_path / "concat.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    found = {}
    for level in ("all", "disable"):
        driver = load_driver(path, graph_optimization_level=level)
        run_driver(driver)
        producers, tensors = run_instrumented(driver)
        (concat,) = [each for each in producers if each.operator == "Concat"]
        block = block_size(driver.onnxruntime) if concat.blocked else 1
        found[level] = to_plain(split_blocks(tensors[concat.tensor], block), f"nchw{block}c")
        assert concat.blocked == (level == "all" and block_size(driver.onnxruntime) > 1)
    np.testing.assert_allclose(found["all"], found["disable"], rtol=1e-5)


def test_what_is_no_plain_tensor_breaks_nothing(
    load_driver: MakeDriver, run_driver: Run, tmp_path: Path
) -> None:
    """Control flow, sequences, optional values, outputs that are left out, unnamed nodes."""

    def value(name: str, number: int = TensorProto.FLOAT, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, number, shape)

    def branch(operator: str) -> Any:
        node = helper.make_node(operator, ["x"], ["inside"])
        return helper.make_graph([node], operator, [], [value("inside")])

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["yes"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["yes"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
        ),
        helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=0, keepdims=0),
        helper.make_node("SequenceLength", ["pieces"], ["count"]),
        helper.make_node("Optional", ["x"], ["perhaps"]),
        helper.make_node("OptionalHasElement", ["perhaps"], ["there"]),
        helper.make_node("LSTM", ["steps", "w", "r"], ["", "", "state"], hidden_size=2),
        helper.make_node("Cast", ["y"], ["short"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["short"], ["out"], to=TensorProto.FLOAT),
    ]
    numbers = np.random.default_rng(0)
    weights = {"w": (1, 8, 4), "r": (1, 8, 2)}
    graph = helper.make_graph(
        nodes,
        "odd",
        [value("x", shape=[2, 3]), value("steps", shape=[3, 1, 4])],
        [
            value("out"),
            value("state"),
            value("count", TensorProto.INT64),
            value("there", TensorProto.BOOL),
        ],
        [
            numpy_helper.from_array(numbers.random(shape, np.float32), name)
            for name, shape in weights.items()
        ],
    )
    path = tmp_path / "odd.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, path)
    for level in LEVELS:
        driver = load_driver(path, graph_optimization_level=level, range=1e6)
        expected = run_driver(driver)
        producers, tensors = run_instrumented(driver)
        assert_same_bits(tensors, expected)
        found = {each.tensor: each.operator for each in producers}
        assert found["y"] == "If"
        assert found["pieces"] == "SplitToSequence"
        assert "" not in found
        assert tensors["If_0/then/inside"].tobytes() == tensors["y"].tobytes()
