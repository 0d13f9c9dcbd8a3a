"""When a warm-up has settled, and when a median is known well enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lar.measurement.intervals import median_interval
from lar.measurement.statistics import disturbed_in, percentile_of
from lar.measurement.summary import in_turn
from lar.records.run import Samples

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
