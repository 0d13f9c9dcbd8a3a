"""What lar knows of ONNX's operators and of those that ONNX Runtime fuses: `operators.json`.

What the operators take in which place: onnx.ai/onnx/operators, and docs/ContribOperators.md of ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lar.engines.operator_facts import facts_beside


class Role(NamedTuple):
    """A tensor of an operator and where its scale and zero point are.

    A place counts inputs from 0, `~place` outputs. The scale is the product of those at `scales`.
    If there are several, they are along `axis` of the tensor.
    """

    tensor: int
    scales: Sequence[int]
    zero_point: int | None = None
    axis: int | None = None


FACTS = facts_beside(__file__)
WORK = FACTS.work_by_type
ROLES = {name: [Role(*each) for each in roles] for name, roles in FACTS.roles.items()}


# The kinds of ONNX's operators and of those that ONNX Runtime fuses, in words for all engines


KINDS = FACTS.operator_kinds(
    # What a CPU has no float16 kernel for is computed in float32, and casts between are removed.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
