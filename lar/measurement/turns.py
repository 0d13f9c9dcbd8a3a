"""The times of neighbouring turns of two variants, as the ratios that a comparison needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from lar.measurement.statistics import disturbed_of, percentile_of
from lar.records.bench import Turn
from lar.records.run import Samples

# The columns of samples that are kept of each turn.
KEPT = ("end_to_end", "queue_delay", "cpu", "steal", "throttled")


def centre_of_turn(turn: Turn) -> float:
    """Return the median of the iterations of a turn; of the undisturbed ones where some are."""
    values: Sequence[float] = turn.samples.end_to_end
    disturbed = set(disturbed_of(values, turn.samples.queue_delay))
    calm = [value for index, value in enumerate(values) if index not in disturbed]
    return percentile_of(sorted(calm or values), 50)


def log_ratios_of(baseline: Iterable[Turn], variant: Iterable[Turn]) -> list[list[float]]:
    """Return for each round the logarithms of the variant's time over the baseline's, of the turns
    of one cycle; turns without a neighbour are left out."""
    centres = {(turn.round, turn.cycle): centre_of_turn(turn) for turn in baseline}
    rounds: dict[int, list[float]] = {}
    for turn in variant:
        theirs = centres.get((turn.round, turn.cycle))
        own = centre_of_turn(turn)
        if theirs and own:
            rounds.setdefault(turn.round, []).append(math.log(own / theirs))
    return list(rounds.values())


def join_turns(turns: Iterable[Turn]) -> Samples:
    """Return the samples of all turns as one record."""
    parts = [turn.samples for turn in turns]
    columns = {name: [getattr(part, name) for part in parts] for name in KEPT}
    return Samples(**{name: tuple(chain(*each)) for name, each in columns.items() if all(each)})


def kept_of(samples: Samples) -> Samples:
    """Return samples with the columns alone that are kept of a turn, those that were measured."""
    columns = {name: getattr(samples, name) for name in KEPT}
    return Samples(
        **{name: each for name, each in columns.items() if any(it is not None for it in each)}
    )
