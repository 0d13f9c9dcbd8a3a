"""Computes the summary of a run from its samples.

This module also summarises requests that arrived at a rate, and decides when a warm-up has settled
and when a median is known well enough.
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
from lar.records.run import FedInput, ItemClasses, RunResult, Samples, TensorInfo, batch_axis
from lar.records.summary import Cause, QueueSummary, Summary, Trust


def summarize_queue(result: RunResult) -> QueueSummary | None:
    """Return the summary of a run's requests, or None if the run had no requests."""
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
    """Return a summary of times as fields whose names begin with `name`."""
    kept = ("mean", "median", "maximum", "percentiles")
    return {f"{name}_{each}": getattr(times, each) for each in kept}


def rate_of(times: Sequence[float]) -> float | None:
    """Return the rate per second of events that happened at `times`, or None for equal times."""
    if len(times) < 2 or min(times) == max(times):
        return None
    return (len(times) - 1) / (max(times) - min(times))


# The CPU time and the waiting of an iteration may differ from its time by this part, in the median:
# engines hand work to other threads, and a busy machine wakes these threads late.
UNACCOUNTED_SHARE = 0.2


def summarize(result: RunResult) -> Summary | None:
    """Return the summary of a run's timed iterations, or None if no iteration was timed."""
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

    If nothing was disturbed, the figure is the median of all iterations. If some iterations were
    disturbed, and enough iterations were not, the figure is the median of the undisturbed
    iterations. If too few iterations were undisturbed, the figure is the CPU time, but only if
    `cpu_is_latency` is true.
    """
    if not causes:
        return "latency"
    if calm_count >= FEWEST_UNDISTURBED:
        return "undisturbed latency"
    return "cpu" if cpu_is_latency(result) else "nothing"


def cpu_is_latency(result: RunResult) -> bool:
    """Return whether the CPU time of an iteration is its latency on a quiet machine.

    The CPU time of a run on one thread is the latency if CPU time and waiting add up to the time of
    an iteration, since other work on the machine then adds only waiting. The CPU time is not the
    latency if the run has several threads, since one thread may spin while it waits for another
    thread. The CPU time of a single thread is not the latency if the thread may spin while it waits
    for work, if a device computes, or if heat slowed down the CPU.
    """
    if result.engine is None or result.engine.threads != 1 or may_be_spinning(result):
        return False
    accounted = median_of_known(accounted_parts(result.samples)) or 0.0
    return abs(accounted - 1) <= UNACCOUNTED_SHARE


def may_be_spinning(result: RunResult) -> bool:
    """Return whether all CPU time may come from a thread that spins while it waits for work.

    On a busy machine, a thread may spin in each iteration.
    """
    cpu = median_of_known(result.samples.busiest_thread)
    return result.engine is not None and cpu is not None and cpu <= result.engine.spin_seconds


def accounted_parts(samples: Samples) -> list[float]:
    """Return for each iteration the part of its time that CPU time, waiting and steal explain."""
    columns = (samples.busiest_thread, samples.queue_delay, samples.throttled, samples.steal)
    filled = [each or (None,) * len(samples.end_to_end) for each in columns]
    return [
        # A throttled thread also counts as waiting for a CPU. This is one wait, so it counts once.
        (cpu + max(delay or 0.0, throttled or 0.0) + (steal or 0.0)) / seconds
        for seconds, cpu, delay, throttled, steal in zip(samples.end_to_end, *filled, strict=True)
        if cpu is not None and seconds
    ]


def in_turn(samples: Samples, left_out: Collection[int]) -> Sequence[float]:
    """Return the end-to-end times, without the times at the indexes in `left_out`.

    In the result, the times of several runners alternate, since a disturbance affects all runners
    at the same time.
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
    """Return the median of the undisturbed iterations, or None if too few were undisturbed.

    A run in which no iteration was disturbed always has this median, even if it has only one
    iteration.
    """
    disturbed = disturbed_in(samples)
    calm = in_turn(samples, disturbed)
    return None if disturbed and len(calm) < FEWEST_UNDISTURBED else median_of_known(calm)


def iterations_per_second(result: RunResult) -> float | None:
    """Return the number of iterations of all runners per second.

    The result is None if the times are 0, or if runners slept before each iteration. For several
    runners, or for requests, the result is the number of iterations divided by
    `iterations_seconds`, if it is known. Otherwise, the result is the sum of the rates of all
    runners.
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
    """Return the number of items in an iteration: the batch size, or 1 for an item of a data set.

    The result is None if the batch size is not known, or may differ between testcases.
    """
    if result.spec.items:
        return 1
    if result.spec.cases:
        return None
    return result.spec.batch_size or batch_of(result.fed, result.inputs)


def batch_of(fed: Sequence[FedInput], infos: Sequence[TensorInfo]) -> int | None:
    """Return the batch size of the fed inputs, or None if the inputs have different sizes.

    The batch is on the axis that has its name in the model, or on the first axis. Inputs with one
    axis are left out. If only some inputs have a batch of any size, the others are left out too.
    """
    places = {info.name: batch_axis(info) for info in infos}
    found = {it.name: it.shape[places.get(it.name, 0) :] for it in fed if len(it.shape) > 1}
    free = {it.name for it in infos if it.shape[batch_axis(it) :][:1] == (None,)} & found.keys()
    sizes = {shape[:1] for name, shape in found.items() if name in free or not free}
    return sizes.pop()[0] if len(sizes) == 1 and () not in sizes else None


# Two medians agree if they differ by no more than this part.
SMALLEST_DRIFT = 0.01

# If there are more samples than this, only every second, third, ... is used, so that a look is
# short. This makes the interval wider.
MOST_LOOKED_AT = 100_000


def windows_agree(earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Return whether two successive windows of iterations agree.

    Two windows agree if their medians hardly differ. If times scatter, medians of a few samples
    differ more. When times scatter, two windows agree if the median of each window lies well within
    the samples of the other window.
    """
    first, second = sorted(earlier), sorted(later)
    ours, theirs = percentile_of(first, 50), percentile_of(second, 50)
    if abs(ours - theirs) <= SMALLEST_DRIFT * min(ours, theirs):
        return True
    return is_well_within(theirs, first) and is_well_within(ours, second)


def is_well_within(value: float, ordered: Sequence[float]) -> bool:
    """Return whether a value lies between the 10th and the 90th percentile of sorted samples."""
    return percentile_of(ordered, 10) <= value <= percentile_of(ordered, 90)


class Precision(NamedTuple):
    """The precision of a median: half the width of its 95 % interval, divided by the median.

    `half_width` is None if there is no interval.
    """

    half_width: float | None
    undisturbed: bool = False  # only undisturbed iterations count


def precision_of(samples: Samples) -> Precision:
    """Return the precision of the median that a summary trusts.

    If some iterations were disturbed, and the other iterations are enough for an interval, the
    summary trusts the median of the undisturbed iterations. If nothing was disturbed, or if too few
    iterations were undisturbed, the summary trusts the median of all iterations.
    """
    if disturbed := disturbed_in(samples):
        half_width = relative_half_width(in_turn(samples, disturbed))
        if half_width is not None:
            return Precision(half_width, undisturbed=True)
    return Precision(relative_half_width(in_turn(samples, ())))


def relative_half_width(times: Sequence[float]) -> float | None:
    """Return half the width of the median's 95 % confidence interval, divided by the median.

    The result is None if there are too few samples for an interval.
    """
    looked_at = times[:: 1 + len(times) // MOST_LOOKED_AT]
    interval = median_interval(looked_at)
    if interval is None:
        return None
    median = percentile_of(sorted(looked_at), 50)
    return (interval.high - interval.low) / 2 / median if median else None


def accuracy_of(items: Sequence[ItemClasses]) -> tuple[int, int, int]:
    """Return how many items have a label, and how many are right by top-1 and by top-5."""
    labelled = [item for item in items if item.label is not None]
    first = sum(item.classes[:1] == (item.label,) for item in labelled)
    return len(labelled), first, sum(item.label in item.classes for item in labelled)
