"""Operators of plain tensors, recurrent networks, and quantised operators; these, for all opsets,
round half to even when they quantise, and compute all else in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.onnx_file.fields import Node
from lar.engines.onnx_file.numbered_graph import roles_of
from lar.engines.onnx_file.operators import ROLES
from lar.engines.reference.implementations import (
    LEARNING,
    ONNX_RUNTIME,
    WIDENED,
    Array,
    Call,
    compute,
    compute_as_onnx,
    implements,
    real,
)


@implements("Cast")
def cast(call: Call) -> Any:
    """Return a cast: exact to floating-point types, as anywhere to integers and flags.

    Raises:
        NoTruthHere: it makes texts of numbers.
    """
    (x,) = call.inputs
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(call.get("to")))
    if dtype.name in WIDENED or dtype == np.float64:
        return real(x)
    if dtype.kind in "biu":
        return x.astype(dtype)
    if dtype.kind == "O" and x.dtype.kind == "f":
        raise NoTruthHere("how many digits a text has depends on the type of the number")
    return compute_as_onnx(call._replace(opset=max(call.opset, 19)))


@implements("Dropout")
def drop_out(call: Call) -> tuple[Array, ...]:
    """Return a tensor as it is; before opset 12 nothing says what the mask is."""
    x = call.inputs[0]
    return (x, np.ones(x.shape, bool)) if call.opset >= 12 else (x,)


@implements("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> Any:
    """Return values that sum to one along an axis; before opset 13 along it and all behind it."""
    (x,) = call.inputs
    values, axis = x, call.get("axis", -1)
    if call.opset < 13:
        values, axis = x.reshape(math.prod(x.shape[: call.get("axis", 1)]), -1), 1
    if call.type == "LogSoftmax":  # not by shares of the sum, which may be rounded to 0
        below = values - values.max(axis=axis, keepdims=True)
        return np.reshape(below - np.log(np.exp(below).sum(axis=axis, keepdims=True)), x.shape)
    found = compute_as_onnx(Call(call.type, [values], {"axis": axis}))
    return np.reshape(found[0], x.shape)


@implements("BatchNormalization")
def normalize_batch(call: Call) -> Array:
    """Return a normalisation by the statistics that are given."""
    x, *rest = call.inputs
    shape = [-1, *[1] * (x.ndim - 2)]
    scale, bias, mean, variance = (each.reshape(shape) for each in rest)
    deviation = np.sqrt(variance + call.get("epsilon", 1e-5))
    return np.asarray((x - mean) / deviation * scale + bias)


@implements("LpNormalization")
def normalize_to_one(call: Call) -> Array:
    """Return a tensor whose norm along an axis is one, or zero as it was."""
    (x,), order = call.inputs, call.get("p", 2)
    norm = (np.abs(x) ** order).sum(axis=call.get("axis", -1), keepdims=True) ** (1 / order)
    return np.asarray(x / np.where(norm == 0, 1, norm))


@implements("LRN")
def normalize_locally(call: Call) -> Array:
    """Return a normalisation by the squares of channels around each."""
    (x,), size = call.inputs, call.get("size")
    around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    squares, count = np.pad(np.square(x), around), x.shape[1]
    sums = sum(squares[:, at : at + count] for at in range(size))
    base = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * sums
    return np.asarray(x / base ** call.get("beta", 0.75))


@implements("Erf")
def error_function(call: Call) -> Array:
    """Return the error function, which ONNX's implementation rounds to float32."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(call.inputs[0]))


@implements("Pad")
def pad(call: Call) -> Array:
    """Return a tensor with padded borders; negative padding cuts them."""
    x, widths, fill, axes = call.take(4)
    pads = call.get("pads") or call.get("paddings") if widths is None else [*map(int, widths)]
    around = np.zeros((x.ndim, 2), int)
    around[range(x.ndim) if axes is None else axes] = np.reshape(pads, (2, -1)).T
    ends = zip(np.maximum(-around, 0), x.shape, strict=True)
    kept = x[tuple(slice(before, size - behind) for (before, behind), size in ends)]
    mode, constant = call.get("mode", "constant"), call.get("value", 0.0) if fill is None else fill
    more = {"constant_values": np.asarray(constant).item()} if mode == "constant" else {}
    return np.asarray(np.pad(kept, np.maximum(around, 0), mode, **more))


@implements("GatherElements")
def gather_elements(call: Call) -> Array:
    """Return the elements at indices along an axis; the other axes may be shorter."""
    x, indices = call.inputs
    places: list[Any] = [*np.ogrid[tuple(map(slice, indices.shape))]]
    places[call.get("axis", 0)] = indices
    return np.asarray(x[tuple(places)])


@implements("RoiAlign")
def align_regions(call: Call) -> Any:
    """Return the means of regions; before opset 16 nothing was said of the pixels' middles."""
    known = {} if call.opset >= 16 else {"coordinate_transformation_mode": "output_half_pixel"}
    return compute_as_onnx(call._replace(attributes={**known, **call.attributes}))


@implements("ZipMap", domains=(LEARNING,))
def name_columns(call: Call) -> list[dict[Any, Any]]:
    """Return a map for each row, from the names of the columns to their values."""
    names = call.get("classlabels_strings") or call.get("classlabels_int64s")
    rows = call.inputs[0].reshape(-1, len(names))
    return [dict(zip(names, map(np.asarray, row), strict=True)) for row in rows]


# Recurrent networks

State = Sequence[Array]
Activation = Callable[..., Any]

# Activations of x and, if they take them, of alpha and beta; with the defaults of these.
ACTIVATIONS: Mapping[str, tuple[Activation, tuple[float, ...]]] = {
    "Affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "Elu": (lambda x, a: np.where(x < 0, a * np.expm1(x), x), (1.0,)),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "LeakyRelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Softplus": (lambda x: np.logaddexp(x, 0), ()),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Tanh": (np.tanh, ()),
    "ThresholdedRelu": (lambda x, a: np.where(x > a, x, 0), (1.0,)),
}


class Cell(NamedTuple):
    """What a step takes besides the data: weights of the state, their bias, activations, the
    operator with its switches, and weights of an LSTM's memory, which its gates look at."""

    weights: Array
    bias: Array
    functions: Sequence[Activation]
    call: Call
    peepholes: Array


def step_rnn(data: Array, state: State, cell: Cell) -> State:
    return cell.functions[0](data + state[0] @ cell.weights.T + cell.bias), state[1]


def step_gru(data: Array, state: State, cell: Cell) -> State:
    hidden, (f, g) = state[0], cell.functions
    ours = np.split(hidden @ cell.weights.T + cell.bias, 3, axis=-1)
    update, reset, new = np.split(data, 3, axis=-1)
    z, r = f(update + ours[0]), f(reset + ours[1])
    if cell.call.get("linear_before_reset"):
        mixed = r * ours[2]
    else:
        mixed = (r * hidden) @ np.split(cell.weights, 3)[2].T + np.split(cell.bias, 3)[2]
    return (1 - z) * g(new + mixed) + z * hidden, state[1]


def step_lstm(data: Array, state: State, cell: Cell) -> State:
    (hidden, memory), (f, g, h) = state, cell.functions
    gates = data + hidden @ cell.weights.T + cell.bias
    into, out, forget, new = np.split(gates, 4, axis=-1)
    before = f(into + cell.peepholes[0] * memory)
    kept = 1 - before if cell.call.get("input_forget") else f(forget + cell.peepholes[2] * memory)
    memory = kept * memory + before * g(new)
    return f(out + cell.peepholes[1] * memory) * h(memory), memory


STEPS: Mapping[str, tuple[Callable[[Array, State, Cell], State], tuple[str, ...]]] = {
    "RNN": (step_rnn, ("Tanh",)),
    "GRU": (step_gru, ("Sigmoid", "Tanh")),
    "LSTM": (step_lstm, ("Sigmoid", "Tanh", "Tanh")),
}


def activations_of(call: Call, usual: Sequence[str]) -> Iterator[Activation]:
    """Yield the activations of an operator, or the usual ones, each with its parameters; their
    input is clipped if that is asked for, except for an LSTM's memory."""
    given = [iter(call.get(f"activation_{name}", ())) for name in ("alpha", "beta")]
    for at, name in enumerate(call.get("activations") or usual):
        function, defaults = ACTIVATIONS[name]
        known = [next(it, default) for it, default in zip(given, defaults, strict=False)]
        most = np.inf if call.type == "LSTM" and at % 3 == 2 else call.get("clip", np.inf)
        yield partial(activate, function, known, most)


def activate(function: Activation, known: Sequence[float], most: float, x: Array) -> Any:
    return function(np.clip(x, -most, most), *known)


@implements(*STEPS)
def recur(call: Call) -> tuple[Array, ...]:
    """Return all states of a recurrent network, the last one, and of an LSTM its memory."""
    x, w, r, bias, lengths, *given, peepholes = call.take(8)
    (steps, batch), count, size = x.shape[:2], len(w), r.shape[-1]
    step, usual = STEPS[call.type]
    functions = [*activations_of(call, usual * count)]
    looks = np.zeros((count, 3 * size)) if peepholes is None else peepholes
    ends, times = np.full(batch, steps) if lengths is None else lengths, np.arange(steps)[:, None]
    states = [np.zeros((count, batch, size)) if each is None else each for each in given]
    every, last, items = np.zeros((steps, count, batch, size)), [], np.arange(batch)
    for at in range(count):
        backwards = call.get("direction") == "reverse" or at == 1
        order = np.where(times < ends, ends - 1 - times, times) if backwards else times
        both = np.zeros((2, r.shape[1])) if bias is None else bias[at].reshape(2, -1)
        ours = functions[at * len(usual) : (at + 1) * len(usual)]
        cell = Cell(r[at], both[1], ours, call, looks[at].reshape(3, size))
        data = x[order, items] @ w[at].T + both[0]
        state = [each[at] for each in states]
        for time in range(steps):
            alive = (time < ends)[:, None]
            found = zip(step(data[time], state, cell), state, strict=True)
            state = [np.where(alive, new, old) for new, old in found]
            every[order[time], at, items] = np.where(alive, state[0], 0)
        last.append(state)
    ended = [np.stack(each) for each in zip(*last, strict=True)]
    return (every, *(ended if call.type == "LSTM" else ended[:1]))


# Quantised operators

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
