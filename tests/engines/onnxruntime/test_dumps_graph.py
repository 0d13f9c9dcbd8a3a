"""Every tensor of a model: the same graph runs, and its outputs are the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from lar.dumps.layouts import to_plain
from lar.dumps.values import Part
from lar.engines.onnxruntime.blocked_layout import block_size, split_blocks
from lar.engines.onnxruntime.dumps import FedGraph
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    EACH,
    LEVELS,
    MOBILENET,
    MakeDriver,
    Outputs,
    run,
    save_model,
)

NUMBERS = np.random.default_rng(0)
LARGER = (MOBILENET, DIGITS)


class Producer(NamedTuple):
    """A tensor of the graph itself, and the node that gives it."""

    tensor: str
    operator: str
    node: str
    inputs: tuple[str, ...]
    blocked: bool


def run_instrumented(driver: Any) -> tuple[tuple[Producer, ...], Outputs]:
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


@pytest.mark.parametrize(
    ("model", "level"),
    [*((model, "all") for model in EACH), *((model, it) for model in LARGER for it in LEVELS[:3])],
    ids=lambda it: it if isinstance(it, str) else it.stem,
)
def test_outputs_are_those_of_production_bit_by_bit(
    load_driver: MakeDriver, model: Path, level: str
) -> None:
    driver = load_driver(model, graph_optimization_level=level)
    expected = run(driver)
    producers, tensors = run_instrumented(driver)
    assert_same_bits(tensors, expected)
    assert {each.tensor for each in producers} == tensors.keys()
    # Nothing but constants and inputs comes from elsewhere, and nothing before it is there.
    known = {info.name for info in driver.inputs()}
    for each in producers:
        assert known.isdisjoint({each.tensor})
        assert set(each.inputs) & tensors.keys() <= known
        known.add(each.tensor)


def test_without_optimisation_the_tensors_are_the_originals(load_driver: MakeDriver) -> None:
    driver = load_driver(DIGITS, graph_optimization_level="disable")
    run(driver)
    producers, _ = run_instrumented(driver)
    assert [(each.tensor, each.operator, each.node, each.inputs) for each in producers] == [
        (name, node.op_type, node.name, tuple(node.input))
        for node in onnx.load(DIGITS).graph.node
        for name in node.output
    ]


def test_a_plain_operator_between_blocked_ones_is_blocked_too(
    load_driver: MakeDriver, tmp_path: Path
) -> None:
    text = """(float[1,16,4,4] x) => (float[] y) {
        first = Conv(x, a)
        second = Conv(x, b)
        both = Concat<axis = 1>(first, second)
        y = Conv(both, c)
    }"""
    shapes = {"a": (16, 16, 1, 1), "b": (16, 16, 1, 1), "c": (16, 32, 1, 1)}
    weights = {name: NUMBERS.random(shape, np.float32) for name, shape in shapes.items()}
    path = save_model(tmp_path / "concat.onnx", text, **weights)
    found = {}
    for level in ("all", "disable"):
        driver = load_driver(path, graph_optimization_level=level)
        run(driver)
        producers, tensors = run_instrumented(driver)
        (concat,) = [each for each in producers if each.operator == "Concat"]
        block = block_size(driver.onnxruntime) if concat.blocked else 1
        found[level] = to_plain(split_blocks(tensors[concat.tensor], block), f"nchw{block}c")
        assert concat.blocked == (level == "all" and block_size(driver.onnxruntime) > 1)
    np.testing.assert_allclose(found["all"], found["disable"], rtol=1e-5)


def test_what_is_no_plain_tensor_breaks_nothing(load_driver: MakeDriver, tmp_path: Path) -> None:
    """Control flow, sequences, optional values, outputs that are left out, unnamed nodes."""

    text = """(float[2,3] x, float[3,1,4] steps) =>
        (float[] out, float[] state, int64[] count, bool[] there) {
        most = ReduceMax<keepdims = 0>(x)
        yes = Cast<to = 9>(most)
        y = If(yes)<
            then_branch = a () => (float[] inside) { inside = Relu(x) },
            else_branch = b () => (float[] inside) { inside = Neg(x) }
        >
        pieces = SplitToSequence<axis = 0, keepdims = 0>(x)
        count = SequenceLength(pieces)
        perhaps = Optional(x)
        there = OptionalHasElement(perhaps)
        "", "", state = LSTM<hidden_size = 2>(steps, w, r)
        short = Cast<to = 16>(y)
        out = Cast<to = 1>(short)
    }"""
    shapes = {"w": (1, 8, 4), "r": (1, 8, 2)}
    weights = {name: NUMBERS.random(shape, np.float32) for name, shape in shapes.items()}
    path = save_model(tmp_path / "odd.onnx", text, opset=18, **weights)
    for level in LEVELS:
        driver = load_driver(path, graph_optimization_level=level, range=1e6)
        expected = run(driver)
        producers, tensors = run_instrumented(driver)
        assert_same_bits(tensors, expected)
        found = {each.tensor: each.operator for each in producers}
        assert found["y"] == "If"
        assert found["pieces"] == "SplitToSequence"
        assert "" not in found
        assert tensors["If_0/then/inside"].tobytes() == tensors["y"].tobytes()
