"""Assigns kinds to MegEngine's operators; the names of the kinds are the same for all engines."""

from __future__ import annotations

import re

from lar.dumps import DumpedOperator
from lar.engines.operator_facts import facts_beside
from lar.graphs import Steps

# MegEngine writes the mode of an elementwise operator in front of its operands.
MODE = re.compile(r"([A-Z][A-Z0-9_]*)\(")


def elementwise_steps(operator: DumpedOperator) -> Steps:
    """Return the steps of an elementwise operator, such as add and relu for the mode FUSE_ADD_RELU.

    The result is empty for an operator that is not elementwise.
    """
    if operator.type.lower() not in ("elemwise", "elemwisemultitype"):
        return ()
    named = MODE.match(operator.name)
    mode = str(operator.parameters.get("mode", "") or (named[1] if named else "")).lower()
    mode = mode.removeprefix("q").removeprefix("fuse_")
    if mode.startswith("mul_add"):
        return ("mul", "add")
    if mode.startswith("add_"):
        return ("add", mode.removeprefix("add_"))
    return (mode or "elemwise",)


FACTS = facts_beside(__file__)
KINDS = FACTS.operator_kinds(steps_by_mode=elementwise_steps)
