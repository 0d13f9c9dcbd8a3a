"""The interval of a median whose samples are correlated."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.records.summary import Interval

__all__ = ["Interval", "effective_count", "median_interval"]

# Fewer independent samples than this say nothing about where the median lies.
FEWEST = 8.0


def effective_count(values: Sequence[float]) -> float:
    """Return how many independent samples would fix the median as well as these do, in their order.

    It lies between 1 and their number.
    """
    count = len(values)
    if count < 2:
        return float(count)
    median = percentile_of(sorted(values), 50)
    signs = [(value > median) - (value < median) for value in values]
    time, lag = 1.0, 1
    while lag < min(count / 2, 6 * time):
        together = sum(map(int.__mul__, signs, signs[lag:]))
        time += 2 * together / max(1, sum(map(abs, signs)))
        lag += 1
    return min(float(count), max(1.0, count / max(time, 1.0)))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of the median of the samples of one process, given in their order.

    None: too few samples, or samples so much alike their neighbours that nothing can be said.
    """
    effective = effective_count(values)
    if effective < FEWEST:
        return None
    ordered = sorted(values)
    reach = quantile_of_t((1 + confidence) / 2, effective - 1) / math.sqrt(effective) / 2
    if reach >= 0.5:
        return None
    return Interval(
        percentile_of(ordered, 100 * (0.5 - reach)),
        percentile_of(ordered, 100 * (0.5 + reach)),
        confidence,
    )
