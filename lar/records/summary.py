"""The summary of a run: what its samples show, and which of its figures to trust."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lar.records.record import Record, ShortRecord

Rank = int | float  # of a percentile: 90, 99.9
Cause = Literal["queue delay", "steal", "throttling", "frequency", "slow core"]
Trust = Literal["latency", "undisturbed latency", "cpu", "nothing"]
Verdict = Literal["faster", "slower", "no difference shown", "not judged"]


class Interval(ShortRecord):
    """The range that holds the true value in `confidence` of the cases, in the value's unit."""

    low: float
    high: float
    confidence: float = 0.95


class Difference(Record):
    """How much slower B is than A.

    Attributes:
        ratio: the time of B over that of A; 1.03 if B is 3 % slower.
        interval: of the ratio, corrected for the looks taken and the number of comparisons; None if
            it has no end.
        verdict: what is shown of B.
        reason: why it is not judged; empty if it is.
        smallest_detectable: the change that would have been shown with a probability of 90 %, 0.02
            for 2 %; None if it is not judged.
        processes: the pairs of processes, or the runs of both sides.
        pairs: the ratios, or the samples, of all of them.
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
        """Whether it is faster or slower."""
        return self.verdict in ("faster", "slower")


class QueueSummary(Record):
    """What requests that arrived at a rate met. Times are seconds.

    Waiting is from the arrival of a request to its start, latency from the arrival to its end; the
    time between, the service, is an iteration's.

    Attributes:
        offered_per_second: how many requests were asked for.
        arrived_per_second: how many came, as the times between are drawn; None for a single one.
        served_per_second: how many were served, None if the run did not end well.
        load: the same as in `Stopped`.
        busy: the share of the time in which a runner served, None as above.
        waiting_percentiles: by rank, those alone that the number of requests supports.
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
    """The timed iterations of a run in a few figures. Times are seconds.

    Attributes:
        interval: that of the median; None if there are too few samples for one.
        percentiles: by rank, those asked for that the number of samples supports.
        iterations_per_second: of all runners together; None if nothing took time, or if they slept
            before each iteration.
        items_per_second: an iteration is as many items as a batch holds, or one of a data set;
            None if the batch is not known, or not the same in all iterations.
        disturbed_count: the iterations that something else on the machine disturbed.
        disturbed: their number by cause; an iteration with two causes counts for both.
        undisturbed_median: the median of the others, None if all were disturbed.
        cpu_median: of the CPU time of the thread that computed most in an iteration; None if it
            is not known. For a run on one thread it is the latency on a quiet machine.
        trust: the figure that decides. "cpu" is `cpu_median`; with "nothing" too few iterations
            were undisturbed, and the CPU time is not the latency either.
        queue: what requests met, if they arrived at a rate; the other figures are of their service.
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
