"""How well two operators fit, by the kinds of what they do."""

from __future__ import annotations

import pytest

from lar.graphs.operator_kinds import UNKNOWN, kind_score

CONV, BIASED, CLIPPED = ("conv",), ("conv", "add"), ("conv", "add", "clip")


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        (("relu",), ("relu",), 2),
        (BIASED, ("add",), 2),  # by their ends
        (("relu",), ("clip",), 1),
        (CLIPPED, ("relu6",), 1),
        (("pool",), ("reduce",), 1),
        (("pool",), ("relu",), 0),
        (("softmax",), ("tanh",), 0),  # of no group
        # One has a bias that the other lacks.
        (CONV, BIASED, -1),
        (CONV, ("matmul", "add"), 0),
        (("add",), ("add", "add"), 2),
        # An activation may be fused in.
        (("conv", UNKNOWN), CONV, 1.5),
        (("conv", "add", UNKNOWN), CLIPPED, 1.5),
        (("conv", "add", UNKNOWN), ("conv", "relu"), 0),
        (("conv", "add", UNKNOWN), ("matmul", "add"), 1),
        (("conv", "add", UNKNOWN), ("relu",), 1),
        (("conv", "add", UNKNOWN), ("softmax",), 0),
    ],
)
def test_two_operators_fit_by_their_ends(
    one: tuple[str, ...], other: tuple[str, ...], score: float
) -> None:
    assert kind_score(one, other) == score
    assert kind_score(other, one) == score
