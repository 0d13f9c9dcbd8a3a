"""The truth as a third side of dumps that are made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lar.comparison.truth import judge_by_truth
from lar.dumps.dump import Dump
from lar.records.comparison import Comparison
from lar.reports.comparison_report import describe_truth
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.known import known

Array = np.ndarray[Any, np.dtype[Any]]

DATA = np.random.RandomState(0).randn(1, 4, 6, 6)
WRONG = np.where(np.arange(DATA.size).reshape(DATA.shape) % 7, 1.0, 1.5)


def network(prefix: str, *, middle: Array | float = 1.0, names: str = "abc") -> Dump:
    """A dump of three operators in a row, the second one off by a factor."""
    one = DATA * 2 + 1
    two = np.tanh(one) * middle
    three = np.maximum(two, 0.1)
    wide = np.float64 if prefix == "truth" else np.float32
    return dump_of(
        Step("data", "Input", (), DATA.astype(wide)),
        Step(names[0], "Mul", ("data",), one.astype(wide)),
        Step(names[1], "Tanh", (names[0],), two.astype(wide)),
        Step(names[2], "Relu", (names[1],), three.astype(wide)),
        prefix=prefix,
    )


def judge(actual: Dump, expected: Dump, nearest: int = 1) -> Comparison:
    found = compare_dumps(actual, expected)
    truth = network("truth")
    against = [compare_dumps(side, truth) for side in (actual, expected)]
    return judge_by_truth(found, against, truth, nearest=nearest)


@pytest.mark.parametrize("nearest", [0, 1])
@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (1.0, 1.0, "A rounds as it must, B rounds as it must"),
        (WRONG, 1.0, "A is off in Tanh b, B rounds as it must"),
        (1.0, WRONG, "A rounds as it must, B is off in Tanh b"),
        # The truth is what is in doubt there.
        (WRONG, WRONG, "A cannot be judged, B cannot be judged"),
    ],
)
def test_the_side_that_is_off_is_named(
    actual: Any, expected: Any, words: str, nearest: int
) -> None:
    sides = network("one", middle=actual), network("other", middle=expected)
    found = judge(*sides, nearest=nearest)
    assert describe_truth(known(found.truth)) == words
    assert found.same == (actual is expected)
    doubt = "no truth for Tanh here (both engines differ from it alike)"
    assert (doubt in found.notes) == (actual is expected is WRONG)


def test_a_side_has_the_twin_in_the_truth_that_its_twin_has() -> None:
    """A calls two tensors by the names that the truth gives to others."""
    found = judge(network("one", names="bax"), network("other", names="pqr"))
    twins = dict(zip("pqr", "abc", strict=True))
    assert len(found.tensors) == 4
    for tensor in found.tensors:
        truth = known(tensor.truth)
        name = tensor.expected.name
        assert truth.tensor.name == twins.get(name, name)
        for errors in (truth.actual, truth.expected):
            assert known(known(errors).relative_l2) < 1e-6
