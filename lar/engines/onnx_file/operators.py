"""Facts about ONNX's operators and ONNX Runtime's fused operators, from `operators.json`.

The inputs of the operators are described at onnx.ai/onnx/operators, and in the file
docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lar.engines.operator_facts import facts_beside


class Role(NamedTuple):
    """A quantised tensor of an operator, and the places of its scale and zero point.

    Place 0 is the operator's first input, and place ~0 (which is -1) is its first output. The
    tensor's scale is the product of the scales at the places in `scales`. If a scale has several
    numbers, each number belongs to one index along the axis `axis` of the tensor.
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
    # Without a float16 kernel on a CPU, ONNX Runtime computes in float32 and removes casts between.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
