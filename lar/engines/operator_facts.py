"""What lar knows of an engine's operators: `operators.json` beside the engine's modules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.dumps.dump import DumpedOperator
    from lar.graphs.operator_kinds import OperatorKinds, Steps


class OperatorFacts:
    """The content of the file beside a module.

    Attributes:
        kinds: types of operators in small letters, by their kind in words for all engines.
        opaque, random: such types, as `OperatorKinds` has them.
        work: types by the work that they do, as `lar.engines.flops` counts it.
        modes: of types that do one of several things, the kinds of these by their numbers.
        numbers: types by the numbers that model files have for them.
    """

    def __init__(self, module: str) -> None:
        content = json.loads(Path(module).with_name("operators.json").read_text())
        self.kinds: Mapping[str, Sequence[str]] = content["kinds"]
        self.opaque, self.random = frozenset(content["opaque"]), frozenset(content["random"])
        self.work: Mapping[str, Sequence[str]] = content["work"]
        self.modes: Mapping[str, Sequence[str]] = content.get("modes", {})
        self.numbers = {int(at): name for at, name in content.get("numbers", {}).items()}

    @cached_property
    def work_by_type(self) -> Mapping[str, str]:
        return by_type(self.work)

    def operator_kinds(self, steps_by_mode: Callable[[DumpedOperator], Steps]) -> OperatorKinds:
        """Return the kinds of the operators; the function is that of `OperatorKinds`."""
        from lar.graphs.operator_kinds import OperatorKinds

        kinds = by_type(self.kinds)
        return OperatorKinds(
            kinds, steps_by_mode=steps_by_mode, opaque=self.opaque, random=self.random
        )


def by_type(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}
