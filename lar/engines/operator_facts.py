"""What lar knows of an engine's operators: `operators.json` beside the engine's modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from lar.dumps.dump import DumpedOperator
from lar.graphs.operator_kinds import OperatorKinds, Steps


class OperatorFacts(msgspec.Struct, frozen=True, dict=True):
    """The content of the file.

    Attributes:
        kinds: types of operators in small letters, by their kind in words for all engines.
        opaque, random: such types, as `OperatorKinds` has them.
        work: types by the work that they do, as `lar.engines.flops` counts it.
        modes: of types that do one of several things, the kinds of these by their numbers.
        numbers: types by the numbers that model files have for them.
    """

    kinds: Mapping[str, Sequence[str]]
    opaque: frozenset[str]
    random: frozenset[str]
    work: Mapping[str, Sequence[str]]
    modes: Mapping[str, Sequence[str]] = {}
    numbers: Mapping[int, str] = {}

    @cached_property
    def work_by_type(self) -> Mapping[str, str]:
        return by_type(self.work)

    def operator_kinds(self, steps_by_mode: Callable[[DumpedOperator], Steps]) -> OperatorKinds:
        """Return the kinds of the operators; the function is that of `OperatorKinds`."""
        return OperatorKinds(
            by_type(self.kinds),
            steps_by_mode=steps_by_mode,
            opaque=self.opaque,
            random=self.random,
        )


def read_operator_facts(module: str) -> OperatorFacts:
    """Read the file that stands beside a module."""
    content = Path(module).with_name("operators.json").read_bytes()
    return msgspec.json.decode(content, type=OperatorFacts)


def by_type(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}
