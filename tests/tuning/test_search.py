"""What a search does next, on machines that are computed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulate_search import Machine, Session, draw_machine, main, play_session

from lar.records.choices import Choice, Dimension
from lar.records.tuning import BASELINE, Candidate, ModelSpace, Trial, TrialRow, TuneRequest
from lar.tuning.evidence import gather_evidence
from lar.tuning.search import MOST_BESIDE, Ended, Step, next_step

MACHINES = 10
SMALL = (2, 4)  # dimensions


def space_of(*dimensions: tuple[str, ...]) -> ModelSpace:
    return ModelSpace(
        model="m.fake",
        engine="fake",
        dimensions=tuple(
            Dimension(name=names[0], choices=tuple(Choice(name=name) for name in names))
            for names in dimensions
        ),
    )


def effects_of(**effects: float) -> dict[frozenset[tuple[int, str]], float]:
    """Effects by the names of choices, those of two joined by `_`."""
    return {
        frozenset((0, name) for name in names.split("_")): math.log(ratio)
        for names, ratio in effects.items()
    }


def tried_in(session: Session) -> set[Candidate]:
    return {row.candidate for trial in session.trials for row in trial.rows}


@pytest.fixture(scope="module")
def sessions() -> list[tuple[Machine, Session]]:
    """Searches in a quarter of the time that it takes to measure each candidate."""
    machines = [draw_machine(seed) for seed in range(MACHINES)]
    return [(each, play_session(each, each.exhaustive_seconds / 4)) for each in machines]


def test_winners_are_near_the_best_of_all(sessions: list[tuple[Machine, Session]]) -> None:
    """`tools/simulate_search.py` has the figures of more machines."""
    losses = [machine.truth(session.winner) - machine.best for machine, session in sessions]
    assert sum(loss > math.log(1.05) for loss in losses) <= MACHINES // 10
    assert all(machine.fate(session.winner) == "ok" for machine, session in sessions)


def test_every_single_choice_is_tried(sessions: list[tuple[Machine, Session]]) -> None:
    for machine, session in sessions:
        if session.ending == "settled":
            singles = {each for each in machine.candidates() if len(each.choices) == 1}
            assert singles <= tried_in(session)


def test_no_winner_is_slower_than_the_plain_run() -> None:
    for seed in range(5):
        machine = draw_machine(seed, dimensions=SMALL, models=1 + seed % 2, helpful=False)
        session = play_session(machine, machine.exhaustive_seconds / 4)
        assert machine.truth(session.winner) <= 0, seed


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    models=st.integers(1, 2),
    with_search=st.booleans(),
    budget_seconds=st.sampled_from([0.0, 3.0, 15.0, 60.0]),
    extent=st.sampled_from(["quick", "full"]),
)
def test_a_search_ends_and_asks_for_what_may_be_tried(
    seed: int, models: int, with_search: bool, budget_seconds: float, extent: str
) -> None:
    machine = draw_machine(seed, models=models, with_search=with_search, dimensions=SMALL)
    filled: set[tuple[int, str, tuple[str, ...]]] = set()

    def check(trials: Sequence[Trial], left: float, found: Step | Ended) -> None:
        if isinstance(found, Ended):
            return
        assert left > 0
        assert len(set(found.candidates)) == len(found.candidates) <= MOST_BESIDE + 1
        assert all(machine.is_valid(each) for each in found.candidates)
        failed = [
            row.candidate
            for trial in trials
            for row in trial.rows
            if row.status != "ok" and trial.kind != "search"
        ]
        for each in found.candidates:
            assert not any(
                each.model == other.model and {*other.choices} <= {*each.choices}
                for other in failed
            )
        if found.kind == "search":
            (candidate,) = found.candidates
            assert "fast-run" in candidate.choices
            assert found.seconds <= left
            key = (candidate.model, "fast-run", candidate.choices[:1])
            assert key not in filled
            filled.add(key)
        else:
            assert found.candidates[0] == BASELINE

    session = play_session(machine, budget_seconds, check, extent=extent)
    assert session.ending in ("settled", "budget")
    assert machine.truth(session.winner) <= 0.003
    if extent == "full" and session.ending == "settled" and not with_search:
        evidence = gather_evidence(session.request, session.trials)
        left = {each for each in machine.candidates() if not evidence.is_excluded(each)}
        assert left <= {*tried_in(session)}


def test_a_search_that_goes_on_does_what_it_would_have_done() -> None:
    machine = draw_machine(1, models=2, with_search=True)
    seen: list[tuple[list[Trial], float, Step | Ended]] = []

    def remember(trials: Sequence[Trial], left: float, found: Step | Ended) -> None:
        seen.append(([*trials], left, found))

    session = play_session(machine, 100.0, remember)
    assert {step.kind for _, _, step in seen if isinstance(step, Step)} >= {"screen", "confirm"}
    for trials, left, found in seen:
        copies = [replace(trial) for trial in trials]  # read from a file, they are other objects
        assert next_step(session.request, copies, machine.is_valid, left) == found


def test_choices_that_help_only_together_are_found() -> None:
    space = space_of(("a",), ("b",), ("c", "d"), ("e",))
    effects = effects_of(a=0.99, b=1.0, a_b=0.8, c=1.5, d=1.01, e=0.9)
    machine = Machine((space,), effects=effects)
    assert play_session(machine, 300.0).winner == Candidate(choices=("a", "b", "e"))


class Overlap(Machine):
    """A machine where either of two choices saves the same time, of which threads save none: with
    `layout`, whatever else is chosen, an iteration takes no less."""

    def truth(self, candidate: Candidate) -> float:
        alone = {"layout": 0.30, "threads": 0.62, "library": 0.33}
        if "layout" in candidate.choices:
            alone |= {"threads": 1.0, "library": 0.95}
        return math.fsum(math.log(alone.get(name, 1.0)) for name in candidate.choices)


def test_choices_that_save_the_same_time_do_not_hide_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("plain layout", "layout", "weights", "threads", "record", "waits", "library", "shapes")
    machine = Overlap((space_of(*((name,) for name in names)),), 0.115)
    monkeypatch.setattr("simulate_search.START_SECONDS", 1.0)
    winner = play_session(machine, 55.0).winner
    assert {*winner.choices} >= {"threads", "library"}
    assert "layout" not in winner.choices


def test_fewer_choices_are_preferred_where_others_do_nothing() -> None:
    space = space_of(*((name,) for name in "abcdef"))
    machine = Machine((space,), effects=effects_of(a=0.7))
    winner = play_session(machine, 300.0).winner
    assert winner.choices[0] == "a"
    assert len(winner.choices) <= 3


def test_the_search_of_algorithms_is_shared_and_pays() -> None:
    fast = Choice(name="fast", search={"fast_run": True}, cache="c", cache_depends=("layout",))
    space = ModelSpace(
        model="m",
        engine="e",
        dimensions=(
            Dimension(name="layout", choices=(Choice(name="l"),)),
            Dimension(name="threads", choices=(Choice(name="t"),)),
            Dimension(name="algorithms", choices=(fast,)),
        ),
    )
    machine = Machine((space,), 0.1, effects_of(t=0.6, l=1.3, fast=0.7))
    session = play_session(machine, 300.0)
    assert session.winner == Candidate(choices=("t", "fast"))
    searched = [trial for trial in session.trials if trial.kind == "search"]
    assert len({trial.rows[0].candidate.choices[0] == "l" for trial in searched}) == len(searched)
    assert not any(trial.kind == "search" for trial in play_session(machine, 25.0).trials)


class LongLoad(Machine):
    """A machine where the engine takes some time to load a model with the choice `m`."""

    load_seconds = 0.0
    longer_beside_others = 1.0  # so many times as long for all but the first
    loads = 0

    def measure(
        self, candidate: Candidate, number: int, states: Sequence[float], draw: random.Random
    ) -> tuple[TrialRow, float]:
        row, seconds = super().measure(candidate, number, states, draw)
        own = self.load_seconds if "m" in candidate.choices else 0.0
        own *= self.longer_beside_others if self.loads else 1.0
        self.loads += own > 0
        return replace(row, load_seconds=own), seconds + own


def play_loads(
    load_seconds: float,
    iteration_seconds: float,
    extent: str = "quick",
    longer_beside_others: float = 1.0,
    others: Sequence[Dimension] = (),
) -> Session:
    """Search for 100 s where a choice is measured at each load, and the fastest."""
    measured = Choice(name="m", measures_at_load=True)
    dimensions = (Dimension(name="layout", choices=(measured, Choice(name="l"))), *others)
    space = ModelSpace(model="m", engine="e", dimensions=dimensions)
    space = replace(space, dimensions=(*dimensions, *space_of(("a",), ("b",)).dimensions))
    machine = LongLoad((space,), iteration_seconds, effects_of(m=0.5, l=0.8, a=0.9, fast=0.7))
    machine.load_seconds = load_seconds
    machine.longer_beside_others = longer_beside_others
    return play_session(machine, 100.0, extent=extent)


def test_what_is_measured_at_each_load_wins_where_models_load_fast() -> None:
    session = play_loads(1.0, 0.0001)
    assert session.winner == Candidate(choices=("m", "a"))
    # Before an iteration was timed nobody knows how long a load takes.
    assert not any("m" in row.candidate.choices for row in session.trials[0].rows)


def test_a_load_beside_others_takes_longer_and_does_not_count() -> None:
    fast = Choice(name="fast", search={"fast_run": True}, cache="c", cache_depends=("layout",))
    searched = Dimension(name="algorithms", choices=(fast,))
    session = play_loads(0.8, 0.0001, longer_beside_others=4.0, others=(searched,))
    assert session.winner == Candidate(choices=("m", "fast", "a"))


def test_what_is_measured_at_each_load_is_loaded_once_where_that_takes_long() -> None:
    session = play_loads(4.0, 0.0001)
    with_it = [
        row.candidate.choices
        for trial in session.trials
        for row in trial.rows
        if "m" in row.candidate.choices and trial.kind == "screen"
    ]
    assert with_it[0] == ("m",)
    assert {*with_it} == {("m",)}


def test_what_is_measured_at_each_load_is_not_tried_on_slow_models() -> None:
    assert not any("m" in each.choices for each in tried_in(play_loads(1.0, 0.001)))
    assert play_loads(4.0, 0.001, "full").winner == Candidate(choices=("m", "a"))


def test_a_search_that_is_likely_to_be_cut_short_comes_after_the_race() -> None:
    fast = Choice(name="fast", search={"fast_run": True}, cache="c")
    threads = Dimension(name="threads", choices=(Choice(name="t"), Choice(name="u")))
    algorithms = Dimension(name="algorithms", choices=(fast,))
    space = ModelSpace(model="m", engine="e", dimensions=(threads, algorithms))
    machine = Machine((space,), 0.1, effects_of(t=0.6, u=0.6, fast=0.7))

    def kinds(budget_seconds: float) -> list[str]:
        found = [trial.kind for trial in play_session(machine, budget_seconds).trials]
        return [kind for kind in dict.fromkeys(found) if kind in ("race", "search")]

    assert kinds(62.0) == ["race", "search"]
    assert kinds(300.0)[0] == "search"


def test_a_search_that_ran_out_of_time_is_not_begun_again() -> None:
    machine = draw_machine(3, with_search=True)
    session = play_session(machine, 70.0)  # a search takes 50 s of them
    searched = [trial for trial in session.trials if trial.kind == "search"]
    assert len(searched) <= 1
    assert session.seconds <= 75


def test_the_twin_that_is_far_slower_may_still_win() -> None:
    slow = space_of(("a",), ("b",), ("c",))
    other = replace(space_of(("x",)), model="m.onnx")
    effects = effects_of(a=0.5, b=0.6, c=0.7)
    effects[frozenset(((1, ""),))] = math.log(0.4)
    effects[frozenset(((1, "x"),))] = math.log(1.1)
    winner = play_session(Machine((slow, other), effects=effects), 300.0).winner
    assert winner == Candidate(choices=("a", "b", "c"))


@pytest.mark.parametrize("status", ["crashed", "failed", "timed_out"])
def test_a_plain_run_that_fails_ends_it(status: str) -> None:
    row = TrialRow(candidate=BASELINE, status=status)  # type: ignore[arg-type]
    request = TuneRequest(spaces=(space_of(("a",)),))
    trial = Trial(number=0, kind="screen", rows=(row,))
    assert next_step(request, [trial], lambda _: True, 10.0) == Ended("failed")


def test_an_interrupted_candidate_is_tried_again() -> None:
    request = TuneRequest(spaces=(space_of(("a",)),))
    machine = Machine(request.spaces)
    step = Step("screen", (BASELINE, Candidate(choices=("a",))), 1.0)
    first = machine.play(step, 0, 0.0)
    rows = (first.rows[0], TrialRow(candidate=step.candidates[1], status="interrupted"))
    found = next_step(request, [replace(first, rows=rows)], machine.is_valid, 100.0)
    assert isinstance(found, Step)
    assert step.candidates[1] in found.candidates


def test_nothing_to_try_is_settled() -> None:
    session = play_session(Machine((space_of(),)), 30.0)
    assert (session.ending, session.winner) == ("settled", BASELINE)


def test_the_tool_prints_how_good_searches_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulate_search.py", "--machines", "1", "--first", "1"])
    main()
    printed = capsys.readouterr().out
    assert "1 of 1 winners are within 5 % of the best candidate" in printed
    assert "0 are slower than the plain run" in printed
