"""Trials that are played on this machine, by the scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.records.run import RunSpec, Setting
from lar.records.tuning import Candidate, Trial, TrialRow
from lar.running import progress
from lar.running.rounds import FIRST_CYCLE
from lar.tuning import player
from lar.tuning.player import Entrant, LocalPlayer, TrialOrder
from tests.conftest import WriteScript


def entrant(number: int, model: str, **settings: Setting) -> Entrant:
    spec = RunSpec(
        model=model, engine="fake", driver="script", stall_seconds=1.0, settings=settings
    )
    return Entrant(
        candidate=Candidate(choices=(f"c{number}",) if number else ()),
        name=f"c{number}",
        spec=spec,
        cache="found" if settings else "",
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
    trial = play(tmp_path, entrant(0, base), entrant(1, wrong))
    found = trial.rows[1].output_difference
    assert found is not None
    assert found.agreement == "different"
    assert found.max_error == pytest.approx(0.2)


def test_what_is_fed_with_other_data_is_not_right(
    write_script: WriteScript, tmp_path: Path
) -> None:
    base, other = (
        write_script(
            inputs=[{"name": "data", "dtype": "float32", "shape": [1, size]}], outputs={"y": [1.0]}
        )
        for size in (4, 8)
    )
    found = play(tmp_path, entrant(0, base), entrant(1, other)).rows[1].output_difference
    assert found is not None
    assert found.agreement == "different"
    assert found.reason.startswith("not compared: it is not fed with the plain run's data")


def test_how_far_a_search_is_is_kept(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (player, progress):
        monkeypatch.setattr(module, "KEEPING_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.0)
    model = write_script(real_time=True, search_seconds=0.5, progress="searching")
    searching = entrant(1, model, fast_run=True, fast_run_algo_policy=str(tmp_path / "found"))
    order = TrialOrder(number=1, kind="search", seconds=9.0, entrants=(searching,))
    kept: list[tuple[int, TrialRow, float]] = []
    trial = LocalPlayer(tmp_path).play(
        order, lambda text, seconds: None, lambda *row: kept.append(row)
    )
    assert trial.rows[0].status == "ok"
    assert {(place, row.status, row.cache) for place, row, _ in kept} == {
        (0, "interrupted", "found")
    }
    assert 0.3 < kept[-1][2] < 9.0


def test_a_model_that_cannot_be_read_fails_alone(write_script: WriteScript, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.fake")
    trial = play(tmp_path, entrant(0, write_script()), entrant(1, gone))
    assert [row.status for row in trial.rows] == ["ok", "failed"]
