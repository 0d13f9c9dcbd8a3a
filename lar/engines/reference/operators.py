"""Operators in float64 that ONNX's reference evaluator lacks, or rounds to float32.

Quantised operators are here for all opsets: the evaluator has only some of them. So are those that
ONNX Runtime's quantiser and its optimisers write, of the domain `com.microsoft`. What they quantise
is rounded half to even, as both say; all else is computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

Array = np.ndarray[Any, np.dtype[Any]]

# Types of numbers that are float64 here, by the names of their NumPy types.
WIDENED = frozenset({"float16", "float32", "bfloat16"})

# The same, as a Cast names them.
EXACT_CASTS = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
    }
)

# The numbers of integer types, some of which NumPy has no limits for.
LIMITS = {
    f"{sign}int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1)
    if not sign
    else (0, (1 << bits) - 1)
    for sign in ("", "u")
    for bits in (2, 4, 8, 16, 32)
}

ONNX_RUNTIME = "com.microsoft"


def real(array: Array) -> Array:
    """Return numbers as float64."""
    return np.asarray(array).astype(np.float64)


def spread(parameter: Array | None, shape: Sequence[int], axis: int, block: int = 0) -> Array:
    """Return a scale or a zero point in a form that fits a tensor of a shape: one number for the
    whole, for each place along an axis, or for each block of that many places."""
    if parameter is None:
        return np.zeros(())
    values = real(parameter)
    if values.size == 1:
        return values.reshape(())
    if block:
        values = np.repeat(values, block, axis=axis)
        return values.take(range(shape[axis]), axis=axis)
    if values.ndim > 1:
        return values
    return values.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


def dequantized(
    x: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, block: int = 0
) -> Array:
    """Return the real numbers that integers stand for."""
    steps = real(x) - spread(zero_point, x.shape, axis, block)
    return steps * spread(scale, x.shape, axis, block)


def quantized(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    dtype: np.dtype[Any] | None = None,
    axis: int = 1,
    block: int = 0,
) -> Array:
    """Return real numbers in steps of a scale, cut to what their type holds."""
    if dtype is None:
        dtype = np.dtype(np.uint8) if zero_point is None else zero_point.dtype
    steps: Array = x / spread(scale, x.shape, axis, block)
    if dtype.name not in LIMITS:  # floating-point numbers of few bits
        import ml_dtypes

        most: Any = ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]
        return np.asarray(np.clip(steps, -float(most), float(most))).astype(dtype)
    least, largest = LIMITS[dtype.name]
    steps = np.rint(steps) + spread(zero_point, x.shape, axis, block)
    return np.asarray(np.clip(steps, least, largest)).astype(dtype)


def compute(operator: str, *inputs: Array, **attributes: Any) -> Array:
    """Compute an operator of ONNX's own."""
    names = [f"input{place}" for place in range(len(inputs))]
    node = helper.make_node(operator, names, ["output"], **attributes)
    results = ReferenceEvaluator(node, new_ops=[*ONNX_OPERATORS]).run(
        None, dict(zip(names, inputs, strict=True))
    )
    return np.asarray(results[0])


class Cast(OpRun):  # type: ignore[misc]
    """A cast: exact to floating-point types, as anywhere to integers, flags and text."""

    def _run(self, x: Array, to: int, **rest: Any) -> tuple[Any]:
        if to in EXACT_CASTS and x.dtype.kind not in "OSU":
            return (real(x),)
        if to in EXACT_CASTS:
            return (x.astype(np.float64),)
        if to != onnx.TensorProto.STRING:
            dtype = helper.tensor_dtype_to_np_dtype(to)
            if dtype.kind in "biu":
                return (x.astype(dtype),)
        return (own_operator(self).run(x)[0],)


class QuantizeLinear(OpRun):  # type: ignore[misc]
    """Quantises by scale and zero point."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
        **rest: Any,
    ) -> tuple[Array]:
        dtype = helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else None
        if zero_point is not None:
            dtype = zero_point.dtype
        return (quantized(real(x), scale, zero_point, dtype, axis, block_size or 0),)


class DequantizeLinear(OpRun):  # type: ignore[misc]
    """Returns the real numbers of quantised ones."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        **rest: Any,
    ) -> tuple[Array]:
        return (dequantized(x, scale, zero_point, axis, block_size or 0),)


def chosen_scale(x: Array) -> tuple[Array, Array]:
    """Return the scale and the zero point by which a tensor is quantised to uint8 at run time."""
    most, least = max(0.0, float(x.max(initial=0))), min(0.0, float(x.min(initial=0)))
    scale = (most - least) / 255 if most > least else 1.0
    zero_point = np.clip(np.rint(-least / scale), 0, 255).astype(np.uint8)
    return np.array(scale), np.asarray(zero_point)


class DynamicQuantizeLinear(OpRun):  # type: ignore[misc]
    """Quantises by a scale that is chosen from the values."""

    def _run(self, x: Array, **rest: Any) -> tuple[Array, Array, Array]:
        scale, zero_point = chosen_scale(real(x))
        return quantized(real(x), scale, zero_point), scale, zero_point


class MatMulInteger(OpRun):  # type: ignore[misc]
    """A matrix product of integers."""

    def _run(
        self,
        a: Array,
        b: Array,
        a_zero_point: Array | None = None,
        b_zero_point: Array | None = None,
        **rest: Any,
    ) -> tuple[Array]:
        return (integer_product(a, b, a_zero_point, b_zero_point).astype(np.int32),)


def integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """Return the product of two matrices of integers; zero points may be for each row of the first
    and each column of the second. Float64 holds all such sums exactly."""
    product: Array = (real(a) - spread(a_zero, a.shape, -2)) @ (
        real(b) - spread(b_zero, b.shape, -1)
    )
    return product


class Window(NamedTuple):
    """The windows of a convolution or a pooling: how far each axis is padded, and what it takes."""

    kernel: Sequence[int]
    pads: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        kernel: Sequence[int],
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        **rest: Any,
    ) -> Window:
        """Make them of ONNX's attributes, for an image of these sizes."""
        one = [1] * len(kernel)
        window = cls(kernel, pads or [0] * (2 * len(kernel)), strides or one, dilations or one)
        if auto_pad == "VALID":
            return window._replace(pads=[0] * (2 * len(kernel)))
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            lower = auto_pad == "SAME_LOWER"
            return window._replace(pads=same_pads(sizes, window.reach, window.strides, lower=lower))
        return window

    @property
    def reach(self) -> list[int]:
        """The sizes of a window, holes included."""
        pairs = zip(self.kernel, self.dilations, strict=True)
        return [step * (size - 1) + 1 for size, step in pairs]

    def views(self, x: Array, fill: float = 0) -> Array:
        """Return the windows {N,C,pixels...,kernel...} of a tensor {N,C,...}, without a copy of
        what they share."""
        count = len(self.kernel)
        around = zip(self.pads[:count], self.pads[count:], strict=True)
        padded = np.pad(x, [(0, 0), (0, 0), *around], constant_values=fill)
        axes = tuple(range(2, 2 + count))
        windows: Array = sliding_window_view(padded, tuple(self.reach), axes)  # type: ignore[call-overload]
        steps = [slice(None, None, step) for step in (1, 1, *self.strides, *self.dilations)]
        return np.asarray(windows[tuple(steps)])


def convolved(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    group: int | None = None,
    **attributes: Any,
) -> Array:
    """Return a convolution, by matrix products; the attributes are ONNX's."""
    windows = Window.of(x.shape[2:], w.shape[2:], **attributes).views(x)
    sums = sums_of_windows(windows, w, group or 1)
    return sums if bias is None else sums + bias.reshape([-1, *[1] * (x.ndim - 2)])


def same_pads(
    sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int], *, lower: bool
) -> list[int]:
    """Return the padding before and behind each axis with which a stride alone makes an image
    smaller; `lower` puts the odd one before."""
    before, behind = [], []
    for size, width, step in zip(sizes, reach, strides, strict=True):
        lacking = max(0, (-(-size // step) - 1) * step + width - size)
        before.append((lacking + lower) // 2)
        behind.append(lacking - before[-1])
    return before + behind


def sums_of_windows(windows: Array, w: Array, group: int) -> Array:
    """Return the sums of windows {N,C,pixels...,kernel...} with weights {M,C/group,kernel...}."""
    axes = w.ndim - 2
    batch, pixels = len(windows), windows.shape[2 : 2 + axes]
    behind = range(2 + axes, 2 + 2 * axes)
    columns = windows.transpose(0, 1, *behind, *range(2, 2 + axes)).reshape(
        batch, group, -1, int(np.prod(pixels))
    )
    rows = w.reshape(group, w.shape[0] // group, -1)
    return np.asarray(rows @ columns).reshape(batch, w.shape[0], *pixels)


class Conv(OpRun):  # type: ignore[misc]
    """A convolution; the evaluator's own takes longer, and more memory."""

    def _run(
        self, x: Array, w: Array, bias: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        return (convolved(x, w, bias, **attributes),)


class MaxPool(OpRun):  # type: ignore[misc]
    """The largest number of each window; the evaluator's own goes from number to number, and
    takes padding of one side for that of another."""

    def _run(
        self, x: Array, kernel_shape: Sequence[int], ceil_mode: int = 0, **attributes: Any
    ) -> tuple[Array, ...]:
        if ceil_mode or len(self.onnx_node.output) > 1:
            return tuple(own_operator(self).run(x))
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        windows = Window.of(x.shape[2:], kernel_shape, **attributes).views(x, least)
        return (windows.max(axis=tuple(range(x.ndim, windows.ndim))),)


def own_operator(operator: OpRun) -> OpRun:
    """Return the evaluator's own implementation of an operator."""
    node, parameters = operator.onnx_node, operator.run_params
    return load_op("", node.op_type, parameters["opsets"][""])(node, parameters)


class ConvInteger(OpRun):  # type: ignore[misc]
    """A convolution of integers."""

    def _run(
        self,
        x: Array,
        w: Array,
        x_zero_point: Array | None = None,
        w_zero_point: Array | None = None,
        group: int = 1,
        **attributes: Any,
    ) -> tuple[Array]:
        x, w = (
            real(x) - spread(x_zero_point, x.shape, 1),
            real(w) - spread(w_zero_point, w.shape, 0),
        )
        return (convolved(x, w, **attributes).astype(np.int32),)


class QLinearConv(OpRun):  # type: ignore[misc]
    """A convolution of quantised tensors."""

    def _run(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array | None,
        w: Array,
        w_scale: Array,
        w_zero_point: Array | None,
        y_scale: Array,
        y_zero_point: Array | None,
        bias: Array | None = None,
        channels_last: int = 0,
        **attributes: Any,
    ) -> tuple[Array]:
        dtype = x.dtype if y_zero_point is None else y_zero_point.dtype
        steps = real(x) - spread(x_zero_point, x.shape, 1)
        steps = np.moveaxis(steps, -1, 1) if channels_last else steps
        weights = real(w) - spread(w_zero_point, w.shape, 0)
        added = None if bias is None else real(bias)
        sums = convolved(steps, weights, added, **attributes)
        sums = sums * real(x_scale) * spread(w_scale, sums.shape, 1)
        result = quantized(sums, y_scale, y_zero_point, dtype)
        return (np.moveaxis(result, 1, -1) if channels_last else result,)


class QLinearMatMul(OpRun):  # type: ignore[misc]
    """A matrix product of quantised tensors."""

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array | None,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None,
        y_scale: Array,
        y_zero_point: Array | None,
        **rest: Any,
    ) -> tuple[Array]:
        product = dequantized(a, a_scale, a_zero_point, -2) @ dequantized(
            b, b_scale, b_zero_point, -1
        )
        dtype = a.dtype if y_zero_point is None else y_zero_point.dtype
        return (quantized(product, y_scale, y_zero_point, dtype),)


class SimplifiedLayerNormalization(OpRun):  # type: ignore[misc]
    """A normalisation by the root mean square, as ONNX Runtime writes it into ONNX's domain."""

    def _run(
        self, x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, **rest: Any
    ) -> tuple[Array, Array]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        inverse = 1 / np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True) + epsilon)
        return x * inverse * scale, inverse


class Scatter(OpRun):  # type: ignore[misc]
    """What ScatterElements was called before opset 11."""

    def _run(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, **rest: Any
    ) -> tuple[Array]:
        return (compute("ScatterElements", data, indices, updates, axis=axis),)


class QGemm(OpRun):  # type: ignore[misc]
    """A matrix product of quantised tensors with a bias; without a scale, its result is real."""

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array | None,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None,
        c: Array | None = None,
        y_scale: Array | None = None,
        y_zero_point: Array | None = None,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        **rest: Any,
    ) -> tuple[Array]:
        first = real(a) - spread(a_zero_point, a.shape, 0)
        second = real(b) - spread(b_zero_point, b.shape, 0 if transB else 1)
        sums = (first.T if transA else first) @ (second.T if transB else second)
        sums = sums if c is None else sums + real(c)
        result = float(alpha) * sums * real(a_scale) * spread(b_scale, sums.shape, 1)
        if y_scale is None:
            return (result,)
        dtype = a.dtype if y_zero_point is None else y_zero_point.dtype
        return (quantized(result, y_scale, y_zero_point, dtype),)


class QLinearPair(OpRun):  # type: ignore[misc]
    """An elementwise operator of two quantised tensors."""

    function: Callable[[Array, Array], Array]

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array | None,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None,
        c_scale: Array,
        c_zero_point: Array | None = None,
        **rest: Any,
    ) -> tuple[Array]:
        one, other = dequantized(a, a_scale, a_zero_point), dequantized(b, b_scale, b_zero_point)
        dtype = a.dtype if c_zero_point is None else c_zero_point.dtype
        return (quantized(type(self).function(one, other), c_scale, c_zero_point, dtype),)


class QLinearAdd(QLinearPair):
    """A sum of quantised tensors."""

    function = np.add


class QLinearMul(QLinearPair):
    """A product of quantised tensors, element by element."""

    function = np.multiply


class QLinearOne(OpRun):  # type: ignore[misc]
    """An operator of one quantised tensor."""

    def _run(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array | None,
        y_scale: Array,
        y_zero_point: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        channels_last = attributes.pop("channels_last", 0)
        values = dequantized(x, x_scale, x_zero_point)
        values = np.moveaxis(values, -1, 1) if channels_last else values
        values = self.apply(values, attributes)
        values = np.moveaxis(values, 1, -1) if channels_last else values
        dtype = x.dtype if y_zero_point is None else y_zero_point.dtype
        return (quantized(values, y_scale, y_zero_point, dtype),)

    def apply(self, values: Array, attributes: Mapping[str, Any]) -> Array:
        """Compute the operator with real numbers: that of ONNX with the same name."""
        return compute(type(self).__name__.removeprefix("QLinear"), values, **attributes)


class QLinearGlobalAveragePool(QLinearOne):
    """A mean over all pixels of a quantised tensor."""


class QLinearAveragePool(QLinearOne):
    """An average pooling of a quantised tensor."""


class QLinearSigmoid(QLinearOne):
    """A sigmoid of a quantised tensor."""


class QLinearLeakyRelu(QLinearOne):
    """A leaky ReLU of a quantised tensor."""


class QLinearSoftmax(QLinearOne):
    """A softmax of a quantised tensor; before opset 13 it is over all axes from one on."""

    def apply(self, values: Array, attributes: Mapping[str, Any]) -> Array:
        axis, opset = attributes.get("axis", -1), attributes.get("opset", 13)
        if opset >= 13:
            return compute("Softmax", values, axis=axis)
        axis %= values.ndim
        rows = values.reshape(int(np.prod(values.shape[:axis])), -1)
        return compute("Softmax", rows, axis=1).reshape(values.shape)


class QLinearConcat(OpRun):  # type: ignore[misc]
    """Quantised tensors put together, each with a scale and a zero point of its own."""

    def _run(
        self, y_scale: Array, y_zero_point: Array | None, *parts: Array, axis: int = 0, **rest: Any
    ) -> tuple[Array]:
        triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        values = [dequantized(*each) for each in triples]
        dtype = parts[0].dtype if y_zero_point is None else y_zero_point.dtype
        joined = np.concatenate(values, axis=axis)
        return (quantized(joined, y_scale, y_zero_point, dtype),)


class MatMulIntegerToFloat(OpRun):  # type: ignore[misc]
    """A matrix product of quantised tensors whose result is real."""

    def _run(
        self,
        a: Array,
        b: Array,
        a_scale: Array,
        b_scale: Array,
        a_zero_point: Array | None = None,
        b_zero_point: Array | None = None,
        bias: Array | None = None,
        **rest: Any,
    ) -> tuple[Array]:
        product = integer_product(a, b, a_zero_point, b_zero_point) * spread(a_scale, a.shape, -2)
        product = product * spread(b_scale, product.shape, -1)
        return (product if bias is None else product + bias,)


class DynamicQuantizeMatMul(OpRun):  # type: ignore[misc]
    """A matrix product whose first operand is quantised by its own values."""

    def _run(
        self,
        a: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None = None,
        bias: Array | None = None,
        **rest: Any,
    ) -> tuple[Array]:
        scale, zero_point = chosen_scale(a)
        steps = quantized(a, scale, zero_point)
        product = integer_product(steps, b, zero_point, b_zero_point) * scale
        product = product * spread(b_scale, product.shape, -1)
        return (product if bias is None else product + bias,)


def activated(values: Array, activation: str, parameters: Sequence[float]) -> Array:
    """Apply the activation that is fused into an operator."""
    if not activation:
        return values
    if activation == "Clip":
        return np.asarray(np.clip(values, parameters[0], parameters[1]))
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(activation, ())
    return compute(activation, values, **dict(zip(names, map(float, parameters), strict=False)))


class FusedConv(OpRun):  # type: ignore[misc]
    """A convolution, a sum and an activation."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        z: Array | None = None,
        activation: str = "",
        activation_params: Sequence[float] = (),
        **attributes: Any,
    ) -> tuple[Array]:
        values = convolved(x, w, bias, **attributes)
        values = values if z is None else values + z
        return (activated(values, activation, activation_params),)


class FusedGemm(OpRun):  # type: ignore[misc]
    """A matrix product with a bias and an activation."""

    def _run(
        self,
        a: Array,
        b: Array,
        c: Array | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        activation: str = "",
        activation_alpha: float | None = None,
        activation_beta: float | None = None,
        **rest: Any,
    ) -> tuple[Array]:
        values = float(alpha) * ((a.T if transA else a) @ (b.T if transB else b))
        values = values if c is None else values + float(beta) * c
        known = [it for it in (activation_alpha, activation_beta) if it is not None]
        return (activated(values, activation, known),)


class FusedMatMul(OpRun):  # type: ignore[misc]
    """A matrix product of operands that are transposed first, with a factor."""

    def _run(
        self,
        a: Array,
        b: Array,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        transBatchA: int = 0,
        transBatchB: int = 0,
        **rest: Any,
    ) -> tuple[Array]:
        a = np.moveaxis(a, 0, -2) if transBatchA else a
        b = np.moveaxis(b, 0, -2) if transBatchB else b
        a = a.swapaxes(-1, -2) if transA and a.ndim > 1 else a
        b = b.swapaxes(-1, -2) if transB and b.ndim > 1 else b
        return (np.asarray(float(alpha) * (a @ b)),)


def gelu(x: Array) -> Array:
    """Return Gelu by the error function."""
    return x * 0.5 * (1 + compute("Erf", x / np.sqrt(2.0)))


class Gelu(OpRun):  # type: ignore[misc]
    """Gelu by the error function."""

    def _run(self, x: Array, **rest: Any) -> tuple[Array]:
        return (gelu(x),)


class BiasGelu(OpRun):  # type: ignore[misc]
    """A bias and Gelu by the error function."""

    def _run(self, x: Array, bias: Array, **rest: Any) -> tuple[Array]:
        return (gelu(x + bias),)


class FastGelu(OpRun):  # type: ignore[misc]
    """A bias and the approximation of Gelu by a hyperbolic tangent, which is what is asked for."""

    def _run(self, x: Array, bias: Array | None = None, **rest: Any) -> tuple[Array]:
        x = x if bias is None else x + bias
        inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
        return (x * 0.5 * (1 + np.tanh(inner)),)


class QuickGelu(OpRun):  # type: ignore[misc]
    """The approximation of Gelu by a sigmoid, which is what is asked for."""

    def _run(self, x: Array, alpha: float = 1.702, **rest: Any) -> tuple[Array]:
        return (x / (1 + np.exp(-float(alpha) * x)),)


class SkipLayerNormalization(OpRun):  # type: ignore[misc]
    """A sum and a normalisation over the last axis."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **rest: Any,
    ) -> tuple[Array, Array, Array, Array]:
        total = x + skip if bias is None else x + skip + bias
        mean = total.mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt(np.square(total - mean).mean(axis=-1, keepdims=True) + float(epsilon))
        values = (total - mean) * inverse * gamma
        return values if beta is None else values + beta, mean, inverse, total


class SkipSimplifiedLayerNormalization(OpRun):  # type: ignore[misc]
    """A sum and a normalisation by the root mean square over the last axis."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **rest: Any,
    ) -> tuple[Array, Array, Array, Array]:
        total = x + skip if bias is None else x + skip + bias
        square = np.square(total).mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt(square + float(epsilon))
        return total * inverse * gamma, np.zeros_like(inverse), inverse, total


# In the domain of ONNX itself.
ONNX_OPERATORS: tuple[type[OpRun], ...] = (
    *(Cast, Conv, MaxPool, Scatter, SimplifiedLayerNormalization, MatMulInteger, ConvInteger),
    *(QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearConv, QLinearMatMul),
)


def of_onnx_runtime(operator: type[OpRun]) -> type[OpRun]:
    """Return an operator for the domain of ONNX Runtime."""
    return type(operator.__name__, (operator,), {"op_domain": ONNX_RUNTIME})


OPERATORS: tuple[type[OpRun], ...] = (
    *ONNX_OPERATORS,
    *map(of_onnx_runtime, ONNX_OPERATORS),
    *map(
        of_onnx_runtime,
        (
            *(QGemm, QLinearAdd, QLinearMul, QLinearGlobalAveragePool, QLinearAveragePool),
            *(QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat),
            *(MatMulIntegerToFloat, DynamicQuantizeMatMul, FusedConv, FusedGemm, FusedMatMul),
            *(Gelu, BiasGelu, FastGelu, QuickGelu),
            *(SkipLayerNormalization, SkipSimplifiedLayerNormalization),
        ),
    ),
)
