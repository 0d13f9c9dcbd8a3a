"""The operators at fault: their inputs agree with the other side's, their output does not.

Between tensors with twins there may be others that only one side has, because the other fused
operators. What computes a tensor from the nearest tensors with twins is its region; where the
operands within two regions can be compared, the fault is narrowed down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lar.comparison.metrics import DEFAULT_RTOL
from lar.comparison.rounding import SLACK
from lar.graphs.alignment import Alignment
from lar.graphs.graph import Node, region_of, results_of, sources_of
from lar.graphs.matching import Pair
from lar.graphs.operator_kinds import (
    DISCRETE,
    HEAVY,
    UNKNOWN_STEPS,
    do_same,
    kind_score,
)
from lar.graphs.signatures import NEAR
from lar.records.comparison import TensorComparison

# An error that is that many times its inputs' was made by the operator. What rounding adds in one
# operator stays below, and so does what it makes of errors that come in: up to 10 times in a matrix
# product of numbers that are much alike. Half-precision weights at the end of a weak branch, deep
# in a net, make 14.
JUMP = 12.0

# Behind a culprit, whose error may have been averaged out to less than the tolerance.
JUMP_BEHIND = 1000.0

# Where the end of a run differs, a jump may also be past this share of the tolerance only: behind
# it, errors grow as rounding does.
SUSPECT = 0.2

# Nearer than this, even the results of operators of two kinds are one quantity, perhaps rounded to
# half precision.
ALIKE = 1e-3

# Of what is a multiple of another tensor, the cosine and the gain are as near to 1 and to another.
ONE_DIRECTION = 1 - 1e-5
SAME_GAIN = 1e-3

# An error that has become that much smaller behind it was none: the pair was of two quantities.
HEALED = 0.2

Compare = Callable[[Node, Node], TensorComparison | None]


class Blame(NamedTuple):
    """What computes an output that is wrong: nodes of both sides, and the pairs that go in.

    Where the output agrees as far as rounding explains, `scale` says what is wrong with its scale;
    one that `is_coarse` is wrong only where nothing else fills its range.
    """

    actual: tuple[Node, ...]
    expected: tuple[Node, ...]
    inputs: tuple[Pair, ...]
    output: TensorComparison
    scale: str = ""
    is_coarse: bool = False


class Divergence(NamedTuple):
    """The culprits, the pairs that turned out not to be twins and, if no operator stands out, where
    errors grow most and by which factor."""

    blames: tuple[Blame, ...]
    no_twins: tuple[Pair, ...]
    steepest: tuple[Pair, float] | None


class Judge:
    """Finds culprits in pairs that have been compared.

    `compared` has the comparison of each pair by its actual node; `compare` compares two tensors
    that are not twins, and returns None if that is impossible.
    """

    def __init__(
        self, alignment: Alignment, compared: Mapping[Node, TensorComparison], compare: Compare
    ) -> None:
        self.compared = compared
        self.compare = compare
        self.originals = alignment.originals
        self.multiples: set[tuple[Node, Node]] = set()
        self.by_node: dict[Node, Pair] = {}
        for pair in alignment.pairs:
            self.by_node[pair.actual] = self.by_node[pair.expected] = pair

    def judge(self) -> Divergence:
        """Find what is to blame."""
        dropped: list[Pair] = []
        self.multiples = {pair[:2] for pair in self.pairs() if self.is_multiple(pair)}
        while no_twins := [pair for pair in self.pairs() if self.is_no_twin(pair)]:
            dropped += no_twins
            for pair in no_twins:
                del self.by_node[pair.actual], self.by_node[pair.expected]
        if self.is_same():
            return Divergence((), tuple(dropped), None)
        blames: list[Blame] = []
        behind: set[Node] = set()
        for pair in self.pairs():
            if self.is_fault(pair, JUMP_BEHIND if known_side(pair) in behind else JUMP):
                add_blame(blames, self.blame(pair))
                behind |= after(known_side(pair))
        return Divergence(tuple(blames), tuple(dropped), None if blames else self.steepest())

    def is_same(self) -> bool:
        """Return whether all pairs are within the tolerance."""
        return all(self.compared[pair.actual].passed for pair in self.pairs())

    def pairs(self) -> list[Pair]:
        """Return the twins in the order of the expected side."""
        unique = {id(pair): pair for pair in self.by_node.values()}.values()
        return sorted(unique, key=lambda pair: known_side(pair).place)

    def around(self, pair: Pair, walk: Callable[..., list[Node]]) -> list[Pair]:
        """Return the nearest twins before or behind a pair, on either side."""
        found = [self.by_node[node] for side in pair[:2] for node in walk(side, self.by_node)]
        return list({id(each): each for each in found}.values())

    def is_no_twin(self, pair: Pair) -> bool:
        """Return whether a pair that differs much is two different quantities, since all that is
        computed from them agrees; a name from the model itself is trusted even then."""
        found = self.compared[pair.actual]
        quantised = found.precision.startswith("int")
        if found.passed or (pair.by == "name" and not quantised):
            return False
        if pair[:2] in self.multiples:
            return True
        kind = kind_score(pair.actual.steps, pair.expected.steps)
        if kind and error_of(found)[0] <= (NEAR if kind > 1 else ALIKE):
            return False
        following = [self.compared[each.actual] for each in self.around(pair, results_of)]
        if not following or not all(it.passed for it in following):
            return False
        # What follows an error in a coarse type may be one that rounding explains. A quantiser may
        # give what is not clipped yet the range of what is.
        return not found.precision or is_healed(found, following)

    def is_multiple(self, pair: Pair) -> bool:
        """Return whether a pair is one quantity except for a factor that one side applies later:
        the pair, computed by operators of two kinds, differs by a factor, and the matrix products
        with it differ by another one.

        Where the factor itself were wrong, the products would differ by the same one.
        """
        gain = gain_of(self.compared[pair.actual])
        if gain is None or pair.by == "name" or kind_score(pair.actual.steps, pair.expected.steps):
            return False
        following = self.around(pair, results_of)
        gains = [gain_of(self.compared[each.actual]) for each in following]
        return bool(following) and all(
            each.expected.steps[0] in HEAVY
            and other is not None
            and abs(other - gain) > SAME_GAIN * abs(gain)
            and all(
                source is pair or self.compared[source.actual].passed
                for source in self.around(each, sources_of)
            )
            for each, other in zip(following, gains, strict=True)
        )

    def is_fault(self, pair: Pair, jump: float) -> bool:
        """Return whether a pair differs although its inputs agree."""
        found = self.compared[pair.actual]
        if known_side(pair).is_input or known_side(pair).operator is None:
            return False
        if found.precision:
            # What is past its tolerance is more than rounding and the errors of its inputs.
            sources = [self.compared[each.actual] for each in self.around(pair, sources_of)]
            return not found.passed and all(source.passed for source in sources)
        if found.passed:
            types = found.actual.dtype, found.expected.dtype
            suspect = SUSPECT * max(DEFAULT_RTOL.get(each, math.inf) for each in types)
            if error_of(found)[0] < suspect:
                return False
        sources = [self.compared[each.actual] for each in self.around(pair, sources_of)]
        if not all(source.passed for source in sources):
            return False
        operator = known_side(pair).operator
        if operator and DISCRETE.search(operator.type) and any(map(differs, sources)):
            return False  # it may jump by a rounding error of its input
        return growth_of(found, sources) > jump

    def blame(self, pair: Pair) -> Blame:
        """Return the smallest regions of both sides that contain the fault of a pair."""
        output = self.compared[pair.actual]
        ends: tuple[Node, Node] = pair.actual, pair.expected
        sides = [region_of(node, self.by_node) for node in ends]
        for _ in range(len(sides[0]) + len(sides[1])):
            mains = mains_of(sides, ends)
            for one, other in (ends, mains):
                wrong = self.wrong_operand(one, other) if do_same(one.steps, other.steps) else None
                if wrong is not None:
                    break
            if wrong is None:
                break
            if not wrong:
                # The operands are right: what computes them is innocent.
                sides = [
                    [node for node in side if node is end or node not in before(end)]
                    for side, end in zip(sides, (one, other), strict=True)
                ]
                break
            actual, expected, output = wrong
            ends = actual, expected
            sides = [[] if node in self.by_node else region_of(node, self.by_node) for node in ends]
            if not (sides[0] and sides[1]):
                break
        inputs = self.inputs_of([*sides[0], *sides[1]])
        return Blame(in_weight(sides[0]), in_weight(sides[1]), inputs, output)

    def inputs_of(self, nodes: list[Node]) -> tuple[Pair, ...]:
        """Return the twins that go into nodes."""
        parents = [parent for node in nodes for parent in node.parents]
        found = {id(self.by_node[it]): self.by_node[it] for it in parents if it in self.by_node}
        return tuple(found.values())

    def wrong_operand(
        self, one: Node, other: Node
    ) -> tuple[Node, Node, TensorComparison] | tuple[()] | None:
        """Return the operands that differ between two operators, each with its difference; empty if
        all agree, None if that is not known."""
        left, right = self.operands(one), self.operands(other)
        single = len(left) == len(right) == 1
        for node in list(left):
            pair = self.by_node.get(node)
            if pair and pair.expected in right:
                left.remove(node)
                right.remove(pair.expected)
        if len(left) != len(right):
            return None
        if any(node in self.by_node for node in left) and any(
            node in self.by_node for node in right
        ):
            return None  # wired otherwise: that is the operator's own fault
        for actual, expected in zip(left, right, strict=True):
            known = actual in self.by_node or expected in self.by_node
            if not (single or known or kind_score(actual.steps, expected.steps)):
                return None
            if (actual, expected) in self.multiples:
                continue
            found = self.compare(actual, expected)
            if found is None:
                return None
            if not found.passed:
                return actual, expected, found
        return ()

    def operands(self, node: Node) -> list[Node]:
        """Return the operands of an operator, each as the tensor that first held its data; what a
        convolution adds to its result is left out."""
        taken = node.parents[:1] if node.steps[0] in ("conv", "deconv") else node.parents
        return [it if it in self.by_node else self.originals.get(it, it) for it in taken]

    def steepest(self) -> tuple[Pair, float] | None:
        """Return the pair where errors grow most, among those whose inputs differ; None if errors
        grow nowhere."""
        growths = []
        for pair in self.pairs():
            sources = [self.compared[each.actual] for each in self.around(pair, sources_of)]
            growth = growth_of(self.compared[pair.actual], sources)
            if 1 < growth < math.inf:
                growths.append((pair, growth))
        return max(growths, key=lambda it: it[1], default=None)


def known_side(pair: Pair) -> Node:
    """Return the expected node of a pair, or the actual one if its dump alone has operators."""
    return pair.actual if pair.expected.steps == UNKNOWN_STEPS else pair.expected


def other_side(pair: Pair) -> Node:
    """Return the other node of a pair, or the known one again if that alone has operators."""
    one_sided = UNKNOWN_STEPS in (pair.actual.steps, pair.expected.steps)
    return known_side(pair) if one_sided else pair.actual


def error_of(found: TensorComparison) -> tuple[float, float]:
    """Return two errors in units of the tensor's size: of the whole, and of the worst element."""
    figures = found.figures
    if figures is None or figures.nonfinite_mismatches or figures.bulk_l2 is None:
        return (0.0, 0.0) if found.passed else (math.inf, math.inf)
    return figures.bulk_l2, figures.bulk_peak or 0.0


def is_healed(found: TensorComparison, following: Iterable[TensorComparison]) -> bool:
    """Return whether the error of a tensor in a coarse type has gone behind it."""
    errors = error_of(found)
    # The one that is more than rounding: of the whole, or of the worst element.
    place = 1 if errors[0] <= SLACK * (found.explained or 0.0) else 0
    return all(error_of(each)[place] <= HEALED * errors[place] for each in following)


def gain_of(found: TensorComparison) -> float | None:
    """Return the factor between an expected and an actual tensor, None if no factor gives one from
    the other."""
    figures = found.figures
    if figures is None or (figures.cosine or 0.0) < ONE_DIRECTION:
        return None
    return figures.gain


def differs(found: TensorComparison) -> bool:
    return error_of(found) != (0.0, 0.0)


def growth_of(found: TensorComparison, sources: Iterable[TensorComparison]) -> float:
    """Return by which factor an error exceeds those of the inputs, infinite if the inputs have
    none.

    Of the error of the whole and that of the worst element, the one that grew more counts: a
    fault may concern a single element.
    """
    before = [error_of(source) for source in sources]
    growths = [0.0]
    for place, error in enumerate(error_of(found)):
        most = max((each[place] for each in before), default=0.0)
        if error > 0:
            growths.append(error / most if most > 0 else math.inf)
    return max(growths)


def mains_of(sides: Sequence[Sequence[Node]], ends: tuple[Node, Node]) -> tuple[Node, Node]:
    """Return the last heavy operators of two regions if both have as many, else the regions'
    ends."""
    heavy = [[node for node in side if node.steps[0] in HEAVY] for side in sides]
    if heavy[0] and len(heavy[0]) == len(heavy[1]):
        return heavy[0][-1], heavy[1][-1]
    return ends


def before(node: Node) -> set[Node]:
    """Return all that a node is computed from."""
    return set(region_of(node, ())) - {node}


def after(node: Node) -> set[Node]:
    """Return all that is computed from a node."""
    found: set[Node] = set()
    stack = list(node.children)
    while stack:
        child = stack.pop()
        if child not in found:
            found.add(child)
            stack.extend(child.children)
    return found


def in_weight(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return nodes with the heaviest first, one for each operator, without those that merely
    hand data in."""
    listed = {
        id(node.operator): node
        for node in nodes
        if node.operator and not node.is_input and (node.tensor or node.operator.inputs)
    }
    return tuple(sorted(listed.values(), key=lambda node: node.steps[0] not in HEAVY))


def add_blame(blames: list[Blame], blame: Blame) -> None:
    """Add a culprit; if an earlier one shares operators with it, only the shared ones are to
    blame."""
    for place, earlier in enumerate(blames):
        actual = shared(earlier.actual, blame.actual)
        expected = shared(earlier.expected, blame.expected)
        if actual or expected:
            blames[place] = earlier._replace(actual=actual, expected=expected)
            return
    blames.append(blame)


def shared(nodes: Iterable[Node], others: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes whose operators also gave one of the other nodes."""
    operators = [node.operator for node in others]
    return tuple(node for node in nodes if any(node.operator is each for each in operators))
