"""The tensors of two dumps that correspond to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.dump import DumpedTensor
from lar.graphs.elements import dequantized, elements_of
from lar.graphs.graph import Graph, Node, name_of, region_of
from lar.graphs.matching import NEAR_QUANTIZED, Matching, Pair, is_generic
from lar.graphs.operator_kinds import GROUPS
from lar.graphs.quantities import names_of_constants
from lar.graphs.signatures import Values, squeezed
from lar.records.comparison import MatchedBy

Array = np.ndarray[Any, np.dtype[Any]]


class ConstantPair(NamedTuple):
    """Two constants that are twins."""

    actual: DumpedTensor
    expected: DumpedTensor
    by: MatchedBy


class Alignment(NamedTuple):
    """The twins of two dumps, and for each tensor that was only moved the one whose data it
    holds."""

    pairs: list[Pair]
    constants: list[ConstantPair]
    originals: Mapping[Node, Node]


def align(
    actual: Graph,
    expected: Graph,
    values: tuple[Values, Values],
    name_map: Mapping[str, str] | None = None,
) -> Alignment:
    """Find the twins of two dumps.

    Two dumps of one graph are gone through side by side; for others each tensor is read, one at
    a time. `name_map` has twins that are known, by name.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    known = name_map or {}
    alone = len(actual.dump) == len(expected.dump) == 1
    if alone or (not known and is_same_graph(actual, expected)):
        return pair_in_step(actual, expected)
    matching = Matching(actual, expected, values, known)
    pairs = matching.match()
    constants = pair_constants(actual, expected, pairs, values, known)
    return Alignment(pairs, constants, matching.originals)


def is_same_graph(actual: Graph, expected: Graph) -> bool:
    """Return whether two dumps have the same tensors of the same operators in the same order."""
    names = [[tensor.name for tensor in graph.dump] for graph in (actual, expected)]
    if any(node.operator for node in actual.nodes):
        names = [["" if is_generic(name) else name for name in side] for side in names]
    return names[0] == names[1] and fingerprint(actual) == fingerprint(expected)


def fingerprint(graph: Graph) -> list[tuple[Any, ...]]:
    places = {tensor.key: place for place, tensor in enumerate(graph.dump)}
    found = []
    for tensor in graph.dump:
        maker = graph.makers.get(tensor.key)
        taken = [places.get(key, -1) for key in maker.inputs] if maker else []
        kind = (maker.type, maker.constant) if maker else ("", False)
        form = (tensor.slot, tensor.run, tensor.layout, tensor.dtype, tensor.shape)
        found.append((*kind, *form, taken))
    return found


def pair_in_step(actual: Graph, expected: Graph) -> Alignment:
    """Pair the tensors of two dumps of one graph."""
    pairs, constants = [], []
    for one, other in zip(actual.dump, expected.dump, strict=True):
        by: MatchedBy = "name" if name_of(one) == name_of(other) else "graph"
        if one.key in actual.constants or other.key in expected.constants:
            constants.append(ConstantPair(one, other, by))
        else:
            pairs.append(Pair(actual.nodes_by_key[one.key], expected.nodes_by_key[other.key], by))
    return Alignment(pairs, constants, {})


def pair_constants(
    actual: Graph,
    expected: Graph,
    pairs: Sequence[Pair],
    values: tuple[Values, Values],
    name_map: Mapping[str, str],
) -> list[ConstantPair]:
    """Pair constants by name, or by their place among the inputs of an operator or of all operators
    between a pair and the pairs before it, which the other side may have fused."""
    names = [names_of_constants(graph) for graph in (actual, expected)]
    stores = [
        {tensor.key: tensor for tensor in graph.dump if tensor.key in known}
        for graph, known in zip((actual, expected), names, strict=True)
    ]
    counts = [Counter(known.values()) for known in names]
    named = {name: stores[1][key] for key, name in names[1].items()}
    found: dict[str, ConstantPair] = {}
    used: set[str] = set()

    def add(one: DumpedTensor, other: DumpedTensor, by: MatchedBy) -> None:
        same_shape = values[0].shape_of(one) == values[1].shape_of(other)
        if values[0].is_scaled(one) != values[1].is_scaled(other):
            return
        if same_shape and one.key not in found and other.key not in used:
            found[one.key] = ConstantPair(one, other, by)
            used.add(other.key)

    for one in stores[0].values():
        name = names[0][one.key]
        mapped = name_map.get(name_of(one), "")
        if mapped in named:
            add(one, named[mapped], "name")
        if not is_generic(name) and counts[0][name] == counts[1][name] == 1:
            add(one, named[name], "name")
    for pair in pairs:
        places = {place: expected.integers_of(key) for place, key in pair.expected.constants}
        for place, taken in pair.actual.constants:
            key, other_key = actual.integers_of(taken), places.get(place, "")
            if key in stores[0] and other_key in stores[1]:
                add(stores[0][key], stores[1][other_key], "graph")
    twins = {node for pair in pairs for node in pair[:2]}
    for pair in pairs if not actual.dump.excerpts else ():
        sides = [
            [*map(graph.integers_of, parameters_of(node, twins))]
            for graph, node in zip((actual, expected), pair[:2], strict=True)
        ]
        free = [
            [store[key] for key in side if key in store and key not in known]
            for side, store, known in zip(sides, stores, (found, used), strict=True)
        ]
        nothing_folded = len(sides[0]) == len(sides[1])
        for one, other, by in pair_parameters(free, values, by_shape=nothing_folded):
            found[one.key] = ConstantPair(one, other, by)
            used.add(other.key)
    return list(found.values())


def parameters_of(node: Node, twins: Container[Node]) -> list[str]:
    """Return the keys of the constants between a node and the nearest twins, without those of
    activations (0 and 6 of a ReLU), which may vanish when they are fused."""
    return [
        key
        for each in region_of(node, twins)
        if each.steps[0] not in GROUPS["activation"]
        for _, key in each.constants
    ]


def pair_parameters(
    free: Sequence[Sequence[DumpedTensor]], values: tuple[Values, Values], *, by_shape: bool
) -> Iterator[ConstantPair]:
    """Pair constants that hold the same values, in plain axes or in blocks, or rounded to integers.

    With `by_shape`, also pair two whose values differ, if no other constant on either side has
    their shape and type.
    """
    left = list(free[1])
    lonely: list[tuple[DumpedTensor, list[DumpedTensor]]] = []
    for one in free[0] if left else ():
        array = read(values[0], one, [values[1].shape_of(it) for it in left])
        fitting, nearest = [], None
        for other in left:
            there = read(values[1], other, [array.shape])
            if squeezed(there.shape) != squeezed(array.shape):
                continue
            if np.array_equal(there.ravel(), array.ravel()):
                yield ConstantPair(one, other, "content")
                left.remove(other)
                break
            fitting.append(other)
            rounded = one.key in values[0].quantizations or other.key in values[1].quantizations
            if rounded and is_near(array.ravel(), there.ravel()):
                nearest = other
        else:
            if nearest is not None:
                yield ConstantPair(one, nearest, "content")
                left.remove(nearest)
                continue
            lonely.append((one, fitting))
    for one, fitting in lonely:
        others = [it for it in fitting if it in left and it.dtype == one.dtype]
        rivals = [it for it, theirs in lonely if it is not one and set(theirs) & set(others)]
        if by_shape and len(others) == 1 and not rivals:
            yield ConstantPair(one, others[0], "graph")


def is_near(one: Array, other: Array) -> bool:
    """Return whether two arrays are as near as rounding to integers leaves them."""
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    return float(np.linalg.norm(np.subtract(one, other))) <= NEAR_QUANTIZED * max(lengths)


def read(values: Values, tensor: DumpedTensor, shapes: Collection[tuple[int, ...]]) -> Array:
    """Read a tensor in plain axes, without the padding that shapes of the other side show."""
    stored = values.read_without_padding(tensor, shapes)
    array = stored.decode(stored.raw)
    quantization = values.quantizations.get(tensor.key)
    if quantization is None:
        return array
    real = dequantized(elements_of(stored), quantization)
    return np.concatenate([*real.blocks()] or [array]).reshape(array.shape)
