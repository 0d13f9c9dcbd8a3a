"""What lar knows of an engine's operators: `operators.json` beside the engine's modules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lar.graphs.operator_kinds import OperatorKinds

Types = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """The content of such a file.

    Attributes:
        kinds: types of operators in small letters, by their kind in words for all engines.
        biased, may_fuse, opaque, random: types as `OperatorKinds` has them.
        work: types by the work that they do, as `lar.engines.flops` counts it. A type that is
            missing has no known number of FLOPs, such as ONNX's control flow, whose work depends
            on the data.
        inputs: which inputs are the data and the weights, where they are not the first two.
        settings: inputs that are floating-point and yet say how to compute, not with what.
        biases: the inputs that are a bias, or are added.
        taps: operations on each element, where they are not one; of an interpolation by its mode.
        roles: the quantised tensors of an operator, each as the values of a `Role`.
        modes: for types that do one of several things, the kinds of these by their numbers.
        numbers: types by the numbers that model files have for them.
        positions: the batch and spatial axes of a layout, where they are not (0, 2, 3).
        moves: the types that are constants; that copy; convert a layout; read no more of their
            first input than they give, or its shape alone; give a view of their input, or may; or
            have no kernel, as they hold data, take it in or give it out, or show it otherwise.
        picked_from: the inputs of which an operator reads no more than it gives: tables to pick
            from, and tensors of which it asks for the shape alone.
    """

    kinds: Mapping[str, Types]
    work: Mapping[str, Types]
    biased: Types = ()
    may_fuse: Types = ()
    opaque: Types = ()
    random: Types = ()
    inputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    settings: Mapping[str, Sequence[int]] = field(default_factory=dict)
    biases: Mapping[str, Sequence[int]] = field(default_factory=dict)
    taps: Mapping[str, int] = field(default_factory=dict)
    roles: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)
    modes: Mapping[str, Types] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    moves: Mapping[str, Types] = field(default_factory=dict)
    picked_from: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @cached_property
    def work_by_type(self) -> Mapping[str, str]:
        return by_type(self.work)

    def operator_kinds(self, **fields: Any) -> OperatorKinds:
        """Return the kinds of the operators; `fields` are those of `OperatorKinds` that are no
        facts."""
        from lar.graphs.operator_kinds import OperatorKinds

        return OperatorKinds(
            by_type(self.kinds),
            biased=frozenset(self.biased),
            may_fuse=frozenset(self.may_fuse),
            opaque=frozenset(self.opaque),
            random=frozenset(map(str.lower, self.random)),
            **fields,
        )


def facts_beside(module: str) -> OperatorFacts:
    """Read the file beside a module."""
    return OperatorFacts(**json.loads(Path(module).with_name("operators.json").read_text()))


def by_type(groups: Mapping[str, Types]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}
