"""The ranking of made-up trials."""

from __future__ import annotations

from typing import Literal

from lar.records.bench import Turn
from lar.records.run import Samples
from lar.records.tuning import BASELINE, Candidate, Trial, TrialRow, TuneRequest
from lar.tuning.evidence import gather_evidence
from lar.tuning.ranking import contributions_of, rank_candidates
from lar.tuning.search import Step, next_step
from tests.tuning.made_tune import NCHW44, NCHW88, SPACE, THREADS


def row_of(candidate: Candidate, seconds: float, waited: float = 0.0, number: int = 0) -> TrialRow:
    samples = Samples(end_to_end=(seconds,) * 4, queue_delay=(waited,) * 4)
    turns = (Turn(round=number, cycle=it, began=it, samples=samples) for it in range(6))
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


def test_two_pairs_that_agree_show_no_effect() -> None:
    request, both = TuneRequest(spaces=(SPACE,)), Candidate(choices=("nchw44", "2 threads"))
    trials = [
        Trial(
            number=number,
            kind="screen",
            rows=tuple(
                row_of(each, seconds * (1 + 0.001 * (number % 3)), number=number)
                for each, seconds in ((BASELINE, 1.0), (THREADS, 0.9), (NCHW44, 0.8), (both, 0.7))
            ),
        )
        for number in range(5)
    ]
    [few] = {(it.pairs, it.effect) for it in contributions_of(request, trials[:1])}
    assert few == (2, "")
    [shown] = {(it.pairs, it.effect) for it in contributions_of(request, trials)}
    assert shown == (2, "faster")


def test_a_choice_is_not_left_out_for_one_disturbed_process() -> None:
    request = TuneRequest(spaces=(SPACE,))
    rows = (row_of(BASELINE, 1.0), row_of(NCHW44, 1.0), row_of(NCHW88, 9.0))
    trials = [
        Trial(number=0, kind="screen", rows=(*rows, row_of(THREADS, 9.0, waited=8.0)), seconds=1.0)
    ]
    evidence = gather_evidence(request, trials)
    # Nothing has disturbed the other one.
    assert (evidence.fates[NCHW88], evidence.doubtful) == ("too slow", [THREADS])
    step = next_step(request, trials, lambda candidate: True, 100.0)
    assert isinstance(step, Step)
    assert THREADS in step.candidates
    assert NCHW88 not in step.candidates
    second = (row_of(BASELINE, 1.0, number=1), row_of(THREADS, 0.6, number=1))
    trials.append(Trial(number=1, kind="screen", rows=second, seconds=1.0))
    evidence = gather_evidence(request, trials)
    assert (evidence.fates[THREADS], evidence.doubtful) == ("ok", [])
