"""Quantised operators, for all opsets: they round half to even when they quantise, and compute all
else in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from lar.engines.onnx_file.fields import Node
from lar.engines.onnx_file.operators import ROLES
from lar.engines.onnx_file.quantization import roles_of
from lar.engines.reference.implementations import (
    ONNX_RUNTIME,
    Array,
    Call,
    compute,
    implements,
    real,
)

BOTH = ("", ONNX_RUNTIME)
QUANTISED = ("QGemm", "QLinearConcat", *(it for it in ROLES if it.startswith("QLinear")))
FOR_INTEGERS = frozenset({"channels_last", "opset"})  # attributes that ONNX's operators lack


def spread(parameter: Array | None, shape: Sequence[int], axis: int, block: int = 0) -> Array:
    """Return a scale or a zero point in a form that fits a tensor of a shape: one number for the
    whole, for each place along an axis, or for each block of that many places."""
    values = np.zeros(()) if parameter is None else real(parameter)
    if values.size == 1:
        return values.reshape(())
    if block:
        return np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    return values.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


def dequantize(x: Array, scale: Any, zero_point: Array | None, axis: int, block: int = 0) -> Array:
    """Return the real numbers that integers stand for."""
    steps = real(x) - spread(zero_point, x.shape, axis, block)
    return steps * spread(scale, x.shape, axis, block)


def quantize(
    x: Array, scale: Array, zero_point: Array | None, dtype: Any, axis: int = 1, block: int = 0
) -> Array:
    """Return real numbers in steps of a scale, cut to what their type holds."""
    import ml_dtypes

    dtype = dtype if zero_point is None else zero_point.dtype
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    steps = np.rint(x / spread(scale, x.shape, axis, block))
    steps = steps + spread(zero_point, x.shape, axis, block)
    return np.asarray(np.clip(steps, int(limits.min), int(limits.max))).astype(dtype)


@implements("DequantizeLinear", domains=BOTH)
def dequantize_linear(call: Call) -> Array:
    x, scale, zero_point = call.take(3)
    return dequantize(x, scale, zero_point, call.get("axis", 1), call.get("block_size", 0))


@implements("QuantizeLinear", domains=BOTH)
def quantize_linear(call: Call) -> Array:
    x, scale, zero_point = call.take(3)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(call.get("output_dtype", 0) or 2))
    axis, block = call.get("axis", 1), call.get("block_size", 0)
    return quantize(real(x), scale, zero_point, dtype, axis, block)


@implements("DynamicQuantizeLinear", domains=BOTH)
def quantize_by_values(call: Call) -> tuple[Array, Array, Array]:
    """Return a tensor as uint8, with the scale and the zero point that its values ask for."""
    x = real(call.inputs[0])
    most, least = max(0.0, float(x.max(initial=0))), min(0.0, float(x.min(initial=0)))
    scale = np.array((most - least) / 255 if most > least else 1.0)
    zero_point = np.asarray(np.clip(np.rint(-least / scale), 0, 255).astype(np.uint8))
    return quantize(x, scale, zero_point, None), scale, zero_point


@implements("MatMulInteger", "ConvInteger", domains=BOTH)
def multiply_integers(call: Call) -> Array:
    """Return sums of products of integers, which float64 holds exactly."""
    a, b, a_zero, b_zero = call.take(4)
    rows, columns = (-2, -1) if call.type == "MatMulInteger" else (1, 0)
    steps = [dequantize(a, 1, a_zero, rows), dequantize(b, 1, b_zero, columns)]
    sums = compute(Call(call.type.removesuffix("Integer"), steps, call.attributes))
    return np.asarray(sums).astype(np.int32)


@implements(*QUANTISED, domains=BOTH)
def compute_quantized(call: Call) -> Array:
    """Return the result of an operator on the real numbers that its inputs stand for; quantised, if
    it has a scale for that."""
    node = Node("", call.type, "", ("",) * len(call.inputs), ("",))
    result, *roles = sorted(roles_of(node, call.attributes))
    inputs, places = call.take(9), {*range(len(call.inputs))}
    dtype = inputs[roles[0].tensor].dtype
    for role in (result, *roles):
        places -= {*role.scales, role.zero_point}
    for role in roles:
        if inputs[role.tensor] is not None:
            scale = math.prod(real(inputs[place]) for place in role.scales)
            zero_point = inputs[role.zero_point] if role.zero_point else None
            steps = inputs[role.tensor], scale, zero_point, role.axis or 0
            inputs[role.tensor] = dequantize(*steps)
    given = [inputs[place] for place in sorted(places)]
    attributes = {name: it for name, it in call.attributes.items() if name not in FOR_INTEGERS}
    kind = "Gemm" if call.type == "QGemm" else call.type.removeprefix("QLinear")
    values = compute(Call(kind, given, attributes, call.get("opset", 13)))
    scale, zero_point = inputs[result.scales[0]], inputs[result.zero_point or 0]
    return values if scale is None else quantize(values, scale, zero_point, dtype)
