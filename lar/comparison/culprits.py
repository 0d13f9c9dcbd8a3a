"""The operators at fault: their inputs agree with the other side's, their output does not.

The way begins at the outputs that differ and goes back through the pairs that differ. Where it
begins are the candidates. Each is run alone, on both sides, on the same inputs; it is a culprit
only if what it gives still differs. What lies between the nearest tensors with twins is run as one:
one operator, or several where the other side fused them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lar.comparison.isolation import Alone, Prover
from lar.comparison.metrics import DEFAULT_RTOL
from lar.comparison.pairs import in_order, known_side
from lar.comparison.rounding import SLACK
from lar.graphs.graph import (
    BODY_INPUT,
    LOOPS,
    Node,
    is_within,
    region_of,
    results_of,
    sources_of,
)
from lar.graphs.matching import Pair
from lar.graphs.operator_kinds import DISCRETE, HEAVY
from lar.records.comparison import TensorComparison

# An error that is that many times its inputs' was made by the operator. What rounding adds in one
# operator stays below, and so does what it makes of errors that come in: up to 10 times in a matrix
# product of numbers that are much alike. Half-precision weights at the end of a weak branch, deep
# in a net, make 14.
JUMP = 12.0

# Where the end of a run differs, a jump may also be past this share of the tolerance only: behind
# it, errors grow as rounding does.
SUSPECT = 0.2

# An error that is that many times what is expected of rounding has another cause.
GROSS = 1.5 * SLACK

# An error that has become that much smaller behind a pair was none: the pair was of two quantities.
HEALED = 0.2

MOVE = ("move",)

# So many pairs behind one are looked at for that.
MOST_BEHIND = 3

# Where no candidate is proven, so many other pairs that differ are run alone.
MOST_TRIES = 16


class Blame(NamedTuple):
    """What computes an output that is wrong: nodes of both sides, and the pairs that go in.

    `alone` has what they gave when they were run alone. `scale` says what is wrong with the
    output's scale, where that is known; one that `is_coarse` is wrong only where nothing else
    fills its range.
    """

    actual: tuple[Node, ...]
    expected: tuple[Node, ...]
    inputs: tuple[Pair, ...]
    output: TensorComparison
    alone: Alone = Alone()
    scale: str = ""
    is_coarse: bool = False

    @property
    def proven(self) -> bool:
        """Whether it was run alone on both sides, and differs."""
        return (self.alone.is_wrong and not self.alone.doubt) or self.is_coarse


class Paired:
    """Pairs that have been compared, in the graphs of both sides; `compared` has the comparison of
    each by its actual node."""

    def __init__(self, pairs: Iterable[Pair], compared: Mapping[Node, TensorComparison]) -> None:
        self.compared = compared
        self.pairs = [*in_order(pairs)]
        self.by_node = {node: pair for pair in self.pairs for node in pair[:2]}
        self.loops = [pair for pair in self.pairs if type_of(pair) in LOOPS]

    def found(self, pair: Pair) -> TensorComparison:
        return self.compared[pair.actual]

    def around(self, pair: Pair, walk: Callable[..., list[Node]]) -> list[Pair]:
        """Return the nearest twins before or behind a pair, on either side."""
        found = [self.by_node[node] for side in pair[:2] for node in walk(side, self.by_node)]
        return list({id(each): each for each in found}.values())

    def sources(self, pair: Pair) -> list[Pair]:
        return self.around(pair, sources_of)

    def results(self, pair: Pair) -> list[Pair]:
        return self.around(pair, results_of)

    def leading_to(self, ends: Iterable[Pair], is_off: Callable[[Pair], bool]) -> list[Pair]:
        """Return the pairs that lead to some through pairs that are off, these among them."""
        found = {id(pair): pair for pair in ends}
        stack = [*found.values()]
        while stack:
            for pair in self.sources(stack.pop()):
                if id(pair) not in found and is_off(pair):
                    found[id(pair)] = pair
                    stack.append(pair)
        return [*in_order(found.values())]

    def is_off(self, pair: Pair) -> bool:
        """Return whether a pair differs, or nearly does."""
        found = self.found(pair)
        return not found.passed or (not found.precision and error_of(found)[0] >= suspect(found))

    def is_first(self, pair: Pair) -> bool:
        """Return whether a pair differs although its inputs agree."""
        found = self.found(pair)
        kind = type_of(pair)
        if known_side(pair).is_input or kind in ("", BODY_INPUT) or not self.is_off(pair):
            return False
        looped = any(is_inside(pair, loop) for loop in self.loops)
        if looped and found.actual.shape[:1] != found.expected.shape[:1]:
            return False  # in other iterations
        sources = [
            self.found(each)
            for each in self.sources(pair)
            if not (looped and differs_later(self.found(each), found))
            if not (kind in LOOPS and is_inside(each, pair) and self.begins_off(pair))
        ]
        if not all(source.passed for source in sources):
            return False
        if found.precision:
            return True  # what is past its tolerance is more than rounding
        if DISCRETE.search(kind) and any(error_of(it)[0] for it in sources):
            return False  # it may jump by a rounding error of its input
        return growth_of(found, sources) > JUMP

    def begins_off(self, loop: Pair) -> bool:
        """Return whether the body of a loop is fed with other data from the start, or is run in
        other iterations."""
        fed = (it for it in self.pairs if type_of(it) == BODY_INPUT and is_inside(it, loop))
        return any(first_iteration(self.found(each)) == 0 for each in fed)

    def steepest(self) -> tuple[Pair, float] | None:
        """Return the pair where errors grow most, among those whose inputs differ; None if errors
        grow nowhere."""
        growths = []
        for pair in self.pairs:
            growth = growth_of(self.found(pair), [self.found(it) for it in self.sources(pair)])
            if 1 < growth < math.inf:
                growths.append((pair, growth))
        return max(growths, key=lambda it: it[1], default=None)

    def blame(self, pair: Pair, alone: Alone = Alone()) -> Blame:  # noqa: B008 - it is frozen
        """Return the operators that compute a pair from the nearest twins."""
        sides = [region_of(node, self.by_node) for node in pair[:2]]
        return Blame(
            in_weight(sides[0]),
            in_weight(sides[1]),
            tuple(self.sources(pair)),
            self.found(pair),
            alone,
        )


class Search:
    """The search for culprits among pairs that have been compared; `alone` has what was run."""

    def __init__(self, paired: Paired, prover: Prover, progress: Callable[[str], None]) -> None:
        self.paired, self.prover, self.progress = paired, prover, progress
        self.blames: list[Blame] = []
        self.behind: set[Node] = set()  # of culprits and suspects
        self.alone: dict[Node, Alone] = {}

    def find(self, ends: Sequence[Pair]) -> list[Blame]:
        """Find what makes some pairs differ; of what is behind a culprit nothing is said."""
        paired = self.paired
        wrong = paired.leading_to(ends, paired.is_off)
        first = [pair for pair in wrong if paired.is_first(pair)]
        self.try_all(first)
        others = [pair for pair in wrong if pair not in first and pair.actual.operator]
        if not self.blames:
            self.try_all(others[:MOST_TRIES], until_proven=True)
        if not self.blames:
            self.take_slightly_wrong([*first, *others])
        return self.blames

    def find_inside(self, round_alike: Callable[[Pair], bool]) -> list[Blame]:
        """Find operators that are off although both sides round alike there, or by far more than
        they round, where the outputs agree within what rounding explains."""
        paired = self.paired
        self.try_all(
            pair
            for pair in paired.pairs
            if paired.is_first(pair) and (round_alike(pair) or is_gross(paired.found(pair)))
        )
        return [blame for blame in self.blames if blame.proven]

    def find_everywhere(self) -> list[Blame]:
        """Run every operator alone, and find those at fault one behind the other too; one that
        cannot be run is a suspect where it differs first."""
        pairs = [it for it in self.paired.pairs if it.actual.operator and not it.actual.is_input]
        blamed: set[Node] = set()
        for number, pair in enumerate(pairs):
            self.progress(f"running operators alone, {number} of {len(pairs)}")
            alone = self.alone[pair.actual] = self.prover.run(pair)
            if alone.is_right or not blamed.isdisjoint(alone.nodes):
                continue
            alone = self.prover.confirm(pair, alone)
            if (alone.doubt and not self.paired.is_first(pair)) or self.heals(pair):
                continue
            add_blame(self.blames, self.paired.blame(pair, alone))
            blamed.add(pair.actual)
        if not self.blames:
            self.take_slightly_wrong(pairs)
        return self.blames

    def try_all(self, pairs: Iterable[Pair], *, until_proven: bool = False) -> None:
        """Run candidates alone; keep those that still differ, and those that cannot be run."""
        for pair in pairs:
            if known_side(pair) in self.behind:
                continue
            self.progress(f"running {known_side(pair).name} alone")
            alone = self.alone[pair.actual] = self.prover.prove(pair)
            blame = self.paired.blame(pair, alone)
            if alone.is_right or (until_proven and not blame.proven):
                continue
            if alone.found is not None and self.heals(pair):
                continue
            add_blame(self.blames, blame)
            self.behind |= after(known_side(pair))
            if until_proven:
                return

    def take_slightly_wrong(self, pairs: Iterable[Pair]) -> None:
        """Where the outputs differ and no operator alone does, take the first that is off by a part
        of the tolerance: behind it, errors have grown as rounding does."""
        if all(self.paired.found(pair).passed for pair in self.paired.pairs):
            return
        for pair in pairs:
            alone = self.alone.get(pair.actual, Alone())
            found = alone.found
            if found and not found.precision and error_of(found)[0] >= suspect(found):
                add_blame(self.blames, self.paired.blame(pair, self.prover.confirm(pair, alone)))
                return

    def heals(self, pair: Pair) -> bool:
        """Return whether nothing is left of a difference behind it, when all is computed from the
        same inputs: then the pair was of two quantities, as before and behind a factor that one
        side applies later."""
        if self.paired.found(pair).is_output:
            return False
        alone = self.alone[pair.actual].found
        if alone is None:
            return False
        # What is more than rounding: the error of the whole, or of the worst element.
        place = 1 if error_of(alone)[0] <= SLACK * (alone.explained or 0.0) else 0
        before = error_of(alone)[place]
        open_pairs, seen = [pair], {id(pair)}
        while open_pairs:
            results = [it for it in self.paired.results(open_pairs.pop()) if id(it) not in seen]
            for each in results:
                seen.add(id(each))
                error = self.error_through(each, seen, place)
                if error == 0.0 or error <= HEALED * before < math.inf:
                    continue
                if self.paired.found(each).is_output or len(seen) > MOST_BEHIND:
                    return False
                open_pairs.append(each)
        return len(seen) > 1

    def error_through(self, pair: Pair, seen: set[int], place: int) -> float:
        """Return the error of a pair that is computed through pairs that may be none: of the whole
        (0) or of the worst element (1)."""
        if all(self.paired.found(it).passed or id(it) in seen for it in self.paired.sources(pair)):
            found: TensorComparison | None = self.paired.found(pair)
        else:
            through = {node for it in self.paired.pairs if id(it) in seen for node in it[:2]}
            found = self.prover.run(pair, through=through).found
        if found is None:
            return math.inf
        return 0.0 if found.passed and not found.precision else error_of(found)[place]


def type_of(pair: Pair) -> str:
    """Return the type of the operator that gives a pair, where it is known."""
    operator = known_side(pair).operator
    return operator.type if operator else ""


def is_inside(pair: Pair, outer: Pair) -> bool:
    """Return whether a pair is in a body of the operator that gives another one."""
    return is_within(known_side(pair), known_side(outer))


def first_iteration(found: TensorComparison) -> float:
    """Return the first iteration of a loop in which a tensor of its body differs."""
    if found.passed:
        return math.inf
    first = found.figures.first if found.figures else None
    return first.index[0] if first and first.index else 0


def differs_later(source: TensorComparison, found: TensorComparison) -> bool:
    """Return whether an input differs only after the iteration in which the output does first."""
    in_step = source.expected.shape[:1] == found.expected.shape[:1]
    return in_step and not source.passed and first_iteration(source) > first_iteration(found)


def suspect(found: TensorComparison) -> float:
    """Return the error from which on a pair that agrees may hide where a difference began."""
    types = found.actual.dtype, found.expected.dtype
    return SUSPECT * max(DEFAULT_RTOL.get(each, math.inf) for each in types)


def error_of(found: TensorComparison) -> tuple[float, float]:
    """Return two errors in units of the tensor's size: of the whole, and of the worst element."""
    figures = found.figures
    if figures is None or figures.nonfinite_mismatches or figures.bulk_l2 is None:
        return (0.0, 0.0) if found.passed else (math.inf, math.inf)
    return figures.bulk_l2, figures.bulk_peak or 0.0


def is_gross(found: TensorComparison) -> bool:
    """Return whether an error is far more than what rounding explains."""
    return found.figures is None or error_of(found)[0] > GROSS * (found.explained or 0.0)


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
    """Return nodes with the heaviest first and those that only move data last, one for each
    operator, without those that merely hand data in."""
    listed = {
        id(node.operator): node
        for node in nodes
        if node.operator and not node.is_input and (node.tensor or node.operator.inputs)
        if not is_added_move(node)
    }

    def weight(node: Node) -> int:
        return 0 if node.steps[0] in HEAVY else 2 if node.steps == MOVE else 1

    return tuple(sorted(listed.values(), key=weight))


def is_added_move(node: Node) -> bool:
    """Return whether an engine has added an operator to bring a tensor of the model into another
    layout: both bear the model's name of it."""
    near = (*node.parents, *node.children)
    return node.steps == MOVE and any(each.name == node.name for each in near)


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
