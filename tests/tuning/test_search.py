"""What a search does next, on machines that are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from simulate_search import Session, draw_machine, play_session

from lar.records.tuning import BASELINE, Trial
from lar.tuning.search import Ended, Step, next_step

MACHINES = 20


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    """Searches with a quarter of the time that it takes to measure each candidate."""
    machines = [draw_machine(seed) for seed in range(MACHINES)]
    return [play_session(each, each.exhaustive_seconds / 4) for each in machines]


def test_winners_are_near_the_best_of_all(sessions: list[Session]) -> None:
    losses = []
    for seed, session in enumerate(sessions):
        machine = draw_machine(seed)
        losses.append(machine.truth(session.winner) - machine.best)
    assert sum(loss > math.log(1.05) for loss in losses) <= MACHINES // 10


def test_a_search_that_goes_on_does_what_it_would_have_done() -> None:
    machine = draw_machine(1, models=2, with_search=True)
    seen: list[tuple[list[Trial], float, Step | Ended]] = []

    def remember(trials: Sequence[Trial], left: float, found: Step | Ended) -> None:
        seen.append(([*trials], left, found))

    session = play_session(machine, 200.0, remember)
    assert {step.kind for _, _, step in seen if isinstance(step, Step)} >= {"screen", "confirm"}
    for trials, left, found in seen:
        assert next_step(session.request, trials, machine.is_valid, left) == found
        if isinstance(found, Step) and found.kind != "search":
            assert found.candidates[0] == BASELINE
