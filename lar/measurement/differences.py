"""Whether one set of times differs from another: ratio, interval and verdict.

What is compared are whole processes. Where the code and the data of a process lie in memory decides
how fast it is, so that two processes of one program differ by a per cent or more, however many
samples each has: one process is one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lar.measurement.intervals import effective_count
from lar.measurement.statistics import percentile_of
from lar.measurement.student import quantile_of_t
from lar.records.summary import Difference, Interval, Verdict

# The numbers of processes at which a comparison that goes on is looked at, and the part of alpha
# that each look may spend: the parts add up to 1 at most.
FIRST_LOOK = 5
STEP = math.sqrt(2)
FIRST_SHARE = 0.2

POWER = 0.9

# An interval that reaches this many times up and down leaves any ratio possible: it is none.
LARGEST_LOGARITHM = math.log(1000)

# Of normal values: how many deviations the quartiles lie apart, and the variance of the median.
QUARTILES_APART = 1.349
MEDIAN_VARIANCE = math.pi / 2
FEWEST_FOR_WELCH = 3  # runs of each side

# The parts that are left out at each end: of the ratios of one process, and of processes.
TRIMMED_RATIOS = 0.25
TRIMMED_PROCESSES = 0.15


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
        [(error, degrees)],
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
    runs = [[run for run in side if run and percentile_of(sorted(run), 50) > 0] for side in (a, b)]
    if not all(runs):
        return None
    first, second = [[log_median(run) for run in side] for side in runs]
    spreads = [spread_of(first), spread_of(second)]
    errors = []
    if spread := pool_spread([*spreads, between]):
        shorter = max(0.0, mean_error(runs[1]) - mean_error(runs[0])) / len(second)
        variance = spread.deviation**2 * (1 / len(first) + 1 / len(second)) + shorter
        errors.append((math.sqrt(variance), float(spread.degrees)))
    if min(len(first), len(second)) >= FEWEST_FOR_WELCH:
        errors.append(welch_error(first, second))
    return judge(
        math.fsum(second) / len(second) - math.fsum(first) / len(first),
        errors,
        alpha=alpha / comparisons,
        processes=len(first) + len(second),
        pairs=sum(map(len, (*a, *b))),
    )


def spread_between_runs(groups: Sequence[Sequence[Sequence[float]]]) -> Spread | None:
    """Return how much runs of one kind differ, from groups of them; None without two of a kind."""
    medians = [[percentile_of(sorted(run), 50) for run in group if run] for group in groups]
    return pool_spread(
        [spread_of([math.log(median) for median in group if median > 0]) for group in medians]
    )


def log_median(run: Sequence[float]) -> float:
    """Return the logarithm of the median of a run's samples."""
    return math.log(percentile_of(sorted(run), 50))


def mean_error(runs: Sequence[Sequence[float]]) -> float:
    """Return the mean of the squared errors that the runs' own medians have, of logarithms."""
    squares = []
    for run in runs:
        low, high = (percentile_of(sorted(run), rank) for rank in (25, 75))
        deviation = math.log(high / low) / QUARTILES_APART if low > 0 else 0.0
        squares.append(deviation**2 * MEDIAN_VARIANCE / effective_count(run))
    return math.fsum(squares) / len(squares)


def welch_error(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of a difference of means whose values may spread differently."""
    parts = []
    for values in (first, second):
        spread = spread_of(values)
        assert spread
        parts.append((spread.deviation**2 / len(values), spread.degrees))
    variance = math.fsum(part for part, _ in parts)
    if not variance:
        return 0.0, float(len(first) + len(second) - 2)
    return (
        math.sqrt(variance),
        variance**2 / math.fsum(part**2 / degrees for part, degrees in parts),
    )


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
    mean: float,
    errors: Sequence[tuple[float, float]],
    *,
    alpha: float,
    processes: int,
    pairs: int,
) -> Difference:
    """Return what a difference of logarithms shows.

    Each of its standard errors comes with its degrees of freedom; the one that shows less counts.
    Without any nothing is shown.
    """
    reach = detectable = 0.0 if errors else math.inf
    for error, degrees in errors:
        bound = quantile_of_t(1 - alpha / 2, degrees)
        reach = max(reach, bound * error)
        detectable = max(detectable, detectable_errors(bound, degrees) * error)
    verdict: Verdict = "no difference shown"
    if abs(mean) > reach:
        verdict = "slower" if mean > 0 else "faster"
    return Difference(
        ratio=math.exp(mean),
        interval=(
            Interval(math.exp(mean - reach), math.exp(mean + reach), 1 - alpha)
            if reach < LARGEST_LOGARITHM
            else None
        ),
        verdict=verdict,
        smallest_detectable=math.expm1(detectable) if detectable < LARGEST_LOGARITHM else None,
        processes=processes,
        pairs=pairs,
    )


def detectable_errors(bound: float, degrees: float) -> float:
    """Return how many standard errors a change has that exceeds this bound of t in 90 % of cases.

    The quantile of the noncentral t distribution, with the error's estimate taken for normal.
    """
    half = degrees / 2
    mean = math.exp(math.lgamma(half + 0.5) - math.lgamma(half)) / math.sqrt(half)
    variance = 1 - mean * mean
    return bound * mean + quantile_of_t(POWER, math.inf) * math.sqrt(1 + bound * bound * variance)


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without a quarter of the values at each end: outliers do not move it."""
    ordered = sorted(values)
    cut = int(len(ordered) * TRIMMED_RATIOS)
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept)


def centre_of(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the centre of values, its standard error and the degrees of freedom.

    From eight values on it is a trimmed mean: single processes that something disturbed, or that
    lie badly in memory, neither move it nor hide a difference. The error is Yuen's, of the values
    with the trimmed ones drawn in to their neighbours (Wilcox, Introduction to Robust Estimation
    and Hypothesis Testing, chapter 4.3).
    """
    ordered = sorted(values)
    count = len(ordered)
    cut = int((count - 1) * TRIMMED_PROCESSES)
    kept = ordered[cut : count - cut]
    drawn_in = spread_of([kept[0]] * cut + kept + [kept[-1]] * cut)
    assert drawn_in
    error = drawn_in.deviation * math.sqrt(count) / len(kept)
    return math.fsum(kept) / len(kept), error, len(kept) - 1
