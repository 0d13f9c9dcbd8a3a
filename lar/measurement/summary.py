"""The summary of a run, made of its samples.

The summary of requests that arrived at a rate.

When a warm-up has settled, and when a median is known well enough.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, compress, zip_longest
from operator import add, sub
from typing import Any, NamedTuple

from lar.measurement.statistics import (
    FEWEST_UNDISTURBED,
    PERCENTILES,
    Statistics,
    causes_of,
    disturbed_in,
    median_interval,
    median_of_known,
    percentile_of,
    statistics_of,
)
from lar.records.run import FedInput, ItemClasses, RunResult, Samples
from lar.records.summary import Cause, QueueSummary, Summary, Trust


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


# How far CPU time and waiting may be from an iteration's time in the median: engines hand work to
# other threads, and a busy machine wakes these late.
UNACCOUNTED_SHARE = 0.2


def summarize(result: RunResult) -> Summary | None:
    """Return the summary of a run's timed iterations; None if no iteration was timed."""
    samples = result.samples
    statistics = statistics_of(samples.end_to_end, result.spec.percentiles or PERCENTILES)
    if statistics is None:
        return None
    causes = causes_of(samples)
    disturbed = {*chain.from_iterable(causes.values())}
    every, calm = in_turn(samples, ()), in_turn(samples, disturbed)
    interval = median_interval(every)
    rate, items = iterations_per_second(result), items_in_iteration(result)
    return Summary(
        **vars(statistics),
        interval=interval,
        iterations_per_second=rate,
        items_per_second=rate * items if rate and items else None,
        disturbed_count=len(disturbed),
        disturbed={cause: len(indexes) for cause, indexes in causes.items()},
        undisturbed_median=median_of_known(calm) if disturbed else statistics.median,
        undisturbed_interval=median_interval(calm) if disturbed else interval,
        cpu_median=median_of_known(samples.busiest_thread),
        trust=figure_to_trust(result, causes, len(calm)),
        queue=summarize_queue(result),
    )


def figure_to_trust(
    result: RunResult, causes: Mapping[Cause, Sequence[int]], calm_count: int
) -> Trust:
    """Return the figure that says how long an iteration takes on a quiet machine.

    It is the raw median if nothing was disturbed, else that of the undisturbed iterations if there
    are enough of them, else the CPU time if this is the latency.
    """
    if not causes:
        return "latency"
    if calm_count >= FEWEST_UNDISTURBED:
        return "undisturbed latency"
    return "cpu" if cpu_is_latency(result) else "nothing"


def cpu_is_latency(result: RunResult) -> bool:
    """Return whether the CPU time of an iteration is its latency on a quiet machine.

    It is for a run on one thread, if CPU time and waiting add up to an iteration: then only the
    wait was added. It is not for a run on several threads, since a thread may spin while it waits
    for another; nor if the one thread may spin while it waits for work; nor on a device; nor if
    heat slowed down the CPU itself.
    """
    if result.engine is None or result.engine.threads != 1 or may_be_spinning(result):
        return False
    accounted = median_of_known(accounted_parts(result.samples)) or 0.0
    return abs(accounted - 1) <= UNACCOUNTED_SHARE


def may_be_spinning(result: RunResult) -> bool:
    """Return whether the CPU time may be only the spinning of a thread that waits for work.

    On a busy machine a thread does so in each iteration.
    """
    cpu = median_of_known(result.samples.busiest_thread)
    return result.engine is not None and cpu is not None and cpu <= result.engine.spin_seconds


def accounted_parts(samples: Samples) -> list[float]:
    """Return the part of each iteration's time that CPU time, waiting and steal account for."""
    columns = (samples.busiest_thread, samples.queue_delay, samples.throttled, samples.steal)
    filled = [each or (None,) * len(samples.end_to_end) for each in columns]
    return [
        # A throttled thread counts as ready without a CPU: the two are one wait, seen twice.
        (cpu + max(delay or 0.0, throttled or 0.0) + (steal or 0.0)) / seconds
        for seconds, cpu, delay, throttled, steal in zip(samples.end_to_end, *filled, strict=True)
        if cpu is not None and seconds
    ]


def in_turn(samples: Samples, left_out: Collection[int]) -> Sequence[float]:
    """Return end-to-end times without those with some indexes.

    Those of several runners come in turn: what disturbs one at a time disturbs the others too.
    """
    times = samples.end_to_end
    if not left_out and not samples.runner:
        return times
    kept = bytearray(b"\1") * len(times)
    for index in left_out:
        kept[index] = 0
    if not samples.runner:
        return array("d", compress(times, kept))
    runners: defaultdict[int, array[float]] = defaultdict(lambda: array("d"))
    for runner, seconds in compress(zip(samples.runner, times, strict=True), kept):
        runners[runner].append(seconds)
    several = chain.from_iterable(zip_longest(*runners.values()))
    return array("d", (each for each in several if each is not None))


def calm_median(samples: Samples) -> float | None:
    """Return the median of the undisturbed iterations, None if they are too few.

    If nothing disturbed the run it is the median of all, however few.
    """
    disturbed = disturbed_in(samples)
    calm = in_turn(samples, disturbed)
    return None if disturbed and len(calm) < FEWEST_UNDISTURBED else median_of_known(calm)


def iterations_per_second(result: RunResult) -> float | None:
    """Return the iterations of all runners in a second.

    It is None if nothing took time, or if runners slept before each iteration. With several runners
    it is their number over the time of all together or, if that is not known, the sum of their own
    rates. With requests it is how many were served.
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
    """Return how many items an iteration computes: a batch, or one item of a data set.

    It is None if the batch is not known, or may differ between testcases.
    """
    if result.spec.items:
        return 1
    return None if result.spec.cases else batch_of(result.fed)


def batch_of(fed: Sequence[FedInput]) -> int | None:
    """Return how many items a run is fed with at once, None if unknown."""
    shapes = [each.shape for each in fed if len(each.shape) > 1]
    return shapes[0][0] if shapes else None


# Medians that differ by no more than this agree.
SMALLEST_DRIFT = 0.01

# Of more samples than this, only every second, third, ... is used, so that a look is short. The
# interval gets wider by it.
MOST_LOOKED_AT = 100_000


def windows_agree(earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Return whether two successive windows of iterations are alike.

    They are if their medians hardly differ, or if each median lies well within the other's samples:
    if times scatter, medians of a few differ.
    """
    first, second = sorted(earlier), sorted(later)
    ours, theirs = percentile_of(first, 50), percentile_of(second, 50)
    if abs(ours - theirs) <= SMALLEST_DRIFT * min(ours, theirs):
        return True
    return is_well_within(theirs, first) and is_well_within(ours, second)


def is_well_within(value: float, ordered: Sequence[float]) -> bool:
    """Return whether a value lies among sorted samples, without a tenth at each end."""
    return percentile_of(ordered, 10) <= value <= percentile_of(ordered, 90)


class Precision(NamedTuple):
    """How well a median is known: half the width of its interval over it, None without one."""

    half_width: float | None
    undisturbed: bool = False  # the median is of the undisturbed iterations alone


def precision_of(samples: Samples) -> Precision:
    """Return how well the median is known that a summary trusts.

    It is that of the undisturbed iterations if some were disturbed and the others are enough for an
    interval, else that of all.
    """
    if disturbed := disturbed_in(samples):
        half_width = relative_half_width(in_turn(samples, disturbed))
        if half_width is not None:
            return Precision(half_width, undisturbed=True)
    return Precision(relative_half_width(in_turn(samples, ())))


def relative_half_width(times: Sequence[float]) -> float | None:
    """Return half the width of the median's 95 % interval over the median, None if too few."""
    looked_at = times[:: 1 + len(times) // MOST_LOOKED_AT]
    interval = median_interval(looked_at)
    if interval is None:
        return None
    median = percentile_of(sorted(looked_at), 50)
    return (interval.high - interval.low) / 2 / median if median else None


def accuracy_of(items: Sequence[ItemClasses]) -> tuple[int, int, int]:
    """Return how many items are labelled, and how many of these have their class first, and among
    the first five."""
    labelled = [item for item in items if item.label is not None]
    first = sum(item.classes[:1] == (item.label,) for item in labelled)
    return len(labelled), first, sum(item.label in item.classes for item in labelled)
