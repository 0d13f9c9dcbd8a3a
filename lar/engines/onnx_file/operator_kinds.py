"""The kinds of ONNX's operators and of those that ONNX Runtime fuses, in words for all engines."""

from __future__ import annotations

from lar.engines.onnx_file.operators import FACTS

KINDS = FACTS.operator_kinds(
    # What a CPU has no float16 kernel for is computed in float32, and casts between are removed.
    rounded={"InsertedPrecisionFreeCast_": "float16"},
)
