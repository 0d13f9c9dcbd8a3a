"""Which tensor is which: real dumps against the truth that their names tell, and small ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.dumps.dump import Dump
from lar.dumps.index import open_dump
from lar.graphs.matching import is_generic
from lar.graphs.signatures import Values
from lar.graphs.twins import Twins, match
from lar.records.comparison import Comparison
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import Graph, compare_dumps
from tests.conftest import RunLar
from tests.dumps.blocked_tensors import to_blocked

RUNS = {
    "mge": ("mge",),
    "nchw44": ("mge", "--enable-nchw44"),
    "basic": ("onnx", "--graph-optimization-level", "basic"),
    "extended": ("onnx", "--graph-optimization-level", "extended"),
    "all": ("onnx",),
}
INPUTS = {"mobilenet_v2": "cat.npy", "digits_cnn": "digit_7.npy"}
Dumps = Callable[[str, str], Dump]


@pytest.fixture(scope="module")
def dumps(run_lar: RunLar, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    """Return what an engine dumps of a model: `dumps("mobilenet_v2", "nchw44")`."""
    folder = tmp_path_factory.mktemp("dumps")

    def make(model: str, run: str) -> None:
        suffix, *flags = RUNS[run]
        command = [f"models/{model}.{suffix}", "--input", f"inputs/{INPUTS[model]}", *flags]
        once = ["--iter", "1", "--warmup-iter", "0"]
        run_lar(*command, *once, "--bin-io-dump", str(folder / f"{model}.{run}"), cwd=root, code=0)

    for model, run in itertools.product(INPUTS, RUNS):
        make(model, run)
    return lambda model, run: open_dump(folder / f"{model}.{run}")


def without_names(dump: Dump) -> Dump:
    """The dump as another engine would have named its tensors."""
    places = {tensor.key: place for place, tensor in enumerate(dump)}
    tensors = tuple(replace(it, name=f"x{places[it.key]}") for it in dump)
    return Dump(
        dump.source, replace(dump.index, tensors=tensors), lambda tensor: dump.read(tensor.key)
    )


def match_dumps(actual: Dump, expected: Dump) -> Twins:
    return match(Graph(actual), Graph(expected), (Values(actual), Values(expected)))


def pairs_by_key(comparison: Comparison) -> dict[str, str]:
    return {it.actual.key: it.expected.key for it in comparison.tensors if not it.constant}


HEAVY = ("Conv", "FusedConv", "Gemm", "MatMul")


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_convolutions_and_products_of_two_engines_find_their_twins(
    dumps: Dumps, level: str, named: bool
) -> None:
    actual, expected = dumps("mobilenet_v2", "mge"), dumps("mobilenet_v2", level)
    found = compare_dumps(without_names(actual) if not named else actual, expected)
    assert found.finding == "same"
    pairs = {other: one for one, other in pairs_by_key(found).items()}
    matched = right = 0
    heavy = [it for it in expected.index.operators if it.type in HEAVY]
    assert len(heavy) == 53
    for operator in heavy:
        # Both models are made from one description: the names of its nodes are those of the
        # tensors, and of an operator in blocks the name of the last that it fuses.
        tensor = expected.tensor(operator.outputs[0])
        blocked = operator.name.partition("[")[0].removesuffix("_nchwc")
        truth = blocked if tensor.layout else tensor.name
        if operator.outputs[0] not in pairs:
            continue
        matched += 1
        twin = actual.tensor(pairs[operator.outputs[0]])
        # Of a fused sum the node's name is the convolution's.
        right += twin.name in (truth, truth.replace(".project", ".sum"))
    # One engine adds the biases of the ten sums later.
    assert matched >= len(heavy) - 10
    assert right == matched


@pytest.mark.parametrize("model", INPUTS)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_layouts_line_up(dumps: Dumps, model: str, named: bool) -> None:
    actual, expected = dumps(model, "nchw44"), dumps(model, "mge")
    found = compare_dumps(without_names(actual) if not named else actual, expected)
    assert (found.finding, found.culprits) == ("same", ())
    assert all(each.fused for each in found.unmatched)
    assert not any(each.constant for each in found.unmatched)
    names = {it.key: it.name for it in actual}
    for one, other in pairs_by_key(found).items():
        truth = expected.tensor(other).name
        if not is_generic(truth) and not is_generic(names[one]):
            assert names[one] == truth
    ours = {it.name for it in expected if not is_generic(it.name)} & set(names.values())
    matched = {expected.tensor(key).name for key in pairs_by_key(found).values()}
    constants = Graph(expected).constants
    computed = {it.name for it in expected if it.key not in constants}
    assert ours & computed <= matched


def test_blocked_tensors_are_compared_in_plain_axes(dumps: Dumps) -> None:
    found = compare_dumps(dumps("digits_cnn", "nchw44"), dumps("digits_cnn", "all"))
    layouts = {(it.actual.layout, it.expected.layout) for it in found.tensors}
    assert ("nchw44", "nchw16c") in layouts or ("nchw44", "nchw8c") in layouts
    relu = next(it for it in found.tensors if it.actual.name == "relu3")
    assert relu.actual.shape == relu.expected.shape == (1, 32, 4, 4)


def test_equal_graphs_are_gone_through_without_reading(dumps: Dumps) -> None:
    dump = dumps("digits_cnn", "mge")

    def refuse(tensor: object) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        raise AssertionError(tensor)

    blind = Dump("blind", dump.index, refuse)
    found = match_dumps(blind, blind)
    assert len(found.pairs) + len(found.constants) == len(dump)
    assert {pair.by for pair in found.pairs} == {"name"}


RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RANDOM.standard_normal(shape).astype(np.float32)


DATA, WEIGHT, BIAS = draw(1, 3, 6, 6), draw(8, 3, 3, 3), draw(1, 8, 1, 1)
GIVEN = draw(1, 8, 6, 6)


def test_padded_channels_are_left_out() -> None:
    data, inner, outer = draw(1, 3, 4, 4), draw(1, 6, 4, 4), draw(1, 16, 4, 4)
    plain = dump_of(
        Step("data", "Input", (), data),
        Step("one", "Conv", ("data", "w"), inner),
        Step("two", "Conv", ("one", "w"), outer),
    )
    blocked = dump_of(
        Step("data", "Input", (), data),
        Step("reorder_token_1", "Conv", ("data", "w"), to_blocked(inner, "nchw16c"), "nchw16c"),
        Step(
            "reorder_token_2",
            "Conv",
            ("reorder_token_1", "w"),
            to_blocked(outer, "nchw16c"),
            "nchw16c",
        ),
    )
    found = compare_dumps(blocked, plain)
    assert found.finding == "same"
    assert [it.actual.shape for it in found.tensors] == [data.shape, inner.shape, outer.shape]


def convolutions(weight: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> Dump:
    """A convolution, its bias and its activation, each an operator."""
    return dump_of(
        Step("data", "Input", (), DATA),
        Step("weight", "constant", (), weight),
        Step("bias", "constant", (), BIAS),
        Step("conv", "ConvolutionForward", ("data", "weight"), given - BIAS),
        Step("sum", "Elemwise", ("conv", "bias"), given, parameters={"mode": "ADD"}),
        Step("relu", "Elemwise", ("sum",), given.clip(0), parameters={"mode": "RELU"}),
    )


def fused_convolution(given: np.ndarray[Any, Any]) -> Dump:
    """The three operators as one, in blocks of four channels, and the way back to plain axes."""
    blocked = to_blocked(given.clip(0), "nchw44")
    return dump_of(
        Step("data", "Input", (), DATA),
        Step("const[1]", "constant", (), to_blocked(WEIGHT, "Ohwi4o"), "Ohwi4o"),
        Step("const[2]", "constant", (), to_blocked(BIAS, "nchw44"), "nchw44"),
        Step(
            "relu[3]",
            "ConvBiasForward",
            ("data", "const[1]", "const[2]"),
            blocked,
            "nchw44",
            {"nonlineMode": "RELU"},
        ),
        Step("dimshuffle[4]", "Dimshuffle", ("relu[3]",), blocked.transpose(0, 1, 4, 2, 3)),
        Step("out", "Reshape", ("dimshuffle[4]",), given.clip(0)),
    )


def test_a_sum_to_which_the_bias_is_added_later_is_no_twin_of_the_sum_with_it() -> None:
    """Behind a fault, where values do not tell."""
    data, weight, given = draw(1, 8, 6, 6), draw(8, 8, 3, 3), draw(1, 8, 6, 6)
    early = dump_of(
        Step("data", "Input", (), data),
        Step("w", "constant", (), weight),
        Step("b", "constant", (), BIAS),
        Step("conv", "Conv", ("data", "w", "b"), given),
        Step("sum", "Add", ("conv", "data"), given + data),
        Step("relu", "Relu", ("sum",), (given + data).clip(0)),
    )
    late = dump_of(
        Step("data", "Input", (), data),
        Step("w", "constant", (), weight),
        Step("b", "constant", (), BIAS),
        Step("conv(x)[1]", "ConvolutionForward", ("data", "w"), -given),
        Step("x[2]", "Elemwise", ("conv(x)[1]", "data"), -given, parameters={"mode": "ADD"}),
        Step("relu", "Elemwise", ("x[2]", "b"), -given, parameters={"mode": "FUSE_ADD_RELU"}),
    )
    found = match_dumps(late, early)
    assert [(it.actual.name, it.expected.name) for it in found.pairs] == [
        ("data", "data"),
        ("relu", "relu"),
    ]


def test_weights_of_fused_operators_are_compared_in_plain_axes() -> None:
    found = compare_dumps(convolutions(WEIGHT, GIVEN), fused_convolution(GIVEN))
    assert found.finding == "same"
    assert {it.actual.name: it.expected.name for it in found.tensors if it.constant} == {
        "weight": "const[1]",
        "bias": "const[2]",
    }
    assert {it.actual.shape for it in found.tensors if it.constant} == {WEIGHT.shape, BIAS.shape}


def test_the_way_back_from_blocks_at_the_end_of_a_model_is_no_difference() -> None:
    found = compare_dumps(fused_convolution(GIVEN), convolutions(WEIGHT, GIVEN))
    assert found.finding == "same"
    reasons = {it.tensor.name: it.reason for it in found.unmatched}
    assert reasons["dimshuffle[4]"] == "between relu[3] and out, which holds its data"


def test_moved_data_is_no_twin_of_its_own() -> None:
    data, x = draw(1, 8, 1, 1), draw(1, 8, 1, 1)
    plain = dump_of(Step("data", "Input", (), data), Step("pool", "MaxPool", ("data",), x))
    moved = dump_of(
        Step("data", "Input", (), data),
        Step("token", "MaxPool", ("data",), x),
        Step("pool", "ReorderOutput", ("token",), x),
    )
    found = compare_dumps(moved, plain)
    assert found.finding == "same"
    (unmatched,) = found.unmatched
    assert (unmatched.tensor.name, unmatched.fused) == ("pool", True)
    assert unmatched.reason == "the data of token"
    twin = next(it for it in found.tensors if it.expected.name == "pool")
    assert (twin.actual.name, twin.matched_by) == ("token", "name")


@pytest.mark.parametrize(("source", "first"), [("data", "graph"), ("other", "content")])
def test_a_twin_is_found_by_the_graph_if_it_is_computed_from_twins(source: str, first: str) -> None:
    data, x, y = draw(2, 8), draw(2, 8), draw(2, 8)
    actual = dump_of(
        Step("data", "Input", (), data),
        Step("a", "Tanh", ("data",), x),
        Step("b", "Exp", ("a",), y),
    )
    expected = dump_of(
        Step("data", "Input", (), data),
        Step("other", "Input", (), draw(2, 8)),
        Step("p", "Tanh", (source,), x),
        Step("q", "Exp", ("p",), y),
    )
    found = compare_dumps(actual, expected)
    assert [(it.actual.name, it.expected.name, it.matched_by) for it in found.tensors] == [
        ("data", "data", "name"),
        ("a", "p", first),
        ("b", "q", "graph"),
    ]


def test_operators_tell_which_is_which_of_tensors_in_another_order() -> None:
    """They have one source, other names and other values."""

    def net(name: str, kinds: str) -> Dump:
        steps = [Step(f"{name}{at}", kind, ("data",), draw(2, 8)) for at, kind in enumerate(kinds)]
        return dump_of(Step("data", "Input", (), DATA), *steps)

    pairs = match_dumps(net("x", "PQR"), net("y", "RQP")).pairs
    found = {(it.actual.name, it.expected.name) for it in pairs}
    assert found == {("data", "data"), ("x0", "y2"), ("x1", "y1"), ("x2", "y0")}


def test_single_tensors_are_compared_whatever_their_names() -> None:
    x = draw(3, 3)
    one, other = dump_of(Step("a", "Tanh", (), x)), dump_of(Step("b", "Exp", (), x + 1))
    assert compare_dumps(one, other).finding == "fault"
    assert compare_dumps(one, dump_of(Step("b", "Exp", (), x))).finding == "same"
