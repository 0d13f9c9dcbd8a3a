"""Pairs operators of two profiles: an operator of A with the operator of B that does the same work.

If both graphs have the same structure, lar walks them side by side. In other graphs, twins
(matching tensors) are found without values. Between one pair of twins and the next pair, both sides
do the same work. Therefore all operators between two pairs of twins make one pair of operators.
Operators that are not in the graph are paired by unique names.

The graphs are aligned by the rules in `lar.graphs.matching`, except the rules that compare values.
Since no values confirm that two tensors are twins, a pair is kept only if both tensors have the
same name, or if both tensors are computed in the same way from the same twins.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lar.dumps import Array, Dump
from lar.graphs import GROUPS, HEAVY, UNKNOWN, OperatorKinds, Steps
from lar.graphs.graph import COPY, Graph, Node, plain_graph_of, region_of, without_filling
from lar.graphs.matching import Matching, are_one_structure, crossing, is_generic
from lar.graphs.signatures import Values
from lar.records.profile import Profile, ProfiledOperator

# Numbers in names that an engine changes in each session.
NUMBER = re.compile(r"\[\d+\]|_token_\d+")

# The score of a pair for the same way to it; operators that do the same have a score of 2.
SAME_WAY = 0.5
LONGEST_WAY = 8
ADDING = frozenset({"add", "sum", "norm", "scale"})
UNCLEAR_ENDS = frozenset({*GROUPS["activation"], UNKNOWN})

Place = tuple[int, int]  # a side, and an operator of it


class OperatorPair(NamedTuple):
    """Operators of A and of B that do the same work, as indexes in `Profile.operators`.

    For an operator of A without a partner, `b` is empty; for an operator of B without a partner,
    `a` is empty.
    """

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()


def match_operators(
    a: Profile, b: Profile, kinds: tuple[OperatorKinds, OperatorKinds]
) -> list[OperatorPair]:
    """Pair the operators of two profiles, in the order of A's operators.

    `kinds` are the tables of operator types of both engines. Profiles of an older lar have no
    graph; operators are then matched by name.
    """
    sides = a.operators, b.operators
    have_graphs = all(any(each.writes for each in side) for side in sides)
    pairs = [*pair_by_graph(a, b, kinds)] if have_graphs else []
    named = []
    for operators, known, left in zip(sides, kinds, left_of(sides, pairs), strict=True):
        # If the graph compares two operators, their names do not count.
        free = [it for it in left if not have_graphs or is_outside(operators[it], known)]
        named.append(unique_names(operators, free))
    one, other = named
    pairs += [OperatorPair((one[name],), (other[name],)) for name in one if name in other]
    alone = left_of(sides, pairs)
    pairs += [OperatorPair(a=(place,)) for place in alone[0]]
    return [*sorted(pairs, key=lambda pair: pair.a), *(OperatorPair(b=(it,)) for it in alone[1])]


def left_of(
    sides: Sequence[Sequence[ProfiledOperator]], pairs: Sequence[OperatorPair]
) -> list[list[int]]:
    """Return for each side the operators that are not in a pair."""
    joined = [{place for pair in pairs for place in pair[number]} for number in (0, 1)]
    return [
        [place for place in range(len(side)) if place not in done]
        for side, done in zip(sides, joined, strict=True)
    ]


def is_outside(operator: ProfiledOperator, kinds: OperatorKinds) -> bool:
    """Return whether an operator only holds, feeds or moves data."""
    is_moving = kinds.kinds.get(operator.type.lower()) == "move"
    return is_moving or not (operator.reads and operator.writes)


def unique_names(
    operators: Sequence[ProfiledOperator], places: Iterable[int]
) -> dict[tuple[str, str], int]:
    """Return the indexes of operators by type and name; leave out names that occur twice."""
    names = [(each.type, lasting_name(each)) for each in operators]
    counts = Counter(names)
    return {names[it]: it for it in places if counts[names[it]] == 1 and names[it][1]}


def lasting_name(operator: ProfiledOperator) -> str:
    """Return a name of an operator that does not change from run to run.

    The name is the operator's own name or, if the engine made up this name, the name of the
    operator's output.

    The result is empty if the engine made up the output's name too.
    """
    name = NUMBER.sub("", operator.name)
    if name == operator.name or not operator.writes:
        return name
    given = COPY.sub("", operator.writes[0])
    return "" if is_generic(given) else given


def pair_by_graph(
    a: Profile, b: Profile, kinds: tuple[OperatorKinds, OperatorKinds]
) -> Iterator[OperatorPair]:
    """Pair the operators that lie between tensors that both profiles compute."""
    sides = plain_graph_of(a), plain_graph_of(b)
    sides = without_filling(*sides), without_filling(*reversed(sides))
    one, other = (
        Graph(Dump("", side.dump_index, lambda _: np.zeros(0, np.float32), excerpts=True), each)
        for side, each in zip(sides, kinds, strict=True)
    )
    twins: dict[Node, Node]
    copies: Iterable[Node] = ()
    if are_one_structure(one, other) and not crossing(one, other):
        twins = dict(zip(one.nodes, other.nodes, strict=True))
    else:
        matching = StructuralMatching(one, other)
        twins, copies = matching.match_surely(), matching.originals
    stops = {node for pair in twins.items() for node in pair}
    # The copies that moves make are in no group: the other side may lack them.
    groups = [
        {
            (side, place)
            for side, node in enumerate(pair)
            for each in region_of(node, stops)
            if each.operator is not None and each not in copies
            for place in sides[side].places.get(each.operator.key, ())
        }
        for pair in twins.items()
    ]
    for group in merged(groups):
        mine, theirs = ([place for at, place in group if at == side] for side in (0, 1))
        if mine and theirs:
            yield OperatorPair(tuple(sorted(mine)), tuple(sorted(theirs)))


def merged(groups: Iterable[set[Place]]) -> list[set[Place]]:
    """Merge groups that overlap, so that no two groups share an operator."""
    owners: dict[Place, set[Place]] = {}
    for group in groups:
        overlapping = {id(owners[place]): owners[place] for place in group if place in owners}
        whole = max(overlapping.values(), key=len, default=set())
        for part in (group, *overlapping.values()):
            if part is not whole:
                whole |= part
                owners |= dict.fromkeys(part, whole)
    return list({id(group): group for group in owners.values()}.values())


class StructuralMatching(Matching):
    """Finds the twins of two graphs without reading the tensors' values.

    The twins are found by names, shapes, inputs and the steps of operators.

    A convolution or a product without a bias gets a step `add`, as if it added 0.
    """

    def __init__(self, actual: Graph, expected: Graph) -> None:
        super().__init__(actual, expected, (Values(actual.dump), Values(expected.dump)))
        self.ways: dict[Node, Steps] = {}
        self.without_bias = {*filter(has_no_bias, (*actual.nodes, *expected.nodes))}
        single = (node for node in self.without_bias if len(node.steps) == 1)
        self.kinds |= {node: (*node.steps, "add") for node in single}

    def named_alike(self, node: Node) -> list[Node]:
        """Return the other side's nodes that have the name of this node and a similar last step.

        A fused operator may have the name of one of its parts. So a node of the same name may be
        returned although its last step differs. For example, another engine may compute Gelu in
        several operators. Two nodes with different last steps are not alike if one of them may end
        in an activation, or if they differ only by a bias.
        """
        found = [(it, self.kind_score(node, it)) for it in super().named_alike(node)]
        return [it for it, score in found if score > 0 or (score == 0 and end_clearly(node, it))]

    def evidence(self, node: Node, others: Sequence[Node], relative: Array) -> Array:
        way = self.way_to(node)
        return SAME_WAY * np.array([self.way_to(other) == way for other in others], bool)

    def way_to(self, node: Node) -> Steps:
        """Return the steps from the last convolution or product to a node.

        The path goes only through nodes with one parent.

        The steps are the same on both sides, even if one engine has fused the operators.
        """
        if node not in self.ways:
            steps, each = node.steps, node
            while steps[0] not in HEAVY and len(each.parents) == 1 and len(steps) < LONGEST_WAY:
                (each,) = each.parents
                if not each.is_move:
                    steps = each.steps + steps
            self.ways[node] = steps
        return self.ways[node]

    def match_surely(self) -> dict[Node, Node]:
        """Return twins with equal names, and twins that are computed in equal ways from twins."""
        self.match()
        count = -1
        while count != len(self.twins):
            count = len(self.twins)
            alike = self.find_alike()
            # When a wrong twin is dropped, later twins are judged by the twins before it.
            for node in self.actual:
                if node in self.twins and not self.is_proven(node, self.twins[node], alike):
                    del self.twins[self.twins.pop(node)]
        return {node: self.twins[node] for node in self.actual if node in self.twins}

    def is_proven(self, one: Node, other: Node, alike: Mapping[Node, Sequence[Node]]) -> bool:
        """Return whether two tensors have equal names, or are computed in equal ways from twins."""
        if one.is_input or other.is_input:
            return one.is_input and other.is_input
        if other in self.named_alike(one):
            return True
        if not self.sources(one) or self.sources(one) != self.sources(other):
            return False
        if self.kind_score(one, other) <= 0 or self.are_ambiguous(one, other, alike):
            return False
        short, long = sorted(map(self.work_of, (one, other)), key=lambda work: work["add"])
        if any(short[kind] != long[kind] for kind in HEAVY):
            return False
        # Folding a norm or a scale changes the number of additions.
        if any(work["norm"] or work["scale"] for work in (short, long)):
            return True
        missing = long["add"] - short["add"]
        # After a sum of two branches, one addition can stand for the biases of both branches.
        return not missing or (short["ends in add"] > 0 and missing <= short["sum"])

    def work_of(self, node: Node) -> Counter[str]:
        """Return how many times each step occurs between a tensor and the twins before it."""
        region = region_of(node, self.twins)
        work = Counter(step for each in region for step in each.steps)
        work["add"] += sum(each in self.without_bias for each in region)
        work["ends in add"] = node.steps.count("add")
        return work

    def are_ambiguous(self, one: Node, other: Node, alike: Mapping[Node, Sequence[Node]]) -> bool:
        """Return whether a pair is uncertain, since a third tensor is computed in the same way.

        The third tensor is computed in the same way, and from the same twins, as `one` and `other`.

        The result is false if the same twins are computed from `one` and from `other`, but not from
        the third tensor.
        """
        others = [it for node in (one, other) for it in alike[node] if it is not node]
        if not others:
            return False
        results = self.results(one)
        return results != self.results(other) or results in map(self.results, others)

    def find_alike(self) -> dict[Node, list[Node]]:
        """Group tensors of one side that are computed in the same way from the same twins.

        The result maps each tensor to its group.
        """
        groups = defaultdict(list)
        for node in (*self.actual, *self.expected):
            work = self.class_of(node), node.steps, self.sources(node)
            groups[node in self.places, work].append(node)
        return {node: group for group in groups.values() for node in group}


def end_clearly(*nodes: Node) -> bool:
    return UNCLEAR_ENDS.isdisjoint(node.steps[-1] for node in nodes)


def has_no_bias(node: Node) -> bool:
    """Return whether a convolution or a product has no bias, and no operator after it adds a bias.

    Engines may fold a bias into the operator that follows.
    """
    if node.steps[0] not in HEAVY or not ADDING.isdisjoint(node.steps):
        return False
    following = {step for child in node.children for step in child.steps[:1]}
    return len(node.steps) > 1 or ADDING.isdisjoint(following)
