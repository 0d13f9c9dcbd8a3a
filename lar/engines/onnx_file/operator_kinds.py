"""What lar knows of ONNX's operators and of those that ONNX Runtime fuses: `operators.json`.

What the operators take in which place: onnx.ai/onnx/operators, and docs/ContribOperators.md of ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lar.graphs.operator_kinds import OperatorKinds


class Role(NamedTuple):
    """A tensor of an operator and where its scale and zero point are.

    A place counts inputs from 0, `~place` outputs. The scale is the product of those at `scales`.
    `axis` is that of the tensor along which there are several.
    """

    tensor: int
    scales: tuple[int, ...]
    zero_point: int | None = None
    axis: int | None = None


class Facts(msgspec.Struct, frozen=True):
    """The content of `operators.json`.

    Attributes:
        kinds: types of operators in small letters, by their kind in words for all engines.
        biased, opaque: such types, as `OperatorKinds` has them.
        random: types of operators that draw numbers.
        work: types by the work that they do, as `lar.engines.flops` counts it. One that stands
            nowhere has no known number of FLOPs; control flow is such a one, for its work depends
            on the data.
        inputs: which inputs are the data and the weights, where they are not the first two.
        settings: inputs that are floating-point and yet say how to compute, not with what.
        biases: the inputs that are a bias, or are added.
        taps: operations on each element, where they are not one.
        roles: the quantised tensors of an operator.
    """

    kinds: dict[str, list[str]]
    biased: frozenset[str]
    opaque: frozenset[str]
    random: tuple[str, ...]
    work: dict[str, list[str]]
    inputs: dict[str, tuple[int, ...]]
    settings: dict[str, tuple[int, ...]]
    biases: dict[str, tuple[int, ...]]
    taps: dict[str, int]
    roles: dict[str, tuple[Role, ...]]


def by_type(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}


CONTENT = Path(__file__).with_name("operators.json").read_bytes()
FACTS = msgspec.json.decode(CONTENT, type=Facts)
WORK = by_type(FACTS.work)
KINDS = OperatorKinds(
    by_type(FACTS.kinds),
    biased=FACTS.biased,
    opaque=FACTS.opaque,
    random=frozenset(map(str.lower, FACTS.random)),
    # What a CPU has no float16 kernel for is computed in float32, and casts between are removed.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
