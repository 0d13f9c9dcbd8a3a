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
# Deviations between the quartiles of normal values, and the least that an operator scatters by.
QUARTILES_APART = 1.349
LEAST_SCATTER = 0.01

Times = Sequence[float]
Pairs = Sequence[tuple[Times, Times]]
"""The times of an operator in the iterations of each pair of runs, in nanoseconds."""


def judge_operators(operators: Sequence[Pairs]) -> list[Difference | None]:
    """Compare operators, all together with a confidence of 95 %."""
    ratios = [log_ratios_of(pairs) for pairs in operators]
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
            usual=usual and Spread(usual.deviation * scatter, usual.degrees),
            comparisons=len(operators),
        )
        for own, scatter in zip(ratios, scatters, strict=True)
    ]


def judge_iterations(pairs: Pairs) -> Difference | None:
    """Compare what the iterations of pairs of runs took."""
    return compare_pairs([[value] for value in log_ratios_of(pairs)])


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
    return max([LEAST_SCATTER, *parts])
