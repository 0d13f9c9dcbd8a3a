"""The number of operations of a model, counted the same way for every engine.

An addition, a multiplication, a comparison or an elementwise function, however costly, is one
operation; so a multiply-accumulate is two. What follows from that:

- The figure is twice the multiply-accumulates that papers often call FLOPs: 8.2 G for ResNet50.
- It is the work that the network asks for. Winograd and FFT do less, a filter at a border meets
  padding, a blocked layout fills its channels up: a rate computed from it is only a rate of
  useful work.
- Integer and quantised arithmetic counts like floating point.
- Moving, converting, indexing, choosing and sorting count nothing, and yet take time.
- Fusing changes little, for a fused bias or activation counts as if it stood alone. But exporters
  write one function with other operators, so the twins of a network agree exactly only in
  their convolutions and matrix products.

A reader of a format maps the operators that it finds to the kinds of `FORMULAS`, and their
shapes to one order: batch and channels first, the summed axis of a matrix last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

# A shape; None stands for an unknown axis, or for a shape of unknown rank.
Shape = tuple[int | None, ...] | None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operator, as far as its work depends on it.

    `type` is the engine's own name; `kind` a row of `FORMULAS`, None if none fits.
    `taps` is what the kind says it is, `fused` the operations that follow on each element of
    the output without an operator of their own, such as a bias.
    """

    type: str
    kind: str | None
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    taps: int = 1
    fused: int = 0


class UnknownShape(Exception):
    """The work depends on a shape that is not known."""


FORMULAS: Mapping[str, Callable[[Operation], int]] = {
    # inputs: data, filter. Every element of the filter is used once at each position.
    "convolution": lambda it: 2 * positions(it.outputs, 0) * size(it.inputs, 1),
    "deconvolution": lambda it: 2 * positions(it.inputs, 0) * size(it.inputs, 1),
    # A convolution with a filter of its own at each position.
    "local convolution": lambda it: 2 * math.prod(known(it.inputs, 0)[:1]) * size(it.inputs, 1),
    # The last axis of the first input is summed over.
    "matrix product": lambda it: 2 * size(it.outputs, 0) * math.prod(known(it.inputs, 0)[-1:]),
    # inputs: the sequence, features last, and the weights. The gates' own arithmetic is left out.
    "recurrence": lambda it: (
        2 * math.prod(known(it.inputs, 0)[:-1]) * size(it.inputs, 1, len(it.inputs))
    ),
    # taps: elements of the window.
    "pooling": lambda it: it.taps * size(it.outputs, 0),
    # taps: operations on each element.
    "elementwise": lambda it: it.taps * size(it.outputs, 0),
    "reduction": lambda it: it.taps * size(it.inputs, 0),
    # The greatest, minus it, exponential, sum, quotient.
    "softmax": lambda it: 5 * size(it.outputs, 0),
    # With stored statistics: a scale and a shift.
    "batch normalisation": lambda it: 2 * size(it.inputs, 0),
    # Mean, minus it, square, sum, quotient, scale, shift.
    "normalisation": lambda it: 7 * size(it.inputs, 0),
    # The same without mean and shift.
    "rms normalisation": lambda it: 4 * size(it.inputs, 0),
    # taps: elements that an output is weighted from.
    "interpolation": lambda it: 2 * it.taps * size(it.outputs, 0),
    "movement": lambda it: 0,
}


def count_flops(operations: Iterable[Operation]) -> tuple[int | None, tuple[str, ...]]:
    """Return a model's operations and the operator types whose work is unknown.

    The first is None as soon as there is one of the second.
    """
    counted = [(operation.type, flops_of(operation)) for operation in operations]
    unknown = {name for name, flops in counted if flops is None}
    total = None if unknown else sum(flops or 0 for _, flops in counted)
    return total, tuple(sorted(unknown))


def flops_of(operation: Operation) -> int | None:
    """Return the operations of one operator, None if they are unknown."""
    if operation.kind is None:
        return None
    try:
        flops = FORMULAS[operation.kind](operation)
        return flops + operation.fused * size(operation.outputs, 0) if operation.fused else flops
    except UnknownShape:
        return None


def known(shapes: tuple[Shape, ...], index: int) -> tuple[int, ...]:
    """Return one of the shapes.

    Raises:
        UnknownShape: it is missing, or an axis of it is unknown.
    """
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or None in shape:
        raise UnknownShape
    return tuple(axis for axis in shape if axis is not None)


def size(shapes: tuple[Shape, ...], first: int, end: int | None = None) -> int:
    """Return the elements of one shape, or of those from first to end."""
    chosen = range(first, first + 1 if end is None else end)
    return sum(math.prod(known(shapes, index)) for index in chosen)


def positions(shapes: tuple[Shape, ...], index: int) -> int:
    """Return at how many places a filter is applied: the product of all axes but the channels."""
    shape = known(shapes, index)
    return math.prod(shape[:1] + shape[2:])
