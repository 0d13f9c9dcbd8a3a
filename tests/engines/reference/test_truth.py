"""What the evaluator cannot compute, and the values that are more than one tensor."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lar
from lar.dumps.dump import Dump
from tests.engines.reference.models import save

Array = np.ndarray[Any, np.dtype[Any]]


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
    text = """(float[4] x) => (noisy, plain) {
        noise = RandomNormalLike(x)
        noisy = Add(noise, x)
        plain = Neg(x)
    }"""
    path = save(tmp_path, text)
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
    path = save(tmp_path, "(float[4] x) => (y) { n = RandomNormalLike(x) y = Neg(n) }")
    result = lar.run(path, engine="reference", iter=1)
    assert result.failure is not None
    assert result.failure.exit_code == 2
    assert "cannot compute RandomNormalLike of opset 17" in result.failure.message
    assert dump(path, "reference").index.left_out.keys() == {"n", "y"}  # the rest is of use


def test_nodes_may_stand_in_any_order(tmp_path: Path) -> None:
    compare_dumps(save(tmp_path, "(float[4] x) => (y) { y = Neg(b) b = Relu(a) a = Abs(x) }"))


def test_a_size_of_minus_one_is_any_size(tmp_path: Path) -> None:
    path = save(tmp_path, "(float[N, 3] x) => (y) { y = Relu(x) }")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(model, path)
    compare_dumps(path, input="{2,3}")


def loop(trips: int, *, kept: str = "float[4]") -> str:
    return f"""(float[4] x) => (y, all, sizes) {{
        count = Constant <value_int = {trips}> ()
        y, all, sizes = Loop (count, "", x) <body = body
            (int64 i, bool goes, float[4] a) => (bool on, float[4] sum, {kept} kept, int64[1] size)
            {{ [add] sum = Add(a, x) kept = Identity(sum) on = Identity(goes) size = Shape(a) }}
        >
    }}"""


@pytest.mark.parametrize("trips", [1, 3])
def test_a_loop_without_a_condition_makes_its_trips(tmp_path: Path, trips: int) -> None:
    found = compare_dumps(save(tmp_path, loop(trips)))
    (sums,) = (found.read(each.key) for each in found if each.name == "Loop_0/body/sum")
    assert sums.shape == (trips, 4)


def test_a_loop_without_a_trip_gives_what_it_is_fed_with(tmp_path: Path) -> None:
    found = compare_dumps(save(tmp_path, loop(0)))
    values = {each.name: found.read(each.key) for each in found}
    np.testing.assert_array_equal(values["y"], values["x"])
    assert values["all"].shape == (0, 4)


def test_a_loop_without_a_trip_gives_no_tensor_another_ones_place(tmp_path: Path) -> None:
    """Of an output whose shape the body does not state nothing is known then."""
    found = dump(save(tmp_path, loop(0, kept="float[]")), "reference")
    assert "all" not in {each.name for each in found}
    assert found.index.left_out.keys() >= {"all", "sizes"}


def test_a_loop_within_a_loop_has_all_iterations_in_a_row(tmp_path: Path) -> None:
    text = """(float[4] x) => (z) {
        count = Constant <value_int = 2> ()
        z = Loop (three, "", x) <body = outer
            (int64 j, bool more, float[4] v) => (bool further, float[4] y) {
                further = Identity(more)
                y = Loop (count, "", v) <body = inner
                    (int64 i, bool goes, float[4] a) => (bool on, float[4] sum)
                    { on = Identity(goes) sum = Add(a, x) }
                >
            }
        >
    }"""
    found = compare_dumps(save(tmp_path, text, three=np.array(3)))
    shapes = {each.name: each.shape for each in found}
    assert shapes["Loop_0/body/Loop_0/body/sum"] == (6, 4)


def scan(sizes: str, attributes: str = "") -> str:
    return f"""(float[{sizes}] x) => (y, all) {{
        [scan] y, all = Scan (s0, x) <{attributes} num_scan_inputs = 1, body = body
            (float[2] s, float[2] e) => (float[2] t, float[2] o) {{ t = Add(s, e) o = Identity(t) }}
        >
    }}"""


def test_a_scan_goes_along_the_first_axis(tmp_path: Path) -> None:
    compare_dumps(save(tmp_path, scan("5, 2"), s0=np.ones(2, "f4")))


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_scan_goes_along_other_axes_and_backwards(tmp_path: Path, side: str) -> None:
    attributes = f"scan_{side}_axes = [1], scan_{side}_directions = [1],"
    text = scan("2, 5" if side == "input" else "5, 2", attributes)
    compare_dumps(save(tmp_path, text, s0=np.ones(2, "f4")))


def test_of_an_if_the_branch_that_was_taken_is_dumped(tmp_path: Path) -> None:
    text = """(float[4] x) => (y) {
        sum = ReduceSum <keepdims = 0> (x)
        less = Less(sum, most)
        y = If (less) <
            then_branch = n () => (float[4] negative) { negative = Neg(x) },
            else_branch = a () => (float[4] absolute) { absolute = Abs(x) }
        >
    }"""
    path = save(tmp_path, text, most=np.array(1e9, "f4"))
    names = {each.name for each in compare_dumps(path)}
    assert {"If_0/then/negative", "y"} <= names
    assert "If_0/else/absolute" not in names


def test_the_weights_of_a_body_may_be_sparse(tmp_path: Path) -> None:
    """Their indices count elements, or have a column for each axis."""
    elements, places = np.array([1.5, -2], "f4"), {"w": [1, 6], "v": [[0, 1], [3, 2]]}
    path = save(
        tmp_path,
        """(float[4] x) => (y) { y = If (yes) <
            then_branch = t () => (float[4] b) { a = MatMul(x, w) b = MatMul(a, v) },
            else_branch = e () => (float[4] b) { a = MatMul(x, w) b = MatMul(a, v) }
        > }""",
        yes=np.array(True),
    )
    model = onnx.load(path)
    for attribute, (name, it) in itertools.product(model.graph.node[0].attribute, places.items()):
        arrays = numpy_helper.from_array(elements, name), numpy_helper.from_array(np.array(it))
        attribute.g.sparse_initializer.append(helper.make_sparse_tensor(*arrays, (4, 4)))
    onnx.save(model, path)
    found = lar.compare(path, path, truth=True, graph_optimization_level="disable")
    assert found.truth
    assert (found.truth.actual.finding, found.truth.expected.finding) == ("same", "same")
    judged = {it.actual.name for it in found.tensors if it.truth and it.truth.actual}
    assert {"If_0/then/a", "If_0/then/b", "y"} <= judged


def test_sequences_maps_and_texts_are_dumped_by_parts(tmp_path: Path) -> None:
    text = """(float[2, 3] x) => (s, p, text) {
        s = SplitToSequence <axis = 1> (x, parts)
        p = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b", "c"]> (x)
        best = ArgMax <axis = 1, keepdims = 0> (x)
        text = Gather(names, best)
    }"""
    texts = np.array(["one", "two", "three"], object)
    path = save(tmp_path, text, parts=np.array([1, 2]), names=texts)
    shapes = {each.name: each.shape for each in compare_dumps(path)}
    assert (shapes["s[0]"], shapes["s[1]"], shapes["p[b]"]) == ((2, 1), (2, 2), (2,))
    assert shapes["text"][0] == 2
