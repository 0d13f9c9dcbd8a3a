"""What is known of MNN's operators: their kinds, in words for all engines, and their work.

Types of training, of other frameworks and of older versions are left out. If windows of a pooling
overlap, each element is counted once.
"""

from __future__ import annotations

from lar.dumps.dump import DumpedOperator
from lar.engines.mnn.net import FACTS
from lar.graphs.operator_kinds import Steps


def steps_by_mode(operator: DumpedOperator) -> Steps:
    """Return the steps of an operator whose parameters name them, none for another operator."""
    known = operator.parameters
    if "activation" in known:
        heavy = "deconv" if operator.type.startswith("Deconv") else "conv"
        return tuple(
            filter(None, (heavy, "bias" if known.get("bias") else "", known["activation"]))
        )
    return (known["mode"],) if known.get("mode") else ()


KINDS = FACTS.operator_kinds(steps_by_mode=steps_by_mode)
