"""Dumps of what is inside If, Loop and Scan, and of values that are no tensors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

import lar
from lar.dumps.layouts import to_plain
from lar.engines.onnxruntime.isolation import SessionIsolation
from lar.errors import LarError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import RunLar

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
NUMBERS = np.random.default_rng(0)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def graph_of(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[str],
    weights: Mapping[str, Any] | None = None,
) -> Any:
    """Make a graph whose outputs have no types, as exporters may leave them out of bodies."""
    constants = [
        numpy_helper.from_array(np.asarray(it), name) for name, it in (weights or {}).items()
    ]
    return helper.make_graph(
        nodes, "g", inputs, [ValueInfoProto(name=name) for name in outputs], constants
    )


def save(path: Path, graph: Any, opset: int = 17) -> Path:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def dump_of(run_lar: RunLar, model: Path, fed: Array | None, *flags: str) -> tuple[Any, Tensors]:
    """Dump a model; those of its outputs that are tensors must be the bits that a run gives."""
    folder = model.parent
    arguments = ["--iter", "1", "--json", "result.json", "--bin-io-dump", "dump", "--overwrite"]
    if fed is not None:
        np.save(folder / "x.npy", fed)
        arguments += ["--input", "x:x.npy"]
    done = run_lar(str(model), *arguments, *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    dump = lar.open_dump(folder / "dump")
    tensors = {tensor.name: dump.read(tensor.key) for tensor in dump}
    for output in json.loads((folder / "result.json").read_text())["outputs"]:
        if output["sha256"]:
            content = tensors[output["name"]].tobytes()
            assert hashlib.sha256(content).hexdigest() == output["sha256"]
    return dump, tensors


def assert_holds(tensors: Tensors, expected: Mapping[str, Any]) -> None:
    for name, array in expected.items():
        assert tensors[name].shape == np.shape(array), name
        np.testing.assert_allclose(tensors[name], array, rtol=1e-6, err_msg=name)


def loop_of(nodes: list[Any], result: str, *stacked: str, state: Any = None) -> list[Any]:
    """Make a loop of three iterations that begins with x."""
    keep = helper.make_node("Identity", ["go"], ["on"])
    inputs = [value("i", INT64, []), value("go", BOOL, []), state or ValueInfoProto(name="v")]
    body = graph_of([keep, *nodes], inputs, ["on", result, *stacked], {"two": np.float32(2)})
    outputs = ["y", *(f"all {name}" for name in stacked)]
    return [helper.make_node("Loop", ["n", "", "x"], outputs, body=body)]


X = np.array([1.5, -2], np.float32)
WHOLE = [value("x", shape=[2])]
COUNT = {"n": np.int64(3)}


@pytest.mark.parametrize("opset", [17, 11])
def test_what_a_loop_computes_is_stacked(run_lar: RunLar, tmp_path: Path, opset: int) -> None:
    """The body's own results, what it is fed with, and those of a loop within it."""
    inside = graph_of(
        [
            helper.make_node("Identity", ["more"], ["further"]),
            helper.make_node("Mul", ["u", "two"], ["double"]),
        ],
        [value("j", INT64, []), value("more", BOOL, []), ValueInfoProto(name="u")],
        ["further", "double"],
    )
    inner = helper.make_node("Loop", ["n", "", "v"], ["w"], name="walk", body=inside)
    add = helper.make_node("Add", ["w", "x"], ["sum"], name="add")
    nodes = loop_of([inner, add], "sum", "w")
    model = save(tmp_path / "loop.onnx", graph_of(nodes, WHOLE, ["y", "all w"], COUNT), opset)
    dump, tensors = dump_of(run_lar, model, X)
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
    add = dump.operator(by_name["Loop_0/body/sum"].operator)
    assert add.name.startswith("Loop_0/body/add[")
    assert add.inputs == (by_name["Loop_0/body/w"].key, by_name["x"].key)
    assert by_name["Loop_0/body/sum"].key in dump.operator(by_name["y"].operator).inputs
    assert (dump.index.outputs, dump.index.left_out) == (("y", "all w"), {})


def branches_in_a_loop(last: str) -> list[Any]:
    """Make a loop whose first and third iteration take another branch than the second."""
    then = graph_of([helper.make_node("Mul", ["v", "two"], ["t"])], [], ["t"])
    other = graph_of([helper.make_node("Neg", ["v"], ["e"], name="neg")], [], ["e"])
    nodes = [
        helper.make_node("Cast", ["i"], ["odd"], to=BOOL),
        helper.make_node("Equal", ["i", "n"], ["never"]),
        helper.make_node("Mod", ["i", "two of int"], ["rest"]),
        helper.make_node("Cast", ["rest"], ["is odd"], to=BOOL),
        helper.make_node("If", ["is odd"], ["u"], then_branch=then, else_branch=other),
        helper.make_node(last, ["u", "x"], ["w"], **({"axis": 0} if last == "Concat" else {})),
    ]
    return loop_of(nodes, "w")


def test_of_an_if_the_branch_is_there_that_was_taken(run_lar: RunLar, tmp_path: Path) -> None:
    weights = {**COUNT, "two of int": np.int64(2)}
    graph = graph_of(branches_in_a_loop("Add"), WHOLE, ["y"], weights)
    _, tensors = dump_of(run_lar, save(tmp_path / "if.onnx", graph), X)
    first = -X + X
    second = first * 2 + X
    expected = {"else/e": [-X, -second], "then/t": [first * 2]}
    assert_holds(tensors, {f"Loop_0/body/If_0/{name}": it for name, it in expected.items()})


@pytest.mark.parametrize("opset", [17, 11])
def test_of_shapes_that_differ_the_first_is_there(
    run_lar: RunLar, tmp_path: Path, opset: int
) -> None:
    weights = {**COUNT, "two of int": np.int64(2)}
    graph = graph_of(branches_in_a_loop("Concat"), WHOLE, ["y"], weights)
    dump, tensors = dump_of(run_lar, save(tmp_path / "shapes.onnx", graph, opset), X)
    assert_holds(tensors, {"Loop_0/body/w": [[*-X, *X]], "Loop_0/body/i": [0, 1, 2]})
    assert "first of 3 values" in dump.index.left_out["Loop_0/body/w"]


@pytest.mark.parametrize("opset", [17, 11])
@pytest.mark.parametrize("loop", ["Loop", "Scan"])
def test_a_branch_that_not_all_iterations_take_hides_nothing_else(
    run_lar: RunLar, tmp_path: Path, loop: str, opset: int
) -> None:
    then = graph_of([helper.make_node("Mul", ["v", "v"], ["t"])], [], ["t"])
    other = graph_of([helper.make_node("Neg", ["v"], ["e"])], [], ["e"])
    nodes = [
        helper.make_node("Cast", ["i"], ["later"], to=BOOL),
        helper.make_node("If", ["later"], ["u"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["i", "one"], ["next"]),
    ]
    if loop == "Loop":
        walk = loop_of(nodes, "u", state=value("v", shape=[2]))
    else:
        inputs = [value("i", INT64, []), value("v", shape=[2]), value("row", INT64, [])]
        body = graph_of(nodes, inputs, ["next", "u"])
        walk = [helper.make_node("Scan", ["z", "x", "rows"], ["c", "y"], body=body)]
        ways = {"num_scan_inputs": 1, "scan_input_directions": [1]}
        walk[0].attribute.extend(helper.make_attribute(*each) for each in ways.items())
    weights = {**COUNT, "one": np.int64(1), "z": np.int64(0), "rows": np.arange(3)}
    graph = graph_of(walk, WHOLE, ["y"], weights)
    dump, tensors = dump_of(run_lar, save(tmp_path / "walk.onnx", graph, opset), X)
    assert_holds(tensors, {f"{loop}_0/body/u": [-X, X**2, X**4], f"{loop}_0/body/i": [0, 1, 2]})
    if loop == "Scan":
        assert_holds(tensors, {"Scan_0/body/row": [2, 1, 0]})
    inside = {"then/t": [X**2, X**4], "else/e": [-X]}
    inside = {f"{loop}_0/body/If_0/{name}": it for name, it in inside.items()}
    assert_holds(tensors, inside)
    assert dump.index.left_out == {}


@pytest.mark.parametrize("opset", [17, 11])
def test_a_branch_has_what_is_inside_it(run_lar: RunLar, tmp_path: Path, opset: int) -> None:
    """A scan along the last axis, and an If within the scan; nothing of the other branch."""
    inner = helper.make_node(
        "If",
        ["yes"],
        ["b"],
        then_branch=graph_of([helper.make_node("Abs", ["sum"], ["a"])], [], ["a"]),
        else_branch=graph_of([helper.make_node("Neg", ["sum"], ["c"])], [], ["c"]),
    )
    body = graph_of(
        [helper.make_node("Add", ["state", "slice"], ["sum"]), inner],
        [value("state", shape=[2]), value("slice", shape=[2])],
        ["sum", "b"],
    )
    scan = helper.make_node(
        *("Scan", ["zero", "x"], ["last", "stack"]),
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )
    then = graph_of([scan], [], ["last"], {"zero": np.zeros(2, np.float32)})
    other = graph_of([helper.make_node("ReduceMax", ["x"], ["most"], axes=[1])], [], ["most"])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["max"], keepdims=0),
        helper.make_node("Cast", ["max"], ["yes"], to=BOOL),
        helper.make_node("If", ["yes"], ["y"], name="way", then_branch=then, else_branch=other),
    ]
    graph = graph_of(nodes, [value("x", shape=[2, 3])], ["y"])
    fed = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    dump, tensors = dump_of(run_lar, save(tmp_path / "scan.onnx", graph, opset), fed)
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

    def branch(operator: str, factor: float) -> Any:
        nodes = [
            helper.make_node("Mul", ["x", "k"], ["t"], name="scale"),
            helper.make_node("Mul", ["t", "k"], ["u"]),
            helper.make_node(operator, ["u"], ["r"], name="scale it"),
        ]
        return graph_of(nodes, [], ["r"], {"k": np.float32(factor)})

    nodes = [
        helper.make_node("Mul", ["x", "k"], ["v"], name="scale"),
        helper.make_node("ReduceMax", ["v"], ["max"], keepdims=0),
        helper.make_node("Cast", ["max"], ["yes"], to=BOOL),
    ]
    for name in ("y", "z"):
        branches = {"then_branch": branch("Neg", 3), "else_branch": branch("Abs", 4)}
        way = "way" if name == "y" else ""
        nodes.append(helper.make_node("If", ["yes"], [name], name=way, **branches))
    graph = graph_of(nodes, WHOLE, ["y", "z"], {"k": np.float32(2)})
    dump, tensors = dump_of(run_lar, save(tmp_path / "names.onnx", graph), X)
    inside = {"t": X * 3, "u": X * 9, "r": X * -9}
    for way in ("way", "If_1"):
        assert_holds(tensors, {f"{way}/then/{name}": it for name, it in inside.items()})
    assert dump.index.left_out == {}


@pytest.mark.parametrize("typed", [False, True])
def test_a_loop_may_carry_a_sequence(run_lar: RunLar, tmp_path: Path, typed: bool) -> None:
    kind = helper.make_tensor_sequence_value_info("v", FLOAT, None)
    nodes = [
        helper.make_node("SequenceInsert", ["v", "v0"], ["more"]),
        helper.make_node("SequenceAt", ["more", "i"], ["item"]),
        helper.make_node("Neg", ["item"], ["minus"]),
    ]
    (loop,) = loop_of(nodes, "more", "minus", state=kind if typed else None)
    loop.input[2] = "s"
    outer = [
        helper.make_node("Abs", ["x"], ["v0"]),
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        loop,
    ]
    graph = graph_of(outer, WHOLE, ["all minus"], COUNT)
    dump, tensors = dump_of(run_lar, save(tmp_path / "carried.onnx", graph), X)
    assert_holds(tensors, {"Loop_0/body/minus": -np.stack([X, abs(X), abs(X)])})
    assert dump.index.left_out.keys() == {"Loop_0/body/v", "Loop_0/body/more"}


def test_bodies_in_the_blocked_layout_hold_what_plain_ones_hold(
    run_lar: RunLar, tmp_path: Path
) -> None:
    filters = {"w": NUMBERS.normal(size=(16, 16, 3, 3)).astype(np.float32)}
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv")
    then = graph_of([conv, helper.make_node("Relu", ["c"], ["r"])], [], ["r"], filters)
    other = graph_of([helper.make_node("Neg", ["x"], ["m"])], [], ["m"])
    looped = [
        helper.make_node("Conv", ["v", "w"], ["k"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["k"], ["z"]),
    ]
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["max"], keepdims=0),
        helper.make_node("Cast", ["max"], ["yes"], to=BOOL),
        helper.make_node("If", ["yes"], ["b"], then_branch=then, else_branch=other),
        *loop_of(looped, "z", state=value("v", shape=[1, 16, 8, 8])),
    ]
    inputs = [value("x", shape=[1, 16, 8, 8])]
    graph = graph_of(nodes, inputs, ["b", "y"], {**COUNT, **filters})
    fed = NUMBERS.random((1, 16, 8, 8), np.float32)
    model = save(tmp_path / "blocks.onnx", graph)
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
    weights = {**COUNT, "two of int": np.int64(2)}
    model = save(tmp_path / "m.onnx", graph_of(branches_in_a_loop(last), WHOLE, ["y"], weights))
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
    with pytest.raises(LarError, match="Loop_0/body/v too"):
        isolation.compute("Loop_0/body/w", {"x": X})


# Values that are no tensors


def test_sequences_maps_and_texts_are_dumped_by_their_parts(
    run_lar: RunLar, tmp_path: Path
) -> None:
    names = ["cat", "größer"]
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "one"], ["rows"]),
        helper.make_node("ZipMap", ["rows"], ["p"], domain="ai.onnx.ml", classlabels_strings=names),
        helper.make_node("ArgMax", ["rows"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            *("LabelEncoder", ["best"], ["label"]),
            domain="ai.onnx.ml",
            keys_int64s=[0, 1],
            values_strings=names,
        ),
        helper.make_node("SequenceEmpty", [], ["nothing"]),
        helper.make_node("Cast", ["x"], ["short"], to=TensorProto.BFLOAT16),
    ]
    weights = {"sizes": np.array([1, 2]), "one": np.int64(1)}
    outputs = ["label", "p", "s", "nothing", "short"]
    graph = graph_of(nodes, [value("x", shape=[3, 2])], outputs, weights)
    fed = NUMBERS.random((3, 2), np.float32)
    dump, tensors = dump_of(run_lar, save(tmp_path / "values.onnx", graph), fed)
    assert dump.index.outputs == tuple(outputs)
    columns = {f"p[{name}]": fed[1:, place] for place, name in enumerate(names)}
    assert_holds(tensors, {"s[0]": fed[:1], "s[1]": fed[1:], **columns})
    by_name = {tensor.name: tensor for tensor in dump}
    assert by_name["label"].dtype == "string"
    texts = [bytes(row).rstrip(b"\0").decode() for row in tensors["label"]]
    assert texts == [names[place] for place in fed[1:].argmax(axis=1)]
    taken = dump.operator(by_name["rows"].operator).inputs
    assert taken[:2] == (by_name["s[0]"].key, by_name["s[1]"].key)
    assert by_name["short"].dtype == "BFloat16"
    np.testing.assert_allclose(tensors["short"], fed, rtol=2**-8)
    assert dump.index.left_out == {"nothing": "a sequence without items"}


def test_outputs_that_nothing_computes_are_dumped(run_lar: RunLar, tmp_path: Path) -> None:
    """A model without inputs is a constant when it is optimised."""
    nodes = [helper.make_node("Relu", ["c"], ["y"]), helper.make_node("Abs", ["k"], ["z"])]
    weights = {"c": np.arange(4, dtype=np.float32), "k": np.array([-1])}
    graph = graph_of(nodes, [], ["y", "z"], weights)
    dump, tensors = dump_of(run_lar, save(tmp_path / "fixed.onnx", graph), None)
    assert_holds(tensors, {"y": weights["c"], "z": [1]})
    assert dump.index.outputs == ("y", "z")
