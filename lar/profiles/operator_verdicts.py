"""Which operators took longer with one of two commands, from pairs of their runs by turns.

Each run is one process, and three pairs of them show how much an operator differs by chance. Few
pairs show it badly for one operator alone. What all of them show together helps: the more the times
of an operator scatter between the iterations of a run, the more it differs between runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from lar.measurement.differences import Spread, compare_pairs, usual_spread
from lar.measurement.statistics import percentile_of
from lar.profiles.times import CLOCK_STEP_NS
from lar.records.summary import Difference

FEWEST_PAIRS = 3
FEWEST_OPERATORS = 8  # that show what a whole run has in common
# Deviations between the quartiles of normal values, and the least that an operator scatters by, or
# differs by between processes.
QUARTILES_APART = 1.349
LEAST = 0.01

Times = Sequence[float]
Pairs = Sequence[tuple[Times, Times]]
"""The times of an operator in the iterations of each pair of runs, in nanoseconds."""


def judge_operators(
    operators: Sequence[Pairs], *, of_one_command: bool = False
) -> list[Difference | None]:
    """Compare operators, all together with a confidence of 95 %.

    What happens to a whole run, as by the state of the machine, happens to all of its operators.
    Where both commands are one, the ratio that most operators of a pair have is therefore that of
    the runs, and is taken out. Where the commands differ, so may all operators.
    """
    if of_one_command:
        operators = steady(operators)
    ratios = [log_ratios_of(pairs) for pairs in operators]
    if of_one_command:
        ratios = without_common(ratios)
    scatters = [scatter_of(pairs) for pairs in operators]
    usual = None
    if any(len(each) >= FEWEST_PAIRS for each in ratios):
        usual = usual_spread(
            [value / scatter for value in own]
            for own, scatter in zip(ratios, scatters, strict=True)
        )
    return [
        compare_pairs(
            [[value] for value in own],
            usual=usual and Spread(max(LEAST, usual.deviation * scatter), usual.degrees),
            comparisons=len(operators),
            once=True,
        )
        for own, scatter in zip(ratios, scatters, strict=True)
    ]


def steady(operators: Sequence[Pairs]) -> list[Pairs]:
    """Return times without the factor of each iteration: what most operators took in it above
    their usual time."""
    steadied: list[list[tuple[Times, Times]]] = [[] for _ in operators]
    for pair in range(max(map(len, operators), default=0)):
        sides = [divide_by_iteration([own[pair][side] for own in operators]) for side in (0, 1)]
        for place, times in enumerate(zip(*sides, strict=True)):
            steadied[place].append((times[0], times[1]))
    return [*steadied]


def divide_by_iteration(operators: Sequence[Times]) -> list[Times]:
    """Return the times of operators in one run without the factor of each iteration."""
    known = [(times, median(times)) for times in operators if times and min(times) > 0]
    if len(known) < FEWEST_OPERATORS:
        return [*operators]
    factors = [
        median(times[iteration] / usual for times, usual in known)
        for iteration in range(len(known[0][0]))
    ]
    return [[t / factor for t, factor in zip(times, factors, strict=False)] for times in operators]


def without_common(ratios: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return logarithms of ratios without the median of all operators of each pair of runs, where
    there are enough operators."""
    pairs = max(map(len, ratios), default=0)
    whole = [own for own in ratios if len(own) == pairs]
    if len(whole) < FEWEST_OPERATORS:
        return [[*own] for own in ratios]
    common = [median(own[pair] for own in whole) for pair in range(pairs)]
    return [[value - factor for value, factor in zip(own, common, strict=False)] for own in ratios]


def judge_iterations(pairs: Pairs) -> Difference | None:
    """Compare what the iterations of pairs of runs took."""
    return compare_pairs([[value] for value in log_ratios_of(pairs)], once=True)


def log_ratios_of(pairs: Pairs) -> list[float]:
    """Return the logarithm of the ratio of medians of each pair of runs; none of runs in which an
    operator took no time."""
    medians = [(median(one), median(two)) for one, two in pairs if one and two]
    return [math.log(two / one) for one, two in medians if one > 0 and two > 0]


def scatter_of(pairs: Pairs) -> float:
    """Return what the times of an operator scatter by in a run: a part of their median."""
    parts = []
    for times in (each for pair in pairs for each in pair):
        ordered = sorted(times)
        usual = percentile_of(ordered, 50) if ordered else 0.0
        if usual > 0:
            apart = percentile_of(ordered, 75) - percentile_of(ordered, 25)
            parts.append(math.hypot(apart / QUARTILES_APART, CLOCK_STEP_NS) / usual)
    return max([LEAST, *parts])
