"""The functions that compute operators in float64; some are lar's own, others are ONNX's.

Each function takes a `Call`, and returns one value or a tuple of values.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper
from onnx.reference.ops import aionnxml, load_op

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.onnx_file.fields import Message, Node
from lar.engines.onnx_file.numbered_graph import roles_of
from lar.engines.onnx_file.operators import FACTS, ROLES

Array = np.ndarray[Any, np.dtype[Any]]

ONNX_RUNTIME = "com.microsoft"
LEARNING = "ai.onnx.ml"
LOADERS: Mapping[str, Callable[..., Any]] = {"": load_op, LEARNING: aionnxml.load_op}
# The types that are converted to float64, by their NumPy names.
WIDENED = frozenset({"float16", "float32", "bfloat16"})


class Call(NamedTuple):
    """A call of an operator, with its inputs and attributes.

    An input that is left out is None. `opset` is the version of the opset for the operator's
    domain. `outputs` is the number of outputs.
    """

    type: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    opset: int = 13
    outputs: int = 1

    def take(self, count: int) -> list[Any]:
        """Return the first `count` inputs; inputs that the operator lacks are None."""
        return [*self.inputs, *[None] * (count - len(self.inputs))]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, or a default."""
        return self.attributes.get(name, default)


Function = Callable[[Call], Any]
OWN: dict[tuple[str, str], Function] = {}


def implements(*types: str, domains: Sequence[str] = ("",)) -> Callable[[Function], Function]:
    """Return a decorator for a function that computes operators of the given types."""

    def register(function: Function) -> Function:
        OWN.update({(domain, each): function for domain in domains for each in types})
        return function

    return register


def implementation_of(node: Message, opset: int) -> Function | None:
    """Return the function that computes a node, None if neither lar nor ONNX has one."""
    own = OWN.get((node.domain, node.op_type))
    return own or reference_of(onnx.NodeProto.FromString(node.encode()), opset)


def reference_of(node: Any, opset: int) -> Function | None:
    """Return ONNX's reference implementation of a node, None if ONNX has no implementation."""
    if node.domain not in LOADERS or not opset:
        return None
    try:
        kind = LOADERS[node.domain](node.domain, node.op_type, opset)
    except (NotImplementedError, RuntimeError, AssertionError, onnx.defs.SchemaError):
        return None  # the operator is unknown, or is defined by other operators
    log, opsets = logging.getLogger(__name__).debug, {node.domain: opset}
    operator = kind(node, {"log": log, "opsets": opsets, "verbose": 0, "new_ops": {}})
    for name, value in [*vars(operator).items()]:
        setattr(operator, name, exact(value))
    return lambda call: operator.run(*call.inputs)


def exact(value: Any) -> Any:
    """Return the value of an attribute, with float32 numbers converted to float64."""
    if isinstance(value, list):
        return [exact(each) for each in value]
    return np.float64(value) if isinstance(value, np.float32) else value


def compute(call: Call) -> Any:
    """Compute an operator of ONNX's own domain, and return its first result."""
    found = OWN.get(("", call.type), compute_as_onnx)(call)
    return found[0] if isinstance(found, tuple) else found


def compute_as_onnx(call: Call) -> Any:
    """Compute an operator of ONNX's own domain by ONNX's reference implementation."""
    names = [f"input{place}" for place in range(len(call.inputs))]
    results = [f"output{place}" for place in range(call.outputs)]
    node = helper.make_node(call.type, names, results, **call.attributes)
    function = reference_of(node, call.opset)
    assert function is not None
    return function(call)


def real(array: Any) -> Array:
    """Return numbers as float64."""
    return np.asarray(array).astype(np.float64)


def widened(value: Any) -> Any:
    """Convert floating-point numbers in a value to float64, and leave other values unchanged."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if isinstance(value, dict):
        return {key: widened(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return real(value) if value.dtype.name in WIDENED else np.asarray(value)
    return value


# The operators that have no truth, with the reason. Some have no single right result. For others
# ONNX's implementation is wrong, and few models have them.


class Rule(NamedTuple):
    """A condition under which operators have no single right result, and the reason."""

    types: tuple[str, ...]
    why: str
    holds: Callable[[Call], Any] = lambda call: True


def trains(call: Call) -> Any:
    if call.type == "Dropout":
        return (flag := call.take(3)[2]) is not None and flag.item()
    # Before opset 7 the operator was in training mode by default.
    return call.get("training_mode") or (call.opset < 7 and not call.get("is_test"))


def lacks_scores(call: Call) -> bool:
    """Return whether a classifier has, or may have, fewer scores than classes."""
    labels = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    classes = max(len(call.get(name, ())) for name in labels)
    if call.type == "LinearClassifier":
        return len(call.get("intercepts", ())) < classes
    leaves = {*zip(call.get("class_treeids"), call.get("class_nodeids"), strict=True)}
    return classes < 3 or len(call.get("class_ids")) < classes * len(leaves)


def reduces_nothing(call: Call) -> bool:
    axes = call.take(2)[1]
    return bool(call.get("noop_with_empty_axes") and (axes is None or not axes.size))


# Values of attributes for which no implementation here is right; few models have them.
RARE: Mapping[str, tuple[Any, ...]] = {
    "channels_last": (1,),
    "coordinate_transformation_mode": ("half_pixel_symmetric", "tf_crop_and_resize"),
    "keep_aspect_ratio_policy": ("not_larger", "not_smaller"),
    "layout": (1,),
    "post_transform": ("PROBIT",),
    "spatial": (0,),
}


UNUSUAL = "lar does not compute this unusual form of the operator"
COMPOSED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")

RULES = (
    Rule((*FACTS.random,), "it draws random numbers"),
    Rule(("Dropout", "BatchNormalization"), "it trains", trains),
    Rule(("LinearClassifier", "TreeEnsembleClassifier"), "a class may lack a score", lacks_scores),
    Rule(COMPOSED, "the standard's versions differ on reductions over no axes", reduces_nothing),
    Rule(("ReduceMean",), "it is a mean of nothing", lambda call: not call.inputs[0].size),
    Rule(("BitCast",), "the bits of a floating-point number depend on its type"),
    Rule(("QGemm",), UNUSUAL, lambda call: call.get("alpha", 1) != 1),
    Rule(("ReduceSumSquare",), UNUSUAL, lambda call: call.inputs[0].dtype.kind != "f"),
    Rule(("Scan",), UNUSUAL, lambda call: call.opset < 9),
    Rule(("SequenceMap",), UNUSUAL),
    Rule(("Unique",), UNUSUAL, lambda call: not call.get("sorted", 1)),
)


def check_truth(call: Call) -> None:
    """Check that an operator has a single right result, and that lar can compute it.

    Raises:
        NoTruthHere: the operator has no single right result, or lar cannot compute it.
    """
    rule = next((each for each in RULES if call.type in each.types and each.holds(call)), None)
    if rule or any(value in RARE.get(name, ()) for name, value in call.attributes.items()):
        raise NoTruthHere(rule.why if rule else UNUSUAL)


# Operators of plain tensors


@implements("Cast")
def cast(call: Call) -> Any:
    """Cast a tensor to another type; floating-point types become float64 without rounding.

    Raises:
        NoTruthHere: the cast would convert floating-point numbers to strings.
    """
    (x,) = call.inputs
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(call.get("to")))
    if dtype.name in WIDENED or dtype == np.float64:
        return real(x)
    if dtype.kind in "biu":
        return x.astype(dtype)
    if dtype.kind == "O" and x.dtype.kind == "f":
        raise NoTruthHere("the number of digits in a string depends on the type of the number")
    return compute_as_onnx(call._replace(opset=max(call.opset, 19)))


@implements("Dropout")
def drop_out(call: Call) -> tuple[Array, ...]:
    """Return a tensor unchanged, and the mask, which has been defined only since opset 12."""
    x = call.inputs[0]
    return (x, np.ones(x.shape, bool)) if call.opset >= 12 else (x,)


@implements("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> Any:
    """Normalise a tensor along an axis; before opset 13, along all later axes too."""
    (x,) = call.inputs
    values, axis = x, call.get("axis", -1)
    if call.opset < 13:
        values, axis = x.reshape(math.prod(x.shape[: call.get("axis", 1)]), -1), 1
    if call.type == "LogSoftmax":  # the logarithm of Softmax would fail where that rounds to 0
        below = values - values.max(axis=axis, keepdims=True)
        return np.reshape(below - np.log(np.exp(below).sum(axis=axis, keepdims=True)), x.shape)
    return np.reshape(compute_as_onnx(Call(call.type, [values], {"axis": axis}))[0], x.shape)


@implements("BatchNormalization")
def normalize_batch(call: Call) -> Array:
    """Normalise a tensor by the given mean and variance."""
    x, *rest = call.inputs
    scale, bias, mean, variance = (each.reshape([-1, *[1] * (x.ndim - 2)]) for each in rest)
    return np.asarray((x - mean) / np.sqrt(variance + call.get("epsilon", 1e-5)) * scale + bias)


@implements("LpNormalization")
def normalize_to_one(call: Call) -> Array:
    """Normalise a tensor to a norm of 1 along an axis; numbers with the norm 0 stay 0."""
    (x,), order = call.inputs, call.get("p", 2)
    norm = (np.abs(x) ** order).sum(axis=call.get("axis", -1), keepdims=True) ** (1 / order)
    return np.asarray(x / np.where(norm == 0, 1, norm))


@implements("LRN")
def normalize_locally(call: Call) -> Array:
    """Normalise each channel by the squares in the neighbouring channels."""
    (x,), size = call.inputs, call.get("size")
    around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    squares, count = np.pad(np.square(x), around), x.shape[1]
    sums = sum(squares[:, at : at + count] for at in range(size))
    base = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * sums
    return np.asarray(x / base ** call.get("beta", 0.75))


@implements("Erf")
def error_function(call: Call) -> Array:
    """Return the error function in float64.

    ONNX's implementation is not used, since it rounds the result to float32.
    """
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(call.inputs[0]))


@implements("Pad")
def pad(call: Call) -> Array:
    """Pad a tensor at its borders; negative padding cuts the borders off."""
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
    """Return the elements of a tensor at the given indices along an axis.

    Along the other axes, the array of indices may be shorter than the tensor.
    """
    x, indices = call.inputs
    places: list[Any] = [*np.ogrid[tuple(map(slice, indices.shape))]]
    places[call.get("axis", 0)] = indices
    return np.asarray(x[tuple(places)])


@implements("RoiAlign")
def align_regions(call: Call) -> Any:
    """Compute RoiAlign; before opset 16, coordinates are not shifted by half a pixel."""
    known = {} if call.opset >= 16 else {"coordinate_transformation_mode": "output_half_pixel"}
    return compute_as_onnx(call._replace(attributes={**known, **call.attributes}))


@implements("ZipMap", domains=(LEARNING,))
def name_columns(call: Call) -> list[dict[Any, Any]]:
    """Return a dict for each row of a tensor, with the value of each column by its name."""
    names = call.get("classlabels_strings") or call.get("classlabels_int64s")
    rows = call.inputs[0].reshape(-1, len(names))
    return [dict(zip(names, map(np.asarray, row), strict=True)) for row in rows]


# Recurrent networks

State = Sequence[Array]
Activation = Callable[..., Any]

# The activation functions of x and, in some cases, of alpha and beta, with defaults for these.
ACTIVATIONS: Mapping[str, tuple[Activation, tuple[float, ...]]] = {
    "Affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "Elu": (lambda x, a: np.maximum(x, 0) + a * np.expm1(np.minimum(x, 0)), (1.0,)),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "LeakyRelu": (lambda x, a: np.maximum(x, 0) + a * np.minimum(x, 0), (0.01,)),
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Softplus": (lambda x: np.logaddexp(x, 0), ()),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Tanh": (np.tanh, ()),
    "ThresholdedRelu": (lambda x, a: np.where(x > a, x, 0), (1.0,)),
}


class Cell(NamedTuple):
    """The parameters of a recurrent cell.

    The parameters are the weights of the state, the bias of these weights, the activations, the
    operator's call, and the peephole weights, which multiply the memory of an LSTM in its gates.
    """

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
    into, out, forget, new = np.split(data + hidden @ cell.weights.T + cell.bias, 4, axis=-1)
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
    """Yield the activation functions that an operator names; by default, the `usual` functions.

    Each function already has its parameters, such as alpha and beta. If the operator has the
    attribute `clip`, the inputs of the activation functions are clipped, except for the last
    function of an LSTM, which is applied to the memory.
    """
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
    """Return all states of a recurrent network, its last state, and for an LSTM the last memory."""
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


# Quantised operators, for all opsets. They round half to even when they quantise; all other
# arithmetic is in float64

BOTH = ("", ONNX_RUNTIME)
QUANTISED = ("QGemm", "QLinearConcat", *(it for it in ROLES if it.startswith("QLinear")))
FOR_INTEGERS = frozenset({"channels_last", "opset"})  # attributes that ONNX's operators lack


def spread(parameter: Array | None, shape: Sequence[int], axis: int, block: int = 0) -> Array:
    """Return a scale or a zero point, reshaped so that NumPy can broadcast it to a tensor's shape.

    The parameter may have one number for the whole tensor, one for each index of an axis, or one
    for each block of indices.
    """
    values = np.zeros(()) if parameter is None else real(parameter)
    if values.size == 1:
        return values.reshape(())
    if block:
        return np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    return values.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


def dequantize(x: Array, scale: Any, zero_point: Array | None, axis: int, block: int = 0) -> Array:
    """Return the real numbers that quantised integers stand for."""
    steps = real(x) - spread(zero_point, x.shape, axis, block)
    return steps * spread(scale, x.shape, axis, block)


def quantize(
    x: Array, scale: Array, zero_point: Array | None, dtype: Any, axis: int = 1, block: int = 0
) -> Array:
    """Quantise real numbers by a scale and a zero point, clipped to the range of the type."""
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
    """Quantise a tensor to uint8, with a scale and a zero point from the tensor's range."""
    x = real(call.inputs[0])
    most, least = max(0.0, float(x.max(initial=0))), min(0.0, float(x.min(initial=0)))
    scale = np.array((most - least) / 255 if most > least else 1.0)
    zero_point = np.asarray(np.clip(np.rint(-least / scale), 0, 255).astype(np.uint8))
    return quantize(x, scale, zero_point, None), scale, zero_point


@implements("MatMulInteger", "ConvInteger", domains=BOTH)
def multiply_integers(call: Call) -> Array:
    """Multiply integer tensors in float64, which gives exact results."""
    a, b, a_zero, b_zero = call.take(4)
    axis = -1 if call.type == "MatMulInteger" else 0
    # Only the data of MatMulInteger may have several zero points.
    steps = [dequantize(a, 1, a_zero, -2), dequantize(b, 1, b_zero, axis)]
    sums = compute(Call(call.type.removesuffix("Integer"), steps, call.attributes))
    return np.asarray(sums).astype(np.int32)


@implements(*QUANTISED, domains=BOTH)
def compute_quantized(call: Call) -> Array:
    """Compute an operator with quantised inputs, on the real numbers that the inputs stand for.

    If the operator has a scale for the result, the result is quantised.
    """
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
            inputs[role.tensor] = dequantize(inputs[role.tensor], scale, zero_point, role.axis or 0)
    given = [inputs[place] for place in sorted(places)]
    attributes = {name: it for name, it in call.attributes.items() if name not in FOR_INTEGERS}
    kind = "Gemm" if call.type == "QGemm" else call.type.removeprefix("QLinear")
    values = compute(Call(kind, given, attributes, call.get("opset", 13)))
    scale, zero_point = inputs[result.scales[0]], inputs[result.zero_point or 0]
    return values if scale is None else quantize(values, scale, zero_point, dtype)


# Operators on images with any number of axes: Resize, Upsample and GridSample, which interpolate
# between pixels; convolutions and poolings


# The functions that choose the nearest pixel of a place.
NEAREST: Mapping[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
}


def triangle(distance: Array) -> Array:
    """Return the weights of linear interpolation for distances between pixels."""
    return np.asarray(np.maximum(0, 1 - np.abs(distance)))


def cubic(distance: Array, a: float) -> Array:
    """Return the weights of cubic interpolation for distances between pixels."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


# The offsets of the pixels to interpolate from, and the function of their weights by distance.
SAMPLINGS: Mapping[str, tuple[Sequence[int], Callable[[Array], Array]]] = {
    "nearest": ((0,), np.ones_like),
    "linear": ((0, 1), triangle),
    **dict.fromkeys(("cubic", "bicubic"), ((-1, 0, 1, 2), partial(cubic, a=-0.75))),
}


def places_before(way: str, size: int, given: int, scale: Any, kind: Any) -> Any:
    """Return the positions of an output axis's pixels on the input axis.

    The output axis has `given` pixels, and the input axis has `size` pixels.
    """
    x = np.arange(given).astype(kind)
    if way == "align_corners":
        return x * kind(size - 1) / kind(max(1, given - 1))
    if way == "asymmetric":
        return x / kind(scale)
    if way == "pytorch_half_pixel" and given == 1:
        return np.zeros_like(x)
    middle = (x + kind(0.5)) / kind(scale)
    return middle if way == "tf_half_pixel_for_nn" else middle - kind(0.5)


def weights_between(places: Array, size: int, factor: float, call: Call) -> Array:
    """Return an array {places,pixels} with the weights of the pixels around each place.

    Pixels outside the image have the weight 0, or the pixel at the edge is used for them.
    """
    is_cubic = call.get("mode") == "cubic"
    stretch = max(1.0, 1 / factor) if call.get("antialias") else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) * stretch))
    near = np.floor(places)[:, None].astype(int) + np.arange(1 - reach, reach + 1)
    kernel = partial(cubic, a=call.get("cubic_coeff_a", -0.75)) if is_cubic else triangle
    values = kernel((near - places[:, None]) / stretch)
    if call.get("exclude_outside"):
        values[(near < 0) | (near >= size)] = 0
    weights = np.zeros((len(places), size))
    np.add.at(weights, (np.arange(len(places))[:, None], np.clip(near, 0, size - 1)), values)
    return np.asarray(weights / values.sum(axis=1, keepdims=True))


@implements("Resize")
def resize(call: Call) -> Any:
    """Resize an image."""
    if call.opset < 11:
        return upsample(call)
    x, _, scales, sizes = call.take(4)
    way = call.get("coordinate_transformation_mode", "half_pixel")
    is_nearest = call.get("mode", "nearest") == "nearest"
    # The nearest pixel is chosen in float32, as engines do.
    kind = np.float32 if is_nearest else np.float64
    for at, axis in enumerate(call.get("axes", range(x.ndim))):
        before = x.shape[axis]
        if sizes is None or not sizes.size:
            # The size is computed in float32, as shape inference does.
            factor, given = scales[at], int(np.float32(before) * np.float32(scales[at]))
        else:
            factor, given = int(sizes[at]) / before, int(sizes[at])
        if factor == 1:
            continue
        places = places_before(way, before, given, factor, kind)
        if is_nearest:
            pixels = NEAREST[call.get("nearest_mode", "round_prefer_floor")](places)
            x = x.take(np.clip(pixels, 0, before - 1).astype(int), axis=axis)
        else:
            weights = weights_between(places, before, factor, call)
            x = np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)
    return x


@implements("Upsample")
def upsample(call: Call) -> Any:
    """Enlarge an image as the operators Upsample and Resize of opset 10 do.

    Raises:
        NoTruthHere: the image becomes smaller in the mode `nearest`, which the standard leaves
            undefined.
    """
    x, factors = call.take(2)
    factors = np.asarray(call.get("scales")) if factors is None else factors
    if call.get("mode", "nearest") == "nearest" and factors.min() < 1:
        raise NoTruthHere("the standard does not say which pixel is the nearest")
    given = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(Call("Resize", (x, None, factors), {**call.attributes, **given}))


@implements("GridSample")
def sample_grid(call: Call) -> Array:
    """Return the values of images {N,C,...} at the coordinates in a grid {N,...,axes}.

    All coordinates are from -1 to 1, and the coordinate of the image's last axis comes first.
    """
    x, grid = call.inputs
    sizes, where = np.array(x.shape[2:]), (grid[..., ::-1] + 1) / 2
    places = where * (sizes - 1) if call.get("align_corners") else where * sizes - 0.5
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    offsets, kernel = SAMPLINGS.get(mode, SAMPLINGS["linear"])
    first = np.rint(places) if mode == "nearest" else np.floor(places)
    item = np.arange(len(x)).reshape([-1, *[1] * (grid.ndim - 2)])
    total = np.zeros((*grid.shape[:-1], x.shape[1]))
    for offset in product(offsets, repeat=len(sizes)):
        near = first + np.array(offset)
        weight = kernel(near - places).prod(axis=-1)
        if padding == "zeros":
            weight = np.where(((near < 0) | (near >= sizes)).any(axis=-1), 0, weight)
        elif padding == "reflection":  # at the centres or at the outer borders of the edge pixels
            span = 2 * sizes - 2 * bool(call.get("align_corners"))
            near = np.mod(near, np.maximum(span, 1))
            near = np.minimum(near, 2 * sizes - 1 - near - (span < 2 * sizes))
        near = np.clip(near, 0, sizes - 1).astype(int)
        index: list[Any] = [item, slice(None), *np.moveaxis(near, -1, 0)]
        total += weight[..., None] * x[tuple(index)]
    return np.moveaxis(total, -1, 1)


# Convolutions and poolings


def attributes_of(given: Mapping[str, Any], count: int) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and padding for `count` axes.

    The padding has first the numbers before each axis, then the numbers after each axis.
    """
    pads = given.get("pads") if given.get("auto_pad", "NOTSET") == "NOTSET" else None
    strides, holes = (given.get(name) or [1] * count for name in ("strides", "dilations"))
    return strides, holes, [*(pads or [0] * (2 * count))]


def windows_of(
    x: Array, kernel: Sequence[int], given: Mapping[str, Any], fill: Any = 0
) -> tuple[Array, bool]:
    """Return the windows {N,C,pixels...,kernel...} of a tensor, for a convolution or pooling.

    The tensor has the axes {N,C,...}, and the windows are views of the tensor, not copies. `given`
    are the operator's attributes. The second result is true if a window goes beyond the padding
    that the attributes give.
    """
    count, beyond, reaches = len(kernel), False, []
    strides, holes, pads = attributes_of(given, count)
    auto = given.get("auto_pad", "NOTSET")
    for at, (size, step) in enumerate(zip(x.shape[2:], strides, strict=True)):
        reach = holes[at] * (kernel[at] - 1) + 1
        reaches.append(reach)
        if auto.startswith("SAME"):
            lacking = max(0, (-(-size // step) - 1) * step + reach - size)
            pads[at] = (lacking + (auto == "SAME_LOWER")) // 2
            pads[count + at] = lacking - pads[at]
        elif given.get("ceil_mode"):
            whole = size + pads[at] + pads[count + at]
            steps = -(-(whole - reach) // step)
            steps -= steps * step >= size + pads[at]  # the last window begins before the end
            more = max(0, steps * step + reach - whole)
            pads[count + at] += more
            beyond = beyond or more > 0
    around = zip(pads[:count], pads[count:], strict=True)
    padded = np.pad(x, [(0, 0), (0, 0), *around], constant_values=fill)
    windows: Any = sliding_window_view(padded, reaches, [*range(2, 2 + count)])  # type: ignore[call-overload]
    places = tuple(slice(None, None, step) for step in (1, 1, *strides, *holes))
    return np.asarray(windows[places]), beyond


def add_bias(sums: Array, bias: Array | None) -> Array:
    """Add a bias to each channel of a tensor {N,C,...}."""
    return sums if bias is None else sums + real(bias).reshape([-1, *[1] * (sums.ndim - 2)])


@implements("Conv")
def convolve(call: Call) -> Array:
    """Compute a convolution as products of windows with weights {M,C/group,kernel...}."""
    x, w, bias = call.take(3)
    windows, _ = windows_of(x, w.shape[2:], call.attributes)
    axes, group = w.ndim - 2, call.get("group", 1)
    pixels = windows.shape[2 : 2 + axes]
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    shape = (len(x), group, w[0].size, int(np.prod(pixels)))
    rows = w.reshape(group, w.shape[0] // group, w[0].size)
    sums = np.asarray(rows @ windows.transpose(order).reshape(shape))
    return add_bias(sums.reshape(len(x), w.shape[0], *pixels), bias)


@implements("ConvTranspose")
def convolve_transposed(call: Call) -> Array:
    """Compute a transposed convolution.

    If attributes give the sizes of the output, the padding is computed from these sizes.

    Raises:
        NoTruthHere: the windows do not cover the output sizes that the attributes give.
    """
    x, w, bias = call.take(3)
    sizes, kernel, axes = x.shape[2:], w.shape[2:], x.ndim - 2
    strides, holes, pads = attributes_of(call.attributes, axes)
    rows = zip(sizes, kernel, strides, holes, call.get("output_padding") or [0] * axes, strict=True)
    full = [(size - 1) * step + (k - 1) * hole + 1 + more for size, k, step, hole, more in rows]
    wanted = call.get("output_shape") or ()
    if not wanted and call.get("auto_pad", "NOTSET").startswith("SAME"):
        wanted = [size * step for size, step in zip(sizes, strides, strict=True)]
        if any(size < more for size, more in zip(full, wanted, strict=True)):
            raise NoTruthHere("its windows do not cover the output that is asked for")
    for at, size in enumerate(wanted[-axes:]):
        full[at] = max(full[at], size)
        cut = full[at] - size
        pads[at] = cut // 2 if call.get("auto_pad") == "SAME_UPPER" else cut - cut // 2
        pads[axes + at] = cut - pads[at]
    group = call.get("group", 1)
    data = x.reshape(len(x), group, len(w) // group, -1)
    weights = w.reshape(group, len(w) // group, *w.shape[1:]).swapaxes(1, 2)
    sums = np.zeros((len(x), group * w.shape[1], *full))
    for tap in np.ndindex(*kernel):
        place: list[Any] = [..., *tap]
        products = weights[tuple(place)] @ data
        begins = [at * hole for at, hole in zip(tap, holes, strict=True)]
        ends = zip(begins, sizes, strides, strict=True)
        places: list[Any] = [..., *(slice(at, at + size * step, step) for at, size, step in ends)]
        sums[tuple(places)] += products.reshape(len(x), -1, *sizes)
    inner = zip(pads, full, pads[axes:], strict=False)
    kept: list[Any] = [..., *(slice(first, size - last) for first, size, last in inner)]
    return add_bias(sums[tuple(kept)], bias)


@implements("MaxPool", "GlobalMaxPool")
def pool_most(call: Call) -> Array:
    """Return the largest number of each window; the optional output of indices is not computed."""
    (x,) = call.inputs
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    windows, _ = windows_of(x, call.get("kernel_shape", x.shape[2:]), call.attributes, least)
    return np.asarray(windows.max(axis=tuple(range(x.ndim, windows.ndim))))


@implements("AveragePool")
def pool_mean(call: Call) -> Array:
    """Return the mean of each window; the attributes say whether the mean includes padding.

    Raises:
        NoTruthHere: windows go beyond the padding. Before opset 19, the standard does not say
            whether the mean includes the values beyond the padding.
    """
    (x,), kernel = call.inputs, call.get("kernel_shape")
    windows, beyond = windows_of(x, kernel, call.attributes)
    axes = tuple(range(x.ndim, windows.ndim))
    if not call.get("count_include_pad"):
        ones, _ = windows_of(np.ones((1, 1, *x.shape[2:])), kernel, call.attributes)
        return np.asarray(windows.sum(axis=axes) / ones.sum(axis=axes))
    if beyond:
        raise NoTruthHere("before opset 19 it is open whether values beyond the padding count")
    return np.asarray(windows.mean(axis=axes))


@implements("LpPool", "GlobalLpPool")
def pool_norm(call: Call) -> Array:
    """Return the norm of the numbers in each window."""
    (x,), order = call.inputs, call.get("p", 2)
    kernel = call.get("kernel_shape", x.shape[2:])
    windows, _ = windows_of(np.abs(x) ** order, kernel, call.attributes)
    return np.asarray(windows.sum(axis=tuple(range(x.ndim, windows.ndim))) ** (1 / order))
