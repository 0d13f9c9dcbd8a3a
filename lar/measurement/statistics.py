"""Statistics of samples: pure functions without NumPy, so that reports start fast.

Quantiles of Student's t distribution are computed in this module, so that no command has to load
SciPy. With t = sqrt(degrees) * sinh(u), the density of u is `peak * cosh(u) ** -degrees`. The
density of u has its peak at 0 and falls smoothly, so Simpson's rule integrates it precisely.
Newton's method starts at 0 and never passes the quantile, since the probability grows more and more
slowly.

The confidence interval of a median is computed for samples that may be correlated. The samples of
one process are similar to their neighbours: times drift, and other programs come and go. Since
neighbouring samples are similar, the median of n samples of one process is as uncertain as the
median of fewer independent samples. The uncertainty of a mean depends on the low frequencies of the
series of samples. Each sample is replaced by its rank, so that outliers do not matter. The variance
of a series of ranks is known. The spectrum of the ranks is modelled as white noise plus a
correlated part. The two parameters of the model are the share and the correlation time of the
correlated part:

    spectrum = 1 - share + share * (the spectrum of an autoregression of order 1 with this time).

Whittle's likelihood of the lowest frequencies (a cosine transform) shows how well a share and a
correlation time fit the samples. No single model is chosen: the variance is the mean over all
models, weighted by Bayes' rule. The interval of a few samples is wide, since a few samples cannot
show how strongly they are correlated. The ends of the interval are quantiles of the samples (Hahn
and Meeker, Statistical Intervals, chapter 5).

Simulations check the interval; some are in `tests/measurement/test_statistics.py`. In 92 to 98 % of
simulated runs, the 95 % interval contains the true median. To reach 92 to 98 %, a run needs 20
independent samples, 50 samples with a correlation of 0.7 between neighbours, 200 samples with a
correlation of 0.9, or about ten bursts. The interval says nothing about a disturbance that comes
after the last sample.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, cycle, islice, pairwise, repeat
from operator import mul, truediv
from typing import TYPE_CHECKING, NamedTuple

from lar.records.record import PART, Record
from lar.records.summary import Interval, Rank

if TYPE_CHECKING:
    from lar.records.run import Samples
    from lar.records.summary import Cause

SIMPSON = (1, *islice(cycle((4, 2)), 399), 1)
PRECISION = 1e-9


@lru_cache(maxsize=4096)
def quantile_of_t(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution at a probability.

    `degrees` is the number of degrees of freedom, which may be a fraction.

    Raises:
        ValueError: the probability is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0 < probability < 1 or not degrees > 0:
        raise ValueError(f"no quantile {probability} with {degrees} degrees of freedom")
    if probability < 0.5:
        return -quantile_of_t(1 - probability, degrees)
    logarithm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    peak = math.exp(logarithm) / math.sqrt(math.pi)
    u, step, spacing = 0.0, math.inf, len(SIMPSON) - 1
    while abs(step) > PRECISION * u:
        heights = [math.cosh(u * index / spacing) ** -degrees for index in range(len(SIMPSON))]
        area = peak * u / (3 * spacing) * sum(map(mul, SIMPSON, heights))
        step = (probability - 0.5 - area) / (peak * heights[-1])
        u += step
    return math.sqrt(degrees) * math.sinh(u)


# The first LOOKED_AT values show whether a value occurs often: FEWEST_OF_VALUE times on average.
LOOKED_AT, FEWEST_OF_VALUE = 1 << 16, 8

# A percentile is reported only if a sample lies beyond it, else it would be the maximum. So p90
# needs 10 samples, p95 needs 20, and p99 needs 100.
PERCENTILES: tuple[Rank, ...] = (90, 95, 99)

# A sample is disturbed if it lost more than this part of its time to other work on the machine. The
# lost time must also exceed the seconds: a reading takes longer than a short iteration.
DISTURBED_SHARE = 0.05
DISTURBED_SECONDS = 1e-4

# A sample is also disturbed if its CPU ran at less than this part of the run's median frequency.
# Smaller changes are usual, since a governor adjusts the frequency in steps.
LOW_FREQUENCY = 0.9

# A sample is also disturbed if the probe after it took more than SLOW_PROBE times as long as on a
# core without other programs. That time is the limit of the fastest tenth of the run's probes.
SLOW_PROBE = 1.3
USUAL_RANK = 10

# Probes count only if samples with slow probes are slower too, which depends on the machine. They
# must be slower by more than chance causes once in a thousand runs.
SLOWED = 1.02
DEVIATIONS = 3.0

# The true median lies between the fastest and the slowest of six undisturbed iterations with a
# probability of 97 %: 1 - 2 / 2**6, since each iteration is faster or slower with probability 1/2.
FEWEST_UNDISTURBED = 6


class Statistics(Record):
    """A summary of times in seconds.

    `standard_deviation` is computed with n - 1, and needs at least two samples.
    """

    count: int
    mean: float
    standard_deviation: float | None
    minimum: float
    maximum: float
    median: float
    percentiles: dict[Rank, float]

    @property
    def total(self) -> float:
        return self.count * self.mean


def statistics_of(
    values: Sequence[float], ranks: Sequence[Rank] = PERCENTILES
) -> Statistics | None:
    """Return the statistics of samples, with those percentiles for which there are enough samples.

    The result is None if there are no samples.
    """
    if not values:
        return None
    ordered = in_order(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    deviation = None
    if count > 1:
        # The sum of squares is computed as a distance between points: fast, even for millions.
        parts = (ordered[first : first + PART] for first in range(0, count, PART))
        distances = (math.dist(part, [mean] * len(part)) for part in parts)
        deviation = math.hypot(*distances) / math.sqrt(count - 1)
    return Statistics(
        count=count,
        mean=mean,
        standard_deviation=deviation,
        minimum=ordered[0],
        maximum=ordered[-1],
        median=percentile_of(ordered, 50),
        percentiles={
            rank: percentile_of(ordered, rank) for rank in ranks if count >= samples_for(rank)
        },
    )


def in_order(values: Iterable[float | None]) -> array[float]:
    """Return the known values in ascending order.

    A coarse clock gives many equal values. If there are few different values, lar counts how often
    each value occurs, which takes less time and memory than sorting all values.
    """
    rest = iter(values)
    first = [*islice(rest, LOOKED_AT)]
    if len(first) < LOOKED_AT or FEWEST_OF_VALUE * len({*first}) > LOOKED_AT:
        return array("d", sorted(value for value in chain(first, rest) if value is not None))
    counts = Counter(chain(first, rest))
    different = sorted(value for value in counts if value is not None)
    return array("d", chain.from_iterable(repeat(each, counts[each]) for each in different))


def samples_for(rank: Rank) -> int:
    """Return the least number of samples of which at least one lies beyond a percentile."""
    return math.ceil(round(100 / (100 - rank), 6))


def percentile_of(ordered: Sequence[float], rank: float) -> float:
    """Return a percentile of sorted values, interpolated linearly between the two nearest values.

    The definition is Hyndman and Fan's type 7, which is NumPy's default.
    """
    position = (len(ordered) - 1) * rank / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median_of_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values, or None if no value is known."""
    return percentile_of_known(values, 50)


def percentile_of_known(values: Iterable[float | None], rank: float) -> float | None:
    """Return a percentile of the known values, or None if no value is known."""
    known = in_order(values)
    return percentile_of(known, rank) if known else None


def causes_of(samples: Samples) -> dict[Cause, tuple[int, ...]]:
    """For each cause that disturbed a sample, return the indexes of the samples that it disturbed.

    A wait for a CPU, steal or throttling disturbed a sample if it took a large enough part of the
    sample's time. After each reading of the noise, lar measures the time of a short, fixed
    computation (the probe). A sample is also disturbed if the probe after the sample was slow,
    compared with all other probes of the run.
    """
    times = samples.end_to_end
    low = LOW_FREQUENCY * (median_of_known(samples.frequency) or 0.0)
    found: dict[Cause, tuple[int, ...]] = {
        "queue delay": disturbed_of(times, samples.queue_delay),
        "steal": disturbed_of(times, samples.steal),
        "throttling": disturbed_of(times, samples.throttled),
        "frequency": tuple(
            index for index, each in enumerate(samples.frequency) if each is not None and each < low
        ),
        "slow core": slowed_of(times, samples.probe),
    }
    return {cause: indexes for cause, indexes in found.items() if indexes}


def disturbed_in(samples: Samples) -> set[int]:
    """Return the indexes of all samples that were disturbed."""
    return {*chain.from_iterable(causes_of(samples).values())}


def disturbed_of(
    end_to_end: Sequence[float], queue_delay: Sequence[float | None]
) -> tuple[int, ...]:
    """Return the indexes of the samples that lost a large enough part of their time.

    `queue_delay` has the time that each sample lost, for example because its thread waited for a
    CPU. The result is empty if lost times were not measured.
    """
    if not queue_delay:
        return ()
    if len(queue_delay) != len(end_to_end):
        raise ValueError(f"{len(queue_delay)} waits for {len(end_to_end)} samples")
    return tuple(
        index
        for index, delay in enumerate(queue_delay)
        if delay is not None and delay > DISTURBED_SECONDS
        if delay > DISTURBED_SHARE * end_to_end[index]
    )


def slowed_of(end_to_end: Sequence[float], probes: Sequence[float | None]) -> tuple[int, ...]:
    """Return the indexes of the samples that were followed by a slow probe.

    A probe is a short, fixed computation.

    The result is empty if samples with fast probes are not faster than samples with slow probes.
    The result is also empty if slow probes follow the samples above the common median no more often
    than chance explains (Mood's median test).
    """
    limit = SLOW_PROBE * (percentile_of_known(probes, USUAL_RANK) or 0.0)
    slow, usual = array("d"), array("d")  # the times of their samples
    for seconds, probe in zip(end_to_end, probes, strict=False):
        if probe is not None:
            (slow if probe > limit else usual).append(seconds)
    if not slow or not usual:
        return ()
    middle_of_slow, middle_of_usual, middle = (
        percentile_of(in_order(times), 50) for times in (slow, usual, chain(slow, usual))
    )
    if middle_of_slow < SLOWED * middle_of_usual:
        return ()
    above_of_slow, above_of_usual = (
        sum(seconds > middle for seconds in times) for times in (slow, usual)
    )
    part = (above_of_slow + above_of_usual) / (len(slow) + len(usual))
    error = math.sqrt(part * (1 - part) * (1 / len(slow) + 1 / len(usual)))
    excess = above_of_slow / len(slow) - above_of_usual / len(usual)
    if excess < DEVIATIONS * error:
        return ()
    return tuple(i for i, probe in enumerate(probes) if probe is not None and probe > limit)


# Fewer samples cannot show whether they are correlated.
FEWEST_SAMPLES = 20

# If an interval leaves out less than this part of the samples at each end, it is too wide to help.
LEAST_BEYOND = 0.15
BLOCKS = 160  # many samples are summed into this number of blocks, enough for low frequencies
FREQUENCIES = 60
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
SHORTEST_TIME = 0.5  # a correlation time in samples; each next time is twice as long
LONGEST_TIME = 0.5  # a correlation time, as a part of the number of samples

# The prior weight of the model of independent samples; all other models share the rest equally.
INDEPENDENT_WEIGHT = 0.6
ALTERNATING = -0.9  # the correlation of neighbours if slow and fast samples take turns


class Model(NamedTuple):
    """A model of the spectrum of samples.

    `spectrum` is the power at the lowest frequencies. `variance` is the variance of the mean in
    this model, which is 1 for independent samples. `logarithm` is a constant of the model. It is
    the logarithm of a product: the model's weight, multiplied by the likelihood of a series with
    the power 0 at all frequencies.
    """

    spectrum: Sequence[float]
    variance: float
    logarithm: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the confidence interval of the median of one process's samples.

    The samples must be in order of time. The result is None if there are too few samples, or if the
    samples are too strongly correlated. A caller may stop measuring after two narrow intervals in a
    row, since two successive intervals are seldom narrow by chance. Between two calls, such a
    caller must let the number of samples grow by half.
    """
    if len(values) < FEWEST_SAMPLES:
        return None
    ordered = in_order(values)
    if ordered[0] == ordered[-1]:
        return Interval(ordered[0], ordered[0], confidence)
    variance = variance_of_mean(ranks_of(values, ordered), len(values)) / len(values)
    reach = quantile_of_t(0.5 + confidence / 2, len(values) - 1) * math.sqrt(variance) / 2
    if reach > 0.5 - LEAST_BEYOND:
        return None
    low, high = (percentile_of(ordered, 100 * part) for part in (0.5 - reach, 0.5 + reach))
    return Interval(low, high, confidence)


def ranks_of(values: Sequence[float], ordered: Sequence[float]) -> Iterator[float]:
    """Yield the rank of each sample, scaled to mean 0 and variance 1.

    The samples must not all be equal.
    """

    @lru_cache(LOOKED_AT)
    def rank_of(value: float) -> int:
        return bisect_left(ordered, value) + bisect_right(ordered, value) - len(ordered)

    ranks = array("q", map(rank_of, values))
    scale = math.sqrt(sum(map(mul, ranks, ranks)) / len(ranks))
    return map(truediv, ranks, repeat(scale))


def variance_of_mean(series: Iterable[float], count: int) -> float:
    """Return the variance of a series' mean, relative to a series of independent values."""
    power = low_frequencies(series, count)
    models = models_of(count, len(power))
    logarithms = [it.logarithm - sum(map(truediv, power, it.spectrum)) / 2 for it in models]
    largest = max(logarithms)
    weights = [math.exp(logarithm - largest) for logarithm in logarithms]
    return math.fsum(map(mul, weights, (it.variance for it in models))) / math.fsum(weights)


def low_frequencies(series: Iterable[float], count: int) -> list[float]:
    """Return the power of a series of n values at its lowest frequencies, k / 2n for k from 1."""
    blocks = min(count, BLOCKS)
    edges = [round(block * count / blocks) for block in range(blocks + 1)]
    sums = accumulate(series)
    at_edges = [next(islice(sums, end - start - 1, None)) for start, end in pairwise(edges)]
    blocked = [end - start for start, end in pairwise([0.0, *at_edges])]
    return [2 / count * sum(map(mul, blocked, wave)) ** 2 for wave in cosines(blocks)]


@lru_cache(maxsize=8)
def cosines(blocks: int) -> list[list[float]]:
    """Return the cosine waves of lowest frequency, each as a list of `blocks` values."""
    return [
        [math.cos(math.pi * wave * (block + 0.5) / blocks) for block in range(blocks)]
        for wave in range(1, min(FREQUENCIES, blocks - 1) + 1)
    ]


@lru_cache(maxsize=8)
def models_of(count: int, frequencies: int) -> list[Model]:
    """Return the models of the spectrum of `count` samples, at the given number of frequencies."""
    times = [SHORTEST_TIME]
    while times[-1] * 2 <= LONGEST_TIME * count:
        times.append(times[-1] * 2)
    waves = [math.cos(math.pi * wave / count) for wave in range(1, frequencies + 1)]
    correlations = [ALTERNATING, *(math.exp(-1 / time) for time in times)]
    weight = (1 - INDEPENDENT_WEIGHT) / (len(correlations) * len(SHARES))
    models = [Model([1.0] * frequencies, 1.0, math.log(INDEPENDENT_WEIGHT))]
    for kept in correlations:
        faded = [(1 - kept**2) / (1 - 2 * kept * wave + kept**2) for wave in waves]
        whole = (1 + kept) / (1 - kept) - 2 * kept * (1 - kept**count) / (count * (1 - kept) ** 2)
        for share in SHARES:
            spectrum = [1 - share + share * power for power in faded]
            logarithm = math.log(weight) - math.fsum(map(math.log, spectrum)) / 2
            models.append(Model(spectrum, max(1.0, 1 - share + share * whole), logarithm))
    return models
