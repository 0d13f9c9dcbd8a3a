"""What the evaluator cannot compute, and the values that are more than one tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import lar
from lar.dumps.dump import Dump
from tests.engines.reference.models import save

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value, node = helper.make_tensor_value_info, helper.make_node


def dump(path: Path, engine: str, **options: Any) -> Dump:
    place = path.with_name(engine)
    result = lar.run(path, engine=engine, iter=1, bin_io_dump=str(place), **options)
    assert result.status == "ok", result.failure
    return lar.open_dump(place)


def compare_dumps(path: Path, **options: Any) -> Dump:
    """Check that both engines dump tensors of the same names and values; return the evaluator's."""
    ours = dump(path, "reference", **options)
    theirs = dump(path, "onnxruntime", graph_optimization_level="disable", **options)
    names = {each.name: each.key for each in theirs}
    assert {each.name for each in ours} == names.keys()
    assert ours.index.outputs == theirs.index.outputs
    for each in ours:
        np.testing.assert_allclose(ours.read(each.key), theirs.read(names[each.name]), 1e-5)
    return ours


def test_what_cannot_be_computed_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["noise"]),
        node("Add", ["noise", "x"], ["noisy"]),
        node("Neg", ["x"], ["plain"]),
    ]
    path = save(tmp_path, nodes, ["noisy", "plain"])
    found = dump(path, "reference")
    assert {each.name for each in found} == {"x", "plain"}
    assert found.index.outputs == ("noisy", "plain")
    assert found.index.left_out == {
        "noise": "no truth for RandomNormalLike of opset 17: it draws random numbers",
        "noisy": "computed from noise, which has no truth",
    }
    result = lar.run(path, engine="reference", iter=1)
    assert [each.shape for each in result.outputs if each.name == "plain"] == [(4,)]


def test_a_model_of_which_no_output_can_be_computed_is_refused(tmp_path: Path) -> None:
    nodes = [node("RandomNormalLike", ["x"], ["n"]), node("Neg", ["n"], ["y"])]
    path = save(tmp_path, nodes, ["y"])
    result = lar.run(path, engine="reference", iter=1)
    assert result.failure is not None
    assert result.failure.exit_code == 2
    assert "cannot compute RandomNormalLike of opset 17" in result.failure.message
    assert dump(path, "reference").index.left_out.keys() == {"n", "y"}  # the rest is of use


def test_nodes_may_stand_in_any_order(tmp_path: Path) -> None:
    nodes = [node("Neg", ["b"], ["y"]), node("Relu", ["a"], ["b"]), node("Abs", ["x"], ["a"])]
    compare_dumps(save(tmp_path, nodes, ["y"]))


def test_a_size_of_minus_one_is_any_size(tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", ["x"], ["y"])], ["y"], (-1, 3))
    compare_dumps(path, input="{2,3}")


def loop(trips: int) -> list[Any]:
    body = helper.make_graph(
        [
            node("Add", ["a", "x"], ["sum"], "add"),
            node("Identity", ["sum"], ["kept"]),
            node("Identity", ["goes"], ["on"]),
        ],
        "body",
        [value("i", INT64, []), value("goes", BOOL, []), value("a", FLOAT, [4])],
        [value("on", BOOL, []), value("sum", FLOAT, [4]), value("kept", FLOAT, [4])],
    )
    count = node("Constant", [], ["count"], value_int=trips)
    return [count, node("Loop", ["count", "", "x"], ["y", "all"], body=body)]


@pytest.mark.parametrize("trips", [1, 3])
def test_a_loop_without_a_condition_makes_its_trips(tmp_path: Path, trips: int) -> None:
    found = compare_dumps(save(tmp_path, loop(trips), ["y", "all"]))
    (sums,) = (found.read(each.key) for each in found if each.name == "Loop_0/body/sum")
    assert sums.shape == (trips, 4)


def test_a_loop_without_a_trip_gives_what_it_is_fed_with(tmp_path: Path) -> None:
    found = compare_dumps(save(tmp_path, loop(0), ["y", "all"]))
    values = {each.name: found.read(each.key) for each in found}
    np.testing.assert_array_equal(values["y"], values["x"])
    assert values["all"].shape == (0, 4)


def test_a_loop_without_a_trip_gives_no_tensor_another_ones_place(tmp_path: Path) -> None:
    """Of an output whose shape the body does not state nothing is known then."""
    nodes = loop(0)
    body = nodes[1].attribute[0].g
    body.node.append(node("Shape", ["a"], ["size"]))
    body.output[2].CopyFrom(value("kept", FLOAT, None))
    body.output.append(value("size", INT64, [1]))
    nodes[1].output.append("sizes")
    found = dump(save(tmp_path, nodes, ["y", "all", "sizes"]), "reference")
    assert "all" not in {each.name for each in found}
    assert found.index.left_out.keys() >= {"all", "sizes"}


def test_a_loop_within_a_loop_has_all_iterations_in_a_row(tmp_path: Path) -> None:
    count, inner = loop(2)
    inner.input[2] = "v"
    body = helper.make_graph(
        [inner, node("Identity", ["more"], ["further"])],
        "body",
        [value("j", INT64, []), value("more", BOOL, []), value("v", FLOAT, [4])],
        [value("further", BOOL, []), value("y", FLOAT, [4])],
    )
    nodes = [count, node("Loop", ["three", "", "x"], ["z"], body=body)]
    found = compare_dumps(save(tmp_path, nodes, ["z"], three=np.array(3)))
    shapes = {each.name: each.shape for each in found}
    assert shapes["Loop_0/body/Loop_0/body/sum"] == (6, 4)


def scan(**attributes: Any) -> list[Any]:
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["o"])],
        "body",
        [value("s", FLOAT, [2]), value("e", FLOAT, [2])],
        [value("t", FLOAT, [2]), value("o", FLOAT, [2])],
    )
    given = {"body": body, "num_scan_inputs": 1, **attributes}
    return [node("Scan", ["s0", "x"], ["y", "all"], "scan", **given)]


def test_a_scan_goes_along_the_first_axis(tmp_path: Path) -> None:
    compare_dumps(save(tmp_path, scan(), ["y", "all"], (5, 2), s0=np.ones(2, "f4")))


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_scan_goes_along_other_axes_and_backwards(tmp_path: Path, side: str) -> None:
    nodes = scan(**{f"scan_{side}_axes": [1], f"scan_{side}_directions": [1]})
    shape = (2, 5) if side == "input" else (5, 2)
    compare_dumps(save(tmp_path, nodes, ["y", "all"], shape, s0=np.ones(2, "f4")))


def test_of_an_if_the_branch_that_was_taken_is_dumped(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([node(kind, ["x"], [f"in {kind}"])], kind, [], [value(name, FLOAT, [4])])
        for kind, name in (("Neg", "in Neg"), ("Abs", "in Abs"))
    ]
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Less", ["sum", "most"], ["less"]),
        node("If", ["less"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    path = save(tmp_path, nodes, ["y"], most=np.array(1e9, "f4"))
    names = {each.name for each in compare_dumps(path)}
    assert {"If_0/then/in Neg", "y"} <= names
    assert "If_0/else/in Abs" not in names


def test_the_weights_of_a_body_may_be_sparse(tmp_path: Path) -> None:
    """Their indices count elements, or have a column for each axis."""
    elements, places = np.array([1.5, -2], "f4"), {"w": [1, 6], "v": [[0, 1], [3, 2]]}
    weights = [
        helper.make_sparse_tensor(
            numpy_helper.from_array(elements, name), numpy_helper.from_array(np.array(it)), (4, 4)
        )
        for name, it in places.items()
    ]
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["b"])]
    inside = [
        helper.make_graph(nodes, "g", [], [value("b", FLOAT, [4])], sparse_initializer=weights)
        for _ in range(2)
    ]
    choice = node("If", ["yes"], ["y"], then_branch=inside[0], else_branch=inside[1])
    path = save(tmp_path, [choice], ["y"], yes=np.array(True))
    found = lar.compare(path, path, truth=True, graph_optimization_level="disable")
    assert found.truth
    assert (found.truth.actual.finding, found.truth.expected.finding) == ("same", "same")
    judged = {it.actual.name for it in found.tensors if it.truth and it.truth.actual}
    assert {"If_0/then/a", "If_0/then/b", "y"} <= judged


def test_sequences_maps_and_texts_are_dumped_by_parts(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", ["x", "parts"], ["s"], axis=1),
        node("ZipMap", ["x"], ["p"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"]),
        node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        node("Gather", ["names", "best"], ["text"]),
    ]
    texts = np.array(["one", "two", "three"], object)
    outputs = ["s", "p", "text"]
    path = save(tmp_path, nodes, outputs, (2, 3), parts=np.array([1, 2]), names=texts)
    shapes = {each.name: each.shape for each in compare_dumps(path)}
    assert (shapes["s[0]"], shapes["s[1]"], shapes["p[b]"]) == ((2, 1), (2, 2), (2,))
    assert shapes["text"][0] == 2
