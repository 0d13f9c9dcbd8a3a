"""Finds the twins in two graphs. Twins are tensors of the two graphs with equal meaning.

The rules are listed here from the surest rule to the least sure rule.

The outputs of two models are paired by name, and the remaining outputs in their order. Two graphs
with the same structure are walked side by side, and names do not matter. Tensors with equal names
are twins if the model gave these names. Names with only a running number, such as `var17`, are left
out if the two models number their tensors differently. Tensors that the same operators compute from
the same inputs are twins, if both graphs have these tensors in the same order. If other rules allow
several pairs, equal values show which of these pairs are twins.

`Matching.match` has the rules for graphs of different structure. First, tensors are matched by the
names that both models gave. After the match by names, the tensors of both graphs are aligned in
their order: by the steps of their operators, and by values that agree. Two tensors with different
values may still be twins, since an earlier operator of one side may be at fault. Tensors that are
in another order on the other side are matched last: by their sources, then by their results.

In a quantised graph, names and operators may mislead: a tensor with the name of a float tensor may
hold the values of another float tensor. A quantiser rounds the output of an operator, and names the
integers after that output. A quantiser may also fold an activation into the range of the integers.
Then the output of the activation in the float model is the twin of the integers, and the input of
the activation is not.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from lar.dumps import Array, DumpedTensor
from lar.graphs import GROUPS, HEAVY, UNKNOWN, UNKNOWN_STEPS, Steps, kind_score
from lar.graphs.graph import (
    Graph,
    Node,
    branches_of,
    is_end,
    name_of,
    region_of,
    results_of,
    sources_of,
)
from lar.graphs.origins import PART, SEPARATORS
from lar.graphs.signatures import (
    NEAR,
    UNSCALED,
    Signature,
    Values,
    distances,
    signature_of,
    squeezed,
    whole,
)
from lar.records.comparison import MatchedBy

# The endings that ONNX Runtime's quantiser appends to the name of a tensor.
APPENDED = (  # compiled when it is used
    r"(?P<name>.+?)(_(Dequantize|Quantize)Linear_(Input|Output)(_\d+)?|_quantized)(_token_\d+)?"
)

# Sums. A range of integers that begins at 0 may clip their results.
SUMS = ("sum", "add", "qlinearadd")

# The bits of quantised types. Wider types hold sums, and are as exact as floating-point numbers.
BITS = {
    **dict.fromkeys(("int8", "uint8", "QuantizedS8", "Quantized8Asymm"), 8),
    **dict.fromkeys(("int4", "uint4", "QuantizedS4", "Quantized4Asymm"), 4),
    **dict.fromkeys(("int16", "uint16"), 16),
}


def is_quantized(node: Node) -> bool:
    return node.tensor is not None and node.tensor.quantization is not None


def is_quantizing(node: Node) -> bool:
    """Return whether a tensor is made by rounding the output of an operator to integers."""
    if not (node.is_cast and node.operator and is_quantized(node)):
        return False
    before, alone = node.parents[0], len(node.operator.outputs) == 1
    return alone and not is_quantized(before) and not before.is_input


def is_dequantizing(node: Node) -> bool:
    """Return whether a tensor holds the real numbers that its input's integers stand for."""
    return node.is_cast and not is_quantized(node) and is_quantized(node.parents[0])


def steps_to(node: Node) -> Steps:
    """Return the steps of the float model that compute a tensor.

    If the integers of a quantised tensor stand for no negative number, an activation may be folded
    into their range. Such an activation is a step too.
    """
    if node.tensor is None or node.tensor.quantization is None:
        return node.steps
    steps = node.parents[0].steps if is_quantizing(node) else node.steps
    _, lowest = bits_of(node.tensor.dtype)
    # No integer stands for a negative number.
    begins_at_zero = {*node.tensor.quantization.zero_point} == {lowest}
    if not begins_at_zero or steps[-1] in ("relu", "relu6"):
        return steps
    if steps[0] in HEAVY:
        return (*steps, "relu")
    return (*steps, UNKNOWN) if steps[-1] in SUMS else steps


def bits_of(dtype: str) -> tuple[int, int]:
    """Return the number of bits of a quantised type, and its lowest integer."""
    bits = BITS.get(dtype.partition("(")[0], 32)
    return bits, 0 if dtype.startswith("uint") or "Asymm" in dtype else -(2 ** (bits - 1))


def names_of(
    nodes: Sequence[Node], copies: Mapping[Node, Iterable[Node]]
) -> dict[Node, tuple[str, ...]]:
    """Return the names that each tensor and its copies have in the float model.

    A tensor of rounded integers gets the name of the tensor that was rounded. A tensor has no name
    if every operator that reads the tensor rounds it to integers.
    """
    own = {
        node: tuple(it.name for it in (node, *copies.get(node, ())) if not is_rounded_only(it))
        for node in nodes
    }
    taken = Counter(name for names in own.values() for name in names)
    named = {}
    for node, names in own.items():
        more = [found["name"] for name in names if (found := re.fullmatch(APPENDED, name))]
        if is_quantizing(node):
            more.append(node.parents[0].name)
        named[node] = (*names, *(name for name in dict.fromkeys(more) if not taken[name]))
    return named


def names_of_constants(graph: Graph) -> dict[str, str]:
    """Return the names of constants in the float model, by key.

    A dequantised constant is left out. The name of a dequantised constant is given to the constant
    that holds the integers.
    """
    tensors = {tensor.key: tensor for tensor in graph.dump if tensor.key in graph.constants}
    names = {key: name_of(it) for key, it in tensors.items() if key not in graph.dequantized}
    for key, integers in graph.dequantized.items():
        if key in tensors and integers in names:
            names[integers] = name_of(tensors[key])
    return {key: name_before(name) for key, name in names.items()}


def name_before(name: str) -> str:
    """Return a name without the ending that a quantiser appended."""
    found = re.fullmatch(APPENDED, name)
    return found["name"] if found else name


def is_rounded_only(node: Node) -> bool:
    """Return whether every operator that reads a tensor rounds the tensor."""
    return bool(node.children) and all(map(is_quantizing, node.children))


# Names that engines make up: they count tensors, quote operands or name the operator's type. A name
# `part of X` counts as made up too, since it may be any part of X.
GENERIC = re.compile(
    rf"^{PART}|[\[(]|^(var|reorder_token_|tensor)?_?\d*$|^reorder$|^[A-Z][A-Za-z]+(:o\d+)?$"
)

# A name that ends in a number. If most names of a side are alike except for the number, they count
# tensors, and another model may count differently.
NUMBERED = re.compile(r"(?P<kind>.*?)\d+")
MOST = 0.8

# If the sides share at least this part of their names, tensors of different names are not twins.
SHARED = 0.5

# If a side has quantised tensors, two samples whose distance is not above this count as equal.
NEAR_QUANTIZED = 0.1

# Scores of a pair in the alignment: for one name of the model, for one name that engines made up,
# and for equal values (each further equal digit scores 1). Operators that do the same score 2.
SAME_NAME = 6.0
SAME_GENERIC_NAME = 0.5
NEAR_VALUES = 4.0


class Pair(NamedTuple):
    """Two tensors that are twins, and the rule that found them."""

    actual: Node
    expected: Node
    by: MatchedBy


def is_generic(name: str) -> bool:
    """Return whether an engine made up a name, so that the name can mean different tensors."""
    return GENERIC.search(name) is not None


class Matching:
    """The twins found so far between two graphs, and the rules that find more twins.

    If operators only move data, the first tensor stands for all copies, and has the names of all
    copies. If a side has no operators, names may differ in their separators, such as layer1.0/conv
    and layer1_0_conv.
    """

    def __init__(self, actual: Graph, expected: Graph, values: tuple[Values, Values]) -> None:
        self.without_operators = not (actual.has_operators and expected.has_operators)
        present = (actual.present, expected.present)
        shapes = [
            {side.shape_of(node.tensor) for node in nodes if node.tensor}
            for side, nodes in zip(values, present, strict=True)
        ]
        self.signatures: dict[Node, Signature] = {}
        self.near_enough = NEAR_QUANTIZED if any(map(is_quantized, chain(*present))) else NEAR
        for side, nodes in enumerate(present):
            read = partial(signature_of, values[side], other_shapes=shapes[1 - side])
            self.signatures |= {node: read(node.tensor) for node in nodes if node.tensor}
        self.copies: dict[Node, list[Node]] = defaultdict(list)
        self.originals: dict[Node, Node] = {}
        self.actual, self.expected = ([*self.without_copies(nodes)] for nodes in present)
        self.places = {node: place for place, node in enumerate(self.expected)}
        self.kinds = {node: steps_to(node) for nodes in present for node in nodes}
        self.names_of = {
            node: names
            for nodes in (self.actual, self.expected)
            for node, names in names_of(nodes, self.copies).items()
        }
        self.names = [self.unique_names(side) for side in (self.actual, self.expected)]
        models = {graph.dump.index.model_sha256 for graph in (actual, expected)}
        if not self.without_operators and (len(models) > 1 or "" in models):
            self.names = self.names_that_hold()
        self.given = self.find_given(actual, expected)
        self.twins: dict[Node, Node] = {}  # both ways

    def match(self) -> list[Pair]:
        """Find the twins, with the surest rule first; return them in the actual side's order."""
        self.match_names()
        self.named = dict(self.twins)
        self.apart = self.find_apart().difference(self.named)
        self.unnamed = [self.by_class(nodes) for nodes in (self.actual, self.expected)]
        self.match_in_order()
        self.match_sources()
        self.match_results()
        self.drop_before_bias()
        self.match_other_shapes()
        self.match_ends()
        found = [(node, self.twins[node]) for node in self.actual if node in self.twins]
        pairs = [Pair(one, other, self.found_by(one, other)) for one, other in found]
        pairs += [copy for pair in pairs for copy in self.pair_copies(pair)]
        return sorted(pairs, key=lambda pair: pair.actual.place)

    # Facts about each side

    def without_copies(self, nodes: Iterable[Node]) -> Iterable[Node]:
        """Yield the nodes that are neither moved nor dequantised copies of another node."""
        for node in nodes:
            above = node
            while len(above.parents) == 1 and (above.is_move or is_dequantizing(above)):
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

    def class_of(self, node: Node) -> Any:
        """Return the class of a node: the facts that must be equal in two nodes that are twins."""
        assert node.tensor
        signature = self.signatures[node]
        is_input = node.is_input and not self.without_operators
        branches = () if self.without_operators else branches_of(node)
        return signature.shape, signature.family, is_input, node.tensor.run, branches

    def by_class(self, nodes: Iterable[Node]) -> dict[Any, list[Node]]:
        """Return the nodes that were not matched by their names, grouped by class."""
        found = defaultdict(list)
        for node in nodes:
            if node not in self.named:
                found[self.class_of(node)].append(node)
        return found

    def fits(self, one: Node, other: Node) -> bool:
        return bool(self.class_of(one) == self.class_of(other))

    def kind_score(self, one: Node, other: Node) -> float:
        return kind_score(self.kinds[one], self.kinds[other])

    def distances(self, nodes: Sequence[Node], others: Sequence[Node]) -> Iterator[Array]:
        """Yield for each node the distances of its sample from the samples of `others`."""
        samples = [[self.signatures[it].sample for it in side] for side in (nodes, others)]
        return distances(*map(np.array, samples))

    def near(self, one: Node, other: Node) -> bool:
        """Return whether the samples of two tensors of the same class show the same values."""
        (relative,) = self.distances([one], [other])
        return bool(relative[0] <= self.near_enough)

    def add(self, one: Node, other: Node) -> None:
        for node in (one, other):
            if node in self.twins:
                del self.twins[self.twins.pop(node)]
        self.twins[one], self.twins[other] = other, one

    # Names

    def unique_names(self, nodes: Iterable[Node]) -> dict[str, Node]:
        """Return a mapping from each unique name to the node of this name.

        Names that an engine made up, and names that several nodes have, are left out.
        """
        named = [
            (name, node)
            for node in nodes
            for name in dict.fromkeys(map(self.comparable, self.names_of[node]))
        ]
        counts = Counter(name for name, _ in named)
        return {name: node for name, node in named if counts[name] == 1 and not is_generic(name)}

    def comparable(self, name: str) -> str:
        """Return a name in the form in which names of both sides are compared."""
        return SEPARATORS.sub("_", name) if self.without_operators else name

    def names_that_hold(self) -> list[dict[str, Node]]:
        """For each side, return the nodes by name, without names that prove nothing.

        Names with only a running number, such as `var17`, are left out if the two sides number
        their tensors differently. Some names occur on both sides. If too few of these names belong
        to operators of equal kind, all names are left out.
        """
        kept = [*self.names]
        for kind in {*map(counting_kind, kept)} - {""}:
            counted = [{name for name in side if kind_of_name(name) == kind} for side in kept]
            if counted[0] != counted[1]:
                kept = [
                    {n: it for n, it in side.items() if kind_of_name(n) != kind} for side in kept
                ]
        shared = [(kept[0][name], kept[1][name]) for name in kept[0] if name in kept[1]]
        fitting = sum(self.fits(*pair) and self.kind_score(*pair) > 0 for pair in shared)
        return kept if fitting >= MOST * len(shared) else [{}, {}]

    def find_given(self, actual: Graph, expected: Graph) -> dict[Node, Node]:
        """Return the expected output for each actual output that has a twin."""
        given: dict[Node, Node] = {}
        for pair in pair_outputs(actual, expected):
            one, other = (self.originals.get(node, node) for node in pair)
            if one not in given and other not in given.values():
                given[one] = other
        return given

    def named_alike(self, node: Node) -> list[Node]:
        """Return the expected nodes that have the same name as an actual node.

        If the node of one side has integers and the node of the other side has floats, the
        operators of both nodes must be of equal kind.
        """
        if node in self.given:
            return [self.given[node]]
        names = map(self.comparable, self.names_of.get(node, ()))
        found = dict.fromkeys(
            self.names[1][name] for name in names if name in self.names[0] and name in self.names[1]
        )
        free = [other for other in found if other not in self.given.values()]
        if self.without_operators:
            return free
        form = is_quantized(node)
        return [it for it in free if is_quantized(it) == form or self.kind_score(node, it) > 0]

    def match_names(self) -> None:
        """Match tensors with equal names; if several tensors have one name, use the last.

        If an activation is folded into the range of integers, the integers may have the name of the
        tensor before the activation. If a tensor of integers and a tensor of floats have the same
        name, lar matches these two tensors only if their values agree, or if the last steps of
        their operators match exactly.
        """
        for node in self.actual:
            for other in self.named_alike(node):
                alike = is_quantized(node) == is_quantized(other)
                alike = alike or self.kind_score(node, other) == 2
                if self.fits(node, other) and (alike or self.near(node, other)):
                    self.add(node, other)

    def find_apart(self) -> set[Node]:
        """Return the nodes with unique names; empty if the two sides share too few names."""
        shared = self.names[0].keys() & self.names[1].keys()
        if len(shared) < SHARED * min(map(len, self.names)):
            return set()
        return {*self.names[0].values(), *self.names[1].values()}

    def are_named_apart(self, one: Node, other: Node) -> bool:
        """Return whether the names of two nodes suggest that the two nodes are not twins.

        Names suggest that two nodes do not match if the models have different names for the nodes,
        or if only one node is a part of an operator. If the names of two nodes suggest that the
        nodes do not match, the nodes are twins only if they hold the same values. For example, a
        quantiser gives integers the name of the tensor before an activation, but the integers may
        hold the activation's output.
        """
        parts = (PART in one.name) != (PART in other.name)
        return parts or ({one, other} <= self.apart and is_quantized(one) == is_quantized(other))

    # Order

    def match_in_order(self) -> None:
        """Match tensors by aligning both graphs in their order, with the greatest sum of scores.

        If several alignments are equally good, the alignment with the later tensors is used. For
        example, if an operator changes nothing, later operators read its output, not its input.
        """
        rows = {
            each: self.scores(nodes, self.unnamed[1].get(each, []))
            for each, nodes in self.unnamed[0].items()
        }
        best = np.zeros(len(self.expected) + 1)
        choices = []
        for node in self.actual:
            if node in self.named:
                after, scores = np.array([self.places[self.named[node]] + 1]), np.array(SAME_NAME)
            else:
                after, scores = next(rows[self.class_of(node)])
            joined = best[after - 1] + scores
            row = best.copy()
            row[after] = np.maximum(row[after], joined)
            row = np.maximum.accumulate(row)
            # For each column: the column of this tensor's twin in the best alignment so far, or 0.
            taken = np.zeros(best.size, int)
            taken[after[joined == row[after]]] = after[joined == row[after]]
            taken = np.maximum.accumulate(taken)
            taken[row[taken] < row] = 0
            choices.append(taken.astype(np.min_scalar_type(best.size)))
            best = row
        column = len(self.expected)
        for node, choice in zip(reversed(self.actual), reversed(choices), strict=True):
            if choice[column]:
                column = int(choice[column]) - 1
                self.add(node, self.expected[column])

    def scores(
        self, nodes: Sequence[Node], others: Sequence[Node]
    ) -> Iterator[tuple[Array, Array]]:
        """For each node of a class, yield two arrays about its possible twins: columns and scores.

        The column of a possible twin is 1 plus the number of this twin on the expected side.
        """
        columns = np.array([self.places[other] + 1 for other in others], int)
        names = np.array([other.name for other in others], str)
        known: dict[Any, tuple[Array, Array]] = {}
        for node, relative in zip(nodes, self.distances(nodes, others), strict=True):
            alike = self.kinds[node], node in self.apart, is_quantized(node), PART in node.name
            if alike not in known:
                kind = np.array([self.kind_score(node, other) for other in others])
                apart = np.array([self.are_named_apart(node, other) for other in others], bool)
                known[alike] = kind, (kind > 0) & ~apart
            (kind, likely), near = known[alike], relative <= self.near_enough
            fits = np.flatnonzero(likely | (near & (kind >= 0)))
            found = kind[fits] + SAME_GENERIC_NAME * (names[fits] == node.name)
            found += self.evidence(node, [others[place] for place in fits], relative[fits])
            yield columns[fits], found

    def evidence(self, node: Node, others: Sequence[Node], relative: Array) -> Array:
        """Return a score for each node in `others`, by how close its values are to those of `node`.

        `relative` has the distance of each node in `others` from `node`.
        """
        is_zero = not self.signatures[node].sample.any()  # many tensors are: a weak proof
        digits = 3 - NEAR_VALUES if is_zero else -np.log10(np.maximum(relative, 1e-6))
        # Scores are rounded, since equal samples may have slightly different distances.
        return np.where(relative <= self.near_enough, NEAR_VALUES - 2 + digits, 0).round(2)

    # Tensors whose order differs between the sides

    def match_sources(self) -> None:
        """Match tensors that are computed from the same twins, if only one pair fits.

        A pair fits if its operators are of the same kind, or if its values are equal. In a graph
        without operators, a pair fits if shape and type are equal.
        """
        for nodes, others in self.groups_left(self.sources):
            pairs = [(one, other) for one in nodes for other in others]
            fitting = [pair for pair in pairs if self.may_be_twins(*pair)]
            counts = Counter(chain(*fitting))
            for one, other in fitting:
                if counts[one] == counts[other] == 1:
                    self.add(one, other)

    def match_results(self) -> None:
        """Match two tensors if the same twins are computed from both, but not from other tensors.

        The two tensors may come from different operators if they are computed from the same twins,
        or have the same values.

        Two tensors are not matched if only one of them is computed by a cast. Two tensors are also
        not matched if one tensor's operator does all steps of the other tensor's operator, and then
        further steps.
        """
        for nodes, others in self.groups_left(self.results):
            if len(nodes) != 1 or len(others) != 1 or self.are_named_apart(nodes[0], others[0]):
                continue
            short, long = sorted((self.kinds[nodes[0]], self.kinds[others[0]]), key=len)
            more = short != long and (short == long[: len(short)] or ("cast",) in (short, long))
            pair = nodes[0], others[0]
            replaced = self.sources(pair[0]) == self.sources(pair[1])
            may_be = replaced or self.kind_score(*pair) > 0 or self.near(*pair)
            if self.results(nodes[0]) and not more and may_be:
                self.add(*pair)

    def groups_left(
        self, around: Callable[[Node], frozenset[Node]]
    ) -> Iterator[tuple[list[Node], list[Node]]]:
        """Yield the tensors of both sides that have no twins, in groups.

        All tensors of a group have the same class, and `around` returns the same nodes for all
        these tensors.
        """
        found: dict[Any, tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
        for side, nodes in enumerate((self.actual, self.expected)):
            for node in nodes:
                if node not in self.twins:
                    found[self.class_of(node), around(node)][side].append(node)
        yield from list(found.values())

    def may_be_twins(self, one: Node, other: Node) -> bool:
        """Return whether two tensors that are computed from the same twins may be twins."""
        score = self.kind_score(one, other)
        likely = score > 0 and not self.are_named_apart(one, other)
        return likely or self.without_operators or (score >= 0 and self.near(one, other))

    def sources(self, node: Node) -> frozenset[Node]:
        """Return the twins from which a tensor is computed: of each pair, the expected node."""
        return self.expected_of([] if self.without_operators else sources_of(node, self.twins))

    def results(self, node: Node) -> frozenset[Node]:
        """Return the twins that are computed from a tensor, as nodes of the expected side."""
        return self.expected_of(results_of(node, self.twins))

    def expected_of(self, nodes: Iterable[Node]) -> frozenset[Node]:
        return frozenset(it if it in self.places else self.twins[it] for it in nodes)

    def drop_before_bias(self) -> None:
        """Drop pairs where one side has added a bias that the other side adds only later.

        If names or values confirm a pair, the pair is kept.
        """
        for node in filter(self.twins.get, self.actual):
            more = self.added_more(node)
            behind = results_of(node, self.twins) if more else []
            late = any(more * self.added_more(each) < 0 for each in behind)
            if late and node not in self.named and not self.near(node, self.twins[node]):
                del self.twins[self.twins.pop(node)]

    def added_more(self, node: Node) -> int:
        """Return how many more biases were added to a tensor than to its twin.

        The count begins at the nearest earlier twins (matching tensors): biases before these twins
        are left out.
        """
        regions = (region_of(each, self.twins) for each in (node, self.twins[node]))
        one, other = (sum(it.steps.count("add") for it in region) for region in regions)
        return one - other

    def match_other_shapes(self) -> None:
        """Match the remaining tensors with equal names, even if shapes, types or values differ.

        Integers whose scale is not known get no twin.
        """
        for node in self.actual:
            for other in self.named_alike(node):
                free = self.twins.keys().isdisjoint((node, other)) or node in self.given
                families = [self.signatures[each].family for each in (node, other)]
                if free and UNSCALED not in families and self.twins.get(node) is not other:
                    self.add(node, other)

    def match_ends(self) -> None:
        """Match the last tensors of two graphs, if each graph has only one last tensor."""
        ends = [
            [node for node in side if is_end(node) and not node.is_input]
            for side in (self.actual, self.expected)
        ]
        if [*map(len, ends)] == [1, 1] and self.twins.keys().isdisjoint(chain(*ends)):
            self.add(ends[0][0], ends[1][0])

    # Reasons

    def found_by(self, one: Node, other: Node) -> MatchedBy:
        if other in self.named_alike(one):
            return "name"
        near = self.fits(one, other) and self.near(one, other)
        if UNKNOWN_STEPS in (one.steps, other.steps) and one.steps != other.steps:
            return "content" if near else "shape"
        alike = self.kind_score(one, other) == 2 and self.sources(one) == self.sources(other)
        return "content" if near and not alike else "graph"

    def pair_copies(self, pair: Pair) -> list[Pair]:
        """Pair the copies of a pair's tensors: by name, and the remaining copies in their order."""
        named, *left = pair_by_name(*(self.copies.get(node, ()) for node in pair[:2]))
        pairs = [Pair(one, other, "name") for one, other in named]
        return pairs + [Pair(one, other, "content") for one, other in zip(*left, strict=False)]


def pair_outputs(actual: Graph, expected: Graph) -> list[tuple[Node, Node]]:
    """Pair the outputs of two models: by name, and the remaining outputs in their order."""
    named, *left = pair_by_name(actual.outputs, expected.outputs)
    return [*named, *(zip(*left, strict=True) if len(left[0]) == len(left[1]) else ())]


def pair_by_name(
    one: Iterable[Node], other: Iterable[Node]
) -> tuple[list[tuple[Node, Node]], list[Node], list[Node]]:
    """Return the pairs of nodes with equal names, and the remaining nodes of each side."""
    mine, theirs = ({node.name: node for node in nodes} for nodes in (one, other))
    pairs = [(mine.pop(name), theirs.pop(name)) for name in [*mine] if name in theirs]
    return pairs, [*mine.values()], [*theirs.values()]


def kind_of_name(name: str) -> str:
    """Replace the number at the end of a name by #, as in `var#`.

    If the name does not end in a number, the result is empty.
    """
    found = NUMBERED.fullmatch(name)
    return f"{found['kind']}#" if found else ""


def counting_kind(names: Collection[str]) -> str:
    """Return the form that most names of a side have, such as `var#`; empty if no form prevails."""
    kinds = Counter(map(kind_of_name, names)).items()
    return next((it for it, count in kinds if count > 1 and count >= MOST * len(names)), "")


# The largest number of tensors that are read because the other side has their names elsewhere.
MOST_READ = 8


class ConstantPair(NamedTuple):
    """Two constants that are twins."""

    actual: DumpedTensor
    expected: DumpedTensor
    by: MatchedBy


class Twins(NamedTuple):
    """The twins of two graphs.

    `originals` maps each moved copy to the tensor whose data the copy holds.
    """

    pairs: list[Pair]
    constants: list[ConstantPair]
    originals: Mapping[Node, Node]


def match(actual: Graph, expected: Graph, values: tuple[Values, Values]) -> Twins:
    """Find the twins of two graphs.

    In graphs with the same structure, a tensor is read only if its name has moved: on the other
    side, a tensor at another place has this name. If two outputs have exchanged their names, the
    graphs count as different. In graphs of different structure, all tensors are read, one at a
    time.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    constants = Constants((actual, expected), values)
    alone = len(actual.dump) == len(expected.dump) == 1
    alike = are_one_structure(actual, expected)
    crossed = crossing(actual, expected)
    ends = any(it in actual.outputs and other in expected.outputs for it, other in crossed)
    near = (are_near(pair, values) for pair in crossed[:MOST_READ])
    if alone or (alike and not ends and all(near)):
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
    twins = {node for pair in pairs for node in (pair.actual, pair.expected)}
    for pair in pairs if not actual.dump.excerpts else ():
        constants.match_values(pair, twins)
    return Twins(pairs, constants.pairs, matching.originals)


def are_one_structure(actual: Graph, expected: Graph) -> bool:
    """Return whether two graphs have operators of the same types, connected in the same way.

    In graphs without operators, the tensors must have the same names.
    """
    same = len(actual.nodes) == len(expected.nodes)
    return same and structure_of(actual) == structure_of(expected)


def crossing(actual: Graph, expected: Graph) -> list[tuple[Node, Node]]:
    """Return pairs of nodes that have the same place in both graphs, but different names.

    A pair of nodes is returned only if another node of the expected side has the name of the actual
    node.

    A name moves to another place if the two sides join branches in different orders, or number
    their tensors differently.
    """
    names = {node.name for node in expected.present if not is_generic(node.name)}
    pairs = zip(actual.present, expected.present, strict=False)
    return [pair for pair in pairs if pair[0].name != pair[1].name and pair[0].name in names]


def are_near(pair: tuple[Node, Node], values: tuple[Values, Values]) -> bool:
    """Return whether samples of two nodes' tensors show the same values."""
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
            # Inputs of the model are compared by place; nodes of graphs without operators by name.
            found.append((node.name if not graph.has_operators else "input", facts))
            continue
        found.append((maker.type, facts, [places.get(key, -1) for key in maker.inputs]))
    return found


class Constants:
    """The constants of two graphs, and the pairs of constants found so far.

    A constant that a fusion computed from other constants has no twin.
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
        """Pair two constants of equal shape, unless one of the constants has a twin already."""
        free = one.key not in self.used[0] and other.key not in self.used[1]
        shapes = {*map(Values.shape_of, self.values, (one, other))}
        unscaled = one.key in self.values[0].unscaled, other.key in self.values[1].unscaled
        if free and len(shapes) == len({*unscaled}) == 1:
            self.pairs.append(ConstantPair(one, other, by))
            self.used[0].add(one.key)
            self.used[1].add(other.key)

    def match_names(self) -> None:
        """Pair the constants that have the same name on both sides."""
        counts = [Counter(known.values()) for known in self.names]
        named = {name: self.stores[1][key] for key, name in self.names[1].items()}
        for one in self.stores[0].values():
            name = self.names[0][one.key]
            if not is_generic(name) and counts[0][name] == counts[1][name] == 1:
                self.add(one, named[name], "name")

    def match_places(self, one: Node, other: Node) -> None:
        """Pair the constants that two operators of the same kind read at the same input positions.

        No pair is made if one operator reads more constants than the other operator, since a fusion
        may have made some of these constants.
        """
        if len(one.constants) != len(other.constants) or one.steps[:1] != other.steps[:1]:
            return
        there = dict(other.constants)
        for place, key in one.constants:
            mine, theirs = self.free(0, key), self.free(1, there.get(place, ""))
            if mine and theirs:
                self.add(mine, theirs, "name" if name_of(mine) == name_of(theirs) else "graph")

    def free(self, side: int, key: str) -> DumpedTensor | None:
        """Return the constant with the given key, or None if this constant already has a twin."""
        key = self.graphs[side].integers_of(key)
        return None if key in self.used[side] else self.stores[side].get(key)

    def match_values(self, pair: Pair, twins: Container[Node]) -> None:
        """Pair constants with equal values, from all operators between a pair and its sources.

        An engine may have fused the operators that compute one tensor of the pair from its sources.
        Two constants also count as equal if one of them is rounded, or is stored in another order
        of axes or in blocks.
        """
        sides = [
            [tensor for key in parameters_of(node, twins) if (tensor := self.free(side, key))]
            for side, node in enumerate((pair.actual, pair.expected))
        ]
        left, lonely = list(sides[1]), list[DumpedTensor]()
        for one in sides[0] if left else ():
            twin = self.find_alike(one, left)
            if twin:
                self.add(one, twin, "content")
                left.remove(twin)
            else:
                lonely.append(one)
        # If both sides take equally many constants, a constant with another value is the twin,
        # provided that it alone has the shape.
        for one in lonely if len(sides[0]) == len(sides[1]) else ():
            shape = self.values[0].shape_of(one)
            fitting = [other for other in left if self.values[1].shape_of(other) == shape]
            if len(fitting) == 1:
                self.add(one, fitting[0], "graph")

    def find_alike(self, one: DumpedTensor, others: Sequence[DumpedTensor]) -> DumpedTensor | None:
        """Return the constant in `others` whose values equal the values of `one`.

        If no constant has exactly the values of `one`, the result is the first constant that
        differs from `one` only by rounding to integers.
        """
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
    """Return the keys of the constants read by operators between the nearest `twins` and a node.

    Constants of activations, such as 0 and 6, are left out: a fusion may remove such constants.
    """
    return [
        key
        for each in region_of(node, twins)
        if each.steps[0] not in GROUPS["activation"]
        for _, key in each.constants
    ]


def is_near(one: Array, other: Array) -> bool:
    """Return whether rounding to integers explains the difference of two arrays."""
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    return float(np.linalg.norm(np.subtract(one, other))) <= NEAR_QUANTIZED * max(lengths)


def read(values: Values, tensor: DumpedTensor, shapes: Collection[tuple[int, ...]]) -> Array:
    """Read a tensor in plain axes; if the tensor is padded, cut it to one of the `shapes`."""
    values.learn_padding(tensor, shapes)
    return whole(values.elements(tensor))
