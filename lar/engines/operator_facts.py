"""Facts about an engine's operators, and the formulas that count a model's operations (FLOPs).

The facts are in `operators.json` beside the engine's modules. Operations are counted the same way
for every engine. An addition, a multiplication, a comparison or an elementwise function is one
operation, however much time it takes; a multiply-accumulate counts as two operations. This means:

- lar's FLOPs are twice the number of multiply-accumulates. Papers often use the word FLOPs for the
  number of multiply-accumulates. For ResNet50, lar counts 8.2 billion FLOPs.
- lar's FLOPs are the work of the plain definition of the network, not the work that an engine does.
  An engine does less work if it computes convolutions by Winograd or FFT. An engine does more work
  if its filters multiply padding at a border, or if its blocked layouts add channels. So lar's
  FLOPs per second are a rate of useful work.
- Integer and quantised operations count like floating-point operations.
- Operators that move, convert, index, select or sort data count as 0 operations, although they
  take time.
- Fusion changes the count little, since a fused bias or activation counts as much as a separate
  operator. But two programs that export the same network may use different operators for the same
  function. Therefore two exported models of one network always have equal FLOPs for convolutions
  and matrix products, but not always for other operators.

The reader of a model format maps operators to the kinds of `FORMULAS`. The reader also sorts the
axes of shapes: batch and channels first, and the summed axis of a matrix last.
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
    """One operator, with the facts that determine the operator's number of operations.

    `type` is the engine's name of the operator's type. `kind` is a row of `FORMULAS`, or None if no
    row fits. `taps` is a count whose meaning depends on the kind, and is explained in a comment in
    `FORMULAS`. Operations such as adding a bias may be fused into the operator. `fused` is the
    number of fused operations for each element of the output.
    """

    type: str
    kind: str | None
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    taps: int = 1
    fused: int = 0


class UnknownShape(Exception):
    """Raised if a number of operations depends on a shape that is unknown."""


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
    """Return a model's number of operations, and the operator types whose operations are unknown.

    The number is None if the operations of any operator type are unknown.
    """
    counted = [(operation.type, flops_of(operation)) for operation in operations]
    unknown = {name for name, flops in counted if flops is None}
    total = None if unknown else sum(flops or 0 for _, flops in counted)
    return total, tuple(sorted(unknown))


def flops_of(operation: Operation) -> int | None:
    """Return the number of operations of one operator, None if the number is unknown."""
    if operation.kind is None:
        return None
    try:
        flops = FORMULAS[operation.kind](operation)
        return flops + operation.fused * size(operation.outputs, 0) if operation.fused else flops
    except UnknownShape:
        return None


def known(shapes: tuple[Shape, ...], index: int) -> tuple[int, ...]:
    """Return the shape at an index, if the sizes of all axes are known.

    Raises:
        UnknownShape: the shape is missing, or one of its axes is unknown.
    """
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or None in shape:
        raise UnknownShape
    return tuple(axis for axis in shape if axis is not None)


def size(shapes: tuple[Shape, ...], first: int, end: int | None = None) -> int:
    """Return the total number of elements of the shapes with the indices `first` to `end` - 1.

    If `end` is None, only the elements of the shape at `first` are counted.
    """
    chosen = range(first, first + 1 if end is None else end)
    return sum(math.prod(known(shapes, index)) for index in chosen)


def positions(shapes: tuple[Shape, ...], index: int) -> int:
    """Return how often a filter is applied: the product of all sizes except the channels."""
    shape = known(shapes, index)
    return math.prod(shape[:1] + shape[2:])


Types = Sequence[str]


class OperatorFacts(Record):
    """The content of an `operators.json`.

    Attributes:
        kinds: a list of operator types in small letters for each kind, whose name is the same for
            all engines.
        biased, may_fuse, opaque, random: lists of operator types, with the meanings that the class
            `OperatorKinds` explains.
        rounding: a list of operator types, some with a parameter, for each kind of rounding; the
            class `OperatorKinds` explains the kinds of rounding.
        work: a list of operator types for each row of `FORMULAS`. The number of FLOPs is unknown
            for a type that is in no list. Control flow is in no list, since its work depends on the
            data.
        inputs: the index of the data and the index of the weights, for types where these indices
            are not 0 and 1.
        settings: the indices of floating-point inputs that are parameters and not data, by type.
        biases: the indices of inputs that are a bias or another summand, by type.
        taps: the number of operations on each element, for types where this number is not 1. For
            interpolation, the number is given for each mode.
        roles: the quantised tensors of operators, by type; each tensor is described by the values
            of a `Role`.
        modes: for types that compute one of several functions, the kinds of these functions, in the
            order of the functions' numbers.
        numbers: the operator types, by the numbers that stand for types in model files.
        positions: the batch axis and the spatial axes, for layouts where these axes are not (0, 2,
            3).
        moves: lists of types that move data: constants, copies, conversions of a layout, selections
            (which read no more of their first input than they write, or only its shape), views
            (whose output may share memory with their input), and types without a kernel.
        picked_from: the indices of inputs of which an operator reads at most as many elements as
            the operator writes, such as a table, or a tensor of which only the shape is needed.
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
        """Return the `OperatorKinds` of the engine that this file describes.

        `fields` has the values of the fields of `OperatorKinds` that are not in `operators.json`.
        """
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
    """Return the group of each operator type, given the types in each group."""
    return {each: group for group, types in groups.items() for each in types}
