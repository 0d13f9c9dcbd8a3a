"""How much the times of operators differ between two runs of one command.

Each run is one process. Its iterations resemble each other, and no number of them says how much
another process differs, as one does by a tenth: the state of the machine, where data lies in
memory. Of two profiles only their operators can say it: what happens to the whole run happens to
all of them. So these are taken out of an operator's times before they are compared:

- each iteration's own factor, the median of what all operators took above what they usually take;
- the factor of the whole run, the median over the operators of how much they differ.

What is left differs the more between runs, the more it differs between the iterations of one run:
an operator that waits for memory follows the machine's state more than one that computes. How much
more is the same for all operators, and half of them lie nearer than that. A change of one operator
is one that lies far outside of it.

Where the commands differ, so may any number of operators. Then no factor is taken out, and what
processes differ by is supposed, not measured.

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
    trimmed_mean,
)
from lar.measurement.intervals import effective_count
from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.profiles.differences import Difference

# Fewer iterations say nothing of how they scatter.
FEWEST_ITERATIONS = 5
# So many operators, none of them shorter than this, show what they have in common.
FEWEST_OPERATORS = 8
SHORTEST_NS = 10_000
# Engines' clocks count in steps, which are averaged away where times scatter by as much.
CLOCK_STEP_NS = 1_000
STEP_DEVIATION = 0.29  # of a value that is rounded to whole steps, in steps
AVERAGED_STEP = 0.03
# What an operator differs by at least between processes of one command, and what is supposed where
# the commands differ: the deviation of a difference.
LEAST_DEVIATION = 0.01
BETWEEN_COMMANDS = Spread(0.10, 8)
# What operators scatter by has longer tails than a normal distribution.
MOST_DEGREES = 10
TRIMMED_VARIANCE = 1.2  # of a mean of the middle half, over that of a mean
LARGEST_RATIO = 100.0

Times = Sequence[float]


@dataclass(frozen=True)
class Centre:
    """The times of an operator in one run: their middle, how they scatter about it from iteration
    to iteration, the squared error of the middle by that alone, and the error by the clock."""

    middle: float
    deviation: float
    square: float
    step: float


@dataclass(frozen=True)
class RunNoise:
    """What two runs differ by as a whole: the factor of the second (`common`, a logarithm), the
    factors of each iteration, and what operators differ by: `ratio` times what they scatter by
    between iterations, None where that is supposed."""

    common: float
    factors: tuple[Times, Times]
    ratio: float | None = None
    degrees: int = BETWEEN_COMMANDS.degrees

    @property
    def is_measured(self) -> bool:
        """True if the two runs show it."""
        return self.ratio is not None

    def difference_of(self, times: tuple[Times, Times], alpha: float) -> Difference:
        """Compare the medians of an operator's times of each iteration, in nanoseconds.

        It is not judged where too few are known, or they are too short. `alpha` is the chance of a
        difference where there is none.
        """
        one, two = (median(own) for own in times)
        if min(map(len, times)) < FEWEST_ITERATIONS or min(one, two) < CLOCK_STEP_NS:
            return Difference(one, two)
        centres = [centre_of(own, by) for own, by in zip(times, self.factors, strict=True)]
        difference = centres[1].middle - centres[0].middle - self.common
        reach = quantile_of_t(1 - alpha / 2, self.degrees) * self.error_of(centres)
        usual = one * math.exp(self.common)
        return Difference(
            one,
            two,
            usual * math.expm1(min(reach, LARGEST_LOGARITHM)),
            abs(difference) > reach,
        )

    def error_of(self, centres: Sequence[Centre]) -> float:
        """Return the deviation of the difference of an operator that has not changed."""
        own = math.fsum(each.step**2 for each in centres)
        if self.ratio is None:
            own += math.fsum(each.square for each in centres)
            return math.hypot(math.sqrt(own), BETWEEN_COMMANDS.deviation)
        between = self.ratio * scatter_of(centres)
        return math.hypot(math.sqrt(own), between, LEAST_DEVIATION)


def centre_of(times: Times, factors: Times) -> Centre:
    """Return where the times of an operator lie, without the iterations' own factors."""
    values = [
        math.log(max(time, CLOCK_STEP_NS / 2)) - factor
        for time, factor in zip(times, factors, strict=True)
    ]
    ordered = sorted(values)
    deviation = (percentile_of(ordered, 75) - percentile_of(ordered, 25)) / QUARTILES_APART
    usual_ns = median(times)
    is_averaged = deviation * usual_ns > CLOCK_STEP_NS / 2
    step = (AVERAGED_STEP if is_averaged else STEP_DEVIATION) * CLOCK_STEP_NS / usual_ns
    return Centre(
        trimmed_mean(values), deviation, TRIMMED_VARIANCE * deviation**2 / len(values), step
    )


def scatter_of(centres: Sequence[Centre]) -> float:
    """Return what the times of an operator scatter by in either of two runs."""
    return math.sqrt(math.fsum(each.deviation**2 for each in centres) / len(centres))


def noise_of(
    operators: Sequence[tuple[Times, Times]], counts: tuple[int, int], *, same_command: bool
) -> RunNoise:
    """Return what two runs differ by as a whole, from the times of their joined operators.

    `counts` are the numbers of iterations.
    """
    long = [each for each in operators if min(map(median, each)) >= SHORTEST_NS]
    enough = len(long) >= FEWEST_OPERATORS and min(counts) >= FEWEST_ITERATIONS
    if not (same_command and enough):
        return RunNoise(0.0, ([0.0] * counts[0], [0.0] * counts[1]))
    first, second = (factors_of([each[side] for each in long]) for side in (0, 1))
    centres = [(centre_of(one, first), centre_of(two, second)) for one, two in long]
    differences = [two.middle - one.middle for one, two in centres]
    common = median(differences)
    ratio = ratio_of([each - common for each in differences], [*map(scatter_of, centres)])
    return RunNoise(common, (first, second), ratio, min(len(long) - 1, MOST_DEGREES))


def judge_runs(baseline: Times, experiment: Times, alpha: float) -> Difference:
    """Compare the medians of what two runs took for an iteration, in nanoseconds."""
    noise = RunNoise(0.0, ([0.0] * len(baseline), [0.0] * len(experiment)))
    found = noise.difference_of((baseline, experiment), alpha)
    if not found.exceeds_noise:
        return found
    # Iterations resemble their neighbours: what seems to differ is looked at again.
    fewest = min(map(effective_count, (baseline, experiment)))
    return found if fewest >= FEWEST_ITERATIONS else Difference(found.baseline, found.experiment)


def factors_of(operators: Sequence[Times]) -> list[float]:
    """Return for each iteration the median of what operators took above their usual time."""
    logs = [[math.log(max(time, CLOCK_STEP_NS / 2)) for time in times] for times in operators]
    usual = [median(times) for times in logs]
    return [
        median(time - own for time, own in zip(times, usual, strict=True))
        for times in zip(*logs, strict=True)
    ]


def ratio_of(differences: Sequence[float], scatters: Sequence[float]) -> float:
    """Return how many times what it scatters by an operator differs, so that half of them differ
    by as little as half of normal values do."""

    def middle(ratio: float) -> float:
        return median(
            abs(each) / math.hypot(ratio * scatter, LEAST_DEVIATION)
            for each, scatter in zip(differences, scatters, strict=True)
        )

    low, high = 0.0, LARGEST_RATIO
    for _ in range(40):
        between = (low + high) / 2
        if middle(between) > QUARTILES_APART / 2:
            low = between
        else:
            high = between
    return high
