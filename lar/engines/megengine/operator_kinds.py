"""The kinds of MegEngine's operators, in words that are the same for all engines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lar.dumps.dump import DumpedOperator
from lar.graphs.operator_kinds import OperatorKinds, Steps, kinds_by_type

# MegEngine writes the mode of an elementwise operator in front of its operands.
MODE = re.compile(r"([A-Z][A-Z0-9_]*)\(")


def elementwise_steps(operator: DumpedOperator) -> Steps:
    """Return the steps of an elementwise operator by its mode, as FUSE_ADD_RELU; none for
    another operator."""
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


FACTS = json.loads(Path(__file__).with_name("operators.json").read_bytes())

KINDS = OperatorKinds(
    kinds_by_type(FACTS["kinds"]),
    may_fuse=frozenset({"convbiasforward"}),
    random=frozenset(FACTS["random"].split()),
    opaque=frozenset(FACTS["opaque"].split()),
    steps_by_mode=elementwise_steps,
)
