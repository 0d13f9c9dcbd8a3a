"""Layers whose channels stand in another order, which what follows undoes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lar.comparison.permutations import reorder
from lar.dumps.dump import Dump
from tests.comparison.known_engines import compare_dumps

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.comparison.handmade import Step, dump_of

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(1, 6, 5, 5)).astype(np.float32)
FIRST = RANDOM.normal(size=(6, 6)).astype(np.float32)
SECOND = RANDOM.normal(size=(4, 6)).astype(np.float32)
ORDER = [3, 0, 5, 1, 2, 4]


def two_layers(order: list[int], *, undone: bool = True) -> Dump:
    """A dump of two layers, with the channels between them in some order."""
    first = FIRST[order]
    second = SECOND[:, order if undone else list(range(6))]
    hidden = np.maximum(np.einsum("oi,nihw->nohw", first, X), 0)
    return dump_of(
        Step("data", "Input", (), X),
        Step("w1", "constant", (), first),
        Step("w2", "constant", (), second),
        Step("hidden", "Conv", ("data", "w1"), hidden),
        Step("shifted", "Sigmoid", ("hidden",), hidden + np.float32(1)),
        Step("end", "Conv", ("shifted", "w2"), np.einsum("oi,nihw->nohw", second, hidden + 1)),
    )


def test_an_order_that_the_next_layer_undoes_is_no_fault() -> None:
    found = compare_dumps(two_layers(ORDER), two_layers(list(range(6))))
    assert (found.finding, found.culprits) == ("same", ())
    assert {each.expected.name for each in found.tensors if each.reordered} == {
        *("hidden", "shifted", "w1", "w2")
    }
    (note,) = (note for note in found.notes if "permutation" in note)
    assert note == "a permutation, which what follows undoes: the order of hidden, shifted"


def test_an_order_that_nothing_undoes_is_a_fault() -> None:
    found = compare_dumps(two_layers(ORDER, undone=False), two_layers(list(range(6))))
    (culprit,) = found.culprits
    assert culprit.expected[0].output == "hidden"
    assert not any(each.reordered for each in found.tensors)


def test_all_axes_may_be_in_another_order() -> None:
    expected = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
    actual = expected[[2, 0, 1, 3]][:, ORDER] + np.float32(1e-6)
    assert any(np.allclose(each, actual, atol=1e-5) for each in reorder(actual, expected))


def test_channels_that_hold_the_same_are_each_taken_once() -> None:
    expected = np.zeros((5, 3), np.float32)
    expected[1], expected[4] = 1, 2
    found = next(reorder(expected[[4, 0, 2, 1, 3]], expected))
    assert np.array_equal(found, expected[[4, 0, 2, 1, 3]])
