"""The operators of two profiles that do the same work.

A profile has no values, but all else that `lar compare` aligns dumps by: names, the graph, shapes,
layers and what operators do. The twins that are found so are the tensors that both runs compute.
What lies between twins does the same work on both sides, however many operators it is made of:
each such group is one pair. Two operators that are not certain to be partners are none, and neither
are those whose shapes show other work, as two models may have it under one name.

Of runs with two batch sizes it is the work for one item that is the same. What one model file
computes of larger inputs is joined too, by names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.dump import Dump, DumpedTensor
from lar.dumps.layouts import block_of, fits_layout, plain_shape
from lar.dumps.tensor_layouts import layouts_of
from lar.graphs.graph import (
    Graph,
    Node,
    name_of,
    region_of,
    results_of,
    sources_of,
)
from lar.graphs.matching import SAME_GENERIC_NAME, SAME_NAME, Matching, Pair, is_generic
from lar.graphs.operator_kinds import GROUPS, HEAVY, UNKNOWN, OperatorKinds, Steps
from lar.graphs.origins import SEPARATORS
from lar.graphs.signatures import Signature, Values, family_of, squeezed
from lar.profiles.operator_graph import COPY, OperatorGraph, graph_of
from lar.profiles.operator_work import Shape, Work, do_same_work
from lar.profiles.run_likeness import (
    NUMBER,
    OperatorPair,
    are_fed_alike,
    has_graph,
    have_equal_graphs,
    have_one_model,
    items_of,
    operators_of,
    pair_by_places,
)
from lar.records.profile import Profile, ProfiledOperator

# What speaks for a pair, against 2 for operators that do the same.
SAME_MODULE = 1.0
SAME_WAY = 0.5
# Engines count what is fused into a product, or not; two products that differ by more are two.
MOST_WORK_APART = 1.34
MOVED: Steps = ("move",)
LONGEST_WAY = 8
ADDING = frozenset({"add", "sum", "norm", "scale"})


def pair_operators(
    baseline: Profile,
    experiment: Profile,
    kinds: tuple[OperatorKinds, OperatorKinds] = (OperatorKinds(), OperatorKinds()),
) -> list[OperatorPair]:
    """Join the operators of two runs, in the order of the baseline's; `kinds` are those of their
    engines."""
    if have_equal_graphs(baseline, experiment):
        return pair_by_places(baseline)
    sides = operators_of(baseline, experiment)
    have_graphs = has_graph(sides[0])
    items = items_of(baseline, experiment)
    works = [
        Work(side, {}, known, count) for side, known, count in zip(sides, kinds, items, strict=True)
    ]
    pairs: list[OperatorPair] = []
    if have_graphs:
        graphs = [*map(make_graph, (baseline, experiment), kinds, items)]
        works = [
            work._replace(shapes=graph.sizes) for work, graph in zip(works, graphs, strict=True)
        ]
        pairs = pair_by_graph(graphs[0], graphs[1])
    pairs += pair_by_names(sides, kinds, pairs)
    if are_fed_alike(baseline, experiment) or not have_one_model(baseline, experiment):
        pairs = [
            pair
            for pair in pairs
            if do_same_work(works[0].of(pair.baseline), works[1].of(pair.experiment))
        ]
    left = [
        [number for number in range(len(side)) if number not in done]
        for side, done in zip(sides, places_in(pairs), strict=True)
    ]
    pairs += [OperatorPair(baseline=(number,)) for number in left[0]]
    pairs.sort(key=lambda pair: pair.baseline or (len(sides[0]),))
    return pairs + [OperatorPair(experiment=(number,)) for number in left[1]]


def places_in(pairs: Iterable[OperatorPair]) -> tuple[set[int], set[int]]:
    """Return the operators of either side that are in pairs."""
    both = [*pairs]
    return (
        {number for pair in both for number in pair.baseline},
        {number for pair in both for number in pair.experiment},
    )


def pair_by_names(
    sides: Sequence[Sequence[ProfiledOperator]],
    kinds: Sequence[OperatorKinds],
    pairs: Iterable[OperatorPair],
) -> Iterator[OperatorPair]:
    """Yield pairs of operators of one type whose name no other operator of their run has.

    Of operators in a graph they are those that the graph does not compare: what moves data or
    holds it. What else it has not joined is not joined by its name.
    """
    found = []
    for side, known, done in zip(sides, kinds, places_in(pairs), strict=True):
        names = [(each.type, name_of_operator(each)) for each in side]
        counts = Counter(names)
        found.append(
            {
                name: place
                for place, (name, each) in enumerate(zip(names, side, strict=True))
                if counts[name] == 1 and name[1] and place not in done
                if not (each.writes and each.reads) or known.kinds.get(each.type.lower()) == "move"
            }
        )
    for name, place in found[0].items():
        if name in found[1]:
            yield OperatorPair((place,), (found[1][name],))


def name_of_operator(operator: ProfiledOperator) -> str:
    """Return a name that an operator has in each session: its own, or that of what it gives; empty
    where it has none."""
    name = NUMBER.sub("", operator.name)
    if name == operator.name or not operator.writes:
        return name
    given = COPY.sub("", operator.writes[0])
    return "" if is_generic(given) else given


class ProfiledGraph(NamedTuple):
    """The graph of a profile, and the shapes of its tensors in plain axes; in blocks of `blocks`
    there may be more channels than the model has."""

    graph: Graph
    own: OperatorGraph
    shapes: Mapping[str, tuple[int, ...]]
    blocks: Mapping[str, int]
    items: int = 1

    @property
    def sizes(self) -> dict[str, Shape]:
        """The shapes, with the blocks that may have filled them up."""
        return {key: Shape(shape, self.blocks[key]) for key, shape in self.shapes.items()}


def make_graph(profile: Profile, kinds: OperatorKinds, items: int = 1) -> ProfiledGraph:
    """Return the graph of a profile, with the shapes of its tensors in plain axes; those of `items`
    are of one."""
    own = graph_of(profile.operators, profile.facts.engine)
    layouts = {
        key: layout
        for key, layout in layouts_of(own.dump_index.tensors, own.dump_index.operators).items()
        if fits_layout(own.facts[key].shape, layout)
    }
    return ProfiledGraph(
        Graph(Dump("", own.dump_index, refuse_to_read), kinds),
        own,
        {
            key: of_one_item(
                plain_shape(fact.shape, layouts[key]) if key in layouts else fact.shape, items
            )
            for key, fact in own.facts.items()
        },
        {key: block_of(layouts.get(key) or fact.layout.lower()) for key, fact in own.facts.items()},
        items,
    )


def of_one_item(shape: tuple[int, ...], items: int) -> tuple[int, ...]:
    """Return the shape that a tensor of several items has of one."""
    if items == 1 or not shape or shape[0] % items:
        return shape
    return (shape[0] // items, *shape[1:])


def refuse_to_read(tensor: DumpedTensor) -> Any:
    raise NotImplementedError("a profile has no values")


def pair_by_graph(baseline: ProfiledGraph, experiment: ProfiledGraph) -> list[OperatorPair]:
    """Join the operators between tensors that both runs compute."""
    matching = StructuralMatching(baseline, experiment)
    twins = matching.find_sure()
    groups = Groups()
    stops = {node for pair in twins.items() for node in pair}
    for pair in twins.items():
        for side, node in enumerate(pair):
            for each in region_of(node, stops):
                # What only moves data is an operator of its own, which one run may lack.
                if each.operator is not None and each not in matching.originals:
                    groups.join(("twin", pair[0].key), (side, each.operator.key))
    graphs = baseline, experiment
    pairs = [
        OperatorPair(
            *(
                tuple(
                    sorted(n for key in members[side] for n in graphs[side].own.places.get(key, ()))
                )
                for side in (0, 1)
            )
        )
        for members in groups.members()
    ]
    return [pair for pair in pairs if pair.is_joined]


class Groups:
    """Operators that are put together, by side and key: a union of sets."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def find(self, item: Any) -> Any:
        self._above.setdefault(item, item)
        while self._above[item] != item:
            self._above[item] = self._above[self._above[item]]
            item = self._above[item]
        return item

    def join(self, one: Any, other: Any) -> None:
        self._above[self.find(one)] = self.find(other)

    def members(self) -> list[tuple[set[str], set[str]]]:
        """Return the keys of either side in each set."""
        found: dict[Any, tuple[set[str], set[str]]] = {}
        for item in [*self._above]:
            sides = found.setdefault(self.find(item), (set(), set()))
            if item[0] != "twin":
                sides[item[0]].add(item[1])
        return list(found.values())


class Shapes(Values):
    """The shapes of a graph's tensors, of which nothing else is known."""

    def __init__(self, own: ProfiledGraph) -> None:
        super().__init__(own.graph.dump, raw=True)
        self.own = own

    def shape_of(self, tensor: DumpedTensor) -> tuple[int, ...]:
        return self.own.shapes[tensor.key]

    def signature_of(
        self,
        tensor: DumpedTensor,
        named: tuple[int, ...] | None,
        others: Collection[tuple[int, ...]],
    ) -> Signature:
        """Return what twins must have in common; the channels that fill blocks are left out, as
        far as a shape of the other side shows them, best that of the same name."""
        shape, block = self.own.shapes[tensor.key], self.own.blocks[tensor.key]
        if block and len(shape) == 4:
            if named and is_filled(shape, named, block):
                shape = named
            elif shape not in others:
                shape = max((it for it in others if is_filled(shape, it, block)), default=shape)
        return Signature(shape, squeezed(shape), family_of(tensor.dtype), np.zeros(0))


def is_filled(shape: tuple[int, ...], plain: tuple[int, ...], block: int) -> bool:
    """Return whether a shape is a plain one with more channels, up to whole blocks."""
    if len(plain) != 4 or (plain[0], *plain[2:]) != (shape[0], *shape[2:]):
        return False
    return shape[1] - block < plain[1] <= shape[1]


class StructuralMatching(Matching):
    """Twins by names, layers, shapes, what operators do and what they take, without values."""

    def __init__(self, baseline: ProfiledGraph, experiment: ProfiledGraph) -> None:
        self.sides = baseline, experiment
        self.facts: dict[Node, ProfiledOperator] = {
            node: each.own.operators[node.operator.key]
            for each in self.sides
            for node in each.graph.nodes_by_key.values()
            if node.operator is not None and node.operator.key in each.own.operators
        }
        super().__init__(
            baseline.graph, experiment.graph, (Shapes(baseline), Shapes(experiment)), {}
        )
        self.modules = [
            {plain_name(each.module) for each in side.own.operators.values() if each.module}
            for side in self.sides
        ]
        self.ways: dict[Node, Steps] = {}
        self.without_bias = {
            node
            for side in self.sides
            for node in side.graph.nodes_by_key.values()
            if has_no_bias(node)
        }
        # They count as adding nothing.
        self.kinds |= {
            node: (*node.steps, "add") for node in self.without_bias if len(node.steps) == 1
        }
        self.claims = self.find_claims()
        self.expected_nodes = frozenset(self.expected)

    def read_signatures(
        self,
        values: Values,
        tensors: Collection[DumpedTensor],
        other_shapes: Collection[tuple[int, ...]],
    ) -> dict[str, Signature]:
        assert isinstance(values, Shapes)
        (other,) = (side for side in self.sides if side is not values.own)
        named = {name_of(it): other.shapes[it.key] for it in other.own.dump_index.tensors}
        return {
            tensor.key: values.signature_of(tensor, named.get(name_of(tensor)), {*other_shapes})
            for tensor in tensors
        }

    def find_claims(self) -> dict[Node, set[Node]]:
        """Return the nodes that bear a node's name and may be its twin, both ways: if there are
        any, no other node is."""
        claims: dict[Node, set[Node]] = defaultdict(set)
        for node in self.actual:
            for other in self.named_alike(node):
                claims[node].add(other)
                claims[other].add(node)
        return claims

    def named_alike(self, node: Node) -> set[Node]:
        """Return the nodes of the other side that bear a name of a node and end in what it ends in;
        a fused operator may bear the name of one of its parts."""
        return {it for it in super().named_alike(node) if self.kind_score(node, it) > 0}

    def near(self, one: Node, other: Node) -> bool:
        return False

    def same_data(self, one: Node, other: Node) -> bool:
        signatures = self.signatures[one], self.signatures[other]
        return signatures[0].shape == signatures[1].shape

    def nearest_of(self, *_: object) -> None:
        return None

    def scores(self, node: Node) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        others = self.classes[1].get(self.class_of(node))
        places, scores = [], []
        for other in others.nodes if others else ():
            kind = self.twin_score(node, other)
            if kind and not self.is_contradicted(node, other):
                named = SAME_GENERIC_NAME if node.name == other.name else 0.0
                named = SAME_NAME if other in self.claims[node] else named
                ways = SAME_WAY if self.way_to(node) == self.way_to(other) else 0.0
                places.append(self.places[other])
                scores.append(kind + named + ways + self.module_score(node, other))
        return np.array(places, int), np.array(scores)

    def is_contradicted(self, one: Node, other: Node) -> bool:
        """Return whether names, layers or the work of two nodes show that they are not twins."""
        for node, twin in ((one, other), (other, one)):
            if self.claims[node] and twin not in self.claims[node]:
                return True
        facts = [self.facts.get(node) for node in (one, other)]
        if facts[0] is None or facts[1] is None:
            return False
        items = [self.sides[node in self.expected_nodes].items for node in (one, other)]
        flops = [
            each.flops and each.flops / count
            for each, count in zip(facts, items, strict=True)
            if each
        ]
        if {*one.steps[:1], *other.steps[:1]} <= {*HEAVY} and not is_similar_work(*flops):
            return True
        modules = [plain_name(each.module) for each in facts if each]
        known = modules[0] in self.modules[1] and modules[1] in self.modules[0]
        return known and not are_nested(*modules)

    def way_to(self, node: Node) -> Steps:
        """Return what has been done since the last convolution or product, as far as one tensor
        leads to the next: what one engine has fused, the other does in several steps."""
        if node not in self.ways:
            steps, each = node.steps, node
            while steps[0] not in HEAVY and len(each.parents) == 1 and len(steps) < LONGEST_WAY:
                (each,) = each.parents
                if each.steps != MOVED:
                    steps = each.steps + steps
            self.ways[node] = steps
        return self.ways[node]

    def module_score(self, one: Node, other: Node) -> float:
        modules = [
            plain_name(self.facts[node].module) if node in self.facts else ""
            for node in (one, other)
        ]
        if not all(modules):
            return 0.0
        return SAME_MODULE if modules[0] == modules[1] else 0.0

    def find_sure(self) -> dict[Node, Node]:
        """Return the twins that their names show, or what they are computed from and how."""
        pairs = {pair.actual: pair for pair in self.match() if pair.actual not in self.originals}
        self.add_composites(pairs)
        there = {pair.actual: pair.expected for pair in pairs.values()}
        while True:
            count = len(there)
            stops = {node for pair in there.items() for node in pair}
            # What is computed from a wrong twin may be right with the one before it.
            for node in self.actual:
                if node in there and not self.is_proven(pairs[node], stops, there):
                    stops -= {node, there.pop(node)}
            if len(there) == count:
                return there

    def add_composites(self, pairs: dict[Node, Pair]) -> None:
        """Add tensors of one name of which one side computes with one operator what the other has
        several for, as Gelu."""
        used = {node for pair in pairs.values() for node in pair[:2]}
        for node in self.actual:
            for other in super().named_alike(node):
                ends = {node.steps[-1], other.steps[-1]}
                free = not used & {node, other} and self.fits(node, other)
                if free and ends.isdisjoint({*GROUPS["activation"], UNKNOWN}):
                    pairs[node] = Pair(node, other, "name")
                    used |= {node, other}

    def is_proven(self, pair: Pair, stops: Collection[Node], there: Mapping[Node, Node]) -> bool:
        """Return whether two tensors are computed from the same twins by the same work, or are
        known by their names."""
        one, other = pair[:2]
        if one.is_input or other.is_input:
            both = one.is_input and other.is_input
            return both and not self.is_contradicted(one, other)
        if other in self.named_alike(one):
            return True
        if pair.by != "name" and (
            not self.twin_score(one, other) or self.is_contradicted(one, other)
        ):
            return False
        sources = {there[node] for node in sources_of(one, stops)}
        if not sources or sources != set(sources_of(other, stops)):
            return False
        if self.are_ambiguous(one, other, stops, there):
            return False
        steps = [
            Counter(
                step
                for it in region_of(node, stops)
                for step in (*it.steps, *(["add"] if it in self.without_bias else []))
            )
            for node in (one, other)
        ]
        if any(steps[0][kind] != steps[1][kind] for kind in HEAVY):
            return False
        # A bias may be added before something else or behind it, unless it was folded.
        if any(each["norm"] or each["scale"] for each in steps):
            return True
        short, long = sorted(zip(steps, (one, other), strict=True), key=lambda each: each[0]["add"])
        missing = long[0]["add"] - short[0]["add"]
        # Behind a sum of two, one addition does for the biases of both.
        return not missing or ("add" in short[1].steps and missing <= short[0]["sum"])

    def are_ambiguous(
        self, one: Node, other: Node, stops: Collection[Node], there: Mapping[Node, Node]
    ) -> bool:
        """Return whether another tensor is computed as one of these is, from the same twins, and
        what is computed from them does not distinguish the two."""
        siblings = [self.siblings_of(node, stops) for node in (one, other)]
        if not any(siblings):
            return False
        results = [set(results_of(node, stops)) for node in (one, other)]
        if {there[node] for node in results[0]} != results[1]:
            return True
        return any(
            set(results_of(it, stops)) == own
            for own, others in zip(results, siblings, strict=True)
            for it in others
        )

    def siblings_of(self, node: Node, stops: Collection[Node]) -> list[Node]:
        sources = sources_of(node, stops)
        side = self.classes[node in self.expected_nodes][self.class_of(node)]
        return [
            it
            for it in side.nodes
            if it is not node and it.steps == node.steps and sources_of(it, stops) == sources
        ]


def has_no_bias(node: Node) -> bool:
    """Return whether a convolution or product adds nothing, then or in what follows: engines fold
    the bias of one into that of the next."""
    if node.steps[0] not in HEAVY or not ADDING.isdisjoint(node.steps):
        return False
    following = {step for child in node.children for step in child.steps[:1]}
    return len(node.steps) > 1 or ADDING.isdisjoint(following)


def plain_name(name: str) -> str:
    return SEPARATORS.sub("_", name).strip("_")


def are_nested(one: str, other: str) -> bool:
    """Return whether a layer is another one or a part of it."""
    return f"{one}_".startswith(f"{other}_") or f"{other}_".startswith(f"{one}_")


def is_similar_work(one: float | None, other: float | None) -> bool:
    if not one or not other:
        return True
    return max(one, other) <= MOST_WORK_APART * min(one, other)
