"""Finds the operators at fault: their inputs agree with the other side's, their output does not.

The search begins at the outputs that differ and goes back through the pairs that differ. Candidates
are where these begin. Each is run alone, on both sides, on the same inputs; it is a culprit only if
its output still differs. The operators between the nearest tensors with twins are run together:
this is one operator, or several if the other side fused them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lar.comparison.isolation import Alone, Prover
from lar.comparison.metrics import DEFAULT_RTOL
from lar.comparison.pairs import Paired, error_of, growth_of, in_order, known_side, type_of
from lar.comparison.rounding import SLACK
from lar.graphs.graph import (
    BODY_INPUT,
    IN_BODY,
    LOOPS,
    Node,
    is_within,
    region_of,
    walk,
    with_results,
)
from lar.graphs.matching import Pair
from lar.graphs.operator_kinds import DISCRETE, HEAVY
from lar.records.comparison import TensorComparison

# An operator made an error that is so many times the error of its inputs. Rounding in one operator
# adds less, and an operator makes less of errors of its inputs: up to 10 times in a matrix product
# of similar numbers. Half-precision weights at the end of a weak branch, deep in a net, make 14.
JUMP = 12.0

# If the end of a run differs, an error of only this part of the tolerance may be a jump too: behind
# it, errors grow as rounding does.
SUSPECT = 0.2

# An error of so many times the expected rounding has another cause.
GROSS = 1.5 * SLACK

# If an error becomes so much smaller behind a pair, it was no error: the pair was two quantities.
HEALED = 0.2

# At most so many pairs behind one are looked at for that.
MOST_BEHIND = 3

# If no candidate is proven, so many other pairs that differ are run alone.
MOST_TRIES = 16


class Blame(NamedTuple):
    """The operators that compute a wrong output: nodes of both sides, and the pairs that go in.

    `alone` has what they gave when they were run alone. `scale` says what is wrong with the
    output's scale, if that is known. With `is_coarse`, the scale is wrong only if no other input
    fills its range, or because an operator behind it misreads it (`is_misread`).
    """

    actual: tuple[Node, ...]
    expected: tuple[Node, ...]
    inputs: tuple[Pair, ...]
    output: TensorComparison
    alone: Alone = Alone()
    scale: str = ""
    is_coarse: bool = False
    is_misread: bool = False

    @property
    def proven(self) -> bool:
        """Whether it was run alone on both sides and differs."""
        is_wrong = self.alone.found is not None and not self.alone.found.passed
        return (is_wrong and not self.alone.doubt) or self.is_coarse


class Search:
    """The search for culprits among pairs that have been compared; `alone` has what was run."""

    def __init__(self, paired: Paired, prover: Prover, progress: Callable[[str], None]) -> None:
        self.paired, self.prover, self.progress = paired, prover, progress
        self.blames: list[Blame] = []
        self.first: list[Pair] = []  # where differences begin that reach the outputs
        self.behind: set[Node] = set()  # culprits, suspects and what is computed from them
        self.alone: dict[Node, Alone] = {}

    def find(self, ends: Sequence[Pair]) -> list[Blame]:
        """Find what makes some pairs differ; pairs behind a culprit are not judged."""
        wrong = [*in_order(walk(ends, self.wrong_sources))]
        self.first = [pair for pair in wrong if self.is_first(pair)]
        self.try_all(self.first)
        others = [pair for pair in wrong if pair not in self.first and pair.actual.operator]
        if not self.blames:
            self.try_all(others[:MOST_TRIES], until_proven=True)
        if not self.blames:
            self.take_slightly_wrong([*self.first, *others])
        return self.blames

    def find_interrupted(self) -> list[Blame]:
        """Return what was found before an interrupt; what was not run by then is a suspect."""
        left = [pair for pair in self.first if pair.actual not in self.alone]
        doubt = Alone(doubt="interrupted before it was run alone")
        return [*self.blames, *(blame_of(pair, self.paired, doubt) for pair in left)]

    def find_inside(self) -> list[Blame]:
        """Find wrong operators although the outputs agree within what rounding explains.

        Either both sides round alike there, or the error is far larger than their rounding.
        """
        rounding, found = self.paired.measure.rounding, self.paired.found
        first = filter(self.is_first, self.paired.pairs)
        self.try_all(it for it in first if is_gross(found(it)) or rounding.round_alike(it))
        return [blame for blame in self.blames if blame.proven]

    def wrong_sources(self, pair: Pair) -> Iterable[Pair]:
        return (it for it in self.paired.sources(pair) if is_off(self.paired.found(it)))

    def find_everywhere(self) -> list[Blame]:
        """Run every operator alone, and find those at fault, even one behind the other.

        An operator that cannot be run is a suspect if its inputs agree.
        """
        pairs = [it for it in self.paired.pairs if it.actual.operator and not it.actual.is_input]
        blamed: set[Node] = set()
        for number, pair in enumerate(pairs):
            self.progress(f"running operators alone, {number} of {len(pairs)}")
            blame = self.try_one(pair)
            if blame is None or not blamed.isdisjoint(blame.alone.nodes):
                continue
            if blame.proven or self.is_first(pair):
                add_blame(self.blames, blame)
                blamed.add(pair.actual)
        if not self.blames and not all(it.passed for it in self.paired.compared.values()):
            self.take_slightly_wrong(pairs)
        return self.blames

    def try_all(self, pairs: Iterable[Pair], *, until_proven: bool = False) -> None:
        """Run candidates alone; keep those that still differ, and those that cannot be run."""
        for pair in pairs:
            if known_side(pair) in self.behind:
                continue
            self.progress(f"running {known_side(pair).name} alone")
            blame = self.try_one(pair)
            if blame and (blame.proven or not until_proven):
                add_blame(self.blames, blame)
                self.behind |= with_results([known_side(pair)])
                if until_proven:
                    return

    def try_one(self, pair: Pair) -> Blame | None:
        """Run what computes a pair alone, and return it, None if it is right."""
        alone = self.alone[pair.actual] = self.prover.prove(pair)
        if alone.is_right or self.heals(pair, alone):
            return None
        return blame_of(pair, self.paired, alone)

    def is_first(self, pair: Pair) -> bool:
        """Return whether a pair differs although its inputs agree."""
        found, kind = self.paired.found(pair), type_of(pair)
        if known_side(pair).is_input or kind in ("", BODY_INPUT) or not is_off(found):
            return False
        sources = sources_in_step(pair, self.paired)
        if sources is None or not all(source.passed for source in sources):
            return False
        if found.precision:
            return True  # an error past its tolerance is more than rounding
        if DISCRETE.search(kind) and any(error_of(it)[0] for it in sources):
            return False  # a rounding error of its input may make it jump
        return growth_of(found, sources) > JUMP

    def take_slightly_wrong(self, pairs: Iterable[Pair]) -> None:
        """Take the first pair that is off by a part of the tolerance, if no operator alone differs.

        Behind it, errors have grown as rounding does.
        """
        for pair in pairs:
            found = self.alone.get(pair.actual, Alone()).found
            if found and not found.precision and is_off(found):
                alone = self.prover.prove(pair, though_right=True)
                add_blame(self.blames, blame_of(pair, self.paired, alone))
                break

    def heals(self, pair: Pair, alone: Alone) -> bool:
        """Return whether the pairs behind one do not show its difference.

        Then the pair is two quantities, such as before and behind a factor that one side applies
        later.
        """
        found = alone.found
        if found is None or self.paired.found(pair).is_output:
            return False
        # Whichever is more than rounding: the error of the whole, or that of the worst element.
        place = 1 if error_of(found)[0] <= SLACK * (found.explained or 0.0) else 0
        before = error_of(found)[place]
        open_pairs, seen = [pair], {pair}
        while open_pairs:
            results = self.paired.results(open_pairs.pop())
            for each in [it for it in results if it not in seen]:
                seen.add(each)
                behind = self.paired.found(each)
                less = error_of(behind)[place] <= HEALED * before
                if behind.passed and (less or not behind.precision):
                    continue
                if behind.is_output or len(seen) > MOST_BEHIND:
                    return False
                open_pairs.append(each)
        return len(seen) > 1


def sources_in_step(pair: Pair, paired: Paired) -> list[TensorComparison] | None:
    """Return the comparisons of those sources that can have made a pair differ.

    It is None if the pair is of other iterations or of another branch on each side. Tensors in the
    body of a loop hold all iterations in a row, and each iteration uses results of the one before:
    only what differs in the same iteration, or before, can have made a tensor differ.
    """
    branches = [IN_BODY.findall(node.name) for node in pair[:2]]
    if all(branches) and branches[0] != branches[1]:
        return None
    found, sources = paired.found(pair), paired.sources(pair)
    if any(is_inside(pair, loop) for loop in paired.loops):
        if found.actual.shape[:1] != found.expected.shape[:1]:
            return None
        sources = [each for each in sources if not differs_later(paired.found(each), found)]
    if type_of(pair) in LOOPS and begins_off(pair, paired):
        sources = [each for each in sources if not is_inside(each, pair)]
    return [*map(paired.found, sources)]


def is_inside(pair: Pair, outer: Pair) -> bool:
    """Return whether a pair is in a body of the operator that gives `outer`."""
    return is_within(known_side(pair), known_side(outer))


def begins_off(loop: Pair, paired: Paired) -> bool:
    """Return whether the body of a loop starts with other data, or is run in other iterations."""
    fed = (it for it in paired.pairs if type_of(it) == BODY_INPUT and is_inside(it, loop))
    return any(first_iteration(paired.found(each)) == 0 for each in fed)


def first_iteration(found: TensorComparison) -> float:
    """Return the first iteration of a loop in which a tensor of its body differs."""
    if found.passed:
        return math.inf
    first = found.figures.first if found.figures else None
    return first.index[0] if first and first.index else 0


def differs_later(source: TensorComparison, found: TensorComparison) -> bool:
    """Return whether an input differs only after the first iteration that its output does."""
    in_step = source.expected.shape[:1] == found.expected.shape[:1]
    return in_step and not source.passed and first_iteration(source) > first_iteration(found)


def blame_of(pair: Pair, paired: Paired, alone: Alone) -> Blame:
    """Return the operators that compute a pair from the nearest twins."""
    actual, expected = (in_weight(region_of(node, paired.by_node)) for node in pair[:2])
    return Blame(actual, expected, tuple(paired.sources(pair)), paired.found(pair), alone)


def without_behind(blames: Sequence[Blame], others: Sequence[Blame]) -> list[Blame]:
    """Return the culprits that are neither among others nor behind them."""
    ends = {node for blame in others for node in (*blame.actual, *blame.expected)}
    behind = with_results(ends)
    return [it for it in blames if behind.isdisjoint((*it.actual, *it.expected))]


def is_off(found: TensorComparison) -> bool:
    """Return whether a pair differs, or nearly so: a difference may have begun there."""
    types = found.actual.dtype, found.expected.dtype
    least = SUSPECT * max(DEFAULT_RTOL.get(each.lower(), math.inf) for each in types)
    return not found.passed or (not found.precision and error_of(found)[0] >= least)


def is_gross(found: TensorComparison) -> bool:
    """Return whether an error is far more than what rounding explains."""
    return found.figures is None or error_of(found)[0] > GROSS * (found.explained or 0.0)


def in_weight(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return one node for each operator, the heaviest first, those that only move data last.

    Nodes that only feed data are left out, and added moves if there are other nodes.
    """
    listed = {
        id(node.operator): node
        for node in nodes
        if node.operator and not node.is_input and (node.tensor or node.operator.inputs)
    }
    own = [node for node in listed.values() if not is_added_move(node)] or listed.values()

    def weight(node: Node) -> int:
        return 0 if node.steps[0] in HEAVY else 2 if node.is_move else 1

    return tuple(sorted(own, key=weight))


def is_added_move(node: Node) -> bool:
    """Return whether an engine added an operator that brings a tensor into another layout.

    Then the tensors before and behind it have the same name.
    """
    near = (*node.parents, *node.children)
    return node.is_move and any(each.name == node.name for each in near)


def add_blame(blames: list[Blame], blame: Blame) -> None:
    """Add a culprit; if an earlier one shares operators with it, keep only the shared ones."""
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
