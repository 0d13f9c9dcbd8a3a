"""The interval of a median whose samples are correlated.

The samples of one process resemble their neighbours: drift, another program that comes and goes.
A median of n such samples is as uncertain as that of fewer independent ones. How uncertain depends
on the low frequencies of one series: on which side of the median each sample lies, so that no
outlier has a say. Its variance is known, and its spectrum is taken for that of white noise with a
part that fades, of any share and any correlation time:

    spectrum = 1 - share + share * that of an autoregression of order 1 with that time

How well each share and time fits is Whittle's likelihood of the lowest frequencies (a cosine
transform). None of them is chosen: all are kept with their weights, as Bayes has it, so that few
samples, which cannot show how correlated they are, get a wide interval. The interval's ends are
order statistics, as for independent samples (Hahn and Meeker, Statistical Intervals, chapter 5).

What it can do was found by simulation; `tests/measurement/test_intervals.py` has some of it. The
interval of 95 % holds the median of the process in 92 to 98 % of cases when the samples have seen
what the process does: 20 independent samples, 50 with a correlation of 0.7 between neighbours, 100
to 200 with 0.9, some ten bursts. A disturbance that has not come yet is in no sample.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from operator import add, mul

from lar.measurement.statistics import percentile_of
from lar.records.summary import Interval

# With fewer samples it cannot be seen whether they are correlated.
FEWEST_SAMPLES = 20
# An interval that leaves out fewer than this part of the samples at each end says nothing.
LEAST_BEYOND = 0.15

# The side of the median counts most; half as much, which side of each quartile, since drift shows
# sooner in all of the samples than in those near the median.
QUARTILE_WEIGHT = 0.5

BLOCKS = 160  # into which many samples are summed: low frequencies need no more
FREQUENCIES = 60
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
SHORTEST_TIME = 0.5  # samples; each next correlation time is twice as long
LONGEST_TIME = 0.5  # of the number of samples

# What is thought before the samples are seen. Long times and large shares weigh more than their
# number: to miss one makes the interval far too narrow.
INDEPENDENT_WEIGHT = 0.4
ALTERNATING_WEIGHT = 0.04
ALTERNATING = (-0.3, -0.6, -0.9, -0.99)  # the correlation of neighbours: slow and fast in turn
TIME_POWER = 0.5
SHARE_POWER = 1.0

NEGLIGIBLE = 1e-6  # a weight


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of the median of the samples of one process, given in their order.

    None: too few samples, or samples so much like their neighbours that nothing can be said.
    Who stops when the interval is narrow should look at numbers of samples that grow by half, and
    stop when it was narrow enough at two looks, one after the other: what is narrow by chance is
    seldom so twice.
    """
    count = len(values)
    if count < FEWEST_SAMPLES:
        return None
    ordered = sorted(values)
    deviations = [
        (weight, math.sqrt(variance / count) / 2)
        for weight, variance in weigh_variances(values, ordered)
    ]
    reach = reach_of(deviations, 1 - confidence)
    if reach > 0.5 - LEAST_BEYOND:
        return None
    return Interval(
        order_statistic(ordered, 0.5 - reach), order_statistic(ordered, 0.5 + reach), confidence
    )


def weigh_variances(values: Sequence[float], ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Return what the variance of the median may be, each value with its probability.

    The unit is the variance that as many independent samples have.
    """
    if ordered[0] == ordered[-1]:
        return [(1.0, 1.0)]
    power = low_frequencies(sides_of(values, ordered))
    logarithms, variances = [], []
    for prior, variance, spectrum, size in models_of(len(values), len(power)):
        logarithms.append(prior - (sum(map(mul, power, spectrum)) + size) / 2)
        variances.append(variance)
    largest = max(logarithms)
    weights = [math.exp(logarithm - largest) for logarithm in logarithms]
    total = math.fsum(weights)
    return [
        (weight / total, variance)
        for weight, variance in zip(weights, variances, strict=True)
        if weight > NEGLIGIBLE * total
    ]


def sides_of(values: Sequence[float], ordered: Sequence[float]) -> list[float]:
    """Return for each sample how high it lies, with mean 0 and variance 1; 0 if all are equal."""
    bounds = [percentile_of(ordered, rank) for rank in (25, 50, 75)]
    outer, inner = 1 + 2 * QUARTILE_WEIGHT, 1.0
    heights = (-outer, -inner, inner, outer)
    above = map(heights.__getitem__, map(partial(bisect_left, bounds), values))
    below = map(heights.__getitem__, map(partial(bisect_right, bounds), values))
    sides = list(map(add, above, below))  # equal to a bound: neither above nor below
    mean = math.fsum(sides) / len(sides)
    variance = math.fsum(map(mul, sides, sides)) / len(sides) - mean**2
    scale = 1 / math.sqrt(variance) if variance > 0 else 0.0
    return [(side - mean) * scale for side in sides]


def low_frequencies(series: Sequence[float]) -> list[float]:
    """Return the power of a series at its lowest frequencies, k / 2n for k from 1."""
    count, blocks = len(series), min(len(series), BLOCKS)
    edges = [round(block * count / blocks) for block in range(blocks + 1)]
    sums = [0.0, *accumulate(series)]
    blocked = [sums[end] - sums[start] for start, end in pairwise(edges)]
    scale = 2 / count
    return [scale * sum(map(mul, blocked, wave)) ** 2 for wave in cosines(blocks)]


@lru_cache(maxsize=8)
def cosines(blocks: int) -> list[list[float]]:
    """Return the lowest waves of the cosine transform of so many values."""
    return [
        [math.cos(math.pi * wave * (block + 0.5) / blocks) for block in range(blocks)]
        for wave in range(1, min(FREQUENCIES, blocks - 1) + 1)
    ]


@lru_cache(maxsize=8)
def models_of(count: int, frequencies: int) -> list[tuple[float, float, list[float], float]]:
    """Return the models of so many samples.

    Each has the logarithm of its weight before the samples are seen, the variance of the mean (1
    for independent samples), the reciprocal of its spectrum at the frequencies, and the sum of the
    spectrum's logarithms.
    """
    times = [SHORTEST_TIME]
    while times[-1] * 2 <= LONGEST_TIME * count:
        times.append(times[-1] * 2)
    priors = {
        (math.exp(-1 / time), share): time**TIME_POWER * share**SHARE_POWER
        for time in times
        for share in SHARES
    }
    scale = (1 - INDEPENDENT_WEIGHT - ALTERNATING_WEIGHT) / math.fsum(priors.values())
    weights = {model: prior * scale for model, prior in priors.items()}
    weights[0.0, 1.0] = INDEPENDENT_WEIGHT
    weights |= {(kept, 1.0): ALTERNATING_WEIGHT / len(ALTERNATING) for kept in ALTERNATING}
    waves = [math.cos(math.pi * wave / count) for wave in range(1, frequencies + 1)]
    models = []
    for (kept, share), weight in weights.items():
        spectrum = [
            1 - share + share * (1 - kept**2) / (1 - 2 * kept * wave + kept**2) for wave in waves
        ]
        fading = (1 + kept) / (1 - kept) - 2 * kept * (1 - kept**count) / (count * (1 - kept) ** 2)
        models.append(
            (
                math.log(weight),
                max(1.0, 1 - share + share * fading),
                [1 / power for power in spectrum],
                math.fsum(map(math.log, spectrum)),
            )
        )
    return models


def reach_of(deviations: Sequence[tuple[float, float]], beyond: float) -> float:
    """Return how far from 0 a mixture of normal distributions lies with this probability."""
    low, high = 0.0, 8 * max(deviation for _, deviation in deviations)
    scaled = [(weight, 1 / (deviation * math.sqrt(2))) for weight, deviation in deviations]
    for _ in range(40):
        middle = (low + high) / 2
        if sum(weight * math.erfc(middle * scale) for weight, scale in scaled) > beyond:
            low = middle
        else:
            high = middle
    return high


def order_statistic(ordered: Sequence[float], part: float) -> float:
    """Return the value that lies above this part of sorted values, between the two nearest.

    Of the definitions of a quantile, Hyndman and Fan's type 5: the order statistics of an interval
    are numbered from both ends alike.
    """
    rank = 100 * (len(ordered) * part - 0.5) / (len(ordered) - 1)
    return percentile_of(ordered, min(max(rank, 0.0), 100.0))
