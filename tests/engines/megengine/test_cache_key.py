"""What the names and keys in a fast-run cache mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.megengine.cache import (
    attributes_of,
    format_key,
    key_of,
    number_bytes,
    profile_of,
    value_of,
    winograd_of,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WINOGRAD:FB_GI_F32_MK4_4x8:4:4:8:3", "F(4,3)"),
        ("WINOGRAD:FB_GI_F32_4x12:1:5:32:4", "F(5,4)"),
        ("WINOGRAD_NCHW44:FB_GI_F32_MK4_4x8:4:2:16:3", "F(2,3)"),
        ("CONVOLUTION_DEFAULT_WINOGRAD:FB_F32_K8X12X1:1:6:24:3", "F(6,3)"),
        ("WINOGRAD:FALLBACK_WINOGRAD_F32-FB_NAIVE:1:2:32:3", "F(2,3)"),
        ("CUDNN:Convolution:CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED", "winograd"),
        ("IM2COLMATMUL:X86_F32_6x16:192", ""),
        ("", ""),
    ],
)
def test_which_winograd_a_name_tells(name: str, expected: str) -> None:
    assert winograd_of(name) == expected


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("profile:plat=cpu:ConvBiasForwardv5X0", ("plat=cpu", "ConvBiasForward", 5)),
        ("profile:plat=cpu:Convolution3DForwardv5F0", ("plat=cpu", "Convolution3DForward", 5)),
        ("profile:plat=cpu:MatrixMulv5DEFAULT", ("plat=cpu", "MatrixMul", 5)),
        (
            "profile:plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10:ConvolutionForwardv5CUDA CONV",
            ("plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10", "ConvolutionForward", 5),
        ),
        ("layout_transform_profile:plat=cpu", None),
        ("profile:plat=cpu", None),
    ],
)
def test_what_a_category_tells(category: str, expected: tuple[str, str, int] | None) -> None:
    profile = profile_of(category)
    found = profile and (profile.device, profile.operator, profile.version)
    assert found == expected


def parameters(*numbers: int) -> bytes:
    return b"".join(map(number_bytes, numbers))


@pytest.mark.parametrize(
    ("operator", "blob", "expected"),
    [
        (
            "ConvolutionForward",
            b"1,3,9,9;Float32|8,3,3,3;Float32|1,8,5,4;Float32|"
            + parameters(1, 1, 1, 2, 3, 1, 1, 1, 0, 1),
            "{1,3,9,9} {8,3,3,3} -> {1,8,5,4} Float32, "
            "mode CONVOLUTION, sparse GROUP, compute_mode FLOAT32, pad 1, stride 2x3",
        ),
        (
            "ConvBiasForward",
            b"1,1,8,8;QuantizedS8|16,1,3,3;QuantizedS8|1,16,1,1;QuantizedS32|;QuantizedS8|"
            b"1,16,8,8;QuantizedS8|" + parameters(1, 0, 0, 7, 0, 0, 1, 1, 2, 2, 0),
            "{1,1,8,8} {16,1,3,3} {1,16,1,1} -> {1,16,8,8} QuantizedS8/QuantizedS32, "
            "nonlinear RELU, format NCHW44, dilate 2",
        ),
        (
            "PoolingForward",
            b"1,2,4,4;Float32|1,2,2,2;Float32|" + parameters(1, 0, 0, 2, 2, 3, 2, 0),
            "{1,2,4,4} -> {1,2,2,2} Float32, mode AVERAGE, stride 2, window 3x2",
        ),
        (
            "MatrixMul",
            b"4,2;2,1;Float32|4,3;Float32|2,3;Float32|\1\0\0\0" + parameters(0, 1),
            "{4,2} strides {2,1} {4,3} -> {2,3} Float32, transpose_a yes, format MK4",
        ),
        ("MatrixMul", b"0,4;Float32|", "{?,4} Float32"),
        ("ConvBiasForward", b"1,2;Float32|short", "{1,2} Float32"),
        ("ConvBiasForward", b"", "unknown shapes"),
        ("SomethingNew", b"1,2;Float32|3;Int8|\0\0\0\0", "{1,2} -> {3} Float32/Int8"),
        ("ConvolutionForward", parameters(*[0] * 8, 99, 0), "unknown shapes"),
    ],
)
def test_a_key_is_told(operator: str, blob: bytes, expected: str) -> None:
    assert format_key(key_of(operator, blob)) == expected


def test_a_value_without_a_name_is_its_number() -> None:
    key = key_of("ConvolutionForward", parameters(*[0] * 8, 99, 0))
    assert {part.name: value_of(part, number) for part, number in key.settings}["format"] == 99


@given(st.sampled_from(["ConvolutionForward", "MatrixMul", "New"]), st.binary(max_size=80))
def test_any_key_can_be_told(operator: str, blob: bytes) -> None:
    assert format_key(key_of(operator, blob)).isprintable()


def test_the_attributes_are_named() -> None:
    assert attributes_of(9) == ("reproducible", "depends on batch")
    assert attributes_of(0) == ()
    assert attributes_of(16) == ()
