"""The steps of MegEngine's elementwise operators, by their modes."""

from __future__ import annotations

from typing import Any

import pytest

from lar.dumps.dump import DumpedOperator
from lar.engines.megengine.operator_kinds import elementwise_steps


@pytest.mark.parametrize(
    ("name", "parameters", "steps"),
    [
        ("relu", {"mode": "RELU"}, ("relu",)),
        ("FUSE_ADD_RELU(conv,bias)[3]", {}, ("add", "relu")),
        ("FUSE_ADD_RELU(conv,bias)[3]", {"mode": "TANH"}, ("tanh",)),
        ("q", {"mode": "QFUSE_ADD_SIGMOID"}, ("add", "sigmoid")),
        ("FUSE_MUL_ADD3(a,b,c)", {}, ("mul", "add")),
        ("sum of two", {}, ("elemwise",)),
    ],
)
def test_an_elementwise_operator_has_the_steps_of_its_mode(
    name: str, parameters: dict[str, Any], steps: tuple[str, ...]
) -> None:
    for type in ("Elemwise", "ElemwiseMultiType"):
        operator = DumpedOperator(key="1", name=name, type=type, parameters=parameters)
        assert elementwise_steps(operator) == steps
    other = DumpedOperator(key="1", name=name, type="Reduce", parameters=parameters)
    assert elementwise_steps(other) == ()
