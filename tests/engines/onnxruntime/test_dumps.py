"""Dumps of ONNX Runtime: the tensors of the graph that runs, with names as MegEngine's."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import pytest

import lar
from lar.dumps.dump import Dump
from lar.dumps.facts import read_facts
from lar.dumps.graph import index_of
from lar.dumps.index import read_headers
from lar.dumps.layouts import block_of, to_plain
from lar.dumps.values import Part
from lar.engines.onnxruntime.blocked_layout import block_size, split_blocks
from lar.engines.onnxruntime.dumps import FedGraph, dump_tensors, save_source
from lar.engines.onnxruntime.graph import LEAST_NODES
from lar.errors import UsageError
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    EACH,
    LEVELS,
    MOBILENET,
    REPOSITORY,
    MakeDriver,
    Outputs,
    operator_of,
    run,
    save_model,
)

if TYPE_CHECKING:
    from tests.conftest import RunLar

SEVEN = str(REPOSITORY / "inputs" / "digit_7.npy")


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


# The run


def test_a_dump_is_made_beside_a_run_whose_numbers_stay(run_lar: RunLar, tmp_path: Path) -> None:
    hashes = []
    for name, flags in {
        "plain": [],
        "dumped": ["--bin-io-dump", "new/dump", "--io-dump", "dump.txt", "--bin-out-dump", "out"],
    }.items():
        file = tmp_path / f"{name}.json"
        arguments = ["--input", SEVEN, "--iter", "2", "--json", str(file), *flags]
        done = run_lar(str(DIGITS), *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "the times are those of a run with" not in done.stderr
        hashes.append(json.loads(file.read_text())["outputs"][0]["sha256"])
    assert hashes[0] == hashes[1]

    dump = lar.open_dump(tmp_path / "new" / "dump")
    index = dump.index
    assert (index.complete, index.engine, index.iteration) == (True, "onnxruntime", 0)
    constants = {key for each in index.operators if each.constant for key in each.outputs}
    computed = [tensor for tensor in dump if tensor.key not in constants]
    assert computed[0].name == "data"
    assert hashlib.sha256(dump.read(index.tensors[-1].key).tobytes()).hexdigest() == hashes[0]
    convolution = next(operator for operator in index.operators if "Conv" in operator.type)
    assert convolution.parameters["kernel_shape"] == [3, 3]
    assert convolution.inputs[0] == computed[0].key
    text = (tmp_path / "dump.txt").read_text()
    produced = re.findall(r"^var(\d+) produced: name=(.*?) layout=", text, re.MULTILINE)
    assert produced == [(str(int(tensor.key, 16)), tensor.name) for tensor in computed]

    outputs = lar.open_dump(tmp_path / "out")
    assert [tensor.key for tensor in outputs] == ["run0-var0", "run1-var0", "run2-var0"]
    for tensor in outputs:
        assert hashlib.sha256(outputs.read(tensor.key).tobytes()).hexdigest() == hashes[0]


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


def test_blocked_tensors_hold_what_plain_ones_hold(load_driver: MakeDriver, tmp_path: Path) -> None:
    dumps = []
    for name, settings in {
        "blocked": {},
        "plain": {"graph_optimization_level": "extended"},
    }.items():
        driver = load_driver(DIGITS, **settings)
        run(driver)
        dumps.append(dumped(driver, tmp_path / name))
    blocked, plain = dumps
    if not any(tensor.layout for tensor in blocked):
        pytest.skip("ONNX Runtime has no blocked layout for this CPU")
    arrays = [plain.read(tensor.key) for tensor in plain if tensor.operator and not tensor.layout]
    # Filters too, of blocks of output channels and of both.
    assert {tensor.layout[1:4] for tensor in blocked if "hw" in tensor.layout} >= {"ihw", "Ihw"}
    for tensor in blocked:
        if tensor.layout:
            assert tensor.shape[-1] == block_of(tensor.layout) or "hw" in tensor.layout
            values = to_plain(blocked.read(tensor.key), tensor.layout)
            assert any(
                values.shape == array.shape and np.allclose(values, array, rtol=1e-4, atol=1e-5)
                for array in arrays
            ), tensor


WITHOUT_ONNX = """
import sys
from pathlib import Path
import numpy as np
sys.modules["onnx"] = None
from lar.engines import engine_named
from lar.engines.onnxruntime.isolation import SessionIsolation
from lar.engines.onnxruntime.profile import graph_of
from lar.engines.onnxruntime.session import SessionDriver
from lar.measurement.machine import read_model_file
from lar.records.run import RunContext, RunSpec

model, folder = sys.argv[1:]
keys = "bin_io_dump", "profile"
written = {key: f"{folder}/{key}" for key in keys}
settings = {**dict.fromkeys(keys, "x"), "fast_run": True, "fast_run_algo_policy": f"{folder}/c"}
spec = RunSpec(model=model, engine="onnxruntime", driver="session", settings=settings)
context = RunContext(work_folder=folder, written=written, model=read_model_file(Path(model)))
driver = SessionDriver(spec, engine_named("onnxruntime").rows, context)
driver.load()
(fed,) = driver.inputs()
driver.feed({fed.name: np.zeros([size or 1 for size in fed.shape], fed.dtype)})
print(graph_of(driver)[1], len(SessionIsolation(driver).makers))
"""


def test_runs_dumps_profiles_and_caches_do_without_the_package_onnx(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITHOUT_ONNX, str(DIGITS), str(tmp_path)]
    done = subprocess.run(
        program, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.startswith("() "), done.stderr
    assert len(lar.open_dump(tmp_path / "bin_io_dump")) > LEAST_NODES


@pytest.fixture
def odd_model(tmp_path: Path) -> Path:
    """Nodes without names, an input left out, several outputs, and a tensor of each odd kind."""
    text = """(float[2,3] x) => (int64[2] "shape/of:x", float sum, float[2,2] values,
        int64[2,2] places, double[2,2] double, int64[2,n] found, float[2,3] y)
        <int64[1] k = {2}, float most = {0.5}, int64 index = {1}> {
        "shape/of:x" = Shape(x)
        sum = ReduceSum<keepdims = 0>(x)
        clipped = Clip(x, "", most)
        values, places = TopK(clipped, k)
        double = Cast<to = 11>(values)
        found = NonZero(clipped)
        list = SequenceConstruct(x, clipped)
        picked = SequenceAt(list, index)
        y = Identity(picked)
    }"""
    return save_model(tmp_path / "odd.onnx", text)


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


def test_a_graph_from_a_cache_is_dumped_too(run_lar: RunLar, tmp_path: Path) -> None:
    for flags in (["--fast-run"], ["--bin-io-dump", "dump"]):
        arguments = ["--iter", "1", "--fast-run-algo-policy", "digits.cache", *flags]
        done = run_lar(str(DIGITS), *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert [tensor.name for tensor in lar.open_dump(tmp_path / "dump")][-1] == "logits"


def test_the_outputs_that_are_dumped_of_a_sequence_are_its_items(
    run_lar: RunLar, tmp_path: Path
) -> None:
    """A sequence that stays bound would grow with each run."""
    text = "(float[2,3] x) => (seq(float[]) list) { list = SplitToSequence<axis = 0>(x) }"
    path = save_model(tmp_path / "list.onnx", text)
    done = run_lar(str(path), "--iter", "3", "--bin-out-dump", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    dump = lar.open_dump(tmp_path / "out")
    assert [(tensor.name, tensor.run) for tensor in dump] == [
        (name, run) for run in range(4) for name in ("list[0]", "list[1]")
    ]


# The text


def test_two_equal_text_dumps_are_identical(load_driver: MakeDriver, tmp_path: Path) -> None:
    texts = []
    for name in ("one.txt", "two.txt"):
        driver = load_driver(DIGITS)
        run(driver)
        dump_tensors(written_to(driver, tmp_path / name, "io_dump"), "io_dump")
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    *_, last = re.findall(r"^var\d+ produced:.*?(?=^var|\Z)", texts[0], re.MULTILINE | re.DOTALL)
    pattern = (
        r"var\d+ produced: name=logits layout=\{2\(10\),10\(1\) Float32\} owner_opr=.*\{Gemm\} "
        r"opr\d+\n deps:\n  \[i0\]var\d+: \[.*, \.\.\.\] s\n  \[i1\]var\d+: <constant> s\n"
        r"  \[i2\]var\d+: <constant> s\n"
        r" val: \[.*, \.\.\.\]min=\S+ max=\S+ mean=\S+ l2=\S+ sd=\S+ s\n"
    )
    assert re.fullmatch(pattern, last), last


def test_only_the_first_of_several_runners_dumps(load_driver: MakeDriver, tmp_path: Path) -> None:
    driver = written_to(load_driver(DIGITS), tmp_path / "dump")
    driver.runner = 1
    dump_tensors(driver, True)
    assert not (tmp_path / "dump").exists()


def test_a_dump_without_facts_is_one_all_the_same(tmp_path: Path) -> None:
    assert read_facts(tmp_path / "missing").operators == ()
    with pytest.raises(UsageError):
        lar.open_dump(tmp_path / "missing")


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
    text = """(float[1,16,4,4] x) => (float[] y) {
        first = Conv(x, a)
        second = Conv(x, b)
        both = Concat<axis = 1>(first, second)
        y = Conv(both, c)
    }"""
    shapes = {"a": (16, 16, 1, 1), "b": (16, 16, 1, 1), "c": (16, 32, 1, 1)}
    weights = {name: NUMBERS.random(shape, np.float32) for name, shape in shapes.items()}
    path = save_model(tmp_path / "concat.onnx", text, weights)
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
    path = save_model(tmp_path / "odd.onnx", text, weights, opset=18)
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
