"""What queueing theory expects of requests that one runner serves in the order of their arrival."""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_wait(rate: float, services: Sequence[float]) -> float:
    """Return the mean time in seconds that requests wait for one runner, after Pollaczek and
    Khinchine, where they arrive by a Poisson process and take one of these times each.

    Infinity where more arrive than can be served. L. Kleinrock, Queueing Systems I, 5.6.
    """
    load = rate * math.fsum(services) / len(services)
    if load >= 1:
        return math.inf
    second_moment = math.fsum(each * each for each in services) / len(services)
    return rate * second_moment / (2 * (1 - load))


def waits_by_recursion(arrivals: Sequence[float], services: Sequence[float]) -> list[float]:
    """Return how long each request waits for one runner: until the one before has been served
    (D. V. Lindley, 1952)."""
    waits: list[float] = []
    free = -math.inf
    for arrival, service in zip(arrivals, services, strict=True):
        waits.append(max(0.0, free - arrival))
        free = arrival + waits[-1] + service
    return waits
