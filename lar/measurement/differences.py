"""Whether one set of times differs from another: ratio, interval and verdict.

What is compared are whole processes. Where the code and the data of a process lie in memory decides
how fast it is, so that two processes of one program differ by a per cent or more, however many
samples each has: one process is one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.records.summary import Difference, Interval, Verdict

# The numbers of processes at which a comparison that goes on is looked at, and the part of alpha
# that each look may spend: the parts add up to 1 at most.
FIRST_LOOK = 5
STEP = math.sqrt(2)
FIRST_SHARE = 0.2

POWER = 0.9
TRIMMED = 0.25  # the part of a process's ratios that is left out at each end


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the logarithms of runs' medians, and its degrees of freedom."""

    deviation: float
    degrees: int


def looks() -> Iterator[tuple[int, float]]:
    """Yield the numbers of processes at which to look, each with its part of alpha."""
    processes, share = FIRST_LOOK, FIRST_SHARE
    while True:
        yield processes, share
        processes, share = math.ceil(processes * STEP - 0.5), share * (1 - FIRST_SHARE)


def share_at(processes: int) -> tuple[int, float]:
    """Return the next look, from this number of processes on, and its part of alpha."""
    return next(look for look in looks() if look[0] >= processes)


def alpha_of_look(processes: int, alpha: float = 0.05) -> float | None:
    """Return the part of `alpha` that the look at this number of processes spends; None: no look.

    The parts of all looks add up to `alpha` at most.
    """
    at, share = share_at(processes)
    return alpha * share if at == processes else None


def compare_pairs(
    log_ratios: Sequence[Sequence[float]], *, comparisons: int = 1, alpha: float = 0.05
) -> Difference | None:
    """Compare B with A by pairs of fresh processes; None with fewer than two of them.

    Args:
        log_ratios: for each pair of processes the logarithms of B's time over A's, of neighbouring
            turns.
        comparisons: the number of comparisons that are made together.
        alpha: the probability of a wrong "faster" or "slower" in any of them, at any look.
    """
    centres = [trimmed_mean(ratios) for ratios in log_ratios if ratios]
    if len(centres) < 2:
        return None
    mean, error, degrees = centre_of(centres)
    return judge(
        mean,
        error,
        degrees,
        alpha=alpha * share_at(len(centres))[1] / comparisons,
        processes=len(centres),
        pairs=sum(map(len, log_ratios)),
    )


def compare_groups(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    *,
    between: Spread | None = None,
    comparisons: int = 1,
    alpha: float = 0.05,
) -> Difference | None:
    """Compare stored runs: the samples of each run of A, and of each of B.

    One run against another shows no difference, since nothing says how much runs differ, unless
    `between` says it. None: one side has no samples.
    """
    sides = [[math.log(percentile_of(sorted(run), 50)) for run in side if run] for side in (a, b)]
    if not all(sides):
        return None
    first, second = sides
    spread = pool_spread([*map(spread_of, sides), between])
    mean = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    deviation, degrees = (spread.deviation, spread.degrees) if spread else (math.inf, 0)
    return judge(
        mean,
        deviation * math.sqrt(1 / len(first) + 1 / len(second)),
        degrees,
        alpha=alpha / comparisons,
        processes=len(first) + len(second),
        pairs=sum(map(len, (*a, *b))),
    )


def spread_between_runs(groups: Sequence[Sequence[Sequence[float]]]) -> Spread | None:
    """Return how much runs of one kind differ, from groups of them; None without two of a kind."""
    medians = [
        [math.log(percentile_of(sorted(run), 50)) for run in group if run] for group in groups
    ]
    return pool_spread([spread_of(group) for group in medians])


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread of values; None with fewer than two."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(math.sqrt(squares / (len(values) - 1)), len(values) - 1)


def pool_spread(spreads: Sequence[Spread | None]) -> Spread | None:
    """Return the common spread of several groups."""
    known = [spread for spread in spreads if spread]
    degrees = sum(spread.degrees for spread in known)
    if not degrees:
        return None
    squares = math.fsum(spread.degrees * spread.deviation**2 for spread in known)
    return Spread(math.sqrt(squares / degrees), degrees)


def judge(
    mean: float, error: float, degrees: int, *, alpha: float, processes: int, pairs: int
) -> Difference:
    """Return what a difference of logarithms with this standard error shows."""
    reach = quantile_of_t(1 - alpha / 2, degrees) * error if degrees else math.inf
    shown = abs(mean) > reach
    detectable = reach + quantile_of_t(POWER, degrees) * error if degrees else math.inf
    verdict: Verdict = "no difference shown"
    if shown:
        verdict = "slower" if mean > 0 else "faster"
    return Difference(
        ratio=math.exp(mean),
        interval=Interval(math.exp(mean - reach), math.exp(mean + reach), 1 - alpha),
        verdict=verdict,
        smallest_detectable=math.expm1(detectable),
        processes=processes,
        pairs=pairs,
    )


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without a quarter of the values at each end: outliers do not move it."""
    ordered = sorted(values)
    cut = int(len(ordered) * TRIMMED)
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept)


def centre_of(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the centre of values, its standard error and the degrees of freedom."""
    mean = math.fsum(values) / len(values)
    spread = spread_of(values)
    assert spread
    return mean, spread.deviation / math.sqrt(len(values)), spread.degrees
