"""The kind of kernel that a convolution or a product has, from the optimised graph."""

from __future__ import annotations

from typing import Any

import pytest

from lar.engines.onnx_file.fields import Message
from lar.engines.onnxruntime.kernel_kinds import kernel_kind
from lar.records.profile import TensorFact

Shape = tuple[int, ...]
X, BLOCKED = (1, 8, 9, 9), "NCHW16c"


def kind_of(
    operator: str,
    shape: Shape,
    weights: Shape,
    made: Shape = (1, 8, 9, 9),
    *,
    layouts: tuple[str, str] = ("", ""),
    types: tuple[str, str] = ("float32", "float32"),
    constant: bool = True,
    filled: Shape | None = None,
    **parameters: Any,
) -> str | None:
    """The kind for these shapes; the weights are the second input, or the fourth of QLinear."""
    names = ["x", "s", "z", "w"] if operator.startswith(("QLinear", "QGemm")) else ["x", "w"]
    facts = {
        "x": TensorFact(shape, types[0], layouts[0]),
        "w": TensorFact(filled or weights, types[1], ""),
        "y": TensorFact(made, types[0], layouts[1]),
    }
    constants = {"w": facts["w"]} if constant else {}
    filters = {"w": weights} if filled else {}
    node = Message("Node", op_type=operator, input=names, output=["y"])
    return kernel_kind(node, parameters, facts, constants, filters)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "Conv 3x3 NCHW"),
        ({"weights": (8, 8, 1, 1)}, "Conv pointwise 1x1 NCHW"),
        ({"weights": (8, 1, 3, 3), "group": 8}, "Conv depthwise 3x3 NCHW"),
        ({"weights": (8, 1, 1, 1), "group": 8}, "Conv depthwise 1x1 NCHW"),
        ({"weights": (8, 4, 3, 3), "group": 2}, "Conv grouped 3x3 NCHW"),
        ({"strides": [2, 2]}, "Conv 3x3/2 NCHW"),
        ({"strides": [2, 1], "weights": (8, 8, 5, 3)}, "Conv 5x3/2x1 NCHW"),
        ({"dilations": [2, 2], "strides": [1, 1]}, "Conv 3x3 dilated 2 NCHW"),
        ({"layouts": (BLOCKED, BLOCKED)}, "Conv 3x3 NCHW16c"),
        ({"layouts": ("", BLOCKED)}, "Conv 3x3 NCHW to NCHW16c"),
        (
            # Blocks were filled up: the network's own weights are of one channel each.
            {"weights": (8, 1, 3, 3), "filled": (16, 1, 3, 3), "group": 16},
            "Conv depthwise 3x3 NCHW",
        ),
        ({"shape": (1, 8, 9), "weights": (8, 8, 3), "made": (1, 8, 9)}, "Conv 3 NCW"),
        (
            {"shape": (1, 8, 4, 9, 9), "weights": (8, 8, 3, 3, 3), "made": (1, 8, 4, 9, 9)},
            "Conv 3x3x3 NCDHW",
        ),
        ({"types": ("float16", "float16")}, "Conv 3x3 NCHW float16"),
    ],
)
def test_convolutions(given: dict[str, Any], kind: str) -> None:
    found = {"shape": X, "weights": (8, 8, 3, 3), **given}
    assert kind_of("Conv", **found) == kind


def test_other_convolutions() -> None:
    assert kind_of("FusedConv", X, (8, 8, 1, 1)) == "FusedConv pointwise 1x1 NCHW"
    quantised = kind_of("QLinearConv", X, (8, 8, 3, 3), types=("uint8", "int8"))
    assert quantised == "QLinearConv 3x3 NCHW uint8 by int8"
    last = kind_of("QLinearConv", X, (8, 8, 3, 3), types=("uint8", "uint8"), channels_last=1)
    assert last == "QLinearConv 3x3 NHWC uint8"
    assert kind_of("NhwcFusedConv", X, (8, 8, 3, 3)) == "NhwcFusedConv 3x3 NHWC"
    depthwise = kind_of("ConvTranspose", X, (8, 1, 3, 3), group=8)
    assert depthwise == "ConvTranspose depthwise 3x3 NCHW"


@pytest.mark.parametrize(
    ("operator", "shapes", "given", "kind"),
    [
        ("MatMul", ((4, 8), (8, 3), (4, 3)), {}, "MatMul by weights"),
        ("MatMul", ((2, 4, 8), (8, 3), (2, 4, 3)), {}, "MatMul by weights"),
        ("MatMul", ((1, 8), (8, 3), (1, 3)), {}, "MatMul one row by weights"),
        (
            *("MatMul", ((2, 5, 4, 8), (2, 5, 8, 4), (2, 5, 4, 4))),
            *({"constant": False}, "MatMul batched of two tensors"),
        ),
        ("MatMul", ((4, 8), (8, 3), (4, 3)), {"constant": False}, "MatMul of two tensors"),
        ("Gemm", ((1, 8), (8, 3), (1, 3)), {}, "Gemm one row by weights"),
        (
            *("MatMulInteger", ((4, 8), (8, 3), (4, 3))),
            *({"types": ("uint8", "int8")}, "MatMulInteger by weights uint8 by int8"),
        ),
        (
            *("QLinearMatMul", ((4, 8), (8, 3), (4, 3))),
            *({"types": ("int8", "int8")}, "QLinearMatMul by weights int8"),
        ),
    ],
)
def test_products(
    operator: str, shapes: tuple[Shape, Shape, Shape], given: dict[str, Any], kind: str
) -> None:
    assert kind_of(operator, *shapes, **given) == kind


def test_other_operators_and_unknown_tensors_have_no_kind() -> None:
    assert kind_of("Relu", X, X) is None
    for names in (["x"], ["x", "w"]):
        conv = Message("Node", op_type="Conv", input=names, output=["y"])
        assert kernel_kind(conv, {}, {}, {}, {}) is None
