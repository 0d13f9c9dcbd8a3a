"""Runs single operators alone, on both sides, on the same inputs.

The inputs are the expected values. So the output differs from the expected tensor only by the
operator's own error, whatever comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from lar.comparison.metrics import bounds_of, measure
from lar.comparison.pairs import Paired, tensor_of, tensors_of
from lar.dumps.binary import BY_DTYPE
from lar.dumps.dump import DumpedTensor
from lar.dumps.layouts import to_blocked
from lar.errors import DumpError, LarError
from lar.graphs.elements import integers_of, whole
from lar.graphs.graph import Node, is_within, region_of, sources_of
from lar.graphs.matching import Array, Pair
from lar.graphs.signatures import Values, is_blocked, squeezed
from lar.records.comparison import TensorComparison, Tolerance
from lar.records.run import Quantization

NOT_REPEATED = "the engine of {side} does not compute it alone as it did in the run"


class Operators(Protocol):
    """Computes tensors of one side's model alone."""

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        """Return the keys of tensors that can be neither given nor computed, as inside a fusion.

        Raises:
            LarError: the engine failed.
        """

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        """Compute a tensor from the values of others, by their names, all in their stored form.

        Raises:
            LarError: it cannot be cut out of the model, or the engine failed.
        """


OperatorsOf = Callable[[int], "Operators | str"]
"""Takes a side, 0 or 1; returns what runs its operators alone, or why nothing does."""


class Alone(NamedTuple):
    """The comparison of what an operator gives alone with the expected tensor.

    `nodes` are what was run. `doubt` says why it was not run, or why it proves nothing.
    """

    found: TensorComparison | None = None
    nodes: frozenset[Node] = frozenset()
    doubt: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it was run and agrees."""
        return self.found is not None and self.found.passed


class Prover:
    """Runs the operators of pairs alone."""

    def __init__(self, paired: Paired, operators_of: OperatorsOf) -> None:
        self.pairs, self.compared = paired.by_node, paired.compared
        self.measure, self.letters = paired.measure, paired.names
        self.operators_of = operators_of
        self.loaded: dict[int, Operators | str] = {}
        self.fed: dict[int, set[Node]] = {}  # by side: the nodes that can be given

    def prove(self, pair: Pair, *, though_right: bool = False) -> Alone:
        """Run the operators of a pair alone on the expected values before it.

        If they differ, or with `though_right`, check that each side alone gives what it gave in the
        run.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        alone = Alone()
        try:
            alone = self.run(pair)
            if though_right or not alone.is_right:
                self.check_repeated(pair)
        except DumpError:
            raise
        except LarError as error:
            return alone._replace(doubt=error.message)
        return alone

    def run(self, pair: Pair) -> Alone:
        """Run what computes the actual tensor of a pair on the expected values before it.

        Raises:
            LarError: it cannot be run alone.
        """
        operators, actual = self.operators(0), tensor_of(pair.actual)
        if pair.actual not in self.fed[0] and operators.find_missing([actual]):
            raise LarError(f"the engine of {self.letters[0]} does not give this tensor alone")
        before = self.values_before(pair.actual)
        named = {tensor_of(it.actual).name: array for it, array in before.items()}
        array = operators.compute(actual, named)
        if squeezed(array.shape) != squeezed(actual.shape):
            raise LarError(f"alone it gives the shape {array.shape}")
        found = self.measure.measure_alone(pair, array, before, self.compared)
        return Alone(found, frozenset(region_of(pair.actual, self.fed_before(pair.actual, 0))))

    def values_before(self, node: Node) -> dict[Pair, Array]:
        """Return the inputs of an actual node: the expected values, stored as the actual ones.

        Raises:
            LarError: an input has no twin on the expected side, or a type that cannot be fed.
            DumpError: a tensor is missing or damaged.
        """
        fed = self.fed_before(node, 0)
        for each in region_of(node, fed):
            if each.is_input or each.operator is None:
                raise LarError("what it is computed from has no twin", subject=each.name)
        pairs = [self.pairs[each] for each in sources_of(node, fed)]
        values, compared = self.measure.values, self.compared
        return {it: stored_as(it, values, compared[it.actual].axes) for it in pairs}

    def check_repeated(self, pair: Pair) -> None:
        """Check that each side, alone and on its own inputs, gives what it gave in the run.

        Raises:
            LarError: one does not, or cannot be run.
        """
        for side, node in enumerate(pair[:2]):
            operators, tensor = self.operators(side), tensor_of(node)
            dump = self.measure.values[side].dump
            taken = map(tensor_of, sources_of(node, self.fed_before(node, side)))
            before = {it.name: dump.read(it.key) for it in taken}
            first = dump.read(tensor.key)
            try:
                again = operators.compute(tensor, before)
            except LarError as error:
                raise LarError(error.message, subject=self.letters[side]) from None
            same = squeezed(again.shape) == squeezed(first.shape)
            bounds = bounds_of(Tolerance(), tensor.dtype)
            if not same or measure(again.reshape(first.shape), first, bounds).mismatches:
                raise LarError(NOT_REPEATED.format(side=self.letters[side]))

    def operators(self, side: int) -> Operators:
        """Return what runs the operators of a side alone.

        Raises:
            LarError: nothing does.
        """
        if side not in self.loaded:
            found, missing = self.operators_of(side), set[str]()
            # An expected tensor can replace the actual one if the two can be compared.
            comparable = (it for it in self.pairs.values() if self.compared[it.actual].figures)
            nodes = {pair[:2][side] for pair in comparable}
            try:
                if not isinstance(found, str):
                    missing = found.find_missing(map(tensor_of, nodes))
            except LarError as error:
                found = error.message
            self.loaded[side] = found
            self.fed[side] = {node for node in nodes if tensor_of(node).key not in missing}
        known = self.loaded[side]
        if isinstance(known, str):
            raise LarError(known)
        return known

    def fed_before(self, node: Node, side: int) -> set[Node]:
        """Return the nodes of a side that can be given to an operator.

        Nodes in a body of the operator are not among them: they are run with it.
        """
        fed = self.fed[side]
        return {each for each in fed if not is_within(each, node)} if node.has_bodies else fed


def stored_as(pair: Pair, values: tuple[Values, Values], axes: Collection[int]) -> Array:
    """Return the expected values of a pair, stored as the actual tensor: type, shape and layout.

    The actual tensor's `axes` may stand in another order.

    Raises:
        LarError: the type cannot be fed.
        DumpError: the tensor is missing or damaged.
    """
    actual, expected = tensors_of(pair)
    shape = values[0].shape_of(actual)
    here, there = map(Values.quantization_of, values, (actual, expected))
    # If a side does not say what its integers stand for, only the integers can be used.
    plain = actual.dtype == expected.dtype and (here == there or None in (here, there))
    values[1].learn_padding(expected, [shape])
    array = whole(values[1].elements(expected, integers=plain))
    if axes:
        array = array.reshape(squeezed(array.shape)).transpose(np.argsort([*axes]))
    array = array.reshape(shape)
    if not plain:
        array = converted(array, actual, here)
    return to_blocked(array, actual.layout, actual.shape) if is_blocked(actual) else array


def converted(array: Array, actual: DumpedTensor, quantization: Quantization | None) -> Array:
    """Return numbers in plain axes in the type of the actual tensor.

    Raises:
        LarError: they cannot be fed.
    """
    element = BY_DTYPE.get(actual.dtype)
    unscaled = quantization is None and "uantized" in actual.dtype
    if element is None or element.bits or element.name == "BFloat16" or unscaled:
        raise LarError(f"numbers cannot be fed as {actual.dtype}", subject=actual.name)
    wanted = np.dtype(element.storage)
    if quantization is not None or (wanted.kind in "iu" and array.dtype.kind == "f"):
        return integers_of(array, quantization or Quantization(scale=(1.0,)), wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(wanted)
