"""How much the times of operators differ between two runs of one command.

Each run is one process. Its iterations resemble each other, and no number of them says how much
another process differs, as one does by a tenth: the state of the machine, where data lies in
memory. Of two profiles only their operators can say it: what happens to the whole run happens to
all of them. So three things are taken out of an operator's times before they are compared:

- each iteration's own factor, the median of what all operators took above what they usually take;
- the factor of the whole run, the median over the operators of how much they differ;
- and the scatter of operators about that factor, which is what the operators of two processes of
  one command scatter by. A change of one operator is one that lies far outside of it.

Where the commands differ, so may any number of operators. Then no factor is taken out, and what
processes scatter by is supposed, not measured.

All figures here are natural logarithms of times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lar.measurement.differences import (
    LARGEST_LOGARITHM,
    QUARTILES_APART,
    Spread,
    pool_spread,
    trimmed_mean,
)
from lar.measurement.intervals import effective_count
from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.profiles.differences import Difference

# Fewer iterations say nothing of how they scatter.
FEWEST_ITERATIONS = 5
# Of operators that take less, the steps of engines' clocks, 1 us, are too large a part.
SHORTEST_NS = 10_000
CLOCK_STEP_NS = 1_000
STEP_DEVIATION = 0.29  # of a value that is rounded to whole steps, in steps
# So many operators of that length show what they have in common.
FEWEST_OPERATORS = 8
# What an operator's time differs by between processes of one command, before any are seen; and
# where the commands differ.
BETWEEN_RUNS = Spread(0.02, 4)
BETWEEN_COMMANDS = Spread(0.10, 8)
# Scatter of operators has longer tails than a normal distribution.
MOST_DEGREES = 12
TRIMMED_VARIANCE = 1.2  # of a mean of the middle half, over that of a mean
LARGEST_DEVIATION = 1.0

Times = Sequence[float]


@dataclass(frozen=True)
class Verdict:
    """How far an operator differs (`difference`, a logarithm, the run's factor taken out), and how
    far operators differ by chance (`reach`)."""

    difference: float
    reach: float


@dataclass(frozen=True)
class RunNoise:
    """What two runs differ by as a whole: the factor of the second (`common`, a logarithm), the
    factors of each iteration, and what operators scatter by; `is_measured` if these two runs show
    it, and it is not supposed."""

    common: float
    factors: tuple[Times, Times]
    between: Spread
    is_measured: bool = False

    def judge(self, times: tuple[Times, Times], alpha: float) -> Verdict | None:
        """Judge the times of an operator, of each iteration, in nanoseconds; None if too few of
        them are known, or they are too short.

        `alpha` is the chance of a difference where there is none.
        """
        sides = []
        for own, factors in zip(times, self.factors, strict=True):
            usual = median(own) if own else 0.0
            if len(own) < FEWEST_ITERATIONS or usual < CLOCK_STEP_NS:
                return None
            sides.append((residuals(own, factors), usual))
        difference = trimmed_mean(sides[1][0]) - trimmed_mean(sides[0][0]) - self.common
        degrees = min(self.between.degrees, MOST_DEGREES)
        bound = quantile_of_t(1 - alpha / 2, degrees)
        error = self.error_of(sides, careful=False)
        if abs(difference) > bound * error:  # else it need not be known better
            error = self.error_of(sides, careful=True)
        return Verdict(difference, bound * error)

    def difference_of(self, times: tuple[Times, Times], alpha: float) -> Difference:
        """Compare the medians of an operator's times, in nanoseconds."""
        one, two = (median(own) for own in times)
        verdict = self.judge(times, alpha)
        if verdict is None:
            return Difference(one, two)
        usual = one * math.exp(self.common)
        return Difference(
            one,
            two,
            usual * math.expm1(min(verdict.reach, LARGEST_LOGARITHM)),
            abs(verdict.difference) > verdict.reach,
        )

    def error_of(self, sides: Sequence[tuple[Times, float]], *, careful: bool) -> float:
        own = math.fsum(square_error(values, usual, careful=careful) for values, usual in sides)
        return math.sqrt(own + self.between.deviation**2)


def residuals(times: Times, factors: Times) -> list[float]:
    """Return logarithms of times without the iterations' own factors."""
    return [
        math.log(max(time, CLOCK_STEP_NS / 2)) - factor
        for time, factor in zip(times, factors, strict=True)
    ]


def square_error(values: Times, usual_ns: float, *, careful: bool) -> float:
    """Return the squared error of the mean of the middle half of an operator's iterations; only a
    `careful` one sees that iterations resemble their neighbours."""
    ordered = sorted(values)
    deviation = (percentile_of(ordered, 75) - percentile_of(ordered, 25)) / QUARTILES_APART
    count = effective_count(values) if careful else float(len(values))
    step = STEP_DEVIATION * CLOCK_STEP_NS / usual_ns
    return TRIMMED_VARIANCE * deviation**2 / count + step**2


def noise_of(
    operators: Sequence[tuple[Times, Times]], counts: tuple[int, int], *, same_command: bool
) -> RunNoise:
    """Return what two runs differ by as a whole, from the times of their joined operators.

    `counts` are the numbers of iterations.
    """
    long = [each for each in operators if min(map(median, each)) >= SHORTEST_NS]
    enough = len(long) >= FEWEST_OPERATORS and min(counts) >= FEWEST_ITERATIONS
    zeros = ([0.0] * counts[0], [0.0] * counts[1])
    if not (same_command and enough):
        return RunNoise(0.0, zeros, BETWEEN_COMMANDS)
    factors = tuple(factors_of([each[side] for each in long]) for side in (0, 1))
    differences, errors = [], []
    for each in long:
        sides = [residuals(*side) for side in zip(each, factors, strict=True)]
        differences.append(trimmed_mean(sides[1]) - trimmed_mean(sides[0]))
        errors.append(
            math.fsum(
                square_error(values, median(own), careful=False)
                for values, own in zip(sides, each, strict=True)
            )
        )
    common = median(differences)
    deviation = deviation_beyond([each - common for each in differences], errors)
    between = pool_spread([Spread(deviation, len(long) - 1), BETWEEN_RUNS])
    assert between
    return RunNoise(common, (factors[0], factors[1]), between, is_measured=True)


def judge_runs(baseline: Times, experiment: Times, alpha: float) -> Difference:
    """Compare the medians of what two runs took for an iteration, in nanoseconds."""
    factors = ([0.0] * len(baseline), [0.0] * len(experiment))
    return RunNoise(0.0, factors, BETWEEN_COMMANDS).difference_of((baseline, experiment), alpha)


def factors_of(operators: Sequence[Times]) -> list[float]:
    """Return for each iteration the median of what operators took above their usual time."""
    logs = [[math.log(max(time, CLOCK_STEP_NS / 2)) for time in times] for times in operators]
    usual = [median(times) for times in logs]
    return [
        median(time - own for time, own in zip(times, usual, strict=True))
        for times in zip(*logs, strict=True)
    ]


def deviation_beyond(differences: Sequence[float], squares: Sequence[float]) -> float:
    """Return the deviation that, besides the errors that are known, explains how far half of the
    differences lie from 0."""

    def middle(deviation: float) -> float:
        return median(
            abs(each) / math.sqrt(square + deviation**2)
            for each, square in zip(differences, squares, strict=True)
        )

    low, high = 1e-6, LARGEST_DEVIATION
    for _ in range(30):
        between = (low + high) / 2
        if middle(between) > QUARTILES_APART / 2:
            low = between
        else:
            high = between
    return high
