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

From three pairs of runs on, made in turns, what differs from pair to pair is the noise, and nothing
need be supposed of either.

All figures here are natural logarithms of times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lar.measurement.differences import (
    LARGEST_LOGARITHM,
    Spread,
    compare_pairs,
    trimmed_mean,
)
from lar.measurement.intervals import effective_count
from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.profiles.differences import Difference
from lar.profiles.times import CLOCK_STEP_NS

QUARTILES_APART = 1.349  # of normal values, in deviations
# Fewer iterations say nothing of how they scatter.
FEWEST_ITERATIONS = 5
# So many operators, none of them shorter than this, show what they have in common.
FEWEST_OPERATORS = 8
# So many pairs of runs show by themselves what processes differ by.
FEWEST_PAIRS = 3
SHORTEST_NS = 10_000
# Where in a step of the clock a time begins differs from one to the next.
STEP_DEVIATION = 0.5  # of a duration whose begin and end are whole steps, at most, in steps
# What an operator differs by at least between processes of one command, and what is supposed where
# the commands differ: the deviation of a difference.
LEAST_DEVIATION = 0.01
BETWEEN_COMMANDS = Spread(0.10, 8)
# What operators scatter by has longer tails than a normal distribution.
MOST_DEGREES = 8
TRIMMED_VARIANCE = 1.2  # of a mean of the middle half, over that of a mean
# Values that lie farther from the median are drawn in, by deviations or steps of the clock.
CLIPPED_DEVIATIONS = 2.0
CLIPPED_STEPS = 1.5
CLIPPED_VARIANCE = 1.05
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
    """What runs differ by as a whole: for each pair of runs the factor of the second (`commons`,
    logarithms) and the factors of each iteration, and what operators differ by: `ratio` times what
    they scatter by between iterations, None where that is supposed. `together` is the squared error
    of all operators together, where no factor of the whole run is taken out.
    """

    commons: tuple[float, ...]
    factors: tuple[tuple[Times, Times], ...]
    ratio: float | None = None
    degrees: float = BETWEEN_COMMANDS.degrees
    together: float = 0.0

    @property
    def is_measured(self) -> bool:
        """True if the runs show it."""
        return self.ratio is not None

    @property
    def common(self) -> float:
        """The factor of the second runs, a logarithm."""
        return trimmed_mean(self.commons)

    def difference_of(self, runs: Sequence[tuple[Times, Times]], alpha: float) -> Difference:
        """Compare the medians of an operator's times of each iteration, in nanoseconds, of each
        pair of runs.

        It is not judged where too few are known, or they are too short. `alpha` is the chance of a
        difference where there is none.
        """
        one, two = (median(median(pair[side]) for pair in runs) for side in (0, 1))
        fewest = min(min(map(len, pair)) for pair in runs)
        if fewest < FEWEST_ITERATIONS or min(one, two) < CLOCK_STEP_NS:
            return Difference(one, two)
        pairs = [
            (centre_of(pair[0], by[0]), centre_of(pair[1], by[1]))
            for pair, by in zip(runs, self.factors, strict=True)
        ]
        difference = trimmed_mean(differences_of(pairs, self.commons))
        reach = quantile_of_t(1 - alpha / 2, self.degrees) * self.error_of(pairs)
        usual = one * math.exp(self.common)
        return Difference(one, two, usual * margin_of(reach, difference), abs(difference) > reach)

    def error_of(self, pairs: Sequence[tuple[Centre, Centre]]) -> float:
        """Return the deviation of the difference of an operator that has not changed."""
        square = math.fsum(each.step**2 for pair in pairs for each in pair)
        if self.ratio is None:
            square += math.fsum(each.square for pair in pairs for each in pair)
            square += len(pairs) * BETWEEN_COMMANDS.deviation**2
        else:
            between = math.hypot(self.ratio * scatter_of(pairs), LEAST_DEVIATION)
            square += (
                (TRIMMED_VARIANCE if len(pairs) > FEWEST_PAIRS else 1) * len(pairs) * between**2
            )
        return math.sqrt(square / len(pairs) ** 2 + self.together)


def margin_of(reach: float, difference: float) -> float:
    """Return how far a time may differ to the side of a difference, as a part of it; both are
    logarithms, so that the sides are not alike."""
    if difference < 0:
        return -math.expm1(-reach)
    return math.expm1(min(reach, LARGEST_LOGARITHM))


def differences_of(pairs: Sequence[tuple[Centre, Centre]], commons: Sequence[float]) -> list[float]:
    """Return how much an operator differs in each pair of runs."""
    return [
        two.middle - one.middle - common for (one, two), common in zip(pairs, commons, strict=True)
    ]


def centre_of(times: Times, factors: Times) -> Centre:
    """Return where the times of an operator lie, without the iterations' own factors."""
    values = [
        math.log(max(time, CLOCK_STEP_NS / 2)) - factor
        for time, factor in zip(times, factors, strict=True)
    ]
    ordered = sorted(values)
    deviation = (percentile_of(ordered, 75) - percentile_of(ordered, 25)) / QUARTILES_APART
    usual_ns = median(times)
    # Times of whole steps lie a step to either side of the middle, which is their mean.
    reach = max(CLIPPED_DEVIATIONS * deviation, CLIPPED_STEPS * CLOCK_STEP_NS / usual_ns)
    low, high = (percentile_of(ordered, 50) + sign * reach for sign in (-1, 1))
    middle = math.fsum(min(max(value, low), high) for value in values) / len(values)
    step = STEP_DEVIATION * CLOCK_STEP_NS / usual_ns / math.sqrt(len(values))
    return Centre(middle, deviation, CLIPPED_VARIANCE * deviation**2 / len(values), step)


def scatter_of(pairs: Sequence[tuple[Centre, Centre]]) -> float:
    """Return what the times of an operator scatter by in a run."""
    return math.sqrt(
        math.fsum(each.deviation**2 for pair in pairs for each in pair) / (2 * len(pairs))
    )


def noise_of(
    operators: Sequence[Sequence[tuple[Times, Times]]],
    counts: Sequence[tuple[int, int]],
    *,
    same_command: bool,
) -> RunNoise:
    """Return what runs differ by as a whole, from the times of their joined operators, each of
    which has those of every pair of runs.

    `counts` are the numbers of iterations of the pairs.
    """
    zeros = tuple(([0.0] * one, [0.0] * two) for one, two in counts)
    long = [
        each
        for each in operators
        if min(median(times) for pair in each for times in pair) >= SHORTEST_NS
    ]
    several = len(counts) >= FEWEST_PAIRS
    enough = len(long) >= FEWEST_OPERATORS and min(map(min, counts)) >= FEWEST_ITERATIONS
    if not (enough and (same_command or several)):
        return RunNoise((0.0,) * len(counts), zeros)
    factors = zeros
    if same_command:
        factors = tuple(
            (factors_of([each[k][0] for each in long]), factors_of([each[k][1] for each in long]))
            for k in range(len(counts))
        )
    centres = [
        [
            (centre_of(pair[0], by[0]), centre_of(pair[1], by[1]))
            for pair, by in zip(each, factors, strict=True)
        ]
        for each in long
    ]
    none = [0.0] * len(counts)
    shared = [*map(median, zip(*(differences_of(each, none) for each in centres), strict=True))]
    values, scatters = [], []
    for each in centres:
        own = differences_of(each, shared)
        # Several pairs show what an operator itself differs by, and what by chance.
        usual = trimmed_mean(own) if several else 0.0
        spread = math.sqrt(len(own) / (len(own) - 1)) if several else 1.0
        values += [(value - usual) * spread for value in own]
        scatters += [scatter_of(each)] * len(own)
    degrees = min(len(values) - len(long) * several - 1, MOST_DEGREES)
    ratio = ratio_of(values, scatters)
    if same_command and several:
        # The machine may have been in another state for most runs of one side by chance.
        means = [trimmed_mean(differences_of(each, shared)) for each in centres]
        scale = math.sqrt(len(counts) / TRIMMED_VARIANCE)
        ratio = max(ratio, ratio_of([scale * it for it in means], [*map(scatter_of, centres)]))
    if same_command:
        return RunNoise(tuple(shared), factors, ratio, degrees)
    mean = math.fsum(shared) / len(shared)
    square = math.fsum((each - mean) ** 2 for each in shared) / (len(shared) - 1) / len(shared)
    return RunNoise((0.0,) * len(counts), factors, ratio, degrees, square)


def judge_runs(runs: Sequence[tuple[Times, Times]], alpha: float) -> Difference:
    """Compare the medians of what runs took for an iteration, in nanoseconds, in pairs."""
    if len(runs) >= FEWEST_PAIRS:
        return judge_pairs([(median(one), median(two)) for one, two in runs], alpha)
    noise = RunNoise(
        (0.0,) * len(runs), tuple(([0.0] * len(one), [0.0] * len(two)) for one, two in runs)
    )
    found = noise.difference_of(runs, alpha)
    if not found.exceeds_noise or found.error is None:
        return found
    # Of fast iterations and slow ones the median may lie near the other run's all the same.
    if abs(found.delta) <= found.error:
        return Difference(found.baseline, found.experiment, found.error, False)
    # Iterations resemble their neighbours: what seems to differ is looked at again.
    fewest = min(effective_count(times) for pair in runs for times in pair)
    return found if fewest >= FEWEST_ITERATIONS else Difference(found.baseline, found.experiment)


def judge_pairs(runs: Sequence[tuple[float, float]], alpha: float) -> Difference:
    """Compare pairs of processes by one time each, as `lar bench` does."""
    one, two = (median(pair[side] for pair in runs) for side in (0, 1))
    found = compare_pairs([[math.log(b / a)] for a, b in runs if a > 0 and b > 0], alpha=alpha)
    if found is None or found.interval is None:
        return Difference(one, two)
    reach = math.log(found.interval.high / found.ratio)
    error = one * margin_of(reach, math.log(found.ratio))
    return Difference(one, two, error, found.is_shown)


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
