"""What is made small, as numbers of turns and of processes: latency, throughput, memory, p99."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from lar.measurement.statistics import disturbed_of, percentile_of
from lar.measurement.turns import (
    Ratios,
    centre_of_turn,
    kept_of,
    log_ratios_of,
)
from lar.records.bench import Turn
from lar.records.choices import Objective
from lar.records.run import Samples
from lar.records.tuning import TrialRow

# Where more of the iterations of two processes than this part were disturbed, their slowest ones
# say what else the machine did.
MOST_DISTURBED = 0.01


def kept_for(objective: Objective, samples: Samples) -> Samples:
    """Return samples with the columns alone that are kept of a turn for this objective."""
    kept = kept_of(samples)
    if objective == "throughput" and samples.runner:
        return replace(kept, began=samples.began, runner=samples.runner)
    return kept


def score_of_turn(objective: Objective, turn: Turn, *, is_calm: bool) -> float | None:
    """Return what a turn says of its process, in seconds; None if nothing.

    For latency it is the median of its iterations; for throughput the time of all copies together,
    divided by the iterations that they made. With `is_calm` it is that of undisturbed iterations;
    where copies ran at once, that of turns in which none was disturbed.
    """
    samples = turn.samples
    if objective != "throughput" or not samples.end_to_end:
        return centre_of_turn(turn, is_calm=is_calm)
    disturbed = disturbed_in(samples) if is_calm else set()
    if samples.runner and any(samples.runner):
        return None if disturbed else seconds_together(samples) / len(samples.end_to_end)
    times = [each for index, each in enumerate(samples.end_to_end) if index not in disturbed]
    return math.fsum(times) / len(times) if times else None


def disturbed_in(samples: Samples) -> set[int]:
    """Return the indexes of the iterations that something disturbed."""
    unknown = (None,) * len(samples.end_to_end)
    return set(disturbed_of(samples.end_to_end, samples.queue_delay or unknown))


def seconds_together(samples: Samples) -> float:
    """Return the time from the start of the first iteration of all copies to the end of the last;
    without their starts, the time of the copy that computed longest."""
    if len(samples.began) == len(samples.end_to_end):
        ends = [
            began + seconds
            for began, seconds in zip(samples.began, samples.end_to_end, strict=True)
        ]
        return max(ends) - min(samples.began)
    sums: dict[int, float] = {}
    for runner, seconds in zip(samples.runner, samples.end_to_end, strict=True):
        sums[runner] = sums.get(runner, 0.0) + seconds
    return max(sums.values())


def score_of_process(objective: Objective, row: TrialRow) -> float | None:
    """Return the objective of a process as it was measured, in seconds or bytes; None if it was
    not."""
    if objective == "memory":
        return float(row.peak_memory_bytes) if row.peak_memory_bytes else None
    if objective == "p99":
        return slowest_of(row.turns)
    for is_calm in (True, False):
        found = [score_of_turn(objective, turn, is_calm=is_calm) for turn in row.turns]
        scores = sorted(score for score in found if score)
        if scores and 2 * len(scores) >= len(row.turns):
            return percentile_of(scores, 50)
    return None


def slowest_of(turns: Iterable[Turn]) -> float | None:
    """Return the 99th percentile of the iterations of all turns."""
    times = sorted(each for turn in turns for each in turn.samples.end_to_end)
    return percentile_of(times, 99) if times else None


def log_ratios_for(objective: Objective, pairs: Sequence[tuple[TrialRow, TrialRow]]) -> Ratios:
    """Return the logarithms of a candidate's objective over another's, for each pair of processes.

    Each pair has the other's and the candidate's row of a trial. For latency and throughput a
    process has as many ratios as there are neighbouring turns, else one.
    """
    if objective == "memory":
        found = [
            [math.log(second.peak_memory_bytes / first.peak_memory_bytes)]
            for first, second in pairs
            if first.peak_memory_bytes and second.peak_memory_bytes
        ]
        return Ratios(found, are_calm=True)
    if objective == "p99":
        return ratios_of_slowest(pairs)
    return log_ratios_of(
        [turn for first, _ in pairs for turn in first.turns],
        [turn for _, second in pairs for turn in second.turns],
        partial(score_of_turn, objective),
    )


def ratios_of_slowest(pairs: Iterable[tuple[TrialRow, TrialRow]]) -> Ratios:
    """Return the ratios of the 99th percentiles, each of the cycles that both processes have."""
    found, calm = [], 0
    for first, second in pairs:
        for number in {turn.round for turn in first.turns}:
            sides = [
                {turn.cycle: turn for turn in row.turns if turn.round == number}
                for row in (first, second)
            ]
            cycles = sides[0].keys() & sides[1].keys()
            turns = [[side[cycle] for cycle in cycles] for side in sides]
            own, other = slowest_of(turns[1]), slowest_of(turns[0])
            if own and other:
                found.append([math.log(own / other)])
                calm += all(map(is_calm_enough, turns))
    return Ratios(found, are_calm=2 * calm >= len(found))


def is_calm_enough(turns: Sequence[Turn]) -> bool:
    """Return whether hardly any iteration of a process was disturbed."""
    count = sum(len(turn.samples.end_to_end) for turn in turns)
    disturbed = sum(len(disturbed_in(turn.samples)) for turn in turns)
    return disturbed <= MOST_DISTURBED * count
