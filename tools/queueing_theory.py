"""Waiting times by queueing theory, if one runner serves requests in the order of arrival."""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_wait(rate: float, services: Sequence[float]) -> float:
    """Return the mean seconds that requests wait for one runner, after Pollaczek and Khinchine.

    Requests arrive in a Poisson process with this rate, and serving a request takes one of the
    times in `services`. If more requests arrive than can be served, the result is infinity. Source:
    L. Kleinrock, Queueing Systems I, 5.6.
    """
    load = rate * math.fsum(services) / len(services)
    if load >= 1:
        return math.inf
    second_moment = math.fsum(each * each for each in services) / len(services)
    return rate * second_moment / (2 * (1 - load))


def waits_by_recursion(arrivals: Sequence[float], services: Sequence[float]) -> list[float]:
    """Return the seconds for which each request waits until the request before has been served.

    Source: D. V. Lindley, 1952.
    """
    waits: list[float] = []
    free = -math.inf
    for arrival, service in zip(arrivals, services, strict=True):
        waits.append(max(0.0, free - arrival))
        free = arrival + waits[-1] + service
    return waits
