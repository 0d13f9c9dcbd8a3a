"""The kinds of ONNX's operators and of those that ONNX Runtime fuses, in words for all engines."""

from __future__ import annotations

from lar.engines.onnx_file.operators import FACTS, by_type
from lar.graphs.operator_kinds import OperatorKinds

KINDS = OperatorKinds(
    by_type(FACTS.kinds),
    biased=frozenset(FACTS.biased),
    opaque=frozenset(FACTS.opaque),
    random=frozenset(map(str.lower, FACTS.random)),
    # What a CPU has no float16 kernel for is computed in float32, and casts between are removed.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
