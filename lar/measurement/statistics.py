"""Statistics of samples: pure functions, no NumPy, so that reports start fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lar.records.stopping import Rank

if TYPE_CHECKING:
    from lar.records.run import Samples
    from lar.records.summary import Cause

# A percentile is reported only where a sample lies beyond it, or it would be the maximum by another
# name: p90 needs 10 samples, p95 20, p99 100.
PERCENTILES: tuple[Rank, ...] = (90, 95, 99)

# A sample is disturbed when it lost this part of its time to something else on the machine.
DISTURBED_SHARE = 0.05
DISTURBED_SECONDS = 1e-4  # at the least: a reading's own window is wider than a short iteration
# It is, too, when its CPU ran at less than this part of the run's median frequency: steps within
# it are the usual play of a governor.
LOW_FREQUENCY = 0.9
# Or when the probe after it took more than so many times what it takes on a core that nobody else
# uses, which is taken from the fastest tenth of the run's probes: nobody does so all the time.
SLOW_PROBE = 1.3
USUAL_RANK = 10
# If the probes say something about the run, which differs from machine to machine: the samples
# beside slow ones must be slower, and by more than chance has it once in a thousand runs.
SLOWED = 1.02
DEVIATIONS = 3.0

# Of so many undisturbed iterations, the fastest and the slowest have the true median between them
# with 97 % probability, as each lies on either side of it with 1/2: 1 - 2 / 2**6.
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
    """Summarise samples, with those of some percentiles that their number supports; None without
    samples."""
    if not values:
        return None
    ordered = sorted(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    deviation = None
    if count > 1:
        # The distance between two points of that many dimensions: fast for millions.
        deviation = math.dist(ordered, [mean] * count) / math.sqrt(count - 1)
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


def causes_of(samples: Samples) -> dict[Cause, tuple[int, ...]]:
    """Return the indexes of the samples that were disturbed, by cause; those without any left out.

    A wait for a CPU, steal and throttling count where they took a notable part of a sample's time.
    A probe counts by what it takes in most of the run.
    """
    times = samples.end_to_end
    known = sorted(each for each in samples.frequency if each is not None)
    low = LOW_FREQUENCY * percentile_of(known, 50) if known else 0.0
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
    """Return the indexes of the samples that waited for a CPU, or lost time in another way, for a
    notable part of their time; none where that was not measured."""
    if not queue_delay:
        return ()
    return tuple(
        index
        for index, (seconds, delay) in enumerate(zip(end_to_end, queue_delay, strict=True))
        if delay is not None and delay > DISTURBED_SECONDS and delay > DISTURBED_SHARE * seconds
    )


def slowed_of(end_to_end: Sequence[float], probes: Sequence[float | None]) -> tuple[int, ...]:
    """Return the indexes of the samples beside which the probe was slow; none of them if the others
    are not faster.

    Whether they are is Mood's test of medians: of the samples above the median of all, more must
    stand beside slow probes than chance explains.
    """
    known = sorted(probe for probe in probes if probe is not None)
    if not known:
        return ()
    limit = SLOW_PROBE * percentile_of(known, USUAL_RANK)
    slow = tuple(i for i, probe in enumerate(probes) if probe is not None and probe > limit)
    usual = [i for i, probe in enumerate(probes) if probe is not None and probe <= limit]
    if not slow or not usual:
        return ()
    middle_of_slow, middle_of_usual, middle = (
        percentile_of(sorted(end_to_end[index] for index in indexes), 50)
        for indexes in (slow, usual, (*slow, *usual))
    )
    if middle_of_slow < SLOWED * middle_of_usual:
        return ()
    above_of_slow, above_of_usual = (
        sum(end_to_end[index] > middle for index in indexes) for indexes in (slow, usual)
    )
    part = (above_of_slow + above_of_usual) / len(known)
    error = math.sqrt(part * (1 - part) * (1 / len(slow) + 1 / len(usual)))
    excess = above_of_slow / len(slow) - above_of_usual / len(usual)
    return slow if excess >= DEVIATIONS * error else ()
