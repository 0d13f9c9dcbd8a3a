"""The twins of two graphs: which tensor of one side is which of the other, and why.

The rules, the surest first:

- the order of the outputs;
- two graphs of one structure are walked side by side, whatever their tensors are called;
- names that the model gave: not those that count tensors, if another model counts differently;
- what tensors are computed from and by, in an order that both graphs share;
- values, among the pairs that the rest allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.dump import Array, DumpedTensor
from lar.graphs.elements import whole
from lar.graphs.graph import Graph, Node, branches_of, name_of, region_of
from lar.graphs.matching import NEAR_QUANTIZED, Matching, Pair, is_generic, names_of_constants
from lar.graphs.operator_kinds import GROUPS
from lar.graphs.signatures import NEAR, Values, distances, signature_of, squeezed
from lar.records.comparison import MatchedBy

# At most so many tensors are read because their names stand elsewhere on the other side.
MOST_READ = 8


class ConstantPair(NamedTuple):
    """Two constants that are twins."""

    actual: DumpedTensor
    expected: DumpedTensor
    by: MatchedBy


class Twins(NamedTuple):
    """The twins of two graphs.

    `originals` has for each tensor that was only moved the one whose data it holds.
    """

    pairs: list[Pair]
    constants: list[ConstantPair]
    originals: Mapping[Node, Node]


def match(actual: Graph, expected: Graph, values: tuple[Values, Values]) -> Twins:
    """Find the twins of two graphs.

    In graphs of one structure, only tensors whose names cross are read; else all, one at a time.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    constants = Constants((actual, expected), values)
    alone = len(actual.dump) == len(expected.dump) == 1
    alike = are_one_structure(actual, expected)
    near = (are_near(pair, values) for pair in crossing(actual, expected)[:MOST_READ])
    if alone or (alike and all(near)):
        in_step = [*zip(actual.nodes, expected.nodes, strict=False)]
        for one, other in in_step:
            constants.match_places(one, other)
        pairs = [
            Pair(one, other, "name" if one.name == other.name else "graph")
            for one, other in in_step
            if one.tensor and other.tensor
        ]
        return Twins(pairs, constants.pairs, {})
    matching = Matching(actual, expected, values)
    pairs = matching.match()
    constants.match_names()
    for pair in pairs:
        constants.match_places(pair.actual, pair.expected)
    twins = {node for pair in pairs for node in pair[:2]}
    for pair in pairs if not actual.dump.excerpts else ():
        constants.match_values(pair, twins)
    return Twins(pairs, constants.pairs, matching.originals)


def are_one_structure(actual: Graph, expected: Graph) -> bool:
    """Return whether two graphs have operators of the same types, wired in the same way.

    Without operators, the tensors must have the same names.
    """
    if len(actual.nodes) != len(expected.nodes):
        return False
    return structure_of(actual) == structure_of(expected)


def crossing(actual: Graph, expected: Graph) -> list[tuple[Node, Node]]:
    """Return the pairs of nodes at one place, if the actual one's name stands elsewhere.

    Branches that are joined in another order look alike, and so do names that count on.
    """
    names = {node.name for node in expected.present if not is_generic(node.name)}
    pairs = zip(actual.present, expected.present, strict=False)
    return [pair for pair in pairs if pair[0].name != pair[1].name and pair[0].name in names]


def are_near(pair: tuple[Node, Node], values: tuple[Values, Values]) -> bool:
    """Return whether two nodes with tensors hold the same values, by samples of them."""
    sides = zip(values, pair, strict=True)
    one, other = (signature_of(side, node.tensor) for side, node in sides if node.tensor)
    if one.shape != other.shape:
        return False
    (relative,) = distances(one.sample[None], other.sample[None])
    return bool(relative[0] <= NEAR)


def structure_of(graph: Graph) -> list[tuple[Any, ...]]:
    places = {node.key: node.place for node in graph.nodes}
    found: list[tuple[Any, ...]] = []
    for node in graph.nodes:
        tensor, maker = node.tensor, node.operator
        facts = (tensor.slot, tensor.run, tensor.layout, branches_of(node)) if tensor else None
        if maker is None or node.is_input:
            # Inputs count by their place; without operators, by their name.
            found.append((node.name if not graph.has_operators else "input", facts))
            continue
        found.append((maker.type, facts, [places.get(key, -1) for key in maker.inputs]))
    return found


class Constants:
    """The constants of two graphs, and the pairs of them found so far.

    A constant that a fusion made of others has no twin.
    """

    def __init__(self, graphs: tuple[Graph, Graph], values: tuple[Values, Values]) -> None:
        self.graphs, self.values = graphs, values
        self.names = [names_of_constants(graph) for graph in graphs]
        self.stores = [
            {tensor.key: tensor for tensor in graph.dump if tensor.key in known}
            for graph, known in zip(graphs, self.names, strict=True)
        ]
        self.pairs: list[ConstantPair] = []
        self.used: list[set[str]] = [set(), set()]

    def add(self, one: DumpedTensor, other: DumpedTensor, by: MatchedBy) -> None:
        """Pair two constants of one shape that are still free."""
        free = one.key not in self.used[0] and other.key not in self.used[1]
        shapes = {*map(Values.shape_of, self.values, (one, other))}
        unscaled = one.key in self.values[0].unscaled, other.key in self.values[1].unscaled
        if free and len(shapes) == len({*unscaled}) == 1:
            self.pairs.append(ConstantPair(one, other, by))
            self.used[0].add(one.key)
            self.used[1].add(other.key)

    def match_names(self) -> None:
        """Pair constants of one name."""
        counts = [Counter(known.values()) for known in self.names]
        named = {name: self.stores[1][key] for key, name in self.names[1].items()}
        for one in self.stores[0].values():
            name = self.names[0][one.key]
            if not is_generic(name) and counts[0][name] == counts[1][name] == 1:
                self.add(one, named[name], "name")

    def match_places(self, one: Node, other: Node) -> None:
        """Pair the constants that two operators of one kind take at the same places.

        If one takes more of them, a fusion may have made some: then none are paired.
        """
        if len(one.constants) != len(other.constants) or one.steps[:1] != other.steps[:1]:
            return
        there = dict(other.constants)
        for place, key in one.constants:
            mine, theirs = self.free(0, key), self.free(1, there.get(place, ""))
            if mine and theirs:
                self.add(mine, theirs, "name" if name_of(mine) == name_of(theirs) else "graph")

    def free(self, side: int, key: str) -> DumpedTensor | None:
        """Return the constant of a key, None if it has a twin already."""
        key = self.graphs[side].integers_of(key)
        return None if key in self.used[side] else self.stores[side].get(key)

    def match_values(self, pair: Pair, twins: Container[Node]) -> None:
        """Pair constants of one value among the operators between a pair and the pairs before it.

        One side may have fused these operators. The values may be rounded, in other axes or in
        blocks.
        """
        sides = [
            [tensor for key in parameters_of(node, twins) if (tensor := self.free(side, key))]
            for side, node in enumerate(pair[:2])
        ]
        left = list(sides[1])
        lonely = []
        for one in sides[0] if left else ():
            twin = self.find_alike(one, left)
            if twin:
                self.add(one, twin, "content")
                left.remove(twin)
            else:
                lonely.append(one)
        # If both sides take equally many, the last one of a shape is the twin with another value.
        for one in lonely if len(sides[0]) == len(sides[1]) else ():
            shape = self.values[0].shape_of(one)
            fitting = [other for other in left if self.values[1].shape_of(other) == shape]
            if len(fitting) == 1:
                self.add(one, fitting[0], "graph")

    def find_alike(self, one: DumpedTensor, others: Sequence[DumpedTensor]) -> DumpedTensor | None:
        """Return the constant with the same values, else the first that rounding explains."""
        near = None
        array = read(self.values[0], one, [self.values[1].shape_of(it) for it in others])
        for other in others:
            there = read(self.values[1], other, [array.shape])
            if squeezed(there.shape) != squeezed(array.shape):
                continue
            if np.array_equal(there.ravel(), array.ravel()):
                return other
            rounded = any(map(Values.quantization_of, self.values, (one, other)))
            if near is None and rounded and is_near(array.ravel(), there.ravel()):
                near = other
        return near


def parameters_of(node: Node, twins: Container[Node]) -> list[str]:
    """Return the keys of the constants between a node and the nearest twins.

    Those of activations are left out (0 and 6 of a ReLU): they may vanish in a fusion.
    """
    return [
        key
        for each in region_of(node, twins)
        if each.steps[0] not in GROUPS["activation"]
        for _, key in each.constants
    ]


def is_near(one: Array, other: Array) -> bool:
    """Return whether two arrays differ only as much as rounding to integers explains."""
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    return float(np.linalg.norm(np.subtract(one, other))) <= NEAR_QUANTIZED * max(lengths)


def read(values: Values, tensor: DumpedTensor, shapes: Collection[tuple[int, ...]]) -> Array:
    """Read a tensor in plain axes, without the padding that shapes of the other side show."""
    values.learn_padding(tensor, shapes)
    return whole(values.elements(tensor))
