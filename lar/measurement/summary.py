"""The summary of a run, made of its samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lar.measurement.intervals import median_interval
from lar.measurement.queueing import summarize_queue
from lar.measurement.statistics import disturbed_of, percentile_of, statistics_of
from lar.records.run import FedInput, RunResult
from lar.records.summary import Summary


def summarize(result: RunResult) -> Summary | None:
    """Return the summary of a run's timed iterations, None if there are none."""
    samples = result.samples
    statistics = statistics_of(samples.end_to_end)
    if statistics is None:
        return None
    disturbed = set(disturbed_of(samples.end_to_end, samples.queue_delay))
    calm = [each for index, each in enumerate(samples.end_to_end) if index not in disturbed]
    rate, items = iterations_per_second(result), items_in_iteration(result)
    return Summary(
        count=statistics.count,
        mean=statistics.mean,
        standard_deviation=statistics.standard_deviation,
        minimum=statistics.minimum,
        maximum=statistics.maximum,
        median=statistics.median,
        interval=median_interval(samples.end_to_end),
        percentiles=statistics.percentiles,
        iterations_per_second=rate,
        items_per_second=rate * items if rate and items else None,
        disturbed_count=len(disturbed),
        disturbed={"queue delay": len(disturbed)} if disturbed else {},
        undisturbed_median=percentile_of(sorted(calm), 50) if calm else None,
        undisturbed_interval=median_interval(calm),
        cpu_median=median_of_known(samples.cpu),
        queue=summarize_queue(result),
    )


def median_of_known(values: Sequence[float | None]) -> float | None:
    """Return the median of what is known, None without any."""
    known = sorted(value for value in values if value is not None)
    return percentile_of(known, 50) if known else None


def iterations_per_second(result: RunResult) -> float | None:
    """Return the iterations of all runners in a second, None if nothing took time, or if they slept
    before each.

    With several runners it is their number over the time that all took together, or, where that
    is not known, the sum of what each reached. Of requests it is how many were served.
    """
    samples, runners, pacing = result.samples, result.spec.runners, result.spec.pacing
    if pacing.idle_seconds is not None:
        return None
    if (runners > 1 or pacing.rate is not None) and result.iterations_seconds:
        return len(samples.end_to_end) / result.iterations_seconds
    times = [samples.of_runner(runner).end_to_end for runner in range(runners)]
    rate = sum(len(each) / total for each in times if (total := math.fsum(each)) > 0)
    return rate or None


def items_in_iteration(result: RunResult) -> int | None:
    """Return how many items an iteration computes: those of the batch, or one of a data set; None
    where the batch is not known, or may differ from testcase to testcase."""
    if result.spec.items:
        return 1
    return None if result.spec.cases else batch_of(result.fed)


def batch_of(fed: Sequence[FedInput]) -> int | None:
    """Return how many items a run is fed with at once, None if unknown."""
    shapes = [each.shape for each in fed if len(each.shape) > 1]
    return shapes[0][0] if shapes else None
