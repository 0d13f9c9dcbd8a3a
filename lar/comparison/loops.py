"""Where a difference began in the body of a loop, whose tensors hold all iterations in a row.

A loop hands on what an iteration gave to the next one: only what differs in the same iteration, or
before, can have made a tensor differ.
"""

from __future__ import annotations

import math

from lar.comparison.paired import Paired
from lar.comparison.pairs import known_side, type_of
from lar.graphs.graph import BODY_INPUT, LOOPS, is_within
from lar.graphs.matching import Pair
from lar.records.comparison import TensorComparison


def sources_in_step(pair: Pair, paired: Paired) -> list[TensorComparison] | None:
    """Return what was found of the sources that can have made a pair differ; None for a pair that
    is of other iterations on each side."""
    found, sources = paired.found(pair), paired.sources(pair)
    if any(is_inside(pair, loop) for loop in paired.loops):
        if found.actual.shape[:1] != found.expected.shape[:1]:
            return None
        sources = [each for each in sources if not differs_later(paired.found(each), found)]
    if type_of(pair) in LOOPS and begins_off(pair, paired):
        sources = [each for each in sources if not is_inside(each, pair)]
    return [*map(paired.found, sources)]


def is_inside(pair: Pair, outer: Pair) -> bool:
    """Return whether a pair is in a body of the operator that gives another one."""
    return is_within(known_side(pair), known_side(outer))


def begins_off(loop: Pair, paired: Paired) -> bool:
    """Return whether the body of a loop is fed with other data from the start, or is run in other
    iterations."""
    fed = (it for it in paired.pairs if type_of(it) == BODY_INPUT and is_inside(it, loop))
    return any(first_iteration(paired.found(each)) == 0 for each in fed)


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
