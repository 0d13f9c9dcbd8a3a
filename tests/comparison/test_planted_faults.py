"""One operator altered in ten networks: that operator is named, whatever it is compared with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lar.dumps.dump import Dump
from lar.records.comparison import Culprit, OperatorFacts
from tests.comparison.known_engines import compare_dumps

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from planted_networks import IN_BLOCKS, NETWORKS, Fault, cast_half, remove

Planted = Callable[[str, str, str], Dump]

# What the altered network was run with, and the network as it should be: in one format, in two
# layouts, on two engines, and both at once.
PAIRS = (
    ("onnx", "onnx"),
    ("plain", "plain"),
    ("nchw44", "plain"),
    ("plain", "onnx"),
    ("nchw44", "blocked"),
)

CASES = [
    pytest.param(name, number, fault, *pair, id=f"{name}-{fault.kind}-{'-'.join(pair)}")
    for name, (_, faults) in NETWORKS.items()
    for number, fault in enumerate(faults)
    for pair in PAIRS
    if "nchw44" not in pair or (name in IN_BLOCKS and fault.in_blocks)
]

# What engines fuse with the operator before it.
FOLLOWING = ("relu", "relu6", "add", "sigmoid", "tanh")


def names_of(name: str, operator: str) -> list[str]:
    """The names that the result of an operator may have where others are fused with it."""
    nodes = NETWORKS[name][0]().nodes
    node = next(each for each in nodes if each.name == operator)
    names = [operator, *(node.inputs if node.kind in FOLLOWING else ())]
    while True:
        following = [each for each in nodes if operator in each.inputs]
        if len(following) != 1 or following[0].kind not in FOLLOWING:
            return names
        operator = following[0].name
        names.append(operator)


def is_named(operator: OperatorFacts, name: str) -> bool:
    """Whether an operator is that one, or a part of it: `name.scaled`, `name.half`."""
    words = (operator.output, operator.name.partition("[")[0].removesuffix("_nchwc"))
    quoted = f"{name}.weight" in operator.name or f"{name}.bias" in operator.name
    parts = {name, f"{name}.scaled", f"{name}.half", f"{name}.half.narrow"}
    return quoted or not parts.isdisjoint(words)


def names_it(culprit: Culprit, names: list[str]) -> bool:
    operators = (*culprit.actual, *culprit.expected)
    return any(is_named(operator, name) for operator in operators for name in names)


@pytest.mark.parametrize(("name", "number", "fault", "actual", "expected"), CASES)
def test_the_culprit_is_the_altered_operator(
    planted: Planted, name: str, number: int, fault: Fault, actual: str, expected: str
) -> None:
    altered, clean = planted(name, str(number), actual), planted(name, "clean", expected)
    comparison = compare_dumps(altered, clean)
    if comparison.same:  # it is averaged out before it reaches an output
        assert any(note.startswith("inside, ") for note in comparison.notes)
        comparison = compare_dumps(altered, clean, only="common")
    assert comparison.finding == "fault"
    (culprit,) = comparison.culprits
    assert names_it(culprit, names_of(name, fault.operator))
    if actual == expected == "onnx" and fault.change not in (remove, cast_half):
        # Nothing is fused there, and one side has no operator more: nothing else may be blamed.
        assert all(is_named(each, fault.operator) for each in (*culprit.actual, *culprit.expected))
    assert all(tensor.passed for tensor in culprit.inputs)
    assert not culprit.output.passed


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        (name, pair)
        for name in NETWORKS
        for pair in (*PAIRS, ("onnx", "blocked"))
        if "nchw44" not in pair or name in IN_BLOCKS
    ],
    ids=str,
)
def test_unaltered_networks_are_the_same(
    planted: Planted, name: str, pair: tuple[str, str]
) -> None:
    comparison = compare_dumps(planted(name, "clean", pair[0]), planted(name, "clean", pair[1]))
    assert comparison.culprits == ()
    assert comparison.finding == "same"
    # Everything has a twin, or lies within what the other side computes as a whole, or is the
    # second output of an operator that has one there.
    left = [each.tensor.name for each in comparison.unmatched if not each.fused]
    assert [name for name in left if ":o" not in name] == []
