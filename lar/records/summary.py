"""The summary of a run: the figures that its samples show, and which figure to trust."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lar.records.record import Record, ShortRecord

Rank = int | float  # the rank of a percentile: 90, 99.9
Cause = Literal["queue delay", "steal", "throttling", "frequency", "slow core"]
Trust = Literal["latency", "undisturbed latency", "cpu", "nothing"]
Verdict = Literal["faster", "slower", "no difference shown", "not judged"]


class Interval(ShortRecord):
    """A confidence interval: it contains the true value with the probability `confidence`."""

    low: float
    high: float
    confidence: float = 0.95


class Difference(Record):
    """The difference in time between A and B.

    Attributes:
        ratio: the time of B divided by the time of A, such as 1.03 if B is 3 % slower.
        interval: the confidence interval of the ratio, corrected for repeated looks at the data and
            for several comparisons, or None if the interval has no ends.
        verdict: whether B is shown to be faster or slower than A.
        reason: why the difference is not judged; empty if it is judged.
        smallest_detectable: the smallest change that would have been shown in 90 % of cases, such
            as 0.02 for 2 %, or None if the difference is not judged.
        processes: the number of pairs of processes, or of runs of both sides.
        pairs: the number of ratios, or of samples, in all processes.
    """

    ratio: float
    interval: Interval | None = None
    verdict: Verdict = "not judged"
    reason: str = ""
    smallest_detectable: float | None = None
    processes: int = 0
    pairs: int = 0

    @property
    def is_shown(self) -> bool:
        """Whether B is shown to be faster or slower."""
        return self.verdict in ("faster", "slower")


class QueueSummary(Record):
    """The summary of a run in which requests arrived at a given rate. Times are seconds.

    Waiting is the time from the arrival of a request to its start. Latency is the time from the
    arrival to the end. Service is the time from the start to the end: one iteration.

    Attributes:
        offered_per_second: the rate of requests that the user asked for.
        arrived_per_second: the rate at which requests arrived, which differs from the offered rate
            if arrivals are random, or None for a single request.
        served_per_second: the rate at which requests were served, or None if the run failed.
        load: the number of requests that arrive while one request is served, divided by the number
            of runners.
        busy: the share of time in which a runner served a request, or None if the run failed.
        waiting_percentiles: the percentiles that the number of requests supports, by rank.
    """

    offered_per_second: float
    arrived_per_second: float | None = None
    served_per_second: float | None
    load: float
    busy: float | None
    waiting_mean: float
    waiting_median: float
    waiting_maximum: float
    waiting_percentiles: dict[Rank, float] = field(default_factory=dict)
    latency_mean: float
    latency_median: float
    latency_maximum: float
    latency_percentiles: dict[Rank, float] = field(default_factory=dict)


class Summary(Record):
    """A few figures about the timed iterations of a run. Times are seconds.

    Attributes:
        interval: the confidence interval of the median, or None if there are too few samples.
        percentiles: the requested percentiles that the number of samples supports, by rank.
        iterations_per_second: the rate of all runners together, or None if the times are 0 or
            runners slept before each iteration.
        items_per_second: the rate of items, where an iteration computes a batch of items or one
            item of a data set, or None if the batch size is not known or differs between
            iterations.
        disturbed_count: the number of iterations that something else on the machine disturbed.
        disturbed: the number of disturbed iterations by cause; an iteration that has two causes is
            counted under each cause.
        undisturbed_median: the median of the undisturbed iterations, or None if all were disturbed.
        undisturbed_interval: the confidence interval of `undisturbed_median`.
        cpu_median: the median CPU time of the thread that computed most in an iteration, which is
            the latency on a quiet machine if the run has one thread, or None if it is not known.
        trust: the figure to trust, where "cpu" is `cpu_median`, and "nothing" means that too few
            iterations were undisturbed and that the CPU time does not show the latency.
        queue: the summary of requests, if they arrived at a rate; all other figures are then about
            the service of requests.
    """

    count: int
    mean: float
    standard_deviation: float | None
    minimum: float
    maximum: float
    median: float
    interval: Interval | None = None
    percentiles: dict[Rank, float] = field(default_factory=dict)
    iterations_per_second: float | None = None
    items_per_second: float | None = None
    disturbed_count: int = 0
    disturbed: dict[Cause, int] = field(default_factory=dict)
    undisturbed_median: float | None = None
    undisturbed_interval: Interval | None = None
    cpu_median: float | None = None
    trust: Trust = "latency"
    queue: QueueSummary | None = None
