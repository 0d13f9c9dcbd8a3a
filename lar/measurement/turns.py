"""The times of neighbouring turns of two variants, as the ratios that a comparison needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from lar.measurement.rows import join_samples
from lar.measurement.statistics import disturbed_of, percentile_of
from lar.records.bench import Turn
from lar.records.run import Samples

# The columns of samples that each turn keeps. The probe is not needed: a slow core slows down
# neighbouring turns alike, and does not change their ratio.
KEPT = ("end_to_end", "queue_delay", "cpu", "steal", "throttled", "runner")

# A round with fewer ratios of undisturbed turns says nothing about them.
FEWEST_CALM = 2

# Of several threads, only the longest wait of one is known. If threads wait for each other, and in
# turn for a CPU, more is lost: so many times as much is assumed.
LOST_PER_WAIT = 2


class Ratios(NamedTuple):
    """The logarithms of a variant's times over the baseline's, for neighbouring turns by round.

    `are_calm` says that only undisturbed iterations count. `least` has the same ratios nearer to 0,
    without all that the slower side may have lost to other work.
    """

    rounds: list[list[float]]
    are_calm: bool
    least: Sequence[list[float]] = ()


def centre_of_turn(turn: Turn, *, is_calm: bool) -> float | None:
    """Return the median of a turn's iterations, or of the undisturbed ones; None without any."""
    values = turn.samples.end_to_end
    if is_calm:
        disturbed = set(disturbed_of(values, turn.samples.queue_delay))
        values = tuple(it for index, it in enumerate(values) if index not in disturbed)
    return percentile_of(sorted(values), 50) if values else None


def log_ratios_of(baseline: Sequence[Turn], variant: Sequence[Turn]) -> Ratios:
    """Return the ratios of the turns of one cycle, each of the medians of its iterations.

    Only undisturbed iterations count; turns and rounds without them are left out. If most rounds
    have none, all iterations count.
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
    """Return the log ratios of neighbouring turns for each round, each with its least value."""
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
    """Return the part of the time of a turn's iterations that other work surely did not take."""
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
    """Return samples with only the columns that a turn keeps, if they were measured."""
    # Copied, since a part of a column would keep all of it in memory.
    columns = {name: copy(getattr(samples, name)) for name in KEPT}
    measured = {name: it for name, it in columns.items() if any(each is not None for each in it)}
    return Samples(**measured)
