"""Quantised operators, for all opsets: what they quantise is rounded half to even, all else is
computed in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from lar.engines.reference.implementations import (
    ONNX_RUNTIME,
    Array,
    Call,
    compute,
    implements,
    real,
)
from lar.engines.reference.operators.windows import convolve

OURS = (ONNX_RUNTIME,)
BOTH = ("", ONNX_RUNTIME)


def spread(parameter: Array | None, shape: Sequence[int], axis: int, block: int = 0) -> Array:
    """Return a scale or a zero point in a form that fits a tensor of a shape: one number for the
    whole, for each place along an axis, or for each block of that many places."""
    values = np.zeros(()) if parameter is None else real(parameter)
    if values.size == 1:
        return values.reshape(())
    if block:
        return np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    if values.ndim > 1:
        return values
    return values.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


def steps_of(x: Array, zero_point: Array | None, axis: int = 1, block: int = 0) -> Array:
    """Return integers without their zero point, as float64."""
    return real(x) - spread(zero_point, x.shape, axis, block)


def dequantize(
    x: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, block: int = 0
) -> Array:
    """Return the real numbers that integers stand for."""
    return steps_of(x, zero_point, axis, block) * spread(scale, x.shape, axis, block)


def quantize(
    x: Array, scale: Array, zero_point: Array | None, dtype: Any, axis: int = 1, block: int = 0
) -> Array:
    """Return real numbers in steps of a scale, cut to what their type holds."""
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    iinfo: Any = ml_dtypes.iinfo
    dtype = dtype if zero_point is None else zero_point.dtype
    steps: Array = x / spread(scale, x.shape, axis, block)
    if not dtype.name.lstrip("u").startswith("int"):  # floating-point numbers of few bits
        most: Any = float(finfo(dtype).max)
        return np.asarray(np.clip(steps, -most, most)).astype(dtype)
    limits = iinfo(dtype)
    steps = np.asarray(np.rint(steps)) + spread(zero_point, x.shape, axis, block)
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


def quantize_by_values(x: Array) -> tuple[Array, Array, Array]:
    """Return a tensor as uint8, with the scale and the zero point that its values ask for."""
    most, least = max(0.0, float(x.max(initial=0))), min(0.0, float(x.min(initial=0)))
    scale = np.array((most - least) / 255 if most > least else 1.0)
    zero_point = np.asarray(np.clip(np.rint(-least / scale), 0, 255).astype(np.uint8))
    return quantize(x, scale, zero_point, None), scale, zero_point


@implements("DynamicQuantizeLinear", domains=BOTH)
def quantize_dynamically(call: Call) -> tuple[Array, Array, Array]:
    return quantize_by_values(real(call.inputs[0]))


def multiply(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """Return a product of integers as float64, which holds all such sums exactly."""
    return np.asarray(steps_of(a, a_zero, -2) @ steps_of(b, b_zero, -1))


@implements("MatMulInteger", domains=BOTH)
def multiply_integers(call: Call) -> Array:
    a, b, a_zero, b_zero = call.take(4)
    return multiply(a, b, a_zero, b_zero).astype(np.int32)


@implements("ConvInteger", domains=BOTH)
def convolve_integers(call: Call) -> Array:
    x, w, x_zero, w_zero = call.take(4)
    sums = convolve(steps_of(x, x_zero), steps_of(w, w_zero, 0), None, call.attributes)
    return sums.astype(np.int32)


@implements("QLinearConv", domains=BOTH)
def convolve_quantized(call: Call) -> Array:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = call.take(9)
    channels_last = call.get("channels_last", 0)
    steps = np.moveaxis(steps_of(x, x_zero), -1, 1) if channels_last else steps_of(x, x_zero)
    sums = convolve(steps, steps_of(w, w_zero, 0), bias, call.attributes)
    sums = sums * real(x_scale) * spread(w_scale, sums.shape, 1)
    result = quantize(sums, y_scale, y_zero, x.dtype)
    return np.moveaxis(result, 1, -1) if channels_last else result


@implements("QLinearMatMul", domains=BOTH)
def multiply_quantized(call: Call) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = call.take(8)
    product = dequantize(a, a_scale, a_zero, -2) @ dequantize(b, b_scale, b_zero, -1)
    return quantize(product, y_scale, y_zero, a.dtype)


@implements("QGemm", domains=OURS)
def multiply_and_add_quantized(call: Call) -> Array:
    """Return a matrix product of quantised tensors with a bias; without a scale, it is real."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = call.take(9)
    columns = 0 if call.get("transB") else 1
    first, second = steps_of(a, a_zero, 0), steps_of(b, b_zero, columns)
    sums = (first.T if call.get("transA") else first) @ (second if columns else second.T)
    sums = sums if c is None else sums + c
    result = call.get("alpha", 1.0) * sums * real(a_scale) * spread(b_scale, sums.shape, 1)
    return result if y_scale is None else quantize(result, y_scale, y_zero, a.dtype)


@implements("QLinearAdd", "QLinearMul", domains=OURS)
def combine_quantized(call: Call) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = call.take(8)
    one, other = dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero)
    values = one + other if call.type == "QLinearAdd" else one * other
    return quantize(values, c_scale, c_zero, a.dtype)


@implements(
    *("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid", "QLinearLeakyRelu"),
    *("QLinearSoftmax", "QLinearReduceMean"),
    domains=OURS,
)
def compute_quantized(call: Call) -> Array:
    """Return what the operator of ONNX gives that has the name without QLinear."""
    x, x_scale, x_zero, y_scale, y_zero = call.take(5)
    given = {"opset": 13, **call.attributes}
    channels_last = given.pop("channels_last", 0)
    values = dequantize(x, x_scale, x_zero)
    values = np.moveaxis(values, -1, 1) if channels_last else values
    values = compute(call.type.removeprefix("QLinear"), values, **given)
    values = np.moveaxis(values, 1, -1) if channels_last else values
    return quantize(values, y_scale, y_zero, x.dtype)


@implements("QLinearConcat", domains=OURS)
def join_quantized(call: Call) -> Array:
    y_scale, y_zero, *parts = call.inputs
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    joined = np.concatenate([dequantize(*each) for each in triples], axis=call.get("axis", 0))
    return quantize(joined, y_scale, y_zero, parts[0].dtype)


@implements("MatMulIntegerToFloat", domains=OURS)
def multiply_to_real(call: Call) -> Array:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = call.take(7)
    product = multiply(a, b, a_zero, b_zero) * spread(a_scale, a.shape, -2)
    product = product * spread(b_scale, product.shape, -1)
    return product if bias is None else product + bias


@implements("DynamicQuantizeMatMul", domains=OURS)
def multiply_dynamically(call: Call) -> Array:
    a, b, b_scale, b_zero, bias = call.take(5)
    steps, scale, zero_point = quantize_by_values(a)
    inputs = (steps, b, scale, b_scale, zero_point, b_zero, bias)
    product: Array = multiply_to_real(call._replace(inputs=inputs))
    return product
