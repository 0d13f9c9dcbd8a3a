"""The objective of a search as a number of each process: latency, throughput, memory, p99."""

from __future__ import annotations

import math

from lar.measurement.statistics import disturbed_of, percentile_of
from lar.records.choices import Objective
from lar.records.run import RunResult, Samples

# With fewer undisturbed iterations than this, all iterations count.
FEWEST_CALM = 4


def score_of(objective: Objective, result: RunResult) -> float | None:
    """Return the objective of a process, in seconds or bytes, None if it was not measured.

    Latency is the median of the undisturbed iterations. For throughput it is the time of the copy
    that computed longest, divided by the number of all iterations.
    """
    if objective == "memory":
        return float(result.peak_memory_bytes) if result.peak_memory_bytes else None
    samples = result.samples
    if not samples.end_to_end:
        return None
    if objective == "p99":
        return percentile_of(sorted(samples.end_to_end), 99)
    if objective == "throughput":
        return time_of_slowest_copy(samples) / len(samples.end_to_end)
    return percentile_of(sorted(undisturbed(samples)), 50)


def undisturbed(samples: Samples) -> list[float]:
    """Return the times of the undisturbed iterations, or of all if those are few."""
    disturbed = {*disturbed_of(samples.end_to_end, samples.queue_delay)}
    calm = [each for index, each in enumerate(samples.end_to_end) if index not in disturbed]
    return calm if len(calm) >= min(FEWEST_CALM, len(samples.end_to_end)) else [*samples.end_to_end]


def time_of_slowest_copy(samples: Samples) -> float:
    """Return how long the slowest copy of the model computed, in seconds."""
    return max(math.fsum(samples.of_runner(it).end_to_end) for it in {*samples.runner} or {0})
