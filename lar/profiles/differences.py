"""The difference of two means or medians, with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

FEWEST_FOR_MEDIANS = 5


@dataclass(frozen=True)
class Difference:
    """A figure in both runs; `percent` is None for a difference from nothing.

    `error` is half the width of the confidence interval of `delta`, None if one of the runs
    has too few iterations for it: fewer than two for means, than FEWEST_FOR_MEDIANS for medians.
    """

    baseline: float
    experiment: float
    error: float | None

    @property
    def delta(self) -> float:
        return self.experiment - self.baseline

    @property
    def percent(self) -> float | None:
        return self.delta / self.baseline * 100 if self.baseline else None

    @property
    def exceeds_noise(self) -> bool | None:
        return None if self.error is None else abs(self.delta) > self.error


def difference_of(
    baseline: Sequence[float] | None, experiment: Sequence[float] | None, confidence: float
) -> Difference | None:
    """Compare the means of two samples; return None if a sample is missing.

    The interval is Welch's, for two normal samples of different variance (B. L. Welch, "The
    generalization of Student's problem", Biometrika 34, 1947).
    """
    if not baseline or not experiment:
        return None
    one, two = mean_of(baseline), mean_of(experiment)
    if len(baseline) < 2 or len(experiment) < 2:
        return Difference(one, two, None)
    parts = [
        math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in ((baseline, one), (experiment, two))
    ]
    variance = sum(parts)
    if not variance:
        return Difference(one, two, 0.0)
    freedom = variance**2 / (
        parts[0] ** 2 / (len(baseline) - 1) + parts[1] ** 2 / (len(experiment) - 1)
    )
    return Difference(one, two, student_quantile(confidence, freedom) * math.sqrt(variance))


def median_difference_of(
    baseline: Sequence[float], experiment: Sequence[float], confidence: float
) -> Difference:
    """Compare the medians of two samples, of one value at least.

    The interval supposes nothing of how the values scatter; it is that of R. M. Price and
    D. G. Bonett, "Distribution-free confidence intervals for difference and ratio of medians",
    Journal of Statistical Computation and Simulation 72, 2002.
    """
    one, two = median(baseline), median(experiment)
    if min(len(baseline), len(experiment)) < FEWEST_FOR_MEDIANS:
        return Difference(one, two, None)
    error = math.hypot(error_of_median(baseline), error_of_median(experiment))
    return Difference(one, two, NormalDist().inv_cdf((1 + confidence) / 2) * error)


def error_of_median(values: Sequence[float]) -> float:
    """Return the standard error of a median, from two values at the same distance from the middle
    and the chance that the median lies between them."""
    ordered, count = sorted(values), len(values)
    rank = max(1, round((count + 1) / 2 - math.sqrt(count)))
    # The chance of a value below the median is one half.
    below = math.fsum(binomial_half(count, k) for k in range(rank))
    return (ordered[-rank] - ordered[rank - 1]) / (-2 * NormalDist().inv_cdf(below))


def binomial_half(count: int, successes: int) -> float:
    """Return the chance of `successes` among `count` trials that are as likely to succeed as to
    fail."""
    ways = math.lgamma(count + 1) - math.lgamma(successes + 1)
    return math.exp(ways - math.lgamma(count - successes + 1) - count * math.log(2))


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def student_quantile(confidence: float, freedom: float) -> float:
    """Return how many standard errors a two-sided interval reaches to either side.

    The series are those of G. W. Hill, "Algorithm 396: Student's t-quantiles", Communications of
    the ACM 13, 1970; from two degrees of freedom on, whole or not, they are good to three digits.
    Below, the quantile of one degree is taken, which is larger.
    """
    if freedom < 2:
        return math.tan(math.pi / 2 * confidence)
    tail = 1 - confidence
    a = 1 / (freedom - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    y = (d * tail) ** (2 / freedom)
    if y > a + 0.05:  # near the middle: expanded about the normal quantile
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if freedom < 5:
            c += 0.3 * (freedom - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (
                1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3)
                + 0.5 / (freedom + 4)
            )
            * y
            - 1
        ) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)
