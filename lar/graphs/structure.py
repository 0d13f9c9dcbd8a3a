"""The twins of two graphs without values, as profiles have them.

The alignment is that of graphs with values. Since nothing confirms what it suggests, only those
pairs stay that bear one name, or are computed from the same twins by the same work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from lar.dumps.dump import Dump, DumpedTensor, DumpIndex
from lar.graphs.graph import Graph, Node, region_of
from lar.graphs.matching import Array, Matching
from lar.graphs.operator_kinds import GROUPS, HEAVY, UNKNOWN, OperatorKinds, Steps
from lar.graphs.signatures import Values

# What speaks for a pair, against 2 for operators that do the same.
SAME_WAY = 0.5
LONGEST_WAY = 8
ADDING = frozenset({"add", "sum", "norm", "scale"})
UNCLEAR_ENDS = frozenset({*GROUPS["activation"], UNKNOWN})


def graph_without_values(index: DumpIndex, kinds: OperatorKinds) -> Graph:
    return Graph(Dump("", index, read_nothing, excerpts=True), kinds)


def read_nothing(tensor: DumpedTensor) -> Array:
    return np.zeros(0, np.float32)


class StructuralMatching(Matching):
    """Twins by names, shapes, what operators do and what they take.

    A convolution or product without a bias counts as adding nothing.
    """

    def __init__(self, actual: Graph, expected: Graph) -> None:
        super().__init__(actual, expected, (Values(actual.dump), Values(expected.dump)), {})
        self.ways: dict[Node, Steps] = {}
        nodes = [*actual.nodes, *expected.nodes]
        self.without_bias = {node for node in nodes if has_no_bias(node)}
        self.kinds |= {
            node: (*node.steps, "add") for node in self.without_bias if len(node.steps) == 1
        }

    def named_alike(self, node: Node) -> list[Node]:
        """Return the nodes of the other side that bear a name of a node and end in what it ends in;
        a fused operator may bear the name of one of its parts. What is not apart by a bias or an
        activation may be several operators elsewhere, as Gelu."""
        found = [(it, self.kind_score(node, it)) for it in super().named_alike(node)]
        return [it for it, score in found if score > 0 or (score == 0 and end_clearly(node, it))]

    def evidence(self, node: Node, others: Sequence[Node], relative: Array) -> Array:
        way = self.way_to(node)
        return SAME_WAY * np.array([self.way_to(other) == way for other in others], bool)

    def way_to(self, node: Node) -> Steps:
        """Return what has been done since the last convolution or product, as far as one tensor
        leads to the next: what one engine has fused, the other does in several steps."""
        if node not in self.ways:
            steps, each = node.steps, node
            while steps[0] not in HEAVY and len(each.parents) == 1 and len(steps) < LONGEST_WAY:
                (each,) = each.parents
                if each.steps != ("move",):
                    steps = each.steps + steps
            self.ways[node] = steps
        return self.ways[node]

    def match_surely(self) -> dict[Node, Node]:
        """Return the twins that their names show, or what they are computed from and how."""
        self.match()
        count = -1
        while count != len(self.twins):
            count = len(self.twins)
            alike = self.find_alike()
            # What is computed from a wrong twin may be right with the one before it.
            for node in self.actual:
                if node in self.twins and not self.is_proven(node, self.twins[node], alike):
                    del self.twins[self.twins.pop(node)]
        return {node: self.twins[node] for node in self.actual if node in self.twins}

    def is_proven(self, one: Node, other: Node, alike: Mapping[Node, Sequence[Node]]) -> bool:
        """Return whether two tensors are computed from the same twins by the same work, or are
        known by their names."""
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
        # A bias may be added before something else or behind it, unless it was folded.
        if any(work["norm"] or work["scale"] for work in (short, long)):
            return True
        missing = long["add"] - short["add"]
        # Behind a sum of two, one addition does for the biases of both.
        return not missing or (short["ends in add"] > 0 and missing <= short["sum"])

    def work_of(self, node: Node) -> Counter[str]:
        """Return how often what is done between a tensor and the twins before it."""
        region = region_of(node, self.twins)
        work = Counter(step for each in region for step in each.steps)
        work["add"] += sum(each in self.without_bias for each in region)
        work["ends in add"] = node.steps.count("add")
        return work

    def are_ambiguous(self, one: Node, other: Node, alike: Mapping[Node, Sequence[Node]]) -> bool:
        """Return whether another tensor is computed as one of these is, from the same twins, and
        what is computed from them does not distinguish the two."""
        others = [it for node in (one, other) for it in alike[node] if it is not node]
        if not others:
            return False
        results = self.results(one)
        return results != self.results(other) or results in map(self.results, others)

    def find_alike(self) -> dict[Node, list[Node]]:
        """Return for each tensor those of its side that are computed alike from the same twins."""
        groups = defaultdict(list)
        for node in (*self.actual, *self.expected):
            work = self.class_of(node), node.steps, self.sources(node)
            groups[node in self.places, work].append(node)
        return {node: group for group in groups.values() for node in group}


def end_clearly(*nodes: Node) -> bool:
    return UNCLEAR_ENDS.isdisjoint(node.steps[-1] for node in nodes)


def has_no_bias(node: Node) -> bool:
    """Return whether a convolution or product adds nothing, then or in what follows: engines fold
    the bias of one into that of the next."""
    if node.steps[0] not in HEAVY or not ADDING.isdisjoint(node.steps):
        return False
    following = {step for child in node.children for step in child.steps[:1]}
    return len(node.steps) > 1 or ADDING.isdisjoint(following)
