"""The twins of two graphs that are not the same.

They are those of the best order-preserving alignment, on names, values and what the operators do:
values count where they agree, and below a fault, where they do not, the rest decides. What the
order left out is matched by name, by values, or by what it is computed from.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from lar.graphs.graph import Graph, Node, branches_of, region_of, sources_of
from lar.graphs.operator_kinds import (
    HEAVY,
    UNKNOWN_STEPS,
    Steps,
    are_apart_by_bias,
    kind_score,
)
from lar.graphs.origins import PART, SEPARATORS
from lar.graphs.quantities import is_dequantizing, is_quantized, names_of, steps_to
from lar.graphs.signatures import NEAR, UNSCALED, Samples, Signature, Values, signatures_of
from lar.records.comparison import MatchedBy

Array = np.ndarray[Any, np.dtype[Any]]

# Names that engines make up: they count tensors, quote operands or name the operator's type. A part
# of a tensor may be any part.
GENERIC = re.compile(
    rf"^{PART}|[\[(]|^(var|reorder_token_|tensor)?_?\d*$|^reorder$|^[A-Z][A-Za-z]+(:o\d+)?$"
)

# A name that ends in a number; where most of a side's names are of one such kind, they count what
# is computed, and those of another model may count on from elsewhere.
NUMBERED = re.compile(r"(?P<kind>.*?)\d+")
MOST = 0.8

# Where that part of the names is on both sides, tensors of other names are others.
SHARED = 0.5

# Samples of tensors that are rounded to integers, or computed from such, hold the same values.
NEAR_QUANTIZED = 0.1

# What speaks for a pair, against 2 for operators that do the same.
SAME_NAME = 6.0
SAME_GENERIC_NAME = 0.5
NEAR_VALUES = 4.0
CORRELATED = 2.0
HEAVY_TWINS = 1.0


class Pair(NamedTuple):
    """Two tensors that are twins, and how they were found."""

    actual: Node
    expected: Node
    by: MatchedBy


class Class(NamedTuple):
    """Nodes of one side that have in common what twins must have."""

    nodes: list[Node]
    samples: Samples


def is_moved(node: Node) -> bool:
    """Return whether a tensor holds the data of the one before it, or its real numbers."""
    return len(node.parents) == 1 and (node.steps == ("move",) or is_dequantizing(node))


def is_generic(name: str) -> bool:
    """Return whether a name says nothing of the model, so that it can mean different tensors."""
    return GENERIC.search(name) is not None


class Matching:
    """The twins found so far between two graphs, and the ways to find more.

    Of tensors that hold the same data because an operator merely moved it, the first stands for
    all, under all their names. Where a side has no operators, separators in names do not count:
    `layer1.0/conv` is `layer1_0_conv`. If each side has one tensor of a shape left, they are twins.
    `name_map` has the names of known twins.
    """

    def __init__(
        self,
        actual: Graph,
        expected: Graph,
        values: tuple[Values, Values],
        name_map: Mapping[str, str],
    ) -> None:
        self.without_operators = not (actual.has_operators and expected.has_operators)
        present = (actual.present, expected.present)
        shapes = [
            [values[side].shape_of(node.tensor) for node in nodes if node.tensor]
            for side, nodes in enumerate(present)
        ]
        self.signatures: dict[Node, Signature] = {}
        self.near_enough = NEAR_QUANTIZED if any(map(is_quantized, chain(*present))) else NEAR
        for side, nodes in enumerate(present):
            tensors = [node.tensor for node in nodes if node.tensor]
            found = signatures_of(values[side], tensors, shapes[1 - side])
            self.signatures |= {node: found[node.key] for node in nodes}
        self.copies: dict[Node, list[Node]] = defaultdict(list)
        self.originals: dict[Node, Node] = {}
        self.actual, self.expected = ([*self.without_copies(nodes)] for nodes in present)
        self.kinds = {node: steps_to(node) for nodes in present for node in nodes}
        self.names_of = {
            node: names
            for nodes in (self.actual, self.expected)
            for node, names in names_of(nodes, self.copies).items()
        }
        self.names = [self.unique_names(side) for side in (self.actual, self.expected)]
        self.classes = [self.by_class(nodes) for nodes in (self.actual, self.expected)]
        self.places = {node: place for place, node in enumerate(self.expected)}
        self.given = self.find_given(present, name_map)
        self.give_outputs(actual, expected)
        self.twins: dict[Node, Node] = {}  # both ways
        if not (self.without_operators or is_one_model(actual, expected)):
            self.names = self.names_that_hold()
        shared = len(self.names[0].keys() & self.names[1].keys())
        self.named_by_one = shared >= SHARED * min(map(len, self.names)) > 0

    def match(self) -> list[Pair]:
        """Find the twins; return them in the order of the actual side."""
        self.match_in_order()
        self.match_left_over()
        self.match_operands()
        self.match_left_over()
        if self.without_operators:
            self.match_lonely()
        self.free_given()
        pairs = [
            Pair(node, self.twins[node], self.found_by(node, self.twins[node]))
            for node in self.actual
            if node in self.twins
        ]
        pairs += [copy for pair in pairs for copy in self.pair_copies(pair)]
        pairs += self.match_other_shapes()
        return sorted(pairs, key=lambda pair: pair.actual.place)

    def without_copies(self, nodes: Iterable[Node]) -> Iterable[Node]:
        """Yield the nodes, without those that only hold the data of another node that was moved."""
        for node in nodes:
            above = node
            while is_moved(above):
                (above,) = above.parents
                if above.tensor and self.same_data(node, above):
                    self.originals[node] = self.originals.get(above, above)
                    self.copies[self.originals[node]].append(node)
                    break
            else:
                yield node

    def same_data(self, one: Node, other: Node) -> bool:
        signatures = self.signatures[one], self.signatures[other]
        if signatures[0].shape != signatures[1].shape:
            return False
        mine, theirs = (each.sample for each in signatures)
        if is_quantized(one) == is_quantized(other):
            return bool(np.array_equal(mine, theirs))
        return bool(np.allclose(mine, theirs, rtol=1e-6, atol=0))

    def unique_names(self, nodes: Iterable[Node]) -> dict[str, Node]:
        """Return the nodes by those of their names that identify them."""
        named = {(self.comparable(name), node) for node in nodes for name in self.names_of[node]}
        counts = Counter(name for name, _ in named)
        return {name: node for name, node in named if counts[name] == 1 and not is_generic(name)}

    def comparable(self, name: str) -> str:
        """Return a name as it is compared with those of the other side."""
        return SEPARATORS.sub("_", name) if self.without_operators else name

    def find_given(
        self, present: tuple[list[Node], list[Node]], name_map: Mapping[str, str]
    ) -> dict[Node, Node]:
        """Return the known twins, by the actual node."""
        sides = [{node.name: self.originals.get(node, node) for node in side} for side in present]
        return {
            sides[0][one]: sides[1][other]
            for one, other in name_map.items()
            if one in sides[0] and other in sides[1]
        }

    def give_outputs(self, actual: Graph, expected: Graph) -> None:
        """Have the outputs of two models be twins: those of one name, else those of one place."""
        for one, other in pair_outputs(actual, expected):
            pair = self.originals.get(one, one), self.originals.get(other, other)
            if pair[0] not in self.given and pair[1] not in self.given.values():
                self.given[pair[0]] = pair[1]

    def names_that_hold(self) -> list[dict[str, Node]]:
        """Return the names of either side that say which tensors are twins: none of those that
        count, where the sides count differently, and none at all where those that both sides have
        are mostly of operators that do not do the same."""
        kept = [*self.names]
        for kind in {*map(counting_kind, kept)} - {""}:
            counted = [{name for name in side if kind_of_name(name) == kind} for side in kept]
            if counted[0] != counted[1]:
                kept = [
                    {n: it for n, it in side.items() if n not in counted[0] | counted[1]}
                    for side in kept
                ]
        shared = [(kept[0][name], kept[1][name]) for name in kept[0] if name in kept[1]]
        fitting = sum(self.fits(*pair) and self.kind_score(*pair) > 0 for pair in shared)
        return kept if fitting >= MOST * len(shared) else [{}, {}]

    def class_of(self, node: Node) -> Any:
        """Return what twins must have in common."""
        signature, run = self.signatures[node], node.tensor.run if node.tensor else 0
        is_input = node.is_input and not self.without_operators
        branches = () if self.without_operators else branches_of(node)
        return signature.shape, signature.family, is_input, run, branches

    def by_class(self, nodes: Iterable[Node]) -> dict[Any, Class]:
        found = defaultdict(list)
        for node in nodes:
            found[self.class_of(node)].append(node)
        return {
            each: Class(members, Samples([self.signatures[node].sample for node in members]))
            for each, members in found.items()
        }

    def named_alike(self, node: Node) -> set[Node]:
        """Return the expected nodes that bear a name of an actual node.

        A name that one side has for integers and the other for floats means the same where they are
        computed alike.
        """
        if node in self.given:
            return {self.given[node]}
        names = map(self.comparable, self.names_of.get(node, ()))
        found = {
            self.names[1][name] for name in names if name in self.names[0] and name in self.names[1]
        }
        return {
            other
            for other in found.difference(self.given.values())
            if is_quantized(node) == is_quantized(other)
            or self.without_operators
            or self.kind_score(node, other)
        }

    def are_named_apart(self, one: Node, other: Node) -> bool:
        """Return whether two nodes have different names where one model gave most of them. A
        quantiser names integers after what comes before an activation, which they may hold."""
        if not self.named_by_one or is_quantized(one) != is_quantized(other):
            return False
        if other in self.named_alike(one):
            return False
        return all(
            any(name in side and side[name] is node for name in self.names_of[node])
            for side, node in zip(self.names, (one, other), strict=True)
        )

    def kind_score(self, one: Node, other: Node) -> float:
        return kind_score(self.kinds[one], self.kinds[other])

    def twin_score(self, one: Node, other: Node) -> float | None:
        return twin_score(self.kinds[one], self.kinds[other])

    def near(self, one: Node, other: Node) -> bool:
        """Return whether two tensors of one class hold the same values, by their samples."""
        samples = Samples([self.signatures[one].sample])
        return bool(samples.distances(self.signatures[other].sample)[0][0] <= self.near_enough)

    def fits(self, one: Node, other: Node) -> bool:
        return bool(self.class_of(one) == self.class_of(other))

    def add(self, one: Node, other: Node) -> None:
        for node in (one, other):
            if node in self.twins:
                del self.twins[self.twins.pop(node)]
        self.twins[one], self.twins[other] = other, one

    def scores(self, node: Node) -> tuple[Array, Array]:
        """Return the places of the expected tensors that fit, and how well each does."""
        others = self.classes[1].get(self.class_of(node))
        if others is None:
            return np.zeros(0, int), np.zeros(0)
        sample, alike = self.signatures[node].sample, self.named_alike(node)
        relative, correlation = others.samples.distances(sample)
        near = relative <= self.near_enough
        digits = -np.log10(np.maximum(relative, 1e-6))
        # So many tensors are zero.
        agreement = NEAR_VALUES - 2 + digits if sample.any() else np.ones_like(digits)
        values = np.where(near, agreement, CORRELATED * np.maximum(correlation, 0) ** 2)
        values = values.round(2)  # the same samples in other rows are rounded otherwise
        places, scores = [], []
        for index, other in enumerate(others.nodes):
            kind = self.twin_score(node, other)
            if kind is None or not (kind or near[index] or other in alike):
                continue
            if not near[index] and self.are_named_apart(node, other):
                continue
            named = SAME_GENERIC_NAME if node.name == other.name else 0.0
            places.append(self.places[other])
            named = SAME_NAME if other in alike else named
            scores.append(kind + values[index] + named + self.evidence(node, other))
        return np.array(places, int), np.array(scores)

    def evidence(self, one: Node, other: Node) -> float:
        """Return what speaks for a pair besides names, values and the operators' kinds."""
        return 0.0

    def match_in_order(self) -> None:
        """Find the alignment of both orders with the greatest sum of scores.

        Of alignments that are as good, it is the one with the later tensors: behind an operator
        that changed nothing, its output is what others take.
        """
        columns = np.arange(len(self.expected) + 1)
        best = np.zeros(columns.size)
        choices = []
        for node in self.actual:
            places, scores = self.scores(node)
            after = places + 1
            joined = best[places] + scores
            row = best.copy()
            row[after] = np.maximum(row[after], joined)
            row = np.maximum.accumulate(row)
            # Where this tensor is paired, in the best alignment up to each column; 0: nowhere.
            taken = np.zeros(columns.size, int)
            taken[after[joined == row[after]]] = after[joined == row[after]]
            taken = np.maximum.accumulate(taken)
            taken[row[taken] < row] = 0
            choices.append(taken.astype(np.min_scalar_type(columns.size)))
            best = row
        column = len(self.expected)
        for node, choice in zip(reversed(self.actual), reversed(choices), strict=True):
            if choice[column]:
                column = int(choice[column]) - 1
                self.add(node, self.expected[column])

    def match_left_over(self) -> None:
        """Match what crosses the order: by name, by values, by what it is computed from."""
        for node in self.actual:
            for other in self.named_alike(node):
                if self.fits(node, other) and other is not self.twins.get(node):
                    self.add(node, other)
        sure = {node for node in self.twins if self.is_sure(node)}
        for node in self.actual:
            if node not in sure:
                nearest = self.nearest_of(node, self.classes[1], sure)
                if nearest and self.nearest_of(nearest, self.classes[0], sure) is node:
                    self.add(node, nearest)
                    sure |= {node, nearest}
        by_sources = self.free_by_sources()
        for node in self.actual:
            if node not in self.twins:
                free = [
                    other
                    for other in by_sources[self.sources_there(node)]
                    if other not in self.twins
                    and self.fits(node, other)
                    and self.kind_score(node, other) > 0
                    and not self.are_named_apart(node, other)
                ]
                if len(free) == 1:
                    self.add(node, free[0])

    def free_given(self) -> None:
        """Part known twins from others, where their shapes or types have kept them apart."""
        for pair in self.given.items():
            if self.twins.get(pair[0]) is not pair[1]:
                for node in pair:
                    if node in self.twins:
                        del self.twins[self.twins.pop(node)]

    def match_lonely(self) -> None:
        """Match tensors that are the only ones left of their shape and type."""
        for each in self.classes[0].keys() & self.classes[1].keys():
            left = [
                [node for node in classes[each].nodes if node not in self.twins]
                for classes in self.classes
            ]
            if list(map(len, left)) == [1, 1]:
                self.add(left[0][0], left[1][0])

    def nearest_of(
        self, node: Node, classes: Mapping[Any, Class], but: Container[Node]
    ) -> Node | None:
        """Return the tensor with the nearest values that is not in `but`, None if no tensor is
        near."""
        others, sample = classes.get(self.class_of(node)), self.signatures[node].sample
        if others is None or not sample.any():
            return None
        relative, _ = others.samples.distances(sample)
        for index in np.argsort(relative, kind="stable"):
            other: Node = others.nodes[index]
            if relative[index] > self.near_enough:
                break
            if other not in but and self.twin_score(node, other) is not None:
                return other
        return None

    def free_by_sources(self) -> dict[frozenset[Node], list[Node]]:
        """Return the expected tensors without a twin by the twins they are computed from."""
        found = defaultdict(list)
        for node in self.expected:
            if node not in self.twins:
                found[frozenset(sources_of(node, self.twins))].append(node)
        return found

    def sources_there(self, node: Node) -> frozenset[Node]:
        """Return the twins of what an actual tensor is computed from."""
        return frozenset(self.twins[each] for each in sources_of(node, self.twins))

    def match_operands(self) -> None:
        """Pair the operands of twin operators, instead of pairs that only order and kind of
        operator suggested."""
        for one in self.actual:
            if one not in self.twins:
                continue
            makers = [self.main_node(node) for node in (one, self.twins[one])]
            operands = [[it for it in maker.parents if it in self.signatures] for maker in makers]
            # Of several operands it is not certain which is which.
            if makers[0].steps[0] != makers[1].steps[0] or list(map(len, operands)) != [1, 1]:
                continue
            left, right = (self.originals.get(*side, *side) for side in operands)
            if self.twins.get(left) is right or not self.fits(left, right):
                continue
            sure = any(self.is_sure(node) for node in (left, right))
            if not (sure or self.are_named_apart(left, right)):
                self.add(left, right)

    def main_node(self, node: Node) -> Node:
        """Return the only heavy operator's node between a tensor and the nearest twins, else the
        tensor's own."""
        heavy = [it for it in region_of(node, self.twins) if it.steps[0] in HEAVY]
        return heavy[0] if len(heavy) == 1 else node

    def is_sure(self, node: Node) -> bool:
        """Return whether a tensor has a twin that its name or its values confirm."""
        if node not in self.twins:
            return False
        other = self.twins[node]
        return self.near(node, other) or other in self.named_alike(node) | self.named_alike(other)

    def found_by(self, one: Node, other: Node) -> MatchedBy:
        if other in self.named_alike(one):
            return "name"
        if UNKNOWN_STEPS in (one.steps, other.steps) and one.steps != other.steps:
            return "content" if self.near(one, other) else "shape"
        exact = self.kind_score(one, other) == 2
        if exact and self.sources_there(one) == frozenset(sources_of(other, self.twins)):
            return "graph"
        return "content" if self.near(one, other) else "graph"

    def pair_copies(self, pair: Pair) -> Iterable[Pair]:
        """Yield pairs of the copies of a pair's tensors, by name and then in order."""
        copies = [list(self.copies.get(node, ())) for node in pair[:2]]
        for one in list(copies[0]):
            for other in copies[1]:
                if one.name == other.name:
                    yield Pair(one, other, "name")
                    copies[0].remove(one)
                    copies[1].remove(other)
                    break
        for one, other in zip(*copies, strict=False):
            yield Pair(one, other, "content")

    def is_unscaled(self, node: Node) -> bool:
        """Return whether nothing says which numbers the integers of a tensor stand for, which the
        other side has."""
        return self.signatures[node].family == UNSCALED

    def match_other_shapes(self) -> Iterable[Pair]:
        """Yield pairs of one name and one kind whose shapes differ: that is the difference."""
        for node in self.actual:
            for other in self.named_alike(node):
                free = node not in self.twins and other not in self.twins
                free = free and not self.is_unscaled(node) and not self.is_unscaled(other)
                if free:
                    self.add(node, other)
                    yield Pair(node, other, "name")


def is_one_model(actual: Graph, expected: Graph) -> bool:
    """Return whether two graphs are of one model file."""
    one, other = actual.dump.index, expected.dump.index
    return bool(one.model_sha256) and one.model_sha256 == other.model_sha256


def pair_outputs(actual: Graph, expected: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the outputs of two models that correspond: those of one name, else of one place."""
    named = [{node.name: node for node in graph.outputs} for graph in (actual, expected)]
    yield from ((named[0][name], named[1][name]) for name in named[0] if name in named[1])
    left = [
        [node for node in graph.outputs if node.name not in names]
        for graph, names in zip((actual, expected), reversed(named), strict=True)
    ]
    if len(left[0]) == len(left[1]):
        yield from zip(*left, strict=True)


def kind_of_name(name: str) -> str:
    """Return a name without the number that it ends in, with # instead; empty without one."""
    found = NUMBERED.fullmatch(name)
    return f"{found['kind']}#" if found else ""


def counting_kind(names: Collection[str]) -> str:
    """Return the kind of names that most of a side's tensors have, which then count them; empty if
    there is no such kind."""
    kinds = Counter(map(kind_of_name, names))
    kind, count = kinds.most_common(1)[0] if kinds else ("", 0)
    return kind if count > 1 and count >= MOST * len(names) else ""


@cache
def twin_score(one: Steps, other: Steps) -> float | None:
    """Return how well the kinds of two operators fit a pair; None if they are not twins and a small
    bias makes their values similar."""
    if are_apart_by_bias(one, other):
        return None
    kind = kind_score(one, other)
    return kind + HEAVY_TWINS if kind and one[-1] in HEAVY else kind
