"""Operators of the reference engine, most of them quantised, each against ONNX Runtime.

Others are in `tools/operator_variants.txt`, a part of which `test_sweep_operators.py` tries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from lar.engines.onnx_file.fields import Message
from lar.engines.reference.evaluator import evaluator_of

Array = np.ndarray[Any, np.dtype[Any]]

F = np.float32
U, S = np.uint8, np.int8


def draw(*shape: int) -> Array:
    return np.random.RandomState(sum(shape)).randn(*shape).astype(F)


def steps(*shape: int, dtype: type = U) -> Array:
    """Integers; signed ones of 7 bits, since some processors sum products of more in 16 bits."""
    least, most = (0, 256) if dtype is U else (-64, 64)
    return np.random.RandomState(sum(shape)).randint(least, most, shape).astype(dtype)


def q(scale: float, zero_point: int, dtype: type = U) -> tuple[Array, Array]:
    return np.array(scale, F), np.array(zero_point, dtype)


def per_channel(count: int, dtype: type = S) -> tuple[Array, Array]:
    return np.linspace(0.01, 0.03, count, dtype=F), np.zeros(count, dtype)


X, Y = (0.03, 120), (0.04, 130)
IMAGE = (1, 3, 5, 5)


class Case(NamedTuple):
    """An operator with its inputs, the type of what it gives, and its attributes."""

    operator: str
    inputs: tuple[Array | None, ...]
    gives: type
    attributes: Mapping[str, Any] = {}
    domain: str = "com.microsoft"
    opset: int = 17
    fed: int = 0  # the place of the data among the inputs


CASES = (
    Case(
        "Conv",
        (draw(1, 4, 9, 8), draw(4, 1, 3, 2)),
        F,
        {"group": 4, "strides": [2, 1], "dilations": [2, 3], "pads": [1, 2, 0, 3]},
        "",
    ),
    # Of numbers so far apart that shares of the sum are rounded to 0.
    Case("LogSoftmax", (1000 * draw(2, 3, 4),), F, {"axis": 1}, "", 12),
    Case("LogSoftmax", (1000 * draw(2, 3, 4),), F, {"axis": 1}, "", 13),
    Case("QuantizeLinear", (draw(4, 6), *q(*X)), U, {}, ""),
    Case("QuantizeLinear", (draw(4, 6), *per_channel(4)), S, {"axis": 0}, ""),
    Case("QuantizeLinear", (draw(4, 6), *q(*X)), U),
    Case("DequantizeLinear", (steps(4, 6), *q(*X)), F, {}, ""),
    Case("DequantizeLinear", (steps(4, 6, dtype=S), *per_channel(6)), F, {}, ""),
    Case("DequantizeLinear", (steps(4, 6), np.array(0.1, F)), F, {}, "", 10),
    Case("MatMulInteger", (steps(4, 6), steps(6, 3), q(*X)[1], q(*Y)[1]), np.int32, {}, ""),
    Case("ConvInteger", (steps(*IMAGE), steps(2, 3, 3, 3), q(*X)[1]), np.int32, {}, ""),
    Case(
        "QLinearConv",
        (
            *(steps(*IMAGE), *q(*X), steps(4, 3, 3, 3, dtype=S), *per_channel(4)),
            *(*q(*Y), np.arange(4, dtype=np.int32) * 100),
        ),
        U,
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        "",
    ),
    Case("QLinearMatMul", (steps(4, 6), *q(*X), steps(6, 3), *q(*Y), *q(0.3, 9)), U, {}, ""),
    Case(
        "QGemm",
        (
            *(steps(4, 6), *q(*X), steps(3, 6, dtype=S), *per_channel(3)),
            *(np.arange(3, dtype=np.int32) * 50, *q(0.2, 100)),
        ),
        U,
        {"transB": 1},
    ),
    Case("QGemm", (steps(4, 6), *q(*X), steps(6, 3), *q(*Y), None, None, None), F),
    Case("QLinearAdd", (steps(4, 6), *q(*X), steps(6), *q(*Y), *q(0.09, 128)), U),
    Case("QLinearMul", (steps(4, 6), *q(*X), steps(4, 6), *q(*Y), *q(0.2, 128)), U),
    Case("QLinearGlobalAveragePool", (steps(*IMAGE), *q(*X), *q(*Y)), U),
    Case(
        "QLinearWhere",
        (np.eye(4, 6) > 0, steps(4, 6), *q(*X), steps(4, 6), *q(0.02, 100), *q(*Y)),
        U,
        fed=1,
    ),
    Case(
        "QLinearAveragePool",
        (steps(*IMAGE), *q(*X), *q(*Y)),
        U,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Case("QLinearSigmoid", (steps(4, 6), *q(*X), *q(1 / 256, 0)), U),
    Case("QLinearLeakyRelu", (steps(4, 6), *q(*X), *q(*Y)), U, {"alpha": 0.1}),
    Case("QLinearSoftmax", (steps(4, 6), *q(*X), *q(1 / 256, 0)), U, {"axis": 1, "opset": 13}),
    Case("QLinearSoftmax", (steps(2, 3, 4), *q(*X), *q(1 / 256, 0)), U, {"axis": 1, "opset": 12}),
    Case(
        "QLinearConcat",
        (*q(*Y), steps(4, 6), *q(*X), steps(4, 3), *q(0.1, 3)),
        U,
        {"axis": 1},
        fed=2,
    ),
)


def model_of(case: Case) -> onnx.ModelProto:
    names = ["" if each is None else f"i{place}" for place, each in enumerate(case.inputs)]
    node = helper.make_node(case.operator, names, ["y"], domain=case.domain, **case.attributes)
    data = case.inputs[case.fed]
    assert data is not None
    fed = helper.make_tensor_value_info(
        names[case.fed], helper.np_dtype_to_tensor_dtype(data.dtype), data.shape
    )
    given = helper.make_tensor_value_info(
        "y", helper.np_dtype_to_tensor_dtype(np.dtype(case.gives)), None
    )
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    # Scales and zero points have to be constants for some operators of ONNX Runtime.
    weights = [
        onnx.numpy_helper.from_array(each, f"i{place}")
        for place, each in enumerate(case.inputs)
        if each is not None and place != case.fed
    ]
    graph = helper.make_graph([node], case.operator, [fed], [given], weights)
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


@pytest.mark.parametrize("case", CASES, ids=[f"{each.domain}{each.operator}" for each in CASES])
def test_an_operator_gives_what_onnx_runtime_gives(case: Case) -> None:
    model, name, data = model_of(case), f"i{case.fed}", case.inputs[case.fed]
    assert data is not None
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {name: data})
    (found,) = evaluator_of(Message("Model", model.SerializeToString()), Path()).run(
        {name: data.astype("f8") if data.dtype == F else data}
    )
    assert found.shape == expected.shape
    if case.gives is F:
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert found.dtype == case.gives
        # A number in the middle between two may be rounded to either.
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
        assert np.mean(found == expected) > 0.9
