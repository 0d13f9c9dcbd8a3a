"""What is known of OpenVINO's operators: their kinds, in words for all engines, and their work."""

from __future__ import annotations

from lar.dumps.dump import DumpedOperator
from lar.engines.operator_facts import facts_beside
from lar.graphs.operator_kinds import Steps

# The parameter of a dumped operator that has the kinds of what it does, in order.
STEPS = "steps"


def steps_of(operator: DumpedOperator) -> Steps:
    """Return the kinds of what an operator of a dump does, none if the dump does not say them."""
    text = operator.parameters.get(STEPS)
    kinds = text.split(",") if isinstance(text, str) and text else ()
    return tuple("bias" if it == "add" else it for it in kinds)  # an Add is a sum of two


FACTS = facts_beside(__file__)
KINDS = FACTS.operator_kinds(steps_by_mode=steps_of)
