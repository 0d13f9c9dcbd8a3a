"""The ranking of made-up trials."""

from __future__ import annotations

from typing import Literal

from lar.records.bench import Turn
from lar.records.run import Samples
from lar.records.tuning import BASELINE, Candidate, Trial, TrialRow, TuneRequest
from lar.tuning.ranking import rank_candidates
from tests.tuning.made_tune import SPACE, THREADS


def row_of(candidate: Candidate, seconds: float) -> TrialRow:
    samples = Samples(end_to_end=(seconds,) * 4)
    turns = (Turn(round=0, cycle=it, began=it, samples=samples) for it in range(6))
    return TrialRow(candidate=candidate, turns=tuple(turns))


def test_the_interval_of_a_winner_is_that_of_what_has_shown_it_to_be_better() -> None:
    kinds: list[tuple[Literal["screen", "confirm"], float]] = [("screen", 3.0)]
    kinds += [("confirm", 0.9 + 0.001 * (it % 3)) for it in range(5)]
    trials = [
        Trial(number=number, kind=kind, rows=(row_of(BASELINE, 1.0), row_of(THREADS, seconds)))
        for number, (kind, seconds) in enumerate(kinds)
    ]
    winner = rank_candidates(TuneRequest(spaces=(SPACE,)), trials)[0]
    assert winner.candidate == THREADS
    assert winner.difference
    assert winner.difference.interval
    assert winner.difference.verdict == "faster"
    assert winner.difference.interval.high < 1
