"""Dumps of ONNX Runtime: the tensors of the graph that runs, with names as MegEngine's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import lar
from lar.dumps import Dump, read_facts
from lar.dumps.graph import index_of
from lar.dumps.index import read_headers
from lar.dumps.layouts import to_plain
from lar.dumps.recording import Part
from lar.engines.onnxruntime.dumps import LEAST_NODES, FedGraph, dump_tensors, save_source
from lar.engines.onnxruntime.kernels import block_size, split_blocks
from tests.cli.failures import shim
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of, with_fault
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    EACH,
    LEVELS,
    MOBILENET,
    MakeDriver,
    Outputs,
    operator_of,
    run,
)


def written_to(driver: Any, place: Path, option: str = "bin_io_dump") -> Any:
    """Give a driver a place for a dump, as the parent of a run does."""
    driver.context = replace(driver.context, written={option: str(place)})
    save_source(driver, True)
    return driver


def dumped(driver: Any, folder: Path) -> Dump:
    """Dump a fed driver's tensors and open them."""
    dump_tensors(written_to(driver, folder), True)
    index = index_of(read_headers(folder), read_facts(folder))
    return Dump(str(folder), index, lar.open_dump(folder).reader)


# The tensors


def test_tensors_are_those_of_a_session_that_gives_them_all(
    load_driver: MakeDriver, tmp_path: Path
) -> None:
    """They are fetched part by part, each by a session of its own."""
    driver = load_driver(MOBILENET)
    run(driver)
    graph = FedGraph(driver)
    names = [*graph.makers]
    assert len(names) > 2 * LEAST_NODES
    expected: Any = graph.run({*names})
    dump = dumped(driver, tmp_path / "dump")
    constants = {key for each in dump.index.operators if each.constant for key in each.outputs}
    found = {tensor.name: tensor for tensor in dump if tensor.key not in constants}
    assert list(found) == [*driver.fed, *names]
    for name in names:
        tensor, array = found[name], expected[name].numpy()
        assert dump.read(tensor.key).tobytes() == array.tobytes()
        assert operator_of(dump, tensor.operator).type == graph.makers[name].node.operator
        assert bool(tensor.layout) == (name in graph.blocked)


def test_all_is_done_without_the_package_onnx(run_lar: RunLar, tmp_path: Path) -> None:
    """Profiles and caches, and in a comparison dumps and operators that are run alone."""
    environment = shim(tmp_path, "onnx")
    words = "--iter 1 --profile p.json --fast-run --fast-run-algo-policy digits.cache"
    run_lar(str(DIGITS), *words.split(), cwd=tmp_path, env=environment, code=0)
    assert {it.source for it in lar.read_profile(tmp_path / "p.json").operators} == {"derived"}
    wrong = str(with_fault(DIGITS, "conv2.weight", tmp_path / "wrong.onnx"))
    done = run_lar("compare", str(DIGITS), wrong, "--isolate", env=environment)
    assert "conv2" in done.stdout, done.stderr


@pytest.fixture
def odd_model(tmp_path: Path) -> Path:
    """Nodes without names, an input left out, several outputs, and a tensor of each odd kind."""
    return save_model(tmp_path / "odd.onnx", text_of("kinds_of_tensors"))


def test_tensors_of_every_kind_are_dumped(
    load_driver: MakeDriver, odd_model: Path, tmp_path: Path
) -> None:
    driver = load_driver(odd_model, graph_optimization_level="disable")
    expected = run(driver)
    dump = dumped(driver, tmp_path / "dump")
    found = {tensor.name: tensor for tensor in dump}
    for name, array in expected.items():
        tensor = found[name]
        assert (tensor.dtype, tensor.shape) == (array.dtype.name, array.shape)
        assert np.array_equal(dump.read(tensor.key), array)
    assert found["sum"].shape == ()
    assert found["shape/of:x"].dtype == "int64"
    # A list of tensors is none, and has no file.
    assert "list" not in found
    top = operator_of(dump, found["places"].operator)
    assert top.outputs == (found["values"].key, found["places"].key)
    assert (found["values"].slot, found["places"].slot) == (0, 1)
    assert sorted(path.name for path in (tmp_path / "dump").iterdir()) == sorted(
        tensor.key for tensor in dump
    )


def test_the_outputs_that_are_dumped_of_a_sequence_are_its_items(
    run_lar: RunLar, tmp_path: Path
) -> None:
    """A sequence that stays bound would grow with each run."""
    text = "(float[2,3] x) => (seq(float[]) list) { list = SplitToSequence<axis = 0>(x) }"
    path = save_model(tmp_path / "list.onnx", text)
    run_lar(str(path), "--iter", "3", "--bin-out-dump", "out", cwd=tmp_path, code=0)
    assert [(tensor.name, tensor.run) for tensor in lar.open_dump(tmp_path / "out")] == [
        (name, run) for run in range(4) for name in ("list[0]", "list[1]")
    ]


# The text


def test_only_the_first_of_several_runners_dumps(load_driver: MakeDriver, tmp_path: Path) -> None:
    driver = written_to(load_driver(DIGITS), tmp_path / "dump")
    driver.runner = 1
    dump_tensors(driver, True)
    assert not (tmp_path / "dump").exists()


# The graph: the same one runs, and its outputs are the same bits


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
    shapes = {"a": (16, 16, 1, 1), "b": (16, 16, 1, 1), "c": (16, 32, 1, 1)}
    weights = {name: NUMBERS.random(shape, np.float32) for name, shape in shapes.items()}
    path = save_model(tmp_path / "concat.onnx", text_of("between_blocked_ones"), weights)
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

    shapes = {"w": (1, 8, 4), "r": (1, 8, 2)}
    weights = {name: NUMBERS.random(shape, np.float32) for name, shape in shapes.items()}
    path = save_model(tmp_path / "odd.onnx", text_of("no_plain_tensors"), weights, opset=18)
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
