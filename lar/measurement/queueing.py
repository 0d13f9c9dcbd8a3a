"""Requests that arrive at a rate: what they met, and what queueing theory expects of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lar.measurement.statistics import statistics_of
from lar.records.run import RunResult
from lar.records.stopping import QueueSummary


def summarize_queue(result: RunResult) -> QueueSummary | None:
    """Return what the requests of a run met; None for a run without a rate, or without requests."""
    rate, samples = result.spec.pacing.rate, result.samples
    if rate is None:
        return None
    waits = [each or 0.0 for each in samples.queueing]
    waiting, service = statistics_of(waits), statistics_of(samples.end_to_end)
    if waiting is None or service is None:
        return None
    latency = statistics_of(
        [wait + time for wait, time in zip(waits, samples.end_to_end, strict=True)]
    )
    assert latency is not None
    seconds, runners = result.iterations_seconds, result.spec.runners
    return QueueSummary(
        offered_per_second=rate,
        served_per_second=service.count / seconds if seconds else None,
        load=rate * service.mean / runners,
        busy=service.total / seconds / runners if seconds else None,
        waiting_mean=waiting.mean,
        waiting_median=waiting.median,
        waiting_maximum=waiting.maximum,
        waiting_percentiles=waiting.percentiles,
        latency_mean=latency.mean,
        latency_median=latency.median,
        latency_maximum=latency.maximum,
        latency_percentiles=latency.percentiles,
    )


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
