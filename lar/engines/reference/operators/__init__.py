"""Operators in float64 that ONNX's reference evaluator lacks, gets wrong, or rounds to float32."""

from lar.engines.reference.operators import (  # noqa: F401
    fused,
    images,
    quantized,
    recurrent,
    tensors,
    windows,
)
