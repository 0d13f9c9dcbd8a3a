"""Quantiles of Student's t distribution, so that no command has to load SciPy.

With t = sqrt(degrees) * sinh(u) the density of u is `peak * cosh(u) ** -degrees`. It falls from its
peak at 0, and Simpson's rule integrates it well. Newton's method from 0 never passes the quantile,
since the probability grows ever more slowly.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import cycle, islice
from operator import mul

SIMPSON = (1, *islice(cycle((4, 2)), 399), 1)
PRECISION = 1e-9


@lru_cache(maxsize=4096)
def quantile_of_t(probability: float, degrees: float) -> float:
    """Return the value below which a t variable stays with this probability.

    `degrees` may be a fraction.

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
        heights = [math.cosh(u * index / spacing) ** -degrees for index in range(spacing + 1)]
        area = peak * u / (3 * spacing) * sum(map(mul, SIMPSON, heights))
        step = (probability - 0.5 - area) / (peak * heights[-1])
        u += step
    return math.sqrt(degrees) * math.sinh(u)
