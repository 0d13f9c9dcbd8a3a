"""When measuring ends and when iterations begin: what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lar.records.record import Record

Arrivals = Literal["poisson", "fixed"]
Ending = Literal["iterations", "duration", "target", "max_time", "room"]
Rank = int | float  # of a percentile: 90, 99.9


class Stopping(Record):
    """What ends measuring, besides the number of iterations; None: not asked for.

    Attributes:
        duration_seconds: how long to measure.
        target_interval: measure until half the width of the 95 % interval of the median is at
            most this share of the median; 0.01 is 1 %.
        min_seconds: with a target, measure for at least so long.
        max_seconds: with a target, measure for at most so long.
        settle: warm up until two windows of iterations agree.
        warmup_seconds: warm up for at least so long.
        warmup_room: the iterations that this has room for.
    """

    duration_seconds: float | None = None
    target_interval: float | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None
    settle: bool = False
    warmup_seconds: float | None = None
    warmup_room: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the number of iterations is not known beforehand."""
        return self.duration_seconds is not None or self.target_interval is not None

    @property
    def most_seconds(self) -> float | None:
        """How long is measured at most, None if nothing limits it."""
        return self.max_seconds if self.duration_seconds is None else self.duration_seconds


class Pacing(Record):
    """When an iteration begins, if not as soon as the one before it has ended.

    Attributes:
        idle_seconds: how long a runner sleeps before each iteration.
        rate: how many requests arrive in a second, whether or not a runner is free.
        arrivals: the times between arrivals are those of a Poisson process, or all the same.
    """

    idle_seconds: float | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"


class Stopped(Record):
    """How measuring ended, if not by the number of iterations alone.

    Attributes:
        ending: what ended it: `room` means that no more samples could be held.
        met: whether what was asked for was reached; a rate is, if as many can be served.
        seconds: how long was measured, the warm-up left out.
        reached: half the width of the 95 % interval of the median, as a share of the median; None
            where it was not asked for, or the samples were too few.
        undisturbed: that median is of the undisturbed iterations alone, as some were disturbed.
        settled: whether two windows of the warm-up agreed; None if that was not asked for.
        offered: how many requests had arrived, with a rate.
        unserved: how many of these no runner had begun when measuring ended.
        load: the requests that arrive while one is served, over the runners: from 1 on the queue
            grows for as long as requests arrive.
    """

    ending: Ending
    met: bool
    seconds: float
    reached: float | None = None
    undisturbed: bool = False
    settled: bool | None = None
    offered: int | None = None
    unserved: int = 0
    load: float | None = None


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
