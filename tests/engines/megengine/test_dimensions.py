"""What a profile says of the settings of MegEngine."""

from __future__ import annotations

from lar.engines.megengine.dimensions import is_plain_convolution
from lar.records.profile import ProfiledOperator, TensorFact


def operator_of(kind: str, layout: str, dtype: str) -> ProfiledOperator:
    inputs = (TensorFact(dtype=dtype),)
    return ProfiledOperator(
        id="1", type=kind, name="", parameters={"format": layout}, inputs=inputs
    )


def test_layouts_help_plain_convolutions_of_float32() -> None:
    assert is_plain_convolution(operator_of("ConvolutionForward", "NCHW", "float32"))
    assert not is_plain_convolution(operator_of("ConvolutionForward", "NCHW44", "float32"))
    assert not is_plain_convolution(operator_of("ConvolutionForward", "NCHW", "float16"))
    assert not is_plain_convolution(operator_of("MatrixMul", "NCHW", "float32"))
