"""What lar knows of ONNX's operators and of those that ONNX Runtime fuses: `operators.json`.

What the operators take in which place: onnx.ai/onnx/operators, and docs/ContribOperators.md of ONNX
Runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Role(NamedTuple):
    """A tensor of an operator and where its scale and zero point are.

    A place counts inputs from 0, `~place` outputs. The scale is the product of those at `scales`.
    `axis` is that of the tensor along which there are several.
    """

    tensor: int
    scales: Sequence[int]
    zero_point: int | None = None
    axis: int | None = None


class Facts(NamedTuple):
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
        roles: the quantised tensors of an operator, each as the values of a `Role`.
    """

    kinds: Mapping[str, Sequence[str]]
    biased: Sequence[str]
    opaque: Sequence[str]
    random: Sequence[str]
    work: Mapping[str, Sequence[str]]
    inputs: Mapping[str, Sequence[int]]
    settings: Mapping[str, Sequence[int]]
    biases: Mapping[str, Sequence[int]]
    taps: Mapping[str, int]
    roles: Mapping[str, Sequence[tuple[int, list[int], int | None, int | None]]]


def by_type(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}


FACTS = Facts(**json.loads(Path(__file__).with_name("operators.json").read_text()))
WORK = by_type(FACTS.work)
ROLES = {name: [Role(*each) for each in roles] for name, roles in FACTS.roles.items()}
