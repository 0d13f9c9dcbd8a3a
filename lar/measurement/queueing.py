"""The summary of requests that arrived at a rate."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, sub
from typing import Any

from lar.measurement.statistics import PERCENTILES, Statistics, statistics_of
from lar.records.run import RunResult
from lar.records.summary import QueueSummary


def summarize_queue(result: RunResult) -> QueueSummary | None:
    """Return the summary of a run's requests, None without a rate or without requests."""
    rate, samples = result.spec.pacing.rate, result.samples
    if rate is None:
        return None
    waits = [each or 0.0 for each in samples.queueing]
    ranks = result.spec.percentiles or PERCENTILES
    waiting, service = statistics_of(waits, ranks), statistics_of(samples.end_to_end)
    if waiting is None or service is None:
        return None
    latency = statistics_of([*map(add, waits, samples.end_to_end)], ranks)
    assert latency is not None
    arrivals = [*map(sub, samples.began, waits)]
    ends = [*map(add, samples.began, samples.end_to_end)]
    seconds, runners = result.iterations_seconds, result.spec.runners
    return QueueSummary(
        offered_per_second=rate,
        arrived_per_second=rate_of(arrivals),
        served_per_second=(rate_of(ends) or service.count / seconds) if seconds else None,
        load=rate * service.mean / runners,
        busy=service.total / seconds / runners if seconds else None,
        **figures_of("waiting", waiting),
        **figures_of("latency", latency),
    )


def figures_of(name: str, times: Statistics) -> dict[str, Any]:
    """Return the fields of a summary of times that begin with a name."""
    kept = ("mean", "median", "maximum", "percentiles")
    return {f"{name}_{each}": getattr(times, each) for each in kept}


def rate_of(times: Sequence[float]) -> float | None:
    """Return the rate per second of events at these times, None with fewer than two."""
    if len(times) < 2 or min(times) == max(times):
        return None
    return (len(times) - 1) / (max(times) - min(times))
