"""Operators that ONNX Runtime's optimisers write, most of them of its own domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lar.engines.reference.implementations import (
    ONNX_RUNTIME,
    Array,
    Call,
    compute,
    implements,
)
from lar.engines.reference.operators.windows import convolve

OURS = (ONNX_RUNTIME,)


def activate(values: Array, activation: str, parameters: Sequence[float]) -> Any:
    """Apply the activation that is fused into an operator."""
    if not activation:
        return values
    if activation == "Clip":
        return np.clip(values, parameters[0], parameters[1])
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(activation, ())
    given: dict[str, Any] = dict(zip(names, parameters, strict=False))
    return compute(activation, values, **given)


@implements("FusedConv", domains=OURS)
def convolve_and_activate(call: Call) -> Any:
    x, w, bias, z = call.take(4)
    values = convolve(x, w, bias, call.attributes)
    values = values if z is None else values + z
    return activate(values, call.get("activation", ""), call.get("activation_params", ()))


@implements("FusedGemm", domains=OURS)
def multiply_and_activate(call: Call) -> Any:
    names = ("activation", "activation_alpha", "activation_beta", "activation_gamma")
    given = {name: it for name, it in call.attributes.items() if name not in names}
    known = [call.get(name) for name in names[1:] if name in call.attributes]
    return activate(compute("Gemm", *call.inputs, **given), call.get("activation", ""), known)


@implements("FusedMatMul", domains=OURS)
def multiply_transposed(call: Call) -> Array:
    a, b = call.inputs
    a = np.moveaxis(a, 0, -2) if call.get("transBatchA") else a
    b = np.moveaxis(b, 0, -2) if call.get("transBatchB") else b
    a = a.swapaxes(-1, -2) if call.get("transA") and a.ndim > 1 else a
    b = b.swapaxes(-1, -2) if call.get("transB") and b.ndim > 1 else b
    return np.asarray(call.get("alpha", 1.0) * (a @ b))


@implements("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domains=OURS)
def gelu(call: Call) -> Array:
    """Return Gelu of a sum with a bias, or the approximation of it that is asked for."""
    x, bias = call.take(2)
    x = x if bias is None else x + bias
    if call.type == "QuickGelu":
        return np.asarray(x / (1 + np.exp(-call.get("alpha", 1.702) * x)))
    if call.type == "FastGelu":
        return np.asarray(x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    return np.asarray(x * 0.5 * (1 + compute("Erf", x / np.sqrt(2.0))))


@implements("SimplifiedLayerNormalization", domains=("", ONNX_RUNTIME))
def normalize_by_square(call: Call) -> tuple[Array, Array]:
    x, scale = call.inputs
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    squares = np.mean(np.square(x), axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(squares + call.get("epsilon", 1e-5))
    return x * inverse * scale, inverse


@implements("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domains=OURS)
def add_and_normalize(call: Call) -> tuple[Array, Array, Array, Array]:
    """Return a sum normalised over the last axis, the mean, the inverse deviation, and the sum."""
    is_simple = call.type == "SkipSimplifiedLayerNormalization"
    x, skip, gamma, beta, bias = call.take(5)
    beta, bias = (None, beta) if is_simple else (beta, bias)
    total = x + skip if bias is None else x + skip + bias
    mean = np.zeros((*x.shape[:-1], 1)) if is_simple else total.mean(axis=-1, keepdims=True)
    squares = np.square(total - mean).mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(squares + call.get("epsilon", 1e-12))
    values = (total - mean) * inverse * gamma
    return values if beta is None else values + beta, mean, inverse, total
