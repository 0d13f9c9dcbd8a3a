"""Operators of plain tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import helper

from lar.engines.onnx_file.control_flow import NoTruthHere
from lar.engines.reference.implementations import (
    LEARNING,
    WIDENED,
    Array,
    Call,
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
