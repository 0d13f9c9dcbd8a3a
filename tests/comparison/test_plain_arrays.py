"""Sides without operators: arrays of another framework, excerpts of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lar.dumps import Dump
from lar.dumps.excerpts import excerpts_of
from lar.dumps.index import dump_of_arrays
from lar.records.comparison import Comparison
from lar.reports.comparison_report import describe_culprit
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps

RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RANDOM.standard_normal(shape).astype(np.float32)


DATA, WEIGHT = draw(1, 3, 6, 6), draw(8, 3, 3, 3)
CONV, LAST = draw(1, 8, 6, 6), draw(1, 8, 4, 4)
WRONG = CONV + 0.1


def network(conv: Any = CONV) -> Dump:
    return dump_of(
        Step("data", "Input", (), DATA),
        Step("weight", "constant", (), WEIGHT),
        Step("block1/conv", "Conv", ("data", "weight"), conv),
        Step("block1/relu", "Relu", ("block1/conv",), np.maximum(conv, 0)),
        Step("last", "AveragePool", ("block1/relu",), LAST + (conv - CONV)[..., :4, :4]),
    )


def layers(**names: str) -> dict[str, Any]:
    """The layers of the network by the names that another framework gives them."""
    arrays = {
        "data": DATA,
        "weight": WEIGHT,
        "block1/conv": CONV,
        "block1/relu": np.maximum(CONV, 0),
        "last": LAST,
    }
    return {names.get(name, name): array for name, array in arrays.items() if names.get(name) != ""}


def twins(found: Comparison) -> dict[str, tuple[str, str]]:
    return {it.actual.name: (it.expected.name, it.matched_by) for it in found.tensors}


def test_names_may_have_other_separators() -> None:
    arrays = layers(**{"block1/conv": "block1.conv", "block1/relu": "block1_relu"})
    found = compare_dumps(network(), dump_of_arrays(arrays))
    assert found.finding == "same"
    assert twins(found)["block1/conv"] == ("block1.conv", "name")
    assert twins(found)["block1/relu"] == ("block1_relu", "name")
    assert [it.actual.name for it in found.tensors if it.constant] == ["weight"]


def test_names_that_say_nothing_are_matched_by_content_and_by_shape() -> None:
    wrong = {**layers(), "last": draw(1, 8, 4, 4)}
    numbered = {f"out{place}": array for place, array in enumerate(wrong.values())}
    found = compare_dumps(dump_of_arrays(numbered), network())
    assert twins(found) == {
        "out0": ("data", "content"),
        "out2": ("block1/conv", "content"),
        "out3": ("block1/relu", "content"),
        "out4": ("last", "shape"),
    }
    assert [it.actual.name for it in found.tensors if not it.passed] == ["out4"]


@pytest.mark.parametrize("wrong", ["A", "B"])
def test_the_operator_at_fault_is_found_by_the_graph_of_the_other_side(wrong: str) -> None:
    sides = [network(WRONG), dump_of_arrays(layers())]
    actual, expected = sides if wrong == "A" else sides[::-1]
    found = compare_dumps(actual, expected)
    assert found.finding == "fault"
    (culprit,) = found.culprits
    assert describe_culprit(culprit) == "Conv block1/conv"
    assert [it.expected.name for it in culprit.inputs] == ["data"]


def test_a_wrong_input_is_no_fault_of_an_operator() -> None:
    arrays = {**layers(), "data": 2 * DATA - 1}
    for sides in ((dump_of_arrays(arrays), network()), (network(), dump_of_arrays(arrays))):
        found = compare_dumps(*sides)
        assert found.culprits == ()
        assert "the input data differs: the sides were fed with other data" in found.notes


def test_excerpts_are_compared_with_whole_tensors() -> None:
    found = compare_dumps(excerpts_of(network()), network())
    assert found.finding == "same"
    assert all(it.figures and it.figures.identical for it in found.tensors)
    found = compare_dumps(network(WRONG), excerpts_of(network()))
    assert [describe_culprit(each) for each in found.culprits] == ["Conv block1/conv"]


def test_excerpts_are_matched_by_their_statistics() -> None:
    renamed = dump_of(
        Step("x", "Input", (), DATA),
        Step("w", "constant", (), WEIGHT),
        Step("y", "Conv", ("x", "w"), CONV),
        Step("z", "Relu", ("y",), np.maximum(CONV, 0)),
    )
    found = compare_dumps(excerpts_of(renamed), network())
    assert {one: other for one, (other, _) in twins(found).items()} == {
        "x": "data",
        "y": "block1/conv",
        "z": "block1/relu",
        "w": "weight",
    }
