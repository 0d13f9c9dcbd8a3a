"""Which operator is to blame, on dumps made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lar.dumps.dump import Dump
from lar.records.comparison import Comparison, Culprit
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng(0)


def noise(shape: tuple[int, ...], size: float) -> Array:
    return (size * RANDOM.standard_normal(shape)).astype(np.float32)


def chain(errors: list[float], start: Array) -> list[Step]:
    """A chain of operators whose outputs are a little further off each time."""
    steps = [Step("data", "Input", (), start)]
    for number, error in enumerate(errors):
        array = start * (1 + noise(start.shape, error))
        steps.append(Step(f"t{number}", "Tanh", (steps[-1].name,), array.astype(np.float32)))
    return steps


def outputs(culprits: tuple[Culprit, ...]) -> list[str]:
    return [it.output for culprit in culprits for it in culprit.expected]


def compare(actual: list[Step], expected: list[Step]) -> Comparison:
    return compare_dumps(dump_of(*actual), dump_of(*expected))


START = RANDOM.standard_normal((4, 50)).astype(np.float32)


def test_rounding_that_grows_is_no_fault() -> None:
    growing = [3e-8 * 1.7**step for step in range(24)]
    assert growing[-1] > 1e-3
    found = compare(chain(growing, START), chain([0.0] * 24, START))
    assert found.finding == "rounding"
    assert found.culprits == ()
    assert not found.notes


def test_a_fault_that_hides_within_the_tolerance_is_found_where_it_began() -> None:
    # The half-precision cast itself is within the tolerance, what comes of it is not.
    found = compare(chain([1e-7, 3e-5, 9e-5, 3e-4], START), chain([0.0] * 4, START))
    assert outputs(found.culprits) == ["t1"]


def test_faults_in_two_branches_are_two_culprits() -> None:
    def net(left: float, right: float) -> list[Step]:
        a, b = START * np.float32(1 + left), START * np.float32(2 + right)
        return [
            Step("data", "Input", (), START),
            Step("left", "Tanh", ("data",), a),
            Step("right", "Sigmoid", ("data",), b),
            Step("sum", "Add", ("left", "right"), a + b),
        ]

    assert outputs(compare(net(0.1, 0.1), net(0.0, 0.0)).culprits) == ["left", "right"]


def test_an_operator_that_one_side_lacks_is_named_with_what_takes_its_place() -> None:
    rectified = np.maximum(START, 0)
    doubled = {True: rectified * 2, False: START * 2}

    def net(with_relu: bool) -> list[Step]:
        relu = [Step("relu", "Relu", ("conv",), rectified)] if with_relu else []
        source = "relu" if with_relu else "conv"
        return [
            Step("data", "Input", (), START + 1),
            Step("conv", "Conv", ("data", "weight"), START),
            *relu,
            Step("pool", "MaxPool", (source,), doubled[with_relu]),
        ]

    (culprit,) = compare(net(False), net(True)).culprits
    assert [it.output for it in culprit.actual] == ["pool"]
    assert [it.output for it in culprit.expected] == ["relu", "pool"]
    assert [it.expected.name for it in culprit.inputs] == ["conv"]
    (culprit,) = compare(net(True), net(False)).culprits
    assert [it.output for it in culprit.actual] == ["relu", "pool"]


def test_nan_is_a_fault_of_the_operator_that_makes_it() -> None:
    steps = chain([0.0, 0.0, 0.0], START)
    broken = chain([0.0, 0.0, 0.0], START)
    for place in (2, 3):
        broken[place].array[1, 2] = np.nan
    found = compare(broken, steps)
    assert outputs(found.culprits) == ["t1"]
    assert found.culprits[0].output.figures is not None
    assert found.culprits[0].output.figures.nan_counts == (1, 0)


def test_data_that_differs_is_nobodys_fault() -> None:
    actual, expected = chain([0.0] * 2, START + 1), chain([0.0] * 2, START)
    found = compare(actual, expected)
    assert (found.finding, found.culprits) == ("different", ())
    assert any("fed with other data" in note for note in found.notes)


def test_an_index_may_jump_by_a_rounding_error() -> None:
    def net(error: float, index: int) -> list[Step]:
        return [
            Step("data", "Input", (), START),
            Step("scores", "Tanh", ("data",), START * np.float32(1 + error)),
            Step("best", "ArgMax", ("scores",), np.array([index, 1], np.int64)),
        ]

    assert compare(net(1e-6, 3), net(0, 4)).culprits == ()
    # From the same scores, another index is a fault.
    assert outputs(compare(net(0, 3), net(0, 4)).culprits) == ["best"]


def test_tensors_that_a_dump_lacks_are_looked_through() -> None:
    def net(error: float) -> list[Step]:
        steps = chain([0.0, error, error], START)
        steps[2] = Step("t1", "Tanh", ("t0",), START, hidden=True)
        return steps

    (culprit,) = compare(net(0.1), net(0.0)).culprits
    assert {it.output for it in culprit.expected} == {"t1", "t2"}


def test_a_dump_of_a_few_tensors_without_those_between_is_compared() -> None:
    def net(error: float) -> Dump:
        steps = chain([0.0, error, error], START)
        whole = dump_of(*steps)
        kept = replace(
            whole.index, tensors=whole.index.tensors[2:], operators=whole.index.operators[2:]
        )
        return Dump("a few", kept, lambda tensor: whole.read(tensor.key))

    found = compare_dumps(net(0.0), net(0.0))
    assert (found.finding, len(found.tensors)) == ("same", 2)
    assert not any(tensor.constant for tensor in found.tensors)
    assert outputs(compare_dumps(net(0.1), net(0.0)).culprits) == ["t1"]


def test_a_damaged_graph_with_a_cycle_ends() -> None:
    steps = [
        Step("a", "Add", ("data", "b"), START),
        Step("b", "Tanh", ("a",), START),
        Step("data", "Input", (), START),
    ]
    assert compare(steps, steps).finding == "nothing"  # it has no output
    ended = [Step("c", "Exp", ("a",), START), *steps]
    assert compare(ended, ended).finding == "same"


def test_small_numbers_hide_no_culprit() -> None:
    small = START * np.float32(1e-25)

    def net(factor: int) -> list[Step]:
        product = small * np.float32(factor)
        return [
            Step("data", "Input", (), START),
            Step("small", "Mul", ("data", "tiny"), small),
            Step("product", "Mul", ("small", "factor"), product),
            Step("large", "Mul", ("product", "huge"), product * np.float32(1e25)),
        ]

    assert outputs(compare(net(3), net(2)).culprits) == ["product"]


def test_errors_that_grow_nowhere_are_no_gradual_growth() -> None:
    found = compare(chain([1e-2, 5e-3], START * np.float32(1.01)), chain([0.0] * 2, START))
    assert not any("errors grow" in note for note in found.notes)
