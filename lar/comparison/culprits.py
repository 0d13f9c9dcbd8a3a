"""Finds the operators at fault: their inputs agree on both sides, but their outputs differ.

The search begins at the outputs that differ, and goes back through the pairs that differ. An
operator is a candidate if its output differs and its inputs agree. Each candidate is run alone, on
both sides, with the same inputs. A candidate is at fault only if its output differs even with equal
inputs. If the other side has fused several operators into one, these operators are run together.

An operator that is run alone gets the expected values as inputs. The output of an operator that is
run alone therefore shows only the operator's own error, without the errors of earlier operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from lar.comparison.metrics import DEFAULT_RTOL, bounds_of, measure
from lar.comparison.pairs import (
    Paired,
    error_of,
    growth_of,
    in_order,
    known_side,
    tensor_of,
    tensors_of,
    type_of,
)
from lar.comparison.rounding import SLACK
from lar.dumps import Array, DumpedTensor
from lar.dumps.binary import BY_DTYPE
from lar.dumps.layouts import to_blocked
from lar.errors import DumpError, LarError
from lar.graphs import DISCRETE, HEAVY
from lar.graphs.graph import (
    BODY_INPUT,
    IN_BODY,
    LOOPS,
    Node,
    is_within,
    region_of,
    sources_of,
    walk,
    with_results,
)
from lar.graphs.matching import Pair
from lar.graphs.signatures import Values, integers_of, is_blocked, squeezed, whole
from lar.records.comparison import TensorComparison, Tolerance
from lar.records.run import Quantization

EXCERPTS = "a text dump has no whole tensors to feed to operators"
NOT_REPEATED = "run alone, the engine of {side} gives another result than in the run"


class Operators(Protocol):
    """Runs parts of one side's model alone, to compute single tensors."""

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        """Return the keys of tensors that can be neither fed nor computed.

        For example, a tensor inside a fused operator can be neither fed nor computed.

        Raises:
            LarError: the engine failed.
        """

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        """Compute a tensor from the values of other tensors; `values` has them by name.

        All arrays are in the form in which the dump stores them.

        Raises:
            LarError: the tensor's operators cannot be cut out of the model, or the engine failed.
        """


OperatorsOf = Callable[[int], "Operators | str"]
"""Takes a side, 0 or 1; returns an object that runs its operators alone, or why nothing can."""


class Alone(NamedTuple):
    """The result of running an operator alone: its output, compared with the expected output.

    `nodes` are the nodes whose operators were run. `doubt` says why the operators were not run, or
    why the result proves nothing.
    """

    found: TensorComparison | None = None
    nodes: frozenset[Node] = frozenset()
    doubt: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the operator was run alone, and its output agrees with the expected tensor."""
        return self.found is not None and self.found.passed


class Prover:
    """Runs the operators of a pair alone, to prove that they are at fault."""

    def __init__(self, paired: Paired, operators_of: OperatorsOf) -> None:
        self.pairs, self.compared = paired.by_node, paired.compared
        self.measure, self.letters = paired.measure, paired.names
        self.operators_of = operators_of
        self.loaded: dict[int, Operators | str] = {}
        self.fed: dict[int, set[Node]] = {}  # by side: the nodes whose values can be fed

    def prove(self, pair: Pair, *, though_right: bool = False) -> Alone:
        """Run the operators of a pair alone, with the expected values as inputs.

        If the output differs, or if `though_right` is true, lar also checks each side's own dump.
        For this check, lar runs the operators of a side with the inputs in the side's dump. The
        output must agree with the output in the side's dump.

        Raises:
            DumpError: a tensor is missing or damaged.
        """
        alone = Alone()
        try:
            alone = self.run(pair)
            if though_right or not alone.is_right:
                self.check_repeated(pair)
        except DumpError:
            raise
        except LarError as error:
            return alone._replace(doubt=error.message)
        return alone

    def run(self, pair: Pair) -> Alone:
        """Run the operators that compute a pair's actual tensor, with the expected inputs.

        Raises:
            LarError: the operators cannot be run alone.
        """
        operators, actual = self.operators(0), tensor_of(pair.actual)
        if pair.actual not in self.fed[0] and operators.find_missing([actual]):
            raise LarError(f"the engine of side {self.letters[0]} cannot run this operator alone")
        before = self.values_before(pair.actual)
        named = {tensor_of(it.actual).name: array for it, array in before.items()}
        array = operators.compute(actual, named)
        if squeezed(array.shape) != squeezed(actual.shape):
            raise LarError(f"run alone, the operator returns shape {array.shape}")
        found = self.measure.measure_alone(pair, array, before, self.compared)
        return Alone(found, frozenset(region_of(pair.actual, self.fed_before(pair.actual, 0))))

    def values_before(self, node: Node) -> dict[Pair, Array]:
        """Return the values that an actual node's inputs have on the expected side.

        The values are in the form in which the actual side stores tensors.

        Raises:
            LarError: an input has no matching tensor on the expected side, or lar cannot feed an
                input of its type.
            DumpError: a tensor is missing or damaged.
        """
        fed = self.fed_before(node, 0)
        for each in region_of(node, fed):
            if each.is_input or each.operator is None:
                raise LarError("the other side has no matching tensor", subject=each.name)
        pairs = [self.pairs[each] for each in sources_of(node, fed)]
        values, compared = self.measure.values, self.compared
        return {it: stored_as(it, values, compared[it.actual].axes) for it in pairs}

    def check_repeated(self, pair: Pair) -> None:
        """Check that each side's operators, when run alone, give the output in that side's dump.

        The operators of a side get the inputs that the dump of this side holds.

        Raises:
            LarError: the operators of a side give an output that is not in its dump, or cannot be
                run.
        """
        for side, node in enumerate(pair[:2]):
            operators, tensor = self.operators(side), tensor_of(node)
            dump = self.measure.values[side].dump
            taken = map(tensor_of, sources_of(node, self.fed_before(node, side)))
            before = {it.name: dump.read(it.key) for it in taken}
            first = dump.read(tensor.key)
            try:
                again = operators.compute(tensor, before)
            except LarError as error:
                raise LarError(error.message, subject=self.letters[side]) from None
            same = squeezed(again.shape) == squeezed(first.shape)
            bounds = bounds_of(Tolerance(), tensor.dtype)
            if not same or measure(again.reshape(first.shape), first, bounds).mismatches:
                raise LarError(NOT_REPEATED.format(side=self.letters[side]))

    def operators(self, side: int) -> Operators:
        """Return the object that runs the operators of a side alone.

        Raises:
            LarError: the operators of this side cannot be run alone.
        """
        if side not in self.loaded:
            found = EXCERPTS if self.measure.excerpts else self.operators_of(side)
            missing = set[str]()
            # An expected tensor can be fed in place of its actual twin if the two are comparable.
            comparable = (it for it in self.pairs.values() if self.compared[it.actual].figures)
            nodes = {pair[:2][side] for pair in comparable}
            try:
                if not isinstance(found, str):
                    missing = found.find_missing(map(tensor_of, nodes))
            except LarError as error:
                found = error.message
            self.loaded[side] = found
            self.fed[side] = {node for node in nodes if tensor_of(node).key not in missing}
        known = self.loaded[side]
        if isinstance(known, str):
            raise LarError(known)
        return known

    def fed_before(self, node: Node, side: int) -> set[Node]:
        """Return the nodes of a side whose values can be fed to an operator.

        Nodes in a subgraph of the operator, such as the body of a loop, are left out, since the
        operator computes these nodes itself.
        """
        fed = self.fed[side]
        return {each for each in fed if not is_within(each, node)} if node.has_bodies else fed


def stored_as(pair: Pair, values: tuple[Values, Values], axes: Collection[int]) -> Array:
    """Return the expected values of a pair in the type, shape and layout of the actual tensor.

    `axes` is the order of the actual tensor's axes that matches the expected tensor's axes. `axes`
    is empty if the axes of both tensors have the same order.

    Raises:
        LarError: values of this type cannot be fed to an operator.
        DumpError: the tensor is missing or damaged.
    """
    actual, expected = tensors_of(pair)
    shape = values[0].shape_of(actual)
    here, there = map(Values.quantization_of, values, (actual, expected))
    # If a side does not say what its integers stand for, only the integers can be used.
    plain = actual.dtype == expected.dtype and (here == there or None in (here, there))
    values[1].learn_padding(expected, [shape])
    array = whole(values[1].elements(expected, integers=plain))
    if axes:
        array = array.reshape(squeezed(array.shape)).transpose(np.argsort([*axes]))
    array = array.reshape(shape)
    array = array if plain else converted(array, actual, here)
    return to_blocked(array, actual.layout, actual.shape) if is_blocked(actual) else array


def converted(array: Array, actual: DumpedTensor, quantization: Quantization | None) -> Array:
    """Convert numbers in plain axes to the type of the actual tensor.

    Raises:
        LarError: numbers of this type cannot be fed to an operator.
    """
    element = BY_DTYPE.get(actual.dtype)
    unscaled = quantization is None and "uantized" in actual.dtype
    if element is None or element.bits or element.name == "BFloat16" or unscaled:
        raise LarError(f"lar cannot feed numbers of the type {actual.dtype}", subject=actual.name)
    wanted = np.dtype(element.storage)
    if quantization is not None:
        return integers_of(array, quantization, wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(wanted)


# The search for the operators at fault


# An operator is a candidate if its error is more than this many times the error of its inputs. The
# rounding of one operator adds less. An operator also enlarges the errors of its inputs less: by 10
# at most, in a matrix product of similar numbers. A fault may give as little as 14, such as
# half-precision weights at the end of a weak branch, deep in a net.
JUMP = 12.0

# If the outputs differ, the fault may begin with an error of only this part of the tolerance:
# behind the operator at fault, errors grow as rounding errors do.
SUSPECT = 0.2

# An error above this many times the expected rounding has another cause.
GROSS = 1.5 * SLACK

# If the error behind a pair is at most this part of the pair's error, there is no fault: the two
# tensors of the pair are different quantities.
HEALED = 0.2

# The largest number of pairs behind a pair whose errors are checked for this.
MOST_BEHIND = 3

# If no candidate is proven, up to this many other pairs that differ are run alone.
MOST_TRIES = 16


class Blame(NamedTuple):
    """The operators that compute a wrong output: the nodes of both sides, and the input pairs.

    `alone` is the result of running the operators alone. `scale` says in words what is wrong with
    the scale of the output; empty if nothing is known. With `is_coarse`, the scale is too coarse
    for the compared values. A scale that looks too coarse may be right, since other inputs of the
    model may give larger values. With `is_misread`, the scale of the output is wrong, and the next
    operator multiplies its bias by this scale.
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
        """Whether a run of the operators alone, or a scale that is too coarse, proves the fault."""
        is_wrong = self.alone.found is not None and not self.alone.found.passed
        return (is_wrong and not self.alone.doubt) or self.is_coarse


class Search:
    """The search for culprits among compared pairs.

    `alone` has the result of each operator that was run alone.
    """

    def __init__(self, paired: Paired, prover: Prover, progress: Callable[[str], None]) -> None:
        self.paired, self.prover, self.progress = paired, prover, progress
        self.blames: list[Blame] = []
        self.first: list[Pair] = []  # the pairs where differences of the outputs begin
        self.behind: set[Node] = set()  # culprits, suspects and all nodes computed from them
        self.alone: dict[Node, Alone] = {}

    def find(self, ends: Sequence[Pair]) -> list[Blame]:
        """Find the culprits among the pairs from which `ends` are computed, and among `ends`.

        Pairs that are computed from a culprit's output are not judged.
        """
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
        """Return the culprits that were found before the user interrupted the search.

        Candidates that were not yet run alone are returned as suspects.
        """
        left = [pair for pair in self.first if pair.actual not in self.alone]
        doubt = Alone(doubt="interrupted before it was run alone")
        return [*self.blames, *(blame_of(pair, self.paired, doubt) for pair in left)]

    def find_inside(self) -> list[Blame]:
        """Find wrong operators when rounding explains the differences of the outputs.

        An operator is run alone if both sides round its numbers in the same way, or if its error is
        far larger than rounding explains.
        """
        rounding, found = self.paired.measure.rounding, self.paired.found
        first = filter(self.is_first, self.paired.pairs)
        self.try_all(it for it in first if is_gross(found(it)) or rounding.round_alike(it))
        return [blame for blame in self.blames if blame.proven]

    def wrong_sources(self, pair: Pair) -> Iterable[Pair]:
        return (it for it in self.paired.sources(pair) if is_off(self.paired.found(it)))

    def find_everywhere(self) -> list[Blame]:
        """Run every operator alone, and find all wrong operators.

        A wrong operator is found even if its inputs are computed by another wrong operator.

        An operator that cannot be run alone is a suspect if its inputs agree.
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
        """Run candidates alone; blame a candidate whose output differs, or that cannot be run.

        If `until_proven` is true, stop at the first candidate whose fault is proven, and blame only
        this candidate.
        """
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
        """Run the operators of a pair alone; return a `Blame`, or None if the output is right."""
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
            return False  # its result may jump if its input has a rounding error
        return growth_of(found, sources) > JUMP

    def take_slightly_wrong(self, pairs: Iterable[Pair]) -> None:
        """Blame the first pair whose error is at least `SUSPECT` times the tolerance.

        This function is called if the outputs of the models differ, but no operator's output
        differs when the operator is run alone. Later pairs are not blamed, since the first pair's
        error may grow in later operators, as rounding errors do.
        """
        for pair in pairs:
            found = self.alone.get(pair.actual, Alone()).found
            if found and not found.precision and is_off(found):
                alone = self.prover.prove(pair, though_right=True)
                add_blame(self.blames, blame_of(pair, self.paired, alone))
                break

    def heals(self, pair: Pair, alone: Alone) -> bool:
        """Return whether a pair's difference vanishes in pairs that are computed from this pair.

        If the difference vanishes, the two tensors are different quantities, and no operator is at
        fault. For example, only one of the two tensors has been multiplied by a factor, because the
        other side applies the factor later.
        """
        found = alone.found
        if found is None or self.paired.found(pair).is_output:
            return False
        # Integers of equal scales stand for the same quantity.
        if found.actual.quantization == found.expected.quantization is not None:
            return False
        # The error of the whole tensor counts, unless rounding explains it: then the error of the
        # worst element counts.
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
    """Return the comparisons of those sources that can be the cause of a pair's difference.

    The result is None if the two tensors belong to different iterations or branches. A tensor in
    the body of a loop holds the values of all iterations, one after the other. Each iteration uses
    results of the previous iteration. A source is therefore returned only if it differs in the same
    iteration as the pair, or in an earlier iteration.
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
    """Return whether a pair lies in a subgraph of the operator whose output is `outer`.

    For example, the body of a loop is a subgraph.
    """
    return is_within(known_side(pair), known_side(outer))


def begins_off(loop: Pair, paired: Paired) -> bool:
    """Return whether the two sides start the body of a loop with different data.

    The result is true too if the two sides run the loop for different numbers of iterations.
    """
    fed = (it for it in paired.pairs if type_of(it) == BODY_INPUT and is_inside(it, loop))
    return any(first_iteration(paired.found(each)) == 0 for each in fed)


def first_iteration(found: TensorComparison) -> float:
    """Return the first iteration of a loop in which a tensor of the loop's body differs."""
    if found.passed:
        return math.inf
    first = found.figures.first if found.figures else None
    return first.index[0] if first and first.index else 0


def differs_later(source: TensorComparison, found: TensorComparison) -> bool:
    """Return whether an operator's input first differs in a later iteration than its output."""
    in_step = source.expected.shape[:1] == found.expected.shape[:1]
    return in_step and not source.passed and first_iteration(source) > first_iteration(found)


def blame_of(pair: Pair, paired: Paired, alone: Alone) -> Blame:
    """Return a `Blame` with the operators that compute a pair from the nearest matching tensors."""
    actual, expected = (in_weight(region_of(node, paired.by_node)) for node in pair[:2])
    return Blame(actual, expected, tuple(paired.sources(pair)), paired.found(pair), alone)


def without_behind(blames: Sequence[Blame], others: Sequence[Blame]) -> list[Blame]:
    """Return the culprits in `blames` whose differences `others` cannot have caused.

    A culprit is left out if it is in `others`, or if its tensors are computed from a culprit in
    `others`.
    """
    behind = with_results({node for it in others for node in (*it.actual, *it.expected)})
    return [it for it in blames if behind.isdisjoint((*it.actual, *it.expected))]


def is_off(found: TensorComparison) -> bool:
    """Return whether a pair differs, or nearly differs, so that a fault may begin at this pair."""
    types = found.actual.dtype, found.expected.dtype
    least = SUSPECT * max(DEFAULT_RTOL.get(each.lower(), math.inf) for each in types)
    return not found.passed or (not found.precision and error_of(found)[0] >= least)


def is_gross(found: TensorComparison) -> bool:
    """Return whether an error is far larger than rounding explains."""
    return found.figures is None or error_of(found)[0] > GROSS * (found.explained or 0.0)


def in_weight(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return one node for each operator; operators that compute most come first.

    Operators that only move data come last. Nodes that only feed data are left out. Operators that
    an engine added to move data are left out if other operators remain.
    """
    made = ((it, it.operator) for it in nodes if it.operator and not it.is_input)
    listed = {id(maker): it for it, maker in made if it.tensor or maker.inputs}
    own = [node for node in listed.values() if not is_added_move(node)] or listed.values()

    def weight(node: Node) -> int:
        return 0 if node.steps[0] in HEAVY else 2 if node.is_move else 1

    return tuple(sorted(own, key=weight))


def is_added_move(node: Node) -> bool:
    """Return whether an engine added a node's operator, to bring a tensor into another layout.

    The output of an added operator has the same name as the operator's input, or as a tensor that
    is computed from the output.
    """
    near = (*node.parents, *node.children)
    return node.is_move and any(each.name == node.name for each in near)


def add_blame(blames: list[Blame], blame: Blame) -> None:
    """Add a culprit to the list, unless an earlier culprit has some of the same operators.

    If an earlier culprit has some of the same operators, the earlier culprit keeps only the
    operators that both culprits have, and the new culprit is dropped.
    """
    for place, earlier in enumerate(blames):
        actual = shared(earlier.actual, blame.actual)
        expected = shared(earlier.expected, blame.expected)
        if actual or expected:
            blames[place] = earlier._replace(actual=actual, expected=expected)
            return
    blames.append(blame)


def shared(nodes: Iterable[Node], others: Iterable[Node]) -> tuple[Node, ...]:
    """Return those of `nodes` that have the same operator as a node in `others`."""
    operators = [node.operator for node in others]
    return tuple(node for node in nodes if any(node.operator is each for each in operators))
