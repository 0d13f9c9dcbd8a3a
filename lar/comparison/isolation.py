"""Each operator of the actual side alone, fed with what the expected side has at its inputs.

What it then gives differs from the expected tensor by the error that it makes itself, its single
error, whatever stands before it. So operators at fault are found one behind the other too.

What is run alone is all between a tensor and the nearest tensors before it that have twins: one
operator, or several where the other side fused them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from lar.comparison.divergence import (
    JUMP,
    JUMP_BEHIND,
    SUSPECT,
    Blame,
    Judge,
    add_blame,
    after,
    error_of,
    in_weight,
)
from lar.comparison.metrics import DEFAULT_RTOL, bounds_of, measure
from lar.dumps.binary import BY_DTYPE
from lar.dumps.dump import Dump, DumpedTensor
from lar.dumps.layouts import to_blocked
from lar.errors import DumpError, LarError
from lar.graphs.elements import integers_of, real_numbers
from lar.graphs.graph import Node, region_of, sources_of
from lar.graphs.matching import Pair
from lar.graphs.signatures import Values, is_blocked
from lar.records.comparison import TensorComparison, Tolerance
from lar.records.quantization import Quantization

Array = np.ndarray[Any, np.dtype[Any]]

Compare = Callable[[Pair, Array, Mapping[Pair, Array]], TensorComparison]
"""Compares what an operator gave alone with the expected tensor of its pair; with it comes what it
was fed with. All is as the actual side stores it."""


class Operators(Protocol):
    """Computes tensors of the actual side's model alone."""

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


class Alone(NamedTuple):
    """The comparison of what an operator gives alone with the expected tensor; without one, why it
    was not run alone. `nodes` are what was run."""

    found: TensorComparison | None = None
    problem: str = ""
    nodes: frozenset[Node] = frozenset()


def run_alone(
    judge: Judge,
    values: tuple[Values, Values],
    operators: Operators,
    compare: Compare,
    progress: Callable[[str], None],
) -> tuple[dict[Node, Alone], int]:
    """Compute each actual tensor that has a twin from the expected values before it.

    Returns:
        What came of each, by its node, and how many there are: more than that where the user
        interrupted it.
    """
    pairs = [pair for pair in judge.pairs() if pair.actual.operator and not pair.actual.is_input]
    found: dict[Node, Alone] = {}
    try:
        progress("loading the model to run operators alone")
        missing = operators.find_missing(tensor_of(pair.actual) for pair in judge.pairs())
        twins = {
            pair.actual: pair
            for pair in judge.pairs()
            if can_be_fed(judge, pair) and pair.actual.key not in missing
        }
        for number, pair in enumerate(pairs):
            progress(f"running operators alone, {number} of {len(pairs)}")
            if pair.actual.key in missing:
                found[pair.actual] = Alone(problem="lies within what the engine fuses")
            else:
                found[pair.actual] = run_one(pair, twins, values, operators, compare)
    except DumpError:
        raise
    except LarError as error:
        found = {pair.actual: Alone(problem=error.message) for pair in pairs}
    except KeyboardInterrupt:
        pass  # what is known is reported
    return found, len(pairs)


def run_one(
    pair: Pair,
    twins: Mapping[Node, Pair],
    values: tuple[Values, Values],
    operators: Operators,
    compare: Compare,
) -> Alone:
    """Compute an actual tensor from the expected values before it.

    Where it differs, it must be that the same from the actual values gives the actual tensor: what
    an engine does with a part of a graph may not be what it does with the whole.
    """
    try:
        before = values_before(pair.actual, twins, values)
        named = {tensor_of(each.actual).name: array for each, array in before.items()}
        array = operators.compute(tensor_of(pair.actual), named)
        found = compare(pair, array, before)
        if not (found.passed or is_repeated(pair.actual, twins, values[0].dump, operators)):
            return Alone(problem="the engine does not compute it alone as it did in the run")
    except DumpError:
        raise
    except LarError as error:
        return Alone(problem=error.message)
    return Alone(found, nodes=frozenset(region_of(pair.actual, twins)))


def is_repeated(node: Node, twins: Mapping[Node, Pair], dump: Dump, operators: Operators) -> bool:
    """Return whether the actual tensor comes out of the actual values before it.

    Raises:
        LarError: the engine failed, or the dump is damaged.
    """
    tensor = tensor_of(node)
    before = {
        tensor_of(each).name: dump.read(tensor_of(each).key) for each in sources_of(node, twins)
    }
    again, first = operators.compute(tensor, before), dump.read(tensor.key)
    return not measure(again, first, bounds_of(Tolerance(), tensor.dtype)).mismatches


def can_be_fed(judge: Judge, pair: Pair) -> bool:
    """Return whether the expected tensor of a pair can stand for the actual one."""
    return judge.compared[pair.actual].figures is not None and not pair.apart_by_bias


def tensor_of(node: Node) -> DumpedTensor:
    assert node.tensor
    return node.tensor


def values_before(
    node: Node, twins: Mapping[Node, Pair], values: tuple[Values, Values]
) -> dict[Pair, Array]:
    """Return what a node is computed from: the expected values, stored as actual ones.

    Raises:
        LarError: some of it has no twin on the expected side, or is of a type that cannot be fed.
        DumpError: a tensor is missing or damaged.
    """
    for each in region_of(node, twins):
        if each.is_input or each.operator is None:
            raise LarError("what it is computed from has no twin in B", subject=each.name)
    pairs = [twins[each] for each in sources_of(node, twins)]
    return {
        pair: stored_as(tensor_of(pair.actual), tensor_of(pair.expected), values) for pair in pairs
    }


def stored_as(actual: DumpedTensor, expected: DumpedTensor, values: tuple[Values, Values]) -> Array:
    """Return the values of an expected tensor in the type, the shape and the layout of the actual
    one.

    Raises:
        LarError: the type cannot be fed.
        DumpError: the tensor is missing or damaged.
    """
    shape = values[0].shape_of(actual)
    stored = values[1].read_without_padding(expected, [shape])
    array = stored.decode(stored.raw)
    here, there = (
        side.quantizations.get(tensor.key)
        for side, tensor in zip(values, (actual, expected), strict=True)
    )
    # Where one side does not say what its integers stand for, the integers are all there is.
    if actual.dtype == expected.dtype and (here == there or None in (here, there)):
        array = array.reshape(shape)
    else:
        if there is not None:
            array = real_array(array, there)
        array = converted(array.reshape(shape), actual, here)
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


def find_blames(judge: Judge, alone: Mapping[Node, Alone]) -> Sequence[Blame]:
    """Find the operators at fault: those whose single error is past the tolerance. An operator that
    was not run alone is judged as without --isolate.

    If no operator is found although tensors differ, a smaller limit is used, a part of the
    tolerance.
    """
    blames = blames_past(judge, alone, is_past_tolerance)
    return blames or ([] if judge.is_same() else blames_past(judge, alone, is_suspect))


def blames_past(
    judge: Judge, alone: Mapping[Node, Alone], is_past: Callable[[TensorComparison], bool]
) -> list[Blame]:
    blames: list[Blame] = []
    behind: set[Node] = set()
    blamed: set[Node] = set()
    for pair in judge.pairs():
        run = alone.get(pair.actual, Alone())
        found, nodes = run.found, run.nodes
        if found is None:
            at_fault = judge.is_fault(pair, JUMP_BEHIND if pair.expected in behind else JUMP)
        else:
            at_fault = is_past(found) and blamed.isdisjoint(nodes)
        if at_fault:
            add_blame(blames, blame_of(judge, pair))
            behind |= after(pair.expected)
            blamed.add(pair.actual)
    return blames


def is_past_tolerance(found: TensorComparison) -> bool:
    return not found.passed


def is_suspect(found: TensorComparison) -> bool:
    types = found.actual.dtype, found.expected.dtype
    if found.precision:
        return False
    return error_of(found)[0] > SUSPECT * max(DEFAULT_RTOL.get(each, math.inf) for each in types)


def blame_of(judge: Judge, pair: Pair) -> Blame:
    """Return the smallest regions that contain the fault of a pair.

    Behind another fault nothing within the regions can be compared.
    """
    if all(judge.compared[each.actual].passed for each in judge.around(pair, sources_of)):
        return judge.blame(pair)
    sides = [without_moves(region_of(node, judge.by_node)) for node in pair[:2]]
    inputs = judge.inputs_of([*sides[0], *sides[1]])
    return Blame(in_weight(sides[0]), in_weight(sides[1]), inputs, judge.compared[pair.actual])


def without_moves(nodes: list[Node]) -> list[Node]:
    """Return nodes without those that only move data, if there are others."""
    return [node for node in nodes if node.steps != ("move",)] or nodes
