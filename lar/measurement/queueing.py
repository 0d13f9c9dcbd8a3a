"""Requests that arrive at a rate: what they met."""

from __future__ import annotations

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
