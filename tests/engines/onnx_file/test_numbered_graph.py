"""Scales of quantised tensors, by the operators around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.engines.onnx_file.fields import Node
from lar.engines.onnx_file.numbered_graph import quantizations_of, scales_in, wanted_names
from lar.records.run import Quantization

SCALES = {
    **{"s1": 0.5, "s2": 0.25, "s3": 2.0, "rows": [0.5, 1.0, 1.5], "blocks": [[1.0, 1.0]] * 3},
    **{"column": [[[0.5], [1.0], [1.5]]], "line": [[0.5, 1.0, 1.5]], "none": []},
}
VALUES: dict[str, npt.NDArray[Any]] = {
    **{name: np.asarray(scale, np.float32) for name, scale in SCALES.items()},
    "z0": np.asarray(0, np.uint8),
    "z7": np.asarray(7, np.uint8),
    "zeros": np.asarray([0, 1, 2], np.int8),
    "pair": np.asarray([0, 1], np.int8),
}


def node(operator: str, inputs: str, outputs: str = "y") -> Node:
    return Node(
        name=operator,
        operator=operator,
        domain="",
        inputs=tuple("" if name == "-" else name for name in inputs.split()),
        outputs=tuple(outputs.split()),
    )


def found(*nodes: Node, **parameters: Any) -> dict[str, Quantization]:
    return quantizations_of(scales_in(nodes, [parameters] * len(nodes)), VALUES)


def test_each_operator_has_its_places() -> None:
    one, two = Quantization(scale=(0.5,)), Quantization(scale=(0.25,), zero_point=(7,))
    last = Quantization(scale=(2.0,), zero_point=(7,))
    assert found(node("QLinearAdd", "a s1 z0 b s2 z7 s3 z7")) == {"a": one, "b": two, "y": last}
    assert found(node("QLinearSigmoid", "a s1 z0 s3 z7")) == {"a": one, "y": last}
    joined = found(node("QLinearConcat", "s3 z7 a s1 z0 b s2 z7"))
    assert joined == {"a": one, "b": two, "y": last}
    # An optional zero point, and a product without a scale of its own.
    assert found(node("QGemm", "a s1 z0 b s2 z7 c"))["c"] == Quantization(scale=(0.125,), axis=None)
    assert "y" not in found(node("QGemm", "a s1 z0 b s2 z7 c"))
    assert found(node("DequantizeLinear", "a s1")) == {"a": one}


def test_scales_of_channels_have_an_axis() -> None:
    conv = found(node("QLinearConv", "x s1 z0 w rows zeros s3 z7 b"))
    assert conv["w"] == Quantization(scale=(0.5, 1.0, 1.5), zero_point=(0, 1, 2), axis=0)
    assert conv["b"] == Quantization(scale=(0.25, 0.5, 0.75), axis=0)
    assert found(node("QLinearMatMul", "x s1 z0 w rows zeros s3 z7"))["w"].axis == -1
    assert found(node("DequantizeLinear", "w rows zeros"), axis=2)["w"].axis == 2
    assert found(node("DequantizeLinear", "w rows z7"))["w"].axis == 1
    assert found(node("DequantizeLinear", "w column"), axis=1)["w"].axis == -2
    assert found(node("DequantizeLinear", "w line"), axis=1)["w"].axis == -1
    assert found(node("QGemm", "a s1 z0 b rows zeros"), transB=1)["b"].axis == 0


def test_what_gives_a_tensor_decides_before_what_takes_it() -> None:
    graph = node("DequantizeLinear", "q s3 z7", "r"), node("QuantizeLinear", "x s1 z0", "q")
    assert found(*graph) == {"q": Quantization(scale=(0.5,))}


@pytest.mark.parametrize(
    ("operator", "axis", "axis_of_weight"), [("MatMulInteger", -1, -1), ("ConvInteger", 1, 0)]
)
def test_a_scale_that_is_computed_belongs_to_a_product(
    operator: str, axis: int, axis_of_weight: int
) -> None:
    graph = (
        node("DynamicQuantizeLinear", "x", "q s1 z7"),
        node("Mul", "s1 rows", "factor"),
        node(operator, "q w z7 z0", "p"),
        node("Cast", "p", "c"),
        node("Mul", "factor c"),
        node("Mul", "c c", "square"),
    )
    scales = scales_in(graph, [{}] * len(graph))
    assert quantizations_of(scales, {**VALUES, "factor": VALUES["rows"] / 2}) == {
        "q": Quantization(scale=(0.5,), zero_point=(7,)),
        "p": Quantization(scale=(0.25, 0.5, 0.75), axis=axis),
        "w": Quantization(scale=(0.5, 1.0, 1.5), axis=axis_of_weight),
    }
    assert wanted_names(scales) == {"s1", "rows", "z7", "z0", "factor"}


def test_what_is_no_scale_of_a_tensor_or_its_channels_is_left_out() -> None:
    assert found(node("DequantizeLinear", "a blocks")) == {}
    assert found(node("DequantizeLinear", "a s1 z0"), block_size=4) == {}
    assert found(node("DequantizeLinear", "a rows pair")) == {}
    assert found(node("DequantizeLinear", "a none")) == {}
    assert "a" not in found(node("QLinearAdd", "a rows zeros b s2 z7 s3 z7"))
    assert found(node("DequantizeLinear", "a missing z0")) == {}
    assert found(node("DequantizeLinear", "a s1 missing")) == {}
    assert found(node("DequantizeLinear", "a s1 s2")) == {}  # of numbers in eight bits
    assert found(node("Conv", "x w")) == {}
