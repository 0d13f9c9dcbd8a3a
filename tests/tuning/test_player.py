"""Trials that are played on this machine, by the scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.records.run import RunSpec
from lar.records.tuning import Candidate, Trial
from lar.running.rounds import FIRST_CYCLE
from lar.tuning.player import Entrant, LocalPlayer, TrialOrder
from tests.conftest import WriteScript


def entrant(number: int, model: str, *, checked: bool = False) -> Entrant:
    spec = RunSpec(model=model, engine="fake", driver="script", stall_seconds=1.0)
    return Entrant(
        candidate=Candidate(choices=(f"c{number}",) if number else ()),
        name=f"c{number}",
        spec=spec,
        is_checked=checked,
    )


def play(folder: Path, *entrants: Entrant, seconds: float = 0.2) -> Trial:
    order = TrialOrder(number=3, kind="screen", seconds=seconds, entrants=entrants, began=7.0)
    return LocalPlayer(folder).play(order, lambda text, seconds: None)


def test_candidates_take_turns_beside_the_baseline(
    write_script: WriteScript, tmp_path: Path
) -> None:
    slow, fast = (
        write_script(times=[[seconds, 0, seconds]], outputs={"y": [1.0]})
        for seconds in (0.02, 0.01)
    )
    trial = play(tmp_path, entrant(0, slow), entrant(1, fast))
    assert [row.status for row in trial.rows] == ["ok", "ok"]
    turns = [{(turn.round, turn.cycle) for turn in row.turns} for row in trial.rows]
    assert turns[0] == turns[1]
    assert {number for number, _ in turns[0]} == {3000}
    assert trial.rows[1].turns[0].samples.end_to_end[0] == pytest.approx(0.01)
    assert trial.rows[1].turns[0].began >= 7.0
    assert trial.rows[1].output_difference
    assert trial.rows[1].output_difference.agreement == "equal"
    assert trial.rows[0].output_difference is None


def test_a_candidate_that_crashes_or_hangs_is_a_row(
    write_script: WriteScript, tmp_path: Path
) -> None:
    good = write_script(times=[[0.01, 0, 0.01]])
    crash = write_script(faults=[{"at": "start", "index": 1, "do": "segfault"}])
    hang = write_script(faults=[{"at": "load", "do": "hang"}])
    trial = play(tmp_path, entrant(0, good), entrant(1, crash), entrant(2, hang), entrant(3, good))
    assert [row.status for row in trial.rows] == ["ok", "crashed", "timed_out", "ok"]
    assert trial.rows[1].failure
    assert "SIGSEGV" in trial.rows[1].failure.message
    assert len(trial.rows[3].turns) >= 3


def test_a_first_trial_starts_as_many_as_there_is_time_for(
    write_script: WriteScript, tmp_path: Path
) -> None:
    good = write_script(times=[[0.01, 0, 0.01]])
    entrants = tuple(entrant(number, good) for number in range(4))
    order = TrialOrder(number=0, kind="screen", seconds=0.1, entrants=entrants, most_seconds=1e-6)
    trial = LocalPlayer(tmp_path).play(order, lambda text, seconds: None)
    assert [row.candidate.choices for row in trial.rows] == [(), ("c1",)]
    assert all(row.turns for row in trial.rows)


def test_one_that_is_far_slower_makes_its_first_iterations_alone(
    write_script: WriteScript, tmp_path: Path
) -> None:
    base = write_script(times=[[0.01, 0, 0.01]])
    slow = write_script(times=[[0.5, 0, 0.5]])
    trial = play(tmp_path, entrant(0, base), entrant(1, slow))
    assert [turn.cycle for turn in trial.rows[1].turns] == [FIRST_CYCLE]
    # Its ratio is known: the baseline has a turn of the same cycle.
    assert FIRST_CYCLE in [turn.cycle for turn in trial.rows[0].turns]


def test_one_that_is_slow_in_its_first_iterations_alone_takes_turns(
    write_script: WriteScript, tmp_path: Path
) -> None:
    base = write_script(times=[[0.001, 0, 0.001]])
    slow, fast = ([seconds, 0, seconds] for seconds in (0.004, 0.0005))
    bad_start = write_script(times=[*[slow] * 9, *[fast] * 1000])
    trial = play(tmp_path, entrant(0, base), entrant(1, bad_start))
    assert FIRST_CYCLE not in [turn.cycle for turn in trial.rows[1].turns]
    assert trial.rows[1].turns[0].samples.end_to_end[0] == pytest.approx(0.0005)


def test_numbers_are_compared_with_the_baselines(write_script: WriteScript, tmp_path: Path) -> None:
    base = write_script(outputs={"y": [1.0, 2.0]})
    wrong = write_script(outputs={"y": [1.0, 2.5]})
    trial = play(tmp_path, entrant(0, base), entrant(1, wrong), entrant(2, wrong, checked=True))
    found = [row.output_difference for row in trial.rows]
    assert found[1] is not None
    assert found[1].agreement == "different"
    assert found[1].max_error == pytest.approx(0.2)
    assert found[2] is None  # in an earlier trial


def test_a_model_that_cannot_be_read_fails_alone(write_script: WriteScript, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.fake")
    trial = play(tmp_path, entrant(0, write_script()), entrant(1, gone))
    assert [row.status for row in trial.rows] == ["ok", "failed"]
