"""Student's t distribution in pure Python: reports start fast without SciPy and NumPy.

The probability is a regularised incomplete beta function, by its continued fraction (Lentz's
method; Press et al., Numerical Recipes, 3rd edition, chapter 6.4).
"""

from __future__ import annotations

import math
from functools import lru_cache

PRECISION = 1e-16
TINY = 1e-300
MOST_STEPS = 10_000


def probability_beyond(t: float, degrees: float) -> float:
    """Return the probability of a value above `t`; `degrees` may be a fraction, or infinite."""
    if t < 0:
        return 1 - probability_beyond(-t, degrees)
    if math.isinf(degrees):
        return math.erfc(t / math.sqrt(2)) / 2
    if math.isinf(t):
        return 0.0
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


@lru_cache(maxsize=4096)
def quantile_of_t(probability: float, degrees: float) -> float:
    """Return the value that a t variable stays below with this probability.

    Raises:
        ValueError: the probability is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0 < probability < 1 or not degrees > 0:
        raise ValueError(f"no quantile {probability} with {degrees} degrees of freedom")
    if probability < 0.5:
        return -quantile_of_t(1 - probability, degrees)
    beyond = 1 - probability
    low, high = 0.0, 1.0
    while probability_beyond(high, degrees) > beyond:
        low, high = high, high * 2
    while (middle := (low + high) / 2) not in (low, high):
        if probability_beyond(middle, degrees) > beyond:
            low = middle
        else:
            high = middle
    return middle


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x))
    return front * continued_fraction(a, b, x) / a


def continued_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function."""
    numerator = 1.0
    denominator = 1 / nonzero(1 - (a + b) * x / (a + 1))
    value = denominator
    for step in range(1, MOST_STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for coefficient in (even, odd):
            denominator = 1 / nonzero(1 + coefficient * denominator)
            numerator = nonzero(1 + coefficient / numerator)
            factor = numerator * denominator
            value *= factor
        if abs(factor - 1) < PRECISION:
            break
    return value


def nonzero(value: float) -> float:
    """Return the value, or the smallest number that can be divided by."""
    return value if abs(value) > TINY else TINY
