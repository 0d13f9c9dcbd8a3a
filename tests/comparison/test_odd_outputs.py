"""Outputs that are no tensors or cannot be compared, networks inside operators, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import lar
from lar.reports.comparison_report import counts_of
from tests.comparison.exported_models import (
    FLOAT,
    STRING,
    Case,
    Models,
    RealNetwork,
    blamed,
    compare,
    draw,
    model_of,
    node,
    set_attribute,
    set_type,
)
from tests.conftest import RunLar
from tests.tables import each_row

SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
ML = {"domain": "ai.onnx.ml"}


# Nothing in common


def make_alone(kind: str, strides: int, *ends: str) -> RealNetwork:
    """A convolution or a pooling whose outputs have names and a shape of their own."""
    sizes = {"strides": [strides] * 2, "kernel_shape": [3, 3]}
    nodes = [node(kind, "x w" if kind == "Conv" else "x", f"in{strides}", **sizes)]
    nodes += [node(end, f"in{strides}", end) for end in ends]
    outputs = dict.fromkeys(ends, FLOAT)
    return model_of(nodes, {"x": draw(1, 3, 16, 16)}, outputs, {"w": draw(8, 3, 3, 3)})


@pytest.mark.parametrize("kind", ["Conv", "MaxPool"])
def test_nothing_in_common_has_an_exit_code_of_its_own(
    models: Models, run_lar: RunLar, kind: str
) -> None:
    one = models.write(make_alone(kind, 1, "Sigmoid")).side()
    # Another number of outputs: no two of them stand at one place.
    other = models.write(make_alone(kind, 2, "Tanh", "Exp")).side()
    done = run_lar("compare", one, other, code=2)
    assert done.stdout.splitlines()[-1].startswith("result: nothing compared: ")
    found = lar.compare(one, other)
    assert (found.finding, counts_of(found)) == ("nothing", (0, 0))
    # Outputs at one place are twins whatever they are called, and their shapes differ.
    for end in ("Tanh", "ReduceMax"):
        alone = models.write(make_alone(kind, 2, end)).side()
        assert "shapes differ" in run_lar("compare", one, alone, code=1).stdout


# Sequences, maps, strings


def make_split(*lengths: int) -> RealNetwork:
    nodes = [node("SplitToSequence", "x lengths", "parts", axis=0)]
    return model_of(nodes, {"x": draw(6, 2)}, {"parts": SEQUENCE}, {"lengths": np.array(lengths)})


def make_several(kind: str) -> RealNetwork:
    """Two tensors in a sequence, one of them computed in another way."""
    nodes = [
        node("Relu", "x", "one"),
        node(kind, "x", "two"),
        node("SequenceConstruct", "one two", "parts"),
    ]
    return model_of(nodes, {"x": draw(3, 4)}, {"parts": SEQUENCE})


def make_labels(*labels: str) -> RealNetwork:
    """Words that a table gives to numbers."""
    keys = {"keys_int64s": [0, 1, 2], "values_strings": [*labels], "default_string": "?"}
    nodes = [
        node("ArgMax", "x", "place", axis=1, keepdims=0),
        node("LabelEncoder", "place", "label", **keys, **ML),
    ]
    return model_of(nodes, {"x": np.eye(3, dtype=np.float32)}, {"label": STRING})


def make_map(kind: str) -> RealNetwork:
    """A map of words to numbers for each row, as classifiers of scikit-learn give it."""
    value = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    nodes = [
        node(kind, "x", "scores", axis=1),
        node("ZipMap", "scores", "maps", classlabels_strings=["a", "b", "c"], **ML),
    ]
    return model_of(nodes, {"x": draw(4, 3)}, {"maps": helper.make_sequence_type_proto(value)})


ODD = {
    "sequence, other lengths": (make_split(2, 4), make_split(3, 3)),
    "sequence, more elements": (make_split(2, 2, 2), make_split(2, 4)),
    "sequence, other values": (make_several("Tanh"), make_several("Sigmoid")),
    "strings": (make_labels("cat", "dog", "bird"), make_labels("cat", "cow", "bird")),
    "maps": (make_map("Softmax"), make_map("LogSoftmax")),
}


@pytest.mark.parametrize("kind", ODD)
def test_outputs_of_any_kind_are_compared(models: Models, run_lar: RunLar, kind: str) -> None:
    one, other = map(models.write, ODD[kind])
    done = run_lar("compare", one.side(), one.side(), code=0)
    assert "result: the same" in done.stdout
    assert "(0 outputs" not in done.stdout
    done = run_lar("compare", one.side(), other.side())
    assert done.returncode in (1, 2)
    assert "result: the same" not in done.stdout


def test_the_element_of_a_sequence_that_differs_is_named(models: Models) -> None:
    one, other = map(models.write, ODD["sequence, other values"])
    found = compare(one, other)
    assert [it.expected.name for it in found.tensors if it.is_output and not it.passed]
    assert blamed(found)[0] == "Tanh"


# Random operators


def make_random(kind: str, **attributes: Any) -> RealNetwork:
    """A branch that draws numbers, and one that does not."""
    source = "x" if kind in ("RandomNormalLike", "RandomUniformLike", "Bernoulli") else ""
    source = "logits" if kind == "Multinomial" else source
    nodes = [
        node("Sigmoid", "x", "steady"),
        node("LogSoftmax", "x", "logits", axis=1),
        node(kind, source, "drawn", **attributes),
        node("Cast", "drawn", "numbers", to=FLOAT),
        node("Exp", "numbers", "noisy"),
    ]
    feeds = {"x": np.abs(draw(4, 6)).clip(0.1, 0.9)}
    return model_of(nodes, feeds, {"steady": FLOAT, "noisy": FLOAT}, opset=15)


@each_row("comparison/cases/random operators")
def test_what_is_drawn_is_not_compared(
    models: Models, kind: str, attributes: dict[str, Any]
) -> None:
    network = make_random(kind, **attributes)
    case = models.write(network, set_attribute(kind, seed=1.0))
    found = compare(models.write(network, set_attribute(kind, seed=2.0)), case)
    assert (found.finding, found.culprits) == ("same", ())
    assert [it.actual.name for it in found.tensors if it.is_output] == ["steady"]
    (note,) = (it for it in found.notes if it.startswith("random operators: "))
    assert note.endswith("drawn, and all tensors computed from them, are not compared")
    assert [it.name for it in found.left_out if it.is_output] == ["noisy", "noisy"]
    # The other output still decides.
    wrong = models.write(network, set_attribute(kind, seed=2.0), set_type("steady", "Tanh"))
    assert blamed(compare(wrong, case)) == ["Tanh"]


# What the models are fed with


def test_only_the_item_that_shows_a_fault_is_named(models: Models) -> None:
    """Of three items one has numbers beyond the limit."""
    inputs = np.stack([draw(3, seed=seed).clip(-1, 1) for seed in range(3)])
    inputs[1, 0] = 5

    def make(limit: float) -> RealNetwork:
        nodes = [node("Clip", "x low high", "z"), node("Exp", "z", "out")]
        weights = {"low": np.float32(-3), "high": np.float32(limit)}
        return model_of(nodes, {"x": inputs[:1]}, {"out": FLOAT}, weights)

    folder = models.folder / "items"
    folder.mkdir()
    for number, item in enumerate(inputs):
        np.save(folder / f"{number}.npy", item[None])
    one, other = (Case(models.write(make(limit)).path, (str(folder),)) for limit in (2, 3))
    found = compare(one, other)
    assert len(found.items) == 3
    assert not found.same
    (note,) = (it for it in found.notes if it.startswith("only item"))
    assert note.endswith(" shows the fault at z")
    assert "1" in note


def test_batches_that_differ_are_told(models: Models, run_lar: RunLar) -> None:
    network = model_of([node("Tanh", "x", "y")], {"x": draw(2, 3)}, {"y": FLOAT})
    network.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    more = models.write(network, feeds={"x": draw(4, 3)})
    done = run_lar("compare", models.write(network).side(), more.side())
    assert done.returncode != 0
    assert "the batch differs: A was run with 2 items, B with 4" in done.stdout


def test_what_an_engine_did_not_record_is_said_first(models: Models, run_lar: RunLar) -> None:
    """The graph inside SequenceMap is computed by the engine as a whole."""
    body = helper.make_graph(
        [node("Exp", "item", "done")],
        "body",
        [helper.make_tensor_value_info("item", FLOAT, None)],
        [helper.make_tensor_value_info("done", FLOAT, None)],
    )
    nodes = [
        node("SplitToSequence", "x", "parts", axis=0, keepdims=1),
        node("SequenceMap", "parts", "mapped", body=body),
        node("ConcatFromSequence", "mapped", "out", axis=0),
    ]
    case = models.write(model_of(nodes, {"x": draw(3, 4)}, {"out": FLOAT}, opset=17))
    done = run_lar("compare", case.side(), case.side(), code=0)
    lines = [line.partition(" than it ran: ")[0] for line in done.stdout.splitlines()]
    gaps = [line for line in lines if line.endswith(" recorded less")]
    assert lines[: len(gaps)] == gaps
    assert {*gaps} == {"A recorded less", "B recorded less"}


# The truth


def make_old_softmax(kind: str) -> RealNetwork:
    return model_of([node(kind, "x", "y", axis=1)], {"x": draw(2, 3, 4)}, {"y": FLOAT}, opset=11)


UNDOUBTED = {
    "Softmax": make_old_softmax("Softmax"),
    "Hardmax": make_old_softmax("Hardmax"),
    "GlobalMaxPool": model_of(
        [node("GlobalMaxPool", "x", "y")], {"x": draw(2, 3, 5)}, {"y": FLOAT}
    ),
    "LpNormalization": model_of(
        [node("LpNormalization", "x", "y", axis=-1, p=1)], {"x": draw(2, 5)}, {"y": FLOAT}
    ),
    "LpPool": model_of(
        [node("LpPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
        {"x": draw(1, 2, 6, 6)},
        {"y": FLOAT},
        opset=18,
    ),
}


@pytest.mark.parametrize("kind", UNDOUBTED)
def test_the_truth_accuses_nobody_of_what_all_engines_do(models: Models, kind: str) -> None:
    case = models.write(UNDOUBTED[kind])
    found = compare(case, case, truth=True)
    assert found.same
    assert found.truth
    for side in (found.truth.actual, found.truth.expected):
        assert side.finding not in ("fault", "different")
        assert side.culprits == ()


def test_a_size_of_any_number_and_nodes_in_any_order_are_taken_as_the_engine_takes_them(
    models: Models, run_lar: RunLar
) -> None:
    def make_any_size(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1

    def turn_nodes(model: onnx.ModelProto) -> None:
        nodes = [*reversed(model.graph.node)]
        del model.graph.node[:]
        model.graph.node.extend(nodes)

    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Tanh", "b", "y")]
    network = model_of(nodes, {"x": draw(1, 3, 8, 8)}, {"y": FLOAT})
    case = models.write(network, make_any_size, turn_nodes)
    done = run_lar("compare", case.side(), case.side(), "--truth")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith("A rounds as it must, B rounds as it must")
