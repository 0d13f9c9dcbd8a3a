"""Operators of plain tensors, and by which rules some have no truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from lar.engines.reference.implementations import (
    LEARNING,
    WIDENED,
    Array,
    Call,
    NoTruthHere,
    compute_as_onnx,
    implements,
    real,
)


class Rule(NamedTuple):
    """When operators have no truth, and why; else ONNX's implementation computes them."""

    types: tuple[str, ...]
    why: str
    holds: Callable[[Call], Any] = lambda call: True
    domain: str = ""


def is_float(value: Any) -> bool:
    return bool(value.dtype.kind == "f")


def reduces_nothing(call: Call) -> bool:
    axes = call.take(2)[1]
    chosen = call.get("axes") or () if axes is None else axes
    return bool(call.get("noop_with_empty_axes") and not len(chosen))


COMPOSED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
DRAWING = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def has_one_score(call: Call) -> bool:
    """Return whether a classifier has less than a score for each class, or may have."""
    if call.get("post_transform") == "PROBIT":  # of scores that need not be probabilities
        return True
    labels = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    classes = max(len(call.get(name, ())) for name in labels)
    if call.type == "LinearClassifier":
        return len(call.get("intercepts", ())) < classes
    leaves = {*zip(call.get("class_treeids"), call.get("class_nodeids"), strict=True)}
    return classes < 3 or len(call.get("class_ids")) < classes * len(leaves)


RULES = (
    Rule(
        ("LinearClassifier", "TreeEnsembleClassifier"),
        "the standard does not say what a class without a score gets",
        has_one_score,
        LEARNING,
    ),
    Rule((*DRAWING, "Multinomial", "Bernoulli"), "it draws random numbers"),
    Rule(COMPOSED, "the standard's versions differ in what it is over no axes", reduces_nothing),
    Rule(("ReduceMean",), "it is a mean of nothing", lambda call: not call.inputs[0].size),
    Rule(
        ("BitCast",),
        "the bits of a floating-point number depend on its type",
        lambda call: (
            is_float(call.inputs[0])
            or np.dtype(helper.tensor_dtype_to_np_dtype(call.get("to"))).kind == "f"
        ),
    ),
    Rule(
        ("Unique",),
        "ONNX's implementation is wrong for slices that are not sorted",
        lambda call: not call.get("sorted", 1) and call.get("axis", 0),
    ),
)


def by_rules(call: Call) -> Any:
    """Compute an operator as ONNX does.

    Raises:
        NoTruthHere: a rule says that it has no truth.
    """
    rule = next(each for each in RULES if call.type in each.types)
    if rule.holds(call):
        raise NoTruthHere(rule.why)
    more: dict[str, Any] = {"opset": call.opset, "outputs": call.outputs, "domain": rule.domain}
    found = compute_as_onnx(call.type, *call.inputs, **more, **call.attributes)
    is_integer = call.type == "ReduceSumSquare" and not is_float(call.inputs[0])
    return found.astype(call.inputs[0].dtype) if is_integer else found


for known in RULES:
    implements(*known.types, domains=[known.domain])(by_rules)


@implements("Cast")
def cast(call: Call) -> Any:
    """Return a cast: exact to floating-point types, as anywhere to integers and flags.

    Raises:
        NoTruthHere: the digits of a text depend on the type that a number had.
    """
    (x,), to = call.inputs, call.get("to")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(to))
    if to == onnx.TensorProto.STRING and is_float(x):
        raise NoTruthHere("how many digits a text has depends on the type of the number")
    if dtype.name in WIDENED or dtype == np.float64:
        return real(x)
    if dtype.kind in "biu":
        return x.astype(dtype)
    return compute_as_onnx("Cast", x, opset=max(call.opset, 19), **call.attributes)


@implements("Dropout")
def drop_out(call: Call) -> tuple[Array, ...]:
    """Return a tensor as it is; before opset 12 nothing says what the mask is.

    Raises:
        NoTruthHere: it trains.
    """
    x, ratio, trains = call.take(3)
    if trains is not None and trains.item() and (ratio is None or ratio != 0):
        raise NoTruthHere("it draws random numbers")
    return (x, np.ones(x.shape, bool)) if call.opset >= 12 else (x,)


@implements("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> Array:
    """Return what sums to one along an axis; before opset 13 along that axis and all behind it."""
    (x,), old = call.inputs, call.opset < 13
    axis = call.get("axis", 1 if old else -1)
    axis = axis % x.ndim if axis < 0 else axis
    if not x.size:
        return np.asarray(x)
    shape = (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
    values = x.reshape(shape) if old else np.moveaxis(x, axis, -1)
    if call.type == "Hardmax":
        found = real(np.arange(values.shape[-1]) == values.argmax(axis=-1)[..., None])
    else:
        found = values - values.max(axis=-1, keepdims=True)
        found = found - np.log(np.exp(found).sum(axis=-1, keepdims=True))
        found = np.exp(found) if call.type == "Softmax" else found
    return found.reshape(x.shape) if old else np.moveaxis(found, -1, axis)


@implements("BatchNormalization")
def normalize_batch(call: Call) -> Any:
    """Return a normalisation by the statistics that are given, or in training by the batch's.

    Raises:
        NoTruthHere: before opset 7 it trained where nothing else was said.
    """
    if call.opset < 7 and not call.get("is_test"):
        raise NoTruthHere("it trains")
    x, *rest = call.inputs
    known = ("epsilon", "momentum", "training_mode")
    given = {name: call.get(name) for name in known if name in call.attributes}
    flat = x if call.get("spatial", 1) else x.reshape(len(x), -1)  # by element, not by channel
    rest = [each.reshape(-1) for each in rest]
    found = compute_as_onnx("BatchNormalization", flat, *rest, opset=15, outputs=3, **given)
    return (found[0].reshape(x.shape), *found[1:])


@implements("LRN")
def normalize_locally(call: Call) -> Array:
    """Return a normalisation by the squares of channels around each."""
    (x,), size = call.inputs, call.get("size")
    around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    squares, count = np.pad(np.square(x), around), x.shape[1]
    sums = sum(squares[:, at : at + count] for at in range(size))
    base = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * sums
    return np.asarray(x / base ** call.get("beta", 0.75))


@implements("LpNormalization")
def normalize_by_norm(call: Call) -> Array:
    """Return a tensor by its norm along an axis; what is 0 stays 0."""
    (x,), p = call.inputs, call.get("p", 2)
    norm = (np.abs(x) ** p).sum(axis=call.get("axis", -1), keepdims=True) ** (1 / p)
    return np.asarray(x / np.where(norm == 0, 1, norm))


@implements("Softsign")
def softsign(call: Call) -> Array:
    return np.asarray(call.inputs[0] / (1 + np.abs(call.inputs[0])))


@implements("Erf")
def error_function(call: Call) -> Array:
    """Return the error function, which ONNX's implementation rounds to float32."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(call.inputs[0]))


@implements("Pad")
def pad(call: Call) -> Array:
    """Return a tensor with more at its borders; where that is negative, with less."""
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
    """Return the elements at indices along an axis; of the other axes they may take less."""
    x, indices = call.inputs
    places: list[Any] = [*np.ogrid[tuple(map(slice, indices.shape))]]
    places[call.get("axis", 0)] = indices
    return np.asarray(x[tuple(places)])


@implements("Scatter")
def scatter(call: Call) -> Any:
    """Return what ScatterElements gives, which was called so before opset 11."""
    return compute_as_onnx("ScatterElements", *call.inputs, opset=11, **call.attributes)


@implements("NonMaxSuppression")
def suppress(call: Call) -> Any:
    """Return the boxes that no better one overlaps, with limits for those that are left out."""
    limits = (np.array([0]), np.array([0.0]), np.array([-np.inf]))
    pairs = zip(call.take(5)[2:], limits, strict=True)
    filled = [other if each is None else each.reshape(1) for each, other in pairs]
    inputs = (*call.inputs[:2], *filled)
    return compute_as_onnx("NonMaxSuppression", *inputs, opset=call.opset, **call.attributes)


@implements("ZipMap", domains=(LEARNING,))
def name_columns(call: Call) -> list[dict[Any, Any]]:
    """Return a map for each row, from the names of the columns to their values."""
    names = call.get("classlabels_strings") or call.get("classlabels_int64s")
    rows = call.inputs[0].reshape(-1, len(names))
    return [dict(zip(names, map(np.asarray, row), strict=True)) for row in rows]
