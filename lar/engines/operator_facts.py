"""What lar knows of an engine's operators: `operators.json` beside the engine's modules.

The number of operations of a model, counted the same way for every engine.

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

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.records.record import Record

if TYPE_CHECKING:
    from lar.graphs import OperatorKinds

# A shape; None stands for an unknown axis, or for a shape of unknown rank.
Shape = tuple[int | None, ...] | None


class Operation(Record):
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


Types = Sequence[str]


class OperatorFacts(Record):
    """The content of such a file.

    Attributes:
        kinds: types of operators in small letters, by their kind in words for all engines.
        biased, may_fuse, opaque, random: types as `OperatorKinds` has them.
        work: types by the work that they do, as it is counted above. A type that is missing has
            no known number of FLOPs, such as ONNX's control flow, whose work depends on the data.
        inputs: which inputs are the data and the weights, where they are not the first two.
        settings: inputs that are floating-point and yet say how to compute, not with what.
        biases: the inputs that are a bias, or are added.
        taps: operations on each element, where they are not one; of an interpolation by its mode.
        roles: the quantised tensors of an operator, each as the values of a `Role`.
        modes: for types that do one of several things, the kinds of these by their numbers.
        numbers: types by the numbers that model files have for them.
        positions: the batch and spatial axes of a layout, where they are not (0, 2, 3).
        moves: the types that are constants; that copy; convert a layout; read no more of their
            first input than they give, or its shape alone; give a view of their input, or may; or
            have no kernel, as they hold data, take it in or give it out, or show it otherwise.
        picked_from: the inputs of which an operator reads no more than it gives: tables to pick
            from, and tensors of which it asks for the shape alone.
    """

    kinds: Mapping[str, Types]
    work: Mapping[str, Types]
    biased: Types = ()
    may_fuse: Types = ()
    opaque: Types = ()
    random: Types = ()
    inputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    settings: Mapping[str, Sequence[int]] = field(default_factory=dict)
    biases: Mapping[str, Sequence[int]] = field(default_factory=dict)
    taps: Mapping[str, int] = field(default_factory=dict)
    roles: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)
    modes: Mapping[str, Types] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    moves: Mapping[str, Types] = field(default_factory=dict)
    picked_from: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @cached_property
    def work_by_type(self) -> Mapping[str, str]:
        return by_type(self.work)

    def operator_kinds(self, **fields: Any) -> OperatorKinds:
        """Return the kinds of the operators; `fields` are those of `OperatorKinds` that are no
        facts."""
        from lar.graphs import OperatorKinds

        return OperatorKinds(
            by_type(self.kinds),
            biased=frozenset(self.biased),
            may_fuse=frozenset(self.may_fuse),
            opaque=frozenset(self.opaque),
            random=frozenset(map(str.lower, self.random)),
            **fields,
        )


def facts_beside(module: str) -> OperatorFacts:
    """Read the file beside a module."""
    return OperatorFacts(**json.loads(Path(module).with_name("operators.json").read_text()))


def by_type(groups: Mapping[str, Types]) -> dict[str, str]:
    """Return the group of each type of operators."""
    return {each: group for group, types in groups.items() for each in types}
