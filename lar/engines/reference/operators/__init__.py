"""Operators in float64 that ONNX's reference evaluator lacks, gets wrong, or rounds to float32."""

from lar.engines.reference.operators import images, tensors

__all__ = ["images", "tensors"]
