"""The interval of a median of correlated samples.

The samples of one process resemble their neighbours: times drift, another program comes and goes. A
median of n such samples is as uncertain as that of fewer independent ones. How uncertain depends on
the low frequencies of one series: the rank of each sample, so that outliers do not matter. Its
variance is known. Its spectrum is modelled as white noise plus a part that fades, with any share
and any correlation time:

    spectrum = 1 - share + share * that of an autoregression of order 1 with that time

Whittle's likelihood of the lowest frequencies (a cosine transform) says how well each share and
time fits. None of them is chosen: the variance is the mean of all models, weighted as by Bayes. So
few samples, which cannot show their correlation, get a wide interval. The interval's ends are
quantiles of the samples (Hahn and Meeker, Statistical Intervals, chapter 5).

Simulations show what it can do; `tests/measurement/test_intervals.py` has some. The interval of 95
% contains the process's median in 92 to 98 % of cases if the samples have seen what the process
does: 20 independent samples, 50 with a correlation of 0.7 between neighbours, 200 with 0.9, some
ten bursts. A disturbance that has not come yet is in no sample.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul, truediv
from typing import NamedTuple

from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.records.summary import Interval

# Fewer samples cannot show whether they are correlated.
FEWEST_SAMPLES = 20
# An interval that leaves out fewer than this part of the samples at each end says nothing.
LEAST_BEYOND = 0.15

BLOCKS = 160  # many samples are summed into so many blocks: low frequencies need no more
FREQUENCIES = 60
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
SHORTEST_TIME = 0.5  # in samples; each next correlation time is twice as long
LONGEST_TIME = 0.5  # as a part of the number of samples
# The prior weight of independent samples; all other models share the rest equally.
INDEPENDENT_WEIGHT = 0.6
ALTERNATING = -0.9  # the correlation of neighbours if slow and fast samples take turns


class Model(NamedTuple):
    """A spectrum that samples may have.

    It has its power at the lowest frequencies, the variance of the mean (1 for independent
    samples), and the logarithm of its likelihood for a series without any power.
    """

    spectrum: Sequence[float]
    variance: float
    logarithm: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of the median of the samples of one process, given in their order.

    It is None if there are too few samples, or if they are too much like their neighbours. To stop
    when the interval is narrow, look at numbers of samples that grow by half, and stop after two
    narrow looks in a row: an interval is seldom narrow by chance twice.
    """
    if len(values) < FEWEST_SAMPLES:
        return None
    ordered = array("d", sorted(values))
    if ordered[0] == ordered[-1]:
        return Interval(ordered[0], ordered[0], confidence)
    variance = variance_of_mean(ranks_of(values, ordered)) / len(values)
    reach = quantile_of_t(0.5 + confidence / 2, len(values) - 1) * math.sqrt(variance) / 2
    if reach > 0.5 - LEAST_BEYOND:
        return None
    low, high = (percentile_of(ordered, 100 * part) for part in (0.5 - reach, 0.5 + reach))
    return Interval(low, high, confidence)


def ranks_of(values: Sequence[float], ordered: Sequence[float]) -> Sequence[float]:
    """Return the rank of each sample, scaled to mean 0 and variance 1; some samples must differ."""
    places = ((bisect_left(ordered, it), bisect_right(ordered, it)) for it in values)
    ranks = array("q", (first + last - len(ordered) for first, last in places))
    scale = math.sqrt(sum(map(mul, ranks, ranks)) / len(ranks))
    return array("d", (rank / scale for rank in ranks))


def variance_of_mean(series: Sequence[float]) -> float:
    """Return the variance of a series' mean over that of as many independent values."""
    power = low_frequencies(series)
    models = models_of(len(series), len(power))
    logarithms = [it.logarithm - sum(map(truediv, power, it.spectrum)) / 2 for it in models]
    largest = max(logarithms)
    weights = [math.exp(logarithm - largest) for logarithm in logarithms]
    return math.fsum(map(mul, weights, (it.variance for it in models))) / math.fsum(weights)


def low_frequencies(series: Sequence[float]) -> list[float]:
    """Return the power of a series at its lowest frequencies, k / 2n for k from 1."""
    count, blocks = len(series), min(len(series), BLOCKS)
    edges = [round(block * count / blocks) for block in range(blocks + 1)]
    sums = array("d", accumulate(series, initial=0.0))
    blocked = [sums[end] - sums[start] for start, end in pairwise(edges)]
    return [2 / count * sum(map(mul, blocked, wave)) ** 2 for wave in cosines(blocks)]


@lru_cache(maxsize=8)
def cosines(blocks: int) -> list[list[float]]:
    """Return the lowest waves of the cosine transform of so many values."""
    return [
        [math.cos(math.pi * wave * (block + 0.5) / blocks) for block in range(blocks)]
        for wave in range(1, min(FREQUENCIES, blocks - 1) + 1)
    ]


@lru_cache(maxsize=8)
def models_of(count: int, frequencies: int) -> list[Model]:
    """Return the models for the spectrum of so many samples, at so many lowest frequencies."""
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
