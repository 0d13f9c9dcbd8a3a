"""Single operators that are run alone, on both sides, on the same inputs.

The inputs are the expected values. What an operator then gives differs from the expected tensor by
the error that it makes itself, whatever stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from lar.comparison.metrics import bounds_of, measure
from lar.comparison.paired import Paired
from lar.comparison.pairs import tensor_of, tensors_of
from lar.dumps.binary import BY_DTYPE
from lar.dumps.dump import DumpedTensor
from lar.dumps.layouts import to_blocked
from lar.errors import DumpError, LarError
from lar.graphs.elements import integers_of, real_numbers
from lar.graphs.graph import Node, is_within, region_of, sources_of
from lar.graphs.matching import Array, Pair
from lar.graphs.signatures import Values, is_blocked, squeezed
from lar.records.comparison import TensorComparison, Tolerance
from lar.records.quantization import Quantization

NOT_REPEATED = "the engine of {side} does not compute it alone as it did in the run"


class Operators(Protocol):
    """Computes tensors of one side's model alone."""

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        """Return the keys of tensors that cannot be given or computed, as those within what the
        engine fuses.

        Raises:
            LarError: the engine failed.
        """

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        """Compute a tensor from the values of others, by their names, all as they are stored.

        Raises:
            LarError: it cannot be cut out of the model, or the engine failed.
        """


OperatorsOf = Callable[[int], "Operators | str"]
"""Returns what runs the operators of a side alone, 0 or 1, or why nothing does."""


class Alone(NamedTuple):
    """The comparison of what an operator gives alone with the expected tensor. `nodes` are what was
    run. `doubt` says why it was not run, or why it proves nothing."""

    found: TensorComparison | None = None
    nodes: frozenset[Node] = frozenset()
    doubt: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it differs."""
        return self.found is not None and not self.found.passed

    @property
    def is_right(self) -> bool:
        """Whether it agrees."""
        return self.found is not None and self.found.passed


class Prover:
    """Runs the operators of pairs alone."""

    def __init__(self, paired: Paired, operators_of: OperatorsOf) -> None:
        self.pairs, self.compared = paired.by_node, paired.compared
        self.measure, self.letters = paired.measure, paired.names
        self.operators_of = operators_of
        self.loaded: dict[int, Operators | str] = {}
        self.fed: dict[int, set[Node]] = {}  # the nodes of a side that can be given

    def prove(self, pair: Pair) -> Alone:
        """Run the operators of a pair alone; where they differ, on the other side too.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        alone = self.run(pair)
        return alone if alone.is_right else self.confirm(pair, alone)

    def run(self, pair: Pair) -> Alone:
        """Run what computes the actual tensor of a pair on the expected values before it.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        operators = self.operators(0)
        if isinstance(operators, str):
            return Alone(doubt=operators)
        actual = tensor_of(pair.actual)
        if pair.actual not in self.fed[0] and operators.find_missing([actual]):
            return Alone(doubt=f"the engine of {self.letters[0]} does not give this tensor alone")
        try:
            before = self.values_before(pair.actual)
            named = {tensor_of(it.actual).name: array for it, array in before.items()}
            array = operators.compute(actual, named)
        except DumpError:
            raise
        except LarError as error:
            return Alone(doubt=error.message)
        if squeezed(array.shape) != squeezed(actual.shape):
            return Alone(doubt=f"alone it gives the shape {array.shape}")
        found = self.measure.measure_alone(pair, array, before, self.compared)
        return Alone(found, frozenset(region_of(pair.actual, self.fed_before(pair.actual, 0))))

    def values_before(self, node: Node) -> dict[Pair, Array]:
        """Return what an actual node is computed from: the expected values, stored as actual ones.

        Raises:
            LarError: some of it has no twin on the expected side, or is of a type that cannot be
                fed.
            DumpError: a tensor is missing or damaged.
        """
        fed = self.fed_before(node, 0)
        for each in region_of(node, fed):
            if each.is_input or each.operator is None:
                raise LarError("what it is computed from has no twin", subject=each.name)
        pairs = [self.pairs[each] for each in sources_of(node, fed)]
        return {
            pair: stored_as(pair, self.measure.values, self.compared[pair.actual].axes)
            for pair in pairs
        }

    def confirm(self, pair: Pair, alone: Alone) -> Alone:
        """Return what was found alone, with a doubt unless both sides, each on its own inputs of
        the run, give alone what they gave in the run.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        if alone.found is None or alone.doubt:
            return alone
        for side, node in enumerate(pair[:2]):
            operators = self.operators(side)
            if isinstance(operators, str):
                return alone._replace(doubt=operators)
            try:
                repeated = self.is_repeated(side, node, operators)
            except DumpError:
                raise
            except LarError as error:
                return alone._replace(doubt=f"{self.letters[side]}: {error.message}")
            if not repeated:
                return alone._replace(doubt=NOT_REPEATED.format(side=self.letters[side]))
        return alone

    def operators(self, side: int) -> Operators | str:
        """Return what runs the operators of a side alone, or why nothing does."""
        if side not in self.loaded:
            found = self.operators_of(side)
            # The expected tensor can stand for the actual one where both can be compared.
            nodes = [pair[:2][side] for pair in set(self.pairs.values()) if self.has_figures(pair)]
            try:
                missing = (
                    set() if isinstance(found, str) else found.find_missing(map(tensor_of, nodes))
                )
            except LarError as error:
                found, missing = error.message, set()
            self.loaded[side] = found
            self.fed[side] = {node for node in nodes if tensor_of(node).key not in missing}
        return self.loaded[side]

    def fed_before(self, node: Node, side: int) -> set[Node]:
        """Return the nodes of a side that can be given to an operator: not those in a body of its
        own, which is run with it."""
        fed = self.fed[side]
        return {each for each in fed if not is_within(each, node)} if node.has_bodies else fed

    def has_figures(self, pair: Pair) -> bool:
        return self.compared[pair.actual].figures is not None

    def is_repeated(self, side: int, node: Node, operators: Operators) -> bool:
        """Return whether a side's tensor comes out of its own values before it.

        Raises:
            LarError: the engine failed, or the dump is damaged.
        """
        dump, tensor = self.measure.values[side].dump, tensor_of(node)
        before = {
            tensor_of(each).name: dump.read(tensor_of(each).key)
            for each in sources_of(node, self.fed_before(node, side))
        }
        again, first = operators.compute(tensor, before), dump.read(tensor.key)
        if squeezed(again.shape) != squeezed(first.shape):
            return False
        bounds = bounds_of(Tolerance(), tensor.dtype)
        return not measure(again.reshape(first.shape), first, bounds).mismatches


def stored_as(pair: Pair, values: tuple[Values, Values], axes: Collection[int]) -> Array:
    """Return the values of the expected tensor of a pair in the type, the shape and the layout of
    the actual one, whose `axes` may stand in another order.

    Raises:
        LarError: the type cannot be fed.
        DumpError: the tensor is missing or damaged.
    """
    actual, expected = tensors_of(pair)
    shape = values[0].shape_of(actual)
    stored = values[1].read_without_padding(expected, [shape])
    array = stored.decode(stored.raw)
    here, there = (
        side.quantizations.get(tensor.key)
        for side, tensor in zip(values, (actual, expected), strict=True)
    )
    # Where one side does not say what its integers stand for, the integers are all there is.
    plain = actual.dtype == expected.dtype and (here == there or None in (here, there))
    if not plain and there is not None:
        array = real_array(array, there)
    if axes:
        array = array.reshape(squeezed(array.shape)).transpose(np.argsort([*axes]))
    array = array.reshape(shape)
    if not plain:
        array = converted(array, actual, here)
    return to_blocked(array, actual.layout, actual.shape) if is_blocked(actual) else array


def real_array(integers: Array, quantization: Quantization) -> Array:
    """Return the real numbers that integers in plain axes stand for."""
    rows = None
    if quantization.axis is not None:
        rows = np.arange(integers.size) // math.prod(integers.shape[quantization.axis + 1 :])
    return real_numbers(integers.reshape(-1), quantization, rows).reshape(integers.shape)


def converted(array: Array, actual: DumpedTensor, quantization: Quantization | None) -> Array:
    """Return numbers in plain axes in the type of the actual tensor.

    Raises:
        LarError: they cannot be fed.
    """
    element = BY_DTYPE.get(actual.dtype)
    known = element is not None and not element.bits and element.name != "BFloat16"
    if element is None or not known or (quantization is None and "uantized" in actual.dtype):
        raise LarError(f"numbers cannot be fed as {actual.dtype}", subject=actual.name)
    wanted = np.dtype(element.storage)
    if quantization is not None:
        return integers_of(array, quantization, wanted)
    if wanted.kind in "iu" and array.dtype.kind == "f":
        limits = np.iinfo(wanted)
        array = np.clip(np.rint(array), limits.min, limits.max)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(wanted)
