"""Dumps of what is inside If, Loop and Scan, and of values that are no tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from lar.dumps.layouts import to_plain
from lar.engines.onnxruntime.dumps import SessionIsolation
from lar.errors import LarError
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.onnxruntime.drivers import MakeDriver, operator_of
from tests.engines.reference.models import compare_dumps

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
NUMBERS = np.random.default_rng(0)
BOTH = pytest.mark.parametrize("opset", [17, 11])


def dump_of(run_lar: RunLar, model: Path, fed: Array | None, *flags: str) -> tuple[Any, Tensors]:
    """Dump a model; those of its outputs that are tensors must be the bits that a run gives."""
    folder = model.parent
    arguments = ["--iter", "1", "--json", "result.json", "--bin-io-dump", "dump", "--overwrite"]
    if fed is not None:
        np.save(folder / "x.npy", fed)
        arguments += ["--input", "x:x.npy"]
    run_lar(str(model), *arguments, *flags, cwd=folder, code=0)
    dump = lar.open_dump(folder / "dump")
    tensors = {tensor.name: dump.read(tensor.key) for tensor in dump}
    for output in json.loads((folder / "result.json").read_text())["outputs"]:
        if output["sha256"]:
            assert hashlib.sha256(tensors[output["name"]].tobytes()).hexdigest() == output["sha256"]
    return dump, tensors


def assert_holds(tensors: Tensors, expected: Mapping[str, Any]) -> None:
    for name, array in expected.items():
        assert tensors[name].shape == np.shape(array), name
        np.testing.assert_allclose(tensors[name], array, rtol=1e-6, err_msg=name)


X = np.array([1.5, -2], np.float32)
COUNT: dict[str, Any] = {"n": np.int64(3)}


@BOTH
def test_what_a_loop_computes_is_stacked(run_lar: RunLar, tmp_path: Path, opset: int) -> None:
    """The body's own results, what it is fed with, and those of a loop within it. The outputs of
    bodies have no types, as exporters may leave them out."""
    model = save_model(tmp_path / "loop.onnx", text_of("loop_in_a_loop"), COUNT, opset=opset)
    dump, tensors = dump_of(run_lar, model, X)
    if opset == 17:
        compare_dumps(model, "Loop_0/body/two", input=f"x:{tmp_path}/x.npy")
    states, doubles, fed = [X], [], []
    for _ in range(3):
        for power in range(3):
            fed.append(states[-1] * 2**power)
            doubles.append(fed[-1] * 2)
        states.append(doubles[-1] + X)
    assert_holds(
        tensors,
        {
            "Loop_0/body/i": [0, 1, 2],
            "Loop_0/body/v": states[:3],
            "Loop_0/body/walk/body/u": fed,
            "Loop_0/body/walk/body/double": doubles,
            "Loop_0/body/w": doubles[2::3],
            "Loop_0/body/sum": states[1:],
            "y": states[3],
        },
    )
    by_name = {tensor.name: tensor for tensor in dump}
    add = operator_of(dump, by_name["Loop_0/body/sum"].operator)
    assert add.name.startswith("Loop_0/body/add[")
    assert add.inputs == (by_name["Loop_0/body/w"].key, by_name["x"].key)
    assert by_name["Loop_0/body/sum"].key in operator_of(dump, by_name["y"].operator).inputs
    assert (dump.index.outputs, dump.index.left_out) == (("y", "all w"), {})


def save_branches(path: Path, last: str, opset: int = 17) -> Path:
    """Save a loop whose first and third iteration take another branch than the second."""
    weights = {**COUNT, "two of int": np.int64(2)}
    return save_model(path, text_of("branches_in_a_loop", last=last), weights, opset=opset)


def test_of_an_if_the_branch_is_there_that_was_taken(run_lar: RunLar, tmp_path: Path) -> None:
    model = save_branches(tmp_path / "if.onnx", "Add")
    _, tensors = dump_of(run_lar, model, X)
    compare_dumps(model, "Loop_0/body/two", input=f"x:{tmp_path}/x.npy")
    first = -X + X
    expected = {"else/e": [-X, -(first * 2 + X)], "then/t": [first * 2]}
    assert_holds(tensors, {f"Loop_0/body/If_0/{name}": it for name, it in expected.items()})


@BOTH
def test_of_shapes_that_differ_the_first_is_there(
    run_lar: RunLar, tmp_path: Path, opset: int
) -> None:
    model = save_branches(tmp_path / "shapes.onnx", "Concat<axis = 0>", opset)
    dump, tensors = dump_of(run_lar, model, X)
    assert_holds(tensors, {"Loop_0/body/w": [[*-X, *X]], "Loop_0/body/i": [0, 1, 2]})
    assert "first of 3 values" in dump.index.left_out["Loop_0/body/w"]


@pytest.mark.parametrize("opset", [17, 9])  # the first in which a Scan has no batch axis
@pytest.mark.parametrize("loop", ["Loop", "Scan"])
def test_a_branch_that_not_all_iterations_take_hides_nothing_else(
    run_lar: RunLar, tmp_path: Path, loop: str, opset: int
) -> None:
    weights = {**COUNT, "one": np.int64(1), "z": np.int64(0), "rows": np.arange(3)}
    text = text_of(f"branch_in_a_{loop.lower()}")
    model = save_model(tmp_path / "walk.onnx", text, weights, opset=opset)
    dump, tensors = dump_of(run_lar, model, X)
    assert_holds(tensors, {f"{loop}_0/body/u": [-X, X**2, X**4], f"{loop}_0/body/i": [0, 1, 2]})
    if loop == "Scan":
        assert_holds(tensors, {"Scan_0/body/row": [2, 1, 0]})
    inside = {"then/t": [X**2, X**4], "else/e": [-X]}
    inside = {f"{loop}_0/body/If_0/{name}": it for name, it in inside.items()}
    assert_holds(tensors, inside)
    assert dump.index.left_out == {}


@BOTH
def test_a_branch_has_what_is_inside_it(run_lar: RunLar, tmp_path: Path, opset: int) -> None:
    """A scan along the last axis, and an If within the scan; nothing of the other branch."""
    fed = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    model = save_model(tmp_path / "scan.onnx", text_of("scan_in_a_branch"), opset=opset)
    dump, tensors = dump_of(run_lar, model, fed)
    sums = np.cumsum(fed, axis=1).T
    path = "way/then/Scan_0/body/"
    assert_holds(
        tensors,
        {
            f"{path}slice": fed.T,
            f"{path}sum": sums,
            f"{path}If_0/then/a": np.abs(sums),
            "way/then/stack": np.abs(sums).T,
        },
    )
    assert not [name for name in tensors if "else" in name]
    keys = {tensor.key for tensor in dump}
    assert all(keys.issuperset(each.inputs) for each in dump.index.operators)


def test_bodies_may_hold_what_has_one_name(run_lar: RunLar, tmp_path: Path) -> None:
    """Nodes, tensors and weights of both branches, and a weight around them."""
    model = save_model(tmp_path / "names.onnx", text_of("bodies_of_one_name"))
    dump, tensors = dump_of(run_lar, model, X)
    inside = {"t": X * 3, "u": X * 9, "r": X * -9}
    for way in ("way", "If_1"):
        assert_holds(tensors, {f"{way}/then/{name}": it for name, it in inside.items()})
    assert dump.index.left_out == {}


@pytest.mark.parametrize("typed", [False, True])
def test_a_loop_may_carry_a_sequence(run_lar: RunLar, tmp_path: Path, typed: bool) -> None:
    text = text_of("loop_of_a_sequence", state="seq(float[]) v" if typed else "v")
    dump, tensors = dump_of(run_lar, save_model(tmp_path / "carried.onnx", text, COUNT), X)
    assert_holds(tensors, {"Loop_0/body/minus": -np.stack([X, abs(X), abs(X)])})
    assert dump.index.left_out.keys() == {"Loop_0/body/v", "Loop_0/body/more"}


def test_bodies_in_the_blocked_layout_hold_what_plain_ones_hold(
    run_lar: RunLar, tmp_path: Path
) -> None:
    filters = NUMBERS.normal(size=(16, 16, 3, 3)).astype(np.float32)
    model = save_model(tmp_path / "blocks.onnx", text_of("blocked_bodies"), {**COUNT, "w": filters})
    content = onnx.load(model)
    branch = content.graph.node[2].attribute[0].g
    branch.initializer.append(numpy_helper.from_array(filters, "w"))
    onnx.save(content, model)
    fed = NUMBERS.random((1, 16, 8, 8), np.float32)
    _, plain = dump_of(run_lar, model, fed, "--graph-optimization-level", "extended")
    dump, _ = dump_of(run_lar, model, fed)
    convolutions = [each for each in dump.index.operators if each.type.endswith("Conv")]
    results = [dump.tensor(each.outputs[0]) for each in convolutions]
    by_name = sorted(results, key=lambda tensor: tensor.name)
    for tensor, name in zip(by_name, ("If_0/then/r", "Loop_0/body/z"), strict=True):
        array = dump.read(tensor.key)
        found = to_plain(array, tensor.layout) if tensor.layout else array
        np.testing.assert_allclose(found, plain[name], rtol=1e-4, atol=1e-4)
    assert plain["Loop_0/body/z"].shape == (3, 1, 16, 8, 8)


@pytest.mark.parametrize("last", ["Add", "Mul"])
def test_what_is_in_a_body_is_computed_alone(
    run_lar: RunLar, make_driver: MakeDriver, tmp_path: Path, last: str
) -> None:
    """For each iteration, from what it takes there; the loop itself from its own inputs."""
    model = save_branches(tmp_path / "m.onnx", last)
    _, tensors = dump_of(run_lar, model, X)
    del tensors["Loop_0/body/two"]  # a weight
    isolation = SessionIsolation(make_driver(model))
    assert not isolation.find_missing([*tensors])
    for name in ("w", "u", "rest", "If_0/else/e", "is odd"):
        path = f"Loop_0/body/{name}"
        rest = {key: array for key, array in tensors.items() if key != path}
        if name == "If_0/else/e":
            rest["Loop_0/body/v"] = rest["Loop_0/body/v"][::2]
        assert isolation.compute(path, rest).tobytes() == tensors[path].tobytes()
    body = {key: array * 0 for key, array in tensors.items() if "/" in key}
    assert isolation.compute("y", {"x": X, **body}).tobytes() == tensors["y"].tobytes()
    with pytest.raises(LarError, match="depends on Loop_0/body/v"):
        isolation.compute("Loop_0/body/w", {"x": X})


def test_an_operator_gives_no_output_that_is_fed(make_driver: MakeDriver, tmp_path: Path) -> None:
    text = "(float[6] x) => (float[3] y) { a, b = Split<axis = 0>(x) y = Sub(a, b) }"
    isolation = SessionIsolation(make_driver(save_model(tmp_path / "m.onnx", text)))
    fed = {"x": np.arange(6, dtype=np.float32), "b": np.zeros(3, np.float32)}
    assert isolation.compute("y", fed).tolist() == [0, 1, 2]


# Values that are no tensors


def test_sequences_maps_and_texts_are_dumped_by_their_parts(
    run_lar: RunLar, tmp_path: Path
) -> None:
    names = ["cat", "größer"]
    fed = NUMBERS.random((3, 2), np.float32)
    dump, tensors = dump_of(run_lar, save_model(tmp_path / "values.onnx", text_of("values")), fed)
    assert dump.index.outputs == ("label", "p", "s", "nothing", "short")
    columns = {f"p[{name}]": fed[1:, place] for place, name in enumerate(names)}
    assert_holds(tensors, {"s[0]": fed[:1], "s[1]": fed[1:], **columns})
    by_name = {tensor.name: tensor for tensor in dump}
    assert by_name["label"].dtype == "string"
    texts = [bytes(row).rstrip(b"\0").decode() for row in tensors["label"]]
    assert texts == [names[place] for place in fed[1:].argmax(axis=1)]
    taken = operator_of(dump, by_name["rows"].operator).inputs
    assert taken[:2] == (by_name["s[0]"].key, by_name["s[1]"].key)
    assert by_name["short"].dtype == "BFloat16"
    np.testing.assert_allclose(tensors["short"], fed, rtol=2**-8)
    assert dump.index.left_out == {"nothing": "a sequence without items"}


def test_outputs_that_nothing_computes_are_dumped(run_lar: RunLar, tmp_path: Path) -> None:
    """A model without inputs is a constant when it is optimised."""
    text = "() => (y, z) <int64[1] k = {-1}> { y = Relu(c) \n z = Abs(k) }"
    weights = {"c": np.arange(4, dtype=np.float32)}
    dump, tensors = dump_of(run_lar, save_model(tmp_path / "fixed.onnx", text, weights), None)
    assert_holds(tensors, {"y": weights["c"], "z": [1]})
    assert dump.index.outputs == ("y", "z")
