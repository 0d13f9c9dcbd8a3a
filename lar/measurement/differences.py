"""Judges whether B is slower than A; this module makes all verdicts of lar on times.

Whole processes are compared. The speed of a process depends on where its code and its data lie in
memory, so that two processes of one program differ by 1 % or more, even with very many samples.
Therefore each process contributes only one value, and not one value per iteration.

`compare_turns` compares programs that ran alternately. In each round, each program runs in a fresh
process, and the processes compute in turns. From two turns that follow each other, one ratio is
computed: the ratio of the medians of their undisturbed iterations.

`compare_pairs` compares pairs of processes; each pair has one ratio or several ratios.

`compare_groups` compares the stored times of processes that were not made in pairs, or groups of
processes that were made within minutes of each other.

The verdict is "faster" or "slower" if the confidence interval of the ratio does not contain 1. If
the interval contains 1, the verdict is "no difference shown", with the smallest change that would
have been shown. If there is too little data, the verdict is "not judged", with a reason. If a side
has no times, the result is None. All logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

from lar.errors import count_of
from lar.measurement.rows import join_samples
from lar.measurement.statistics import disturbed_of, percentile_of, quantile_of_t
from lar.records.bench import Turn
from lar.records.run import Samples
from lar.records.summary import Difference, Interval, Verdict

# The columns of samples that each turn keeps. The probe is left out: a slow core slows down
# neighbouring turns alike, and does not change their ratio.
KEPT = ("end_to_end", "queue_delay", "cpu", "steal", "throttled", "runner")

# If a round has fewer ratios of undisturbed turns, it does not count among the undisturbed rounds.
FEWEST_CALM = 2

# Only the longest wait of one thread is known. If several threads wait for a CPU in turn, and for
# each other, more time is lost. It is assumed to be this many times the known wait.
LOST_PER_WAIT = 2

# The usual time of a turn. Disturbances are often longer, so that they affect neighbouring turns
# alike.
TURN_SECONDS = 0.01
MOST_PER_TURN = 64
# The time and the number of untimed iterations at the start of a turn. They are needed since the
# caches hold data of other processes.
UNTIMED_SECONDS = 5e-4
MOST_UNTIMED = 8


class Ratios(NamedTuple):
    """For each round, a list of log ratios of the times of two neighbouring turns.

    A ratio is the variant's time divided by the baseline's time. If `are_calm`, the ratios come
    from undisturbed iterations only. `least` has a second log ratio for each pair of turns. For
    this ratio, the time that the slower side may have lost to other work is first subtracted from
    its time. The values in `least` are nearer to 0 than the values in `rounds`.
    """

    rounds: list[list[float]]
    are_calm: bool
    least: Sequence[list[float]] = ()


def iterations_in_turn(seconds: float) -> tuple[int, int]:
    """Return the numbers of untimed and timed iterations in a turn; an iteration takes `seconds`.

    Before long iterations, no untimed iterations are needed, since long iterations hardly depend on
    the caches.
    """
    timed = min(max(round(TURN_SECONDS / seconds), 2), MOST_PER_TURN)
    if seconds >= 10 * TURN_SECONDS:
        return 0, timed
    return min(max(math.ceil(UNTIMED_SECONDS / seconds), 1), MOST_UNTIMED), timed


def centre_of_turn(turn: Turn, *, is_calm: bool) -> float | None:
    """Return the median time of a turn's iterations, or None if the turn has no iterations.

    With `is_calm`, only undisturbed iterations are used.
    """
    values = turn.samples.end_to_end
    if is_calm:
        disturbed = set(disturbed_of(values, turn.samples.queue_delay))
        values = tuple(it for index, it in enumerate(values) if index not in disturbed)
    return percentile_of(sorted(values), 50) if values else None


def log_ratios_of(baseline: Sequence[Turn], variant: Sequence[Turn]) -> Ratios:
    """Return the log ratios of neighbouring turns; a ratio is a quotient of two turns' medians.

    Only undisturbed iterations are used; turns and rounds without undisturbed iterations are left
    out. If most rounds have too few undisturbed turns, all iterations are used.
    """
    calm, every = (pair_turns(baseline, variant, are_calm=it) for it in (True, False))
    calm = [pairs for pairs in calm if len(pairs) >= FEWEST_CALM]
    are_calm = 2 * len(calm) >= len(every)
    rounds = [*filter(None, calm if are_calm else every)]
    ratios, least = ([[pair[at] for pair in pairs] for pairs in rounds] for at in (0, 1))
    return Ratios(ratios, are_calm, least)


def pair_turns(
    baseline: Sequence[Turn], variant: Sequence[Turn], *, are_calm: bool
) -> list[list[tuple[float, float]]]:
    """Return for each round the log ratios of neighbouring turns.

    Each ratio comes with a least value. To compute the least value, lar subtracts from the slower
    side's time the time that this side may have lost to other work.
    """
    theirs = {(turn.round, turn.cycle): turn for turn in baseline}
    rounds: dict[int, list[tuple[float, float]]] = {}
    for turn in variant:
        other = theirs.get((turn.round, turn.cycle))
        if other is not None:
            pairs = rounds.setdefault(turn.round, [])
            own, its = (centre_of_turn(each, is_calm=are_calm) for each in (turn, other))
            if own and its:
                ratio = math.log(own / its)
                part = part_not_lost(turn if ratio > 0 else other)
                least = ratio - math.copysign(math.log(1 / part), ratio) if part else 0.0
                pairs.append((ratio, least))
    return list(rounds.values())


def part_not_lost(turn: Turn) -> float:
    """Return the part of a turn's time that was certainly not lost to other work."""
    samples = turn.samples
    delays, steal, throttled = (
        math.fsum(each or 0.0 for each in column)
        for column in (samples.queue_delay, samples.steal, samples.throttled)
    )
    lost = LOST_PER_WAIT * delays + steal + throttled
    return max(0.0, 1 - lost / math.fsum(samples.end_to_end))


def join_turns(turns: Iterable[Turn]) -> Samples:
    """Return the samples of all turns as one record."""
    return replace(join_samples([turn.samples for turn in turns]), runner=())


def kept_of(samples: Samples) -> Samples:
    """Return a copy of samples with only those of the columns `KEPT` that were measured."""
    # Columns are copied, since a slice would keep the whole column in memory.
    columns = {name: copy(getattr(samples, name)) for name in KEPT}
    measured = {name: it for name, it in columns.items() if any(each is not None for each in it)}
    return Samples(**measured)


# The probability that any comparison of a table is wrongly called faster or slower, at any look.
ALPHA = 0.05

# A comparison that goes on is looked at repeatedly: first at FIRST_LOOK pairs, and then each time
# that their number has grown by the factor STEP. FIRST_SHARE is the part of alpha for the first
# look. The parts of all looks add up to at most 1.
FIRST_LOOK = 5
STEP = math.sqrt(2)
FIRST_SHARE = 0.2
FEWEST_DEGREES = 2  # degrees of freedom: three pairs of processes, or two runs on each side
POWER_QUANTILE = 1.2815515655446004  # of a normal variable, for a power of 0.9

# An interval of this half-width leaves any ratio possible, and does not count.
LARGEST_LOGARITHM = math.log(1000)

# The spread of other processes counts with at most this many degrees of freedom. The times of
# processes have longer tails than a normal distribution, and tails differ.
MOST_DEGREES = 8

# The parts that are trimmed at each end: of the ratios of one process, and of all processes.
TRIMMED_RATIOS = 0.25
TRIMMED_PROCESSES = 0.15
TOO_WIDE = "the processes differ so much that any ratio is possible"
DISTURBED = "most iterations were disturbed, and the lost time may explain the difference"


@dataclass(frozen=True)
class Spread:
    """The standard deviation of logarithms, and its degrees of freedom."""

    deviation: float
    degrees: float


def is_look(processes: int) -> bool:
    """Return whether a comparison that is in progress is judged at this number of pairs.

    A verdict may end the comparison only at such a number of pairs.
    """
    return look_from(processes)[0] == processes


def compare_turns(ratios: Ratios, comparisons: int = 1) -> Difference | None:
    """Call `compare_pairs` to compare two programs by the ratios of their neighbouring turns.

    If most iterations were disturbed, a difference is accepted only in two cases. First, a
    difference is accepted if one program was slower in so many rounds that chance is an unlikely
    cause. Second, lar subtracts from the times of the slower program the time that this program may
    have lost to other work, and accepts the difference if the program is still slower. Time that
    the faster program lost does not matter, since this time only makes the difference smaller.
    """
    found = compare_pairs(ratios.rounds, comparisons=comparisons)
    if not found or not found.interval or not found.is_shown or ratios.are_calm:
        return found
    if signs_agree(ratios.rounds, 1 - found.interval.confidence):
        return found
    least = compare_pairs(ratios.least, comparisons=comparisons)
    if least and least.verdict == found.verdict:
        return found
    return replace(found, verdict="not judged", reason=DISTURBED)


def compare_pairs(
    log_ratios: Sequence[Sequence[float]],
    *,
    usual: Spread | None = None,
    comparisons: int = 1,
    once: bool = False,
) -> Difference | None:
    """Compare B with A by pairs of fresh processes.

    Args:
        log_ratios: for each pair of processes, the logarithms of B's time divided by A's time.
        usual: the usual spread of pairs, computed from other pairs, or None if this spread is
            unknown.
        comparisons: the number of comparisons that are made together.
        once: whether the pairs are judged only once, so that no pairs will be added later.
    """
    centres = [trimmed_mean(ratios) for ratios in log_ratios if ratios]
    if not centres:
        return None
    kept, drawn_in = trim(centres)
    own = spread_of(drawn_in)
    spread = pool([own and replace(own, degrees=len(kept) - 1), usual])
    # Yuen's error of a trimmed mean (Wilcox, Introduction to Robust Estimation and Hypothesis
    # Testing, chapter 4.3).
    reach = math.sqrt(len(centres)) / len(kept)
    found = Difference(
        ratio=math.exp(math.fsum(kept) / len(kept)),
        reason=f"{count_of(len(centres), 'pair')} of processes, and 3 are needed",
        processes=len(centres),
        pairs=sum(map(len, log_ratios)),
    )
    share = 1.0 if once else look_from(len(centres))[1]
    error = replace(spread, deviation=spread.deviation * reach) if spread else None
    return judge(found, error, ALPHA * share / comparisons)


def compare_groups(
    a: Sequence[float], b: Sequence[float], *, usual: Spread | None = None, comparisons: int = 1
) -> Difference | None:
    """Compare the stored times of processes of A and B; each process has one time.

    `usual` is the usual spread of the times of processes, computed from processes that are in
    neither A nor B, or None if this spread is unknown. If `usual` is None, and if A and B have only
    one process each, no verdict is given, since the spread of the times is unknown.
    """
    first, second = ([math.log(time) for time in side if time > 0] for side in (a, b))
    if not first or not second:
        return None
    spread, count = pool([spread_of(first), spread_of(second), usual]), len(first) + len(second)
    found = Difference(
        ratio=math.exp(math.fsum(second) / len(second) - math.fsum(first) / len(first)),
        reason=f"{len(first)} against {len(second)}, and two on each side are needed",
        processes=count,
        pairs=count,
    )
    error = error_of_groups(first, second, spread) if spread else None
    return judge(found, error, ALPHA / comparisons)


def usual_spread(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread of logarithms inside their groups, or None if the groups are too small."""
    spread = pool([spread_of(group) for group in groups])
    return spread and replace(spread, degrees=min(spread.degrees, MOST_DEGREES))


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without a quarter of the values at each end, to leave out outliers."""
    ordered = sorted(values)
    cut = int(len(ordered) * TRIMMED_RATIOS)
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept)


def judge(found: Difference, error: Spread | None, alpha: float) -> Difference:
    """Return a difference with its verdict.

    `error` is the standard error of the difference's log ratio. If there are too few processes for
    a verdict, the returned difference has a reason that names the number of processes.
    """
    if error is None:
        return found
    mean, bound = math.log(found.ratio), quantile_of_t(1 - alpha / 2, error.degrees)
    reach = bound * error.deviation
    if reach >= LARGEST_LOGARITHM:
        return found if error.degrees < FEWEST_DEGREES else replace(found, reason=TOO_WIDE)
    interval = Interval(math.exp(mean - reach), math.exp(mean + reach), 1 - alpha)
    found = replace(found, interval=interval)
    if error.degrees < FEWEST_DEGREES:
        return found
    detectable = detectable_errors(bound, error.degrees) * error.deviation
    verdict: Verdict = "no difference shown"
    if abs(mean) > reach:
        verdict = "slower" if mean > 0 else "faster"
    smallest = math.expm1(min(detectable, LARGEST_LOGARITHM))
    return replace(found, verdict=verdict, reason="", smallest_detectable=smallest)


def detectable_errors(bound: float, degrees: float) -> float:
    """Return how large a change must be, in standard errors, to exceed `bound` in 90 % of cases.

    The result is a quantile of the noncentral t distribution, in which the estimated error is
    approximated by a normal variable.
    """
    half = degrees / 2
    mean = math.exp(math.lgamma(half + 0.5) - math.lgamma(half)) / math.sqrt(half)
    variance = 1 - mean * mean
    return bound * mean + POWER_QUANTILE * math.sqrt(1 + bound * bound * variance)


def error_of_groups(first: Sequence[float], second: Sequence[float], spread: Spread) -> Spread:
    """Return the standard error of the difference of two means.

    If the spreads of both sides are known well enough, each side's own spread is used (Welch's
    method). If the spread of a side is not known well enough, the common `spread` is used for both
    sides.
    """
    one, two = spread_of(first), spread_of(second)
    common = spread.deviation * math.sqrt(1 / len(first) + 1 / len(second))
    if not one or not two or min(one.degrees, two.degrees) < FEWEST_DEGREES:
        return Spread(common, spread.degrees)
    parts = [one.deviation**2 / len(first), two.deviation**2 / len(second)]
    if not sum(parts):
        return Spread(common, spread.degrees)
    squares = parts[0] ** 2 / one.degrees + parts[1] ** 2 / two.degrees
    return Spread(math.sqrt(sum(parts)), sum(parts) ** 2 / squares)


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return the spread of values, or None if there are fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(math.sqrt(squares / (len(values) - 1)), len(values) - 1)


def pool(spreads: Iterable[Spread | None]) -> Spread | None:
    """Return the common spread of several groups, or None if no group has a known spread."""
    known = [spread for spread in spreads if spread]
    degrees = sum(spread.degrees for spread in known)
    if not degrees:
        return None
    squares = math.fsum(spread.degrees * spread.deviation**2 for spread in known)
    return Spread(math.sqrt(squares / degrees), degrees)


def trim(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the trimmed values and the winsorized values.

    To trim means to remove the outermost values. To winsorize means to set the outermost values to
    the nearest values that are kept. With fewer than eight values, all values are kept. A process
    may be an outlier, for example since it was disturbed, or got a bad place in memory. After
    trimming and winsorizing, an outlier neither moves the mean nor hides a difference.
    """
    ordered = sorted(values)
    cut = int((len(ordered) - 1) * TRIMMED_PROCESSES)
    kept = ordered[cut : len(ordered) - cut]
    return kept, [kept[0]] * cut + kept + [kept[-1]] * cut


def signs_agree(rounds: Sequence[Sequence[float]], alpha: float) -> bool:
    """Do a sign test on the log ratios of rounds; return whether its p-value is at most `alpha`.

    Only signs are tested, since a few disturbed rounds may have very large ratios: a process that
    shares its CPU is much slower for as long as it lives.
    """
    sums = [math.fsum(each) for each in rounds]
    count, above = len(sums), sum(each > 0 for each in sums)
    fewer = min(above, count - above)
    return 2 * sum(math.comb(count, k) for k in range(fewer + 1)) <= alpha * 2.0**count


def look_from(processes: int) -> tuple[int, float]:
    """Return the next number of processes at which lar judges, and the part of `ALPHA` to use then.

    The returned number of processes is `processes` or more.
    """
    return next(look for look in looks() if look[0] >= processes)


def looks() -> Iterator[tuple[int, float]]:
    """Yield the numbers of processes at which lar judges, each with the part of `ALPHA` to use."""
    processes, share = FIRST_LOOK, FIRST_SHARE
    while True:
        yield processes, share
        processes, share = math.ceil(processes * STEP - 0.5), share * (1 - FIRST_SHARE)
