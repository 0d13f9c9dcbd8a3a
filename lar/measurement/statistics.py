"""Statistics of samples: pure functions, no NumPy, so that reports start fast."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lar.records.record import PART
from lar.records.summary import Rank

if TYPE_CHECKING:
    from lar.records.run import Samples
    from lar.records.summary import Cause

# A percentile is reported only if a sample lies beyond it; otherwise it would be the maximum: p90
# needs 10 samples, p95 20, p99 100.
PERCENTILES: tuple[Rank, ...] = (90, 95, 99)

# A sample is disturbed if it lost this part of its time to something else on the machine.
DISTURBED_SHARE = 0.05
DISTURBED_SECONDS = 1e-4  # at least: a reading takes longer than a short iteration
# It is also disturbed if its CPU ran at less than this part of the run's median frequency; smaller
# steps are usual for a governor.
LOW_FREQUENCY = 0.9
# It is also disturbed if the probe after it took so many times as long as on a core without other
# users. That time is taken from the fastest tenth of the run's probes.
SLOW_PROBE = 1.3
USUAL_RANK = 10
# Probes count only if they say something about the run, which differs between machines: samples
# beside slow ones must be slower, by more than chance gives once in a thousand runs.
SLOWED = 1.02
DEVIATIONS = 3.0

# Of six undisturbed iterations, the fastest and the slowest have the true median between them with
# 97 % probability, as each lies on either side of it with 1/2: 1 - 2 / 2**6.
FEWEST_UNDISTURBED = 6


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """A summary of times in seconds; `standard_deviation` uses n - 1 and needs two samples."""

    count: int
    mean: float
    standard_deviation: float | None
    minimum: float
    maximum: float
    median: float
    percentiles: dict[Rank, float]

    @property
    def total(self) -> float:
        return self.count * self.mean


def statistics_of(
    values: Sequence[float], ranks: Sequence[Rank] = PERCENTILES
) -> Statistics | None:
    """Summarise samples, with the percentiles that their number supports; None without samples."""
    if not values:
        return None
    ordered = array("d", sorted(values))
    count = len(ordered)
    mean = math.fsum(ordered) / count
    deviation = None
    if count > 1:
        # The distance between two points of that many dimensions, which is fast for millions.
        parts = (ordered[first : first + PART] for first in range(0, count, PART))
        distances = (math.dist(part, [mean] * len(part)) for part in parts)
        deviation = math.hypot(*distances) / math.sqrt(count - 1)
    return Statistics(
        count=count,
        mean=mean,
        standard_deviation=deviation,
        minimum=ordered[0],
        maximum=ordered[-1],
        median=percentile_of(ordered, 50),
        percentiles={
            rank: percentile_of(ordered, rank) for rank in ranks if count >= samples_for(rank)
        },
    )


def samples_for(rank: Rank) -> int:
    """Return how many samples a percentile needs: enough for one to lie beyond it."""
    return math.ceil(round(100 / (100 - rank), 6))


def percentile_of(ordered: Sequence[float], rank: float) -> float:
    """Return a percentile of sorted values, interpolated linearly between the two nearest.

    The definition is Hyndman and Fan's type 7, which NumPy uses by default.
    """
    position = (len(ordered) - 1) * rank / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median_of_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values, None without any."""
    return percentile_of_known(values, 50)


def percentile_of_known(values: Iterable[float | None], rank: float) -> float | None:
    """Return a percentile of the known values, None without any."""
    known = sorted(value for value in values if value is not None)
    return percentile_of(known, rank) if known else None


def causes_of(samples: Samples) -> dict[Cause, tuple[int, ...]]:
    """Return the indexes of the disturbed samples by cause, without causes that have none.

    A wait for a CPU, steal and throttling count if they took a notable part of a sample's time. A
    probe is compared with the run's other probes.
    """
    times = samples.end_to_end
    low = LOW_FREQUENCY * (median_of_known(samples.frequency) or 0.0)
    found: dict[Cause, tuple[int, ...]] = {
        "queue delay": disturbed_of(times, samples.queue_delay),
        "steal": disturbed_of(times, samples.steal),
        "throttling": disturbed_of(times, samples.throttled),
        "frequency": tuple(
            index for index, each in enumerate(samples.frequency) if each is not None and each < low
        ),
        "slow core": slowed_of(times, samples.probe),
    }
    return {cause: indexes for cause, indexes in found.items() if indexes}


def disturbed_in(samples: Samples) -> set[int]:
    """Return the indexes of all samples that were disturbed."""
    return {*chain.from_iterable(causes_of(samples).values())}


def disturbed_of(
    end_to_end: Sequence[float], queue_delay: Sequence[float | None]
) -> tuple[int, ...]:
    """Return the indexes of the samples that lost a notable part of their time to waiting.

    This may be waiting for a CPU or another loss; empty if it was not measured.
    """
    if not queue_delay:
        return ()
    return tuple(
        index
        for index, (seconds, delay) in enumerate(zip(end_to_end, queue_delay, strict=True))
        if delay is not None and delay > DISTURBED_SECONDS and delay > DISTURBED_SHARE * seconds
    )


def slowed_of(end_to_end: Sequence[float], probes: Sequence[float | None]) -> tuple[int, ...]:
    """Return the indexes of the samples with a slow probe, empty if the others are not faster.

    Mood's test of medians decides: of the samples above the median of all, more must have slow
    probes than chance explains.
    """
    limit = SLOW_PROBE * (percentile_of_known(probes, USUAL_RANK) or 0.0)
    slow, usual = array("d"), array("d")  # the times of their samples
    for seconds, probe in zip(end_to_end, probes, strict=False):
        if probe is not None:
            (slow if probe > limit else usual).append(seconds)
    if not slow or not usual:
        return ()
    middle_of_slow, middle_of_usual, middle = (
        percentile_of(sorted(times), 50) for times in (slow, usual, chain(slow, usual))
    )
    if middle_of_slow < SLOWED * middle_of_usual:
        return ()
    above_of_slow, above_of_usual = (
        sum(seconds > middle for seconds in times) for times in (slow, usual)
    )
    part = (above_of_slow + above_of_usual) / (len(slow) + len(usual))
    error = math.sqrt(part * (1 - part) * (1 / len(slow) + 1 / len(usual)))
    excess = above_of_slow / len(slow) - above_of_usual / len(usual)
    if excess < DEVIATIONS * error:
        return ()
    return tuple(i for i, probe in enumerate(probes) if probe is not None and probe > limit)
