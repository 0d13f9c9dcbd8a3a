"""Facts about an engine's operators, and the formulas that count a model's operations (FLOPs).

The facts are in `operators.json` beside the engine's modules. Operations are counted the same way
for every engine. An addition, a multiplication, a comparison or an elementwise function is one
operation, however costly it is; a multiply-accumulate is two. This means:

- The count is twice the number of multiply-accumulates, which papers often call FLOPs. For
  ResNet50, it is 8.2 G.
- The count is the work that the network asks for. Winograd and FFT compute less. At a border a
  filter multiplies padding, and a blocked layout adds channels. So a rate that is computed from
  this count is a rate of useful work.
- Integer and quantised arithmetic counts like floating point.
- Moving, converting, indexing, choosing and sorting count as no operation, but they take time.
- Fusion changes the count little: a fused bias or activation counts as if it were an operator of
  its own. But exporters may express the same function with different operators. So the counts of
  two exports of a network agree exactly only in convolutions and matrix products.

The reader of a model format maps operators to the kinds of `FORMULAS`, and brings shapes into one
order: batch and channels first, and the summed axis of a matrix last.
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

# A shape; an axis of unknown length is None, and so is a shape of unknown rank.
Shape = tuple[int | None, ...] | None


class Operation(Record):
    """One operator, with the facts on which its number of operations depends.

    `type` is the engine's name of the operator's type. `kind` is a row of `FORMULAS`, or None if no
    row fits. The comment on that row says what `taps` counts. `fused` counts the operations on each
    element of the output that are fused into the operator, such as a bias.
    """

    type: str
    kind: str | None
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    taps: int = 1
    fused: int = 0


class UnknownShape(Exception):
    """A number of operations depends on a shape that is unknown."""


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
    """Return a model's number of operations, and the operator types whose number is unknown.

    The number is None if the second result has any types.
    """
    counted = [(operation.type, flops_of(operation)) for operation in operations]
    unknown = {name for name, flops in counted if flops is None}
    total = None if unknown else sum(flops or 0 for _, flops in counted)
    return total, tuple(sorted(unknown))


def flops_of(operation: Operation) -> int | None:
    """Return the number of operations of one operator, None if it is unknown."""
    if operation.kind is None:
        return None
    try:
        flops = FORMULAS[operation.kind](operation)
        return flops + operation.fused * size(operation.outputs, 0) if operation.fused else flops
    except UnknownShape:
        return None


def known(shapes: tuple[Shape, ...], index: int) -> tuple[int, ...]:
    """Return the shape at an index.

    Raises:
        UnknownShape: the shape is missing, or one of its axes is unknown.
    """
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or None in shape:
        raise UnknownShape
    return tuple(axis for axis in shape if axis is not None)


def size(shapes: tuple[Shape, ...], first: int, end: int | None = None) -> int:
    """Return the number of elements of one shape, or of the shapes from `first` to before `end`."""
    chosen = range(first, first + 1 if end is None else end)
    return sum(math.prod(known(shapes, index)) for index in chosen)


def positions(shapes: tuple[Shape, ...], index: int) -> int:
    """Return the number of positions of a filter: the product of all axes except the channels."""
    shape = known(shapes, index)
    return math.prod(shape[:1] + shape[2:])


Types = Sequence[str]


class OperatorFacts(Record):
    """The content of an `operators.json`.

    Attributes:
        kinds: lists of operator types in small letters, by the kind's name for all engines.
        biased, may_fuse, opaque, random: types, with the meaning that `OperatorKinds` gives them.
        rounding: lists of types, or types with a parameter, by what they round (`OperatorKinds`).
        work: lists of types by the row of `FORMULAS`. A type that is missing has no known number of
            FLOPs, such as ONNX's control flow, whose work depends on the data.
        inputs: the indices of the data and of the weights, for types where they are not 0 and 1.
        settings: the indices of floating-point inputs that are parameters, not data.
        biases: the indices of inputs that are a bias, or are added.
        taps: the number of operations on each element, for types where it is not 1; for
            interpolation, by its mode.
        roles: the quantised tensors of an operator, each as the values of a `Role`.
        modes: for types that compute one of several functions, the function's kind by its number.
        numbers: types by the numbers that model files have for them.
        positions: the batch and spatial axes of a layout, for layouts where they are not (0, 2, 3).
        moves: lists of types that move data: constants, copies, conversions of a layout, selections
            (which read no more of their first input than they write, or only its shape), views
            (whose output may share memory with their input), and types without a kernel.
        picked_from: the indices of inputs of which an operator reads no more than it writes, such
            as tables to pick from and tensors of which it needs only the shape.
    """

    kinds: Mapping[str, Types]
    work: Mapping[str, Types]
    biased: Types = ()
    may_fuse: Types = ()
    opaque: Types = ()
    random: Types = ()
    rounding: Mapping[str, Types] = field(default_factory=dict)
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
        """Return the `OperatorKinds` of the engine; `fields` are fields that the file lacks."""
        from lar.graphs import OperatorKinds

        return OperatorKinds(
            by_type(self.kinds),
            biased=frozenset(self.biased),
            may_fuse=frozenset(self.may_fuse),
            opaque=frozenset(self.opaque),
            random=frozenset(map(str.lower, self.random)),
            rounding=by_type(self.rounding),
            **fields,
        )


def facts_beside(module: str) -> OperatorFacts:
    """Read the `operators.json` beside a module."""
    return OperatorFacts(**json.loads(Path(module).with_name("operators.json").read_text()))


def by_type(groups: Mapping[str, Types]) -> dict[str, str]:
    """Return the group of each operator type, from the types of each group."""
    return {each: group for group, types in groups.items() for each in types}
