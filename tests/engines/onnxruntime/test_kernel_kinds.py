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


NARROW, TWO = {"types": ("uint8", "int8")}, {"constant": False}
VOLUME = (1, 8, 4, 9, 9)


@pytest.mark.parametrize(
    ("operator", "given", "kind"),
    [
        ("Conv", {}, "3x3 NCHW"),
        ("Conv", {"weights": (8, 8, 1, 1)}, "pointwise 1x1 NCHW"),
        ("Conv", {"weights": (8, 1, 3, 3), "group": 8}, "depthwise 3x3 NCHW"),
        ("Conv", {"weights": (8, 1, 1, 1), "group": 8}, "depthwise 1x1 NCHW"),
        ("Conv", {"weights": (8, 4, 3, 3), "group": 2}, "grouped 3x3 NCHW"),
        ("Conv", {"strides": [2, 2]}, "3x3/2 NCHW"),
        ("Conv", {"strides": [2, 1], "weights": (8, 8, 5, 3)}, "5x3/2x1 NCHW"),
        ("Conv", {"dilations": [2, 2], "strides": [1, 1]}, "3x3 dilated 2 NCHW"),
        ("Conv", {"layouts": (BLOCKED, BLOCKED)}, "3x3 NCHW16c"),
        ("Conv", {"layouts": ("", BLOCKED)}, "3x3 NCHW to NCHW16c"),
        (
            # Blocks were filled up: the network's own weights are of one channel each.
            "Conv",
            {"weights": (8, 1, 3, 3), "filled": (16, 1, 3, 3), "group": 16},
            "depthwise 3x3 NCHW",
        ),
        ("Conv", {"shape": (1, 8, 9), "weights": (8, 8, 3), "made": (1, 8, 9)}, "3 NCW"),
        ("Conv", {"shape": VOLUME, "weights": (8, 8, 3, 3, 3), "made": VOLUME}, "3x3x3 NCDHW"),
        ("Conv", {"types": ("float16", "float16")}, "3x3 NCHW float16"),
        ("FusedConv", {"weights": (8, 8, 1, 1)}, "pointwise 1x1 NCHW"),
        ("QLinearConv", NARROW, "3x3 NCHW uint8 by int8"),
        ("QLinearConv", {"types": ("uint8", "uint8"), "channels_last": 1}, "3x3 NHWC uint8"),
        ("NhwcFusedConv", {}, "3x3 NHWC"),
        ("ConvTranspose", {"weights": (8, 1, 3, 3), "group": 8}, "depthwise 3x3 NCHW"),
    ],
)
def test_convolutions(operator: str, given: dict[str, Any], kind: str) -> None:
    found = {"shape": X, "weights": (8, 8, 3, 3), **given}
    assert kind_of(operator, **found) == f"{operator} {kind}"


@pytest.mark.parametrize(
    ("operator", "shapes", "given", "kind"),
    [
        ("MatMul", ((4, 8), (8, 3), (4, 3)), {}, "by weights"),
        ("MatMul", ((2, 4, 8), (8, 3), (2, 4, 3)), {}, "by weights"),
        ("MatMul", ((1, 8), (8, 3), (1, 3)), {}, "one row by weights"),
        ("MatMul", ((2, 4, 8), (2, 8, 4), (2, 4, 4)), TWO, "batched of two tensors"),
        ("MatMul", ((4, 8), (8, 3), (4, 3)), TWO, "of two tensors"),
        ("Gemm", ((1, 8), (8, 3), (1, 3)), {}, "one row by weights"),
        ("MatMulInteger", ((4, 8), (8, 3), (4, 3)), NARROW, "by weights uint8 by int8"),
        ("QLinearMatMul", ((4, 8), (8, 3), (4, 3)), {"types": ("int8",) * 2}, "by weights int8"),
    ],
)
def test_products(
    operator: str, shapes: tuple[Shape, Shape, Shape], given: dict[str, Any], kind: str
) -> None:
    assert kind_of(operator, *shapes, **given) == f"{operator} {kind}"


def test_other_operators_and_unknown_tensors_have_no_kind() -> None:
    assert kind_of("Relu", X, X) is None
    for names in (["x"], ["x", "w"]):
        conv = Message("Node", op_type="Conv", input=names, output=["y"])
        assert kernel_kind(conv, {}, {}, {}, {}) is None
