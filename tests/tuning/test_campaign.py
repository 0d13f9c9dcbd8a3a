"""Searches from Python, with the scripted engine, and with a real one for a moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar
from lar.records.tuning import BASELINE, Candidate, Trial
from lar.tuning import campaign
from lar.tuning.candidates import combinations_of
from lar.tuning.evidence import gather_evidence
from lar.tuning.player import Keep, LocalPlayer, SearchListener, Show, TrialOrder
from lar.tuning.search import Ended, Step, next_step
from lar.tuning.session import read_session
from tests.cli.test_tune import LANDSCAPE
from tests.conftest import RunLar, WriteScript


def test_what_is_faster_and_wrong_is_not_taken(write_script: WriteScript) -> None:
    inputs = [{"name": "data", "dtype": "float32", "shape": [4]}]
    model = write_script(**LANDSCAPE, inputs=inputs)
    found = lar.tune(model, budget_seconds=60, inputs=np.zeros(4, "f4"))
    assert found.ending == "settled"
    assert found.winner
    assert found.winner.name == "nchw44 + 2 threads"
    wrong = next(each for each in found.ranking if each.name == "nchw32")
    assert wrong.status == "wrong"
    assert [row.candidate.choices for trial in found.trials for row in trial.rows].count(
        ("nchw32",)
    ) == 1
    assert found.to_dict()["format"] == "lar.tune/1"
    assert lar.read_tune(found.to_json()) == found


def test_a_tolerance_takes_what_is_nearly_right(write_script: WriteScript) -> None:
    found = lar.tune(write_script(**LANDSCAPE), budget_seconds=60, tolerance=0.6)
    assert found.winner
    assert "nchw32" in found.winner.name


def test_where_nothing_helps_the_plain_run_wins(write_script: WriteScript) -> None:
    effects = [{"when": {"enable_nchw44": True}, "factor": 1.001}]
    found = lar.tune(write_script(**{**LANDSCAPE, "effects": effects}), budget_seconds=60)
    assert found.winner
    assert found.winner.name == "plain"


def test_candidates_that_crash_or_hang_are_rows(write_script: WriteScript) -> None:
    effects = [
        {"when": {"enable_nchw44": True}, "fault": {"at": "start", "do": "abort"}},
        {"when": {"enable_nchw32": True}, "fault": {"at": "load", "do": "hang"}},
        {"when": {"multithread": 2}, "factor": 0.6},
    ]
    model = write_script(**{**LANDSCAPE, "effects": effects})
    found = lar.tune(model, budget_seconds=60, stall_timeout=2)
    statuses = {each.name: each.status for each in found.ranking}
    assert (statuses["nchw44"], statuses["nchw32"]) == ("crashed", "timed_out")
    assert found.winner
    assert found.winner.name == "2 threads"
    assert all("nchw44 +" not in name for name in statuses)


def test_an_interrupted_search_goes_on_where_it_stood(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, session = write_script(**LANDSCAPE), tmp_path / "net.tune"
    whole = lar.tune(model, budget_seconds=60)
    play, played = LocalPlayer.play, list[TrialOrder]()

    def play_one(player: LocalPlayer, order: TrialOrder, show: Show, keep: Keep) -> Trial:
        if len(played) % 2:
            played.append(order)
            raise KeyboardInterrupt
        played.append(order)
        return play(player, order, show, keep)

    monkeypatch.setattr(LocalPlayer, "play", play_one)
    for _ in whole.trials[1:]:
        with pytest.raises(KeyboardInterrupt):
            lar.tune(model, budget_seconds=60, session=session)
    monkeypatch.undo()
    found = lar.tune(model, budget_seconds=60, session=session)
    assert [each.name for each in found.ranking] == [each.name for each in whole.ranking]
    # The budget is that of all sittings, and so is the time.
    assert found.wall_seconds >= found.trials[-1].began + found.trials[-1].seconds
    # What was interrupted is measured again, and nothing else.
    numbers = [order.number for order in played[::2]]
    assert numbers == [*range(len(numbers))]


def test_errors_of_python_code_name_the_keyword(write_script: WriteScript) -> None:
    model = write_script()
    with pytest.raises(lar.UsageError, match="budget_secondss"):
        lar.tune(model, budget_secondss=1)
    with pytest.raises(lar.LarError, match="the plain run"):
        lar.tune(write_script(faults=[{"at": "start", "do": "raise"}]), budget_seconds=5)


def test_what_is_done_between_trials_takes_time_of_the_budget(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def think(*arguments: Any) -> Any:
        time.sleep(0.3)
        return next_step(*arguments)

    monkeypatch.setattr(campaign, "next_step", think)
    found = lar.tune(write_script(), budget_seconds=1.5)
    last = found.trials[-1]
    assert last.began + last.seconds >= 0.3 * len(found.trials)
    assert len(found.trials) <= 5


@pytest.mark.parametrize("suffix", ["mge", "onnx"])
def test_a_real_engine_is_searched(suffix: str) -> None:
    found = lar.tune(f"models/digits_cnn.{suffix}", budget_seconds=1.0)
    assert found.ending in ("budget", "settled")
    assert found.baseline
    assert found.baseline.status == "ok"
    assert all(each.status != "failed" for each in found.ranking), found.ranking


def test_a_file_that_is_no_model_leaves_no_session(tmp_path: Path) -> None:
    model, session = tmp_path / "m.onnx", tmp_path / "m.tune"
    model.write_text("no model")
    with pytest.raises(lar.UsageError):
        lar.tune(model, session=session, budget_seconds=5)
    assert not session.exists()


@pytest.mark.parametrize("keeps_part", [True, False])
def test_what_a_search_found_before_its_time_ended_is_used(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch, keeps_part: bool
) -> None:
    fast = {"name": "fast-run", "search": {"fast_run": True}, "cache": "fast_run_algo_policy"}
    model = write_script(
        real_time=True,
        search_seconds=60.0,
        search_keeps_part=keeps_part,
        dimensions=[{"name": "algorithms", "choices": [fast]}],
        effects=[{"when": {"fast_run_algo_policy": True}, "factor": 0.4}],
    )
    candidate = Candidate(choices=("fast-run",))
    steps: list[Step | Ended] = [
        Step("screen", (BASELINE,), 0.1),
        Step("search", (candidate,), 1.0),
        *([Step("screen", (BASELINE, candidate), 0.1)] if keeps_part else []),
        Ended("budget"),
    ]
    monkeypatch.setattr(campaign, "next_step", lambda *_: steps.pop(0))
    found = lar.tune(model)
    row = found.trials[1].rows[0]
    assert row.status == "timed_out"
    (key,) = combinations_of(found.request.spaces)[0].cache_keys(candidate)
    assert gather_evidence(found.request, found.trials).has_cache(key) == keeps_part
    (ranked,) = (each for each in found.ranking if each.candidate == candidate)
    if keeps_part:
        said = "fast-run: its search was ended after 1 s: what it had found until then is used"
        assert row.warnings == (said,)
        assert (ranked.status, ranked.failure) == ("ok", None)
        assert ranked.difference
        assert 0.3 < ranked.difference.ratio < 0.8
    else:
        assert row.warnings == ()
        assert ranked.failure


def test_an_interrupted_search_of_the_engine_goes_on(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = {"name": "fast-run", "search": {"fast_run": True}, "cache": "fast_run_algo_policy"}
    model = write_script(
        real_time=True,
        search_seconds=60.0,
        search_keeps_part=True,
        progress="searching",
        dimensions=[{"name": "algorithms", "choices": [fast]}],
        effects=[{"when": {"fast_run_algo_policy": True}, "factor": 0.4}],
    )
    candidate, session = Candidate(choices=("fast-run",)), tmp_path / "s.tune"
    search = Step("search", (candidate,), 30.0)
    screen = Step("screen", (BASELINE,), 0.1)
    steps = [screen, search, screen, Ended("budget")]
    monkeypatch.setattr(campaign, "next_step", lambda *_: steps.pop(0))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SearchListener, "on_progress", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lar.tune(model, session=session, budget_seconds=60.0)
    found = lar.tune(model, session=session, budget_seconds=60.0)
    assert [(each.kind, each.rows[-1].status) for each in found.trials] == [
        ("screen", "ok"),
        ("search", "interrupted"),
        ("screen", "ok"),
    ]
    interrupted = found.trials[1]
    assert interrupted.seconds > 0.5
    assert found.trials[2].began >= interrupted.began + interrupted.seconds
    evidence = gather_evidence(found.request, found.trials)
    (key,) = combinations_of(found.request.spaces)[0].cache_keys(candidate)
    assert evidence.begun_seconds == {key: interrupted.seconds}
    # It can be searched again, and begins with what was found.
    assert not evidence.has_cache(key)
    assert key not in evidence.searches
    with read_session(str(session)) as kept:
        (name,) = kept.cache_names
        assert kept.get_cache(name, tmp_path / "part.cache")
        assert name == interrupted.rows[0].cache


def test_twins_that_take_other_inputs_are_not_trusted(tmp_path: Path) -> None:
    models = []
    for name, twin in (("digits_cnn.mge", "net.mge"), ("one_operator.onnx", "net.onnx")):
        models.append(tmp_path / twin)
        models[-1].write_bytes(Path("models", name).read_bytes())
    found = lar.tune(models, session=tmp_path / "n.tune", budget_seconds=4.0)
    others = [each for each in found.ranking if each.candidate.model == 1]
    assert others
    assert {each.status for each in others} == {"wrong"}
    assert found.winner is None or found.winner.candidate.model == 0


def test_weights_in_a_file_beside_the_model_belong_to_it(tmp_path: Path, run_lar: RunLar) -> None:
    model, weights = tmp_path / "net.onnx", tmp_path / "net.data"
    graph = onnx.load("models/digits_cnn.onnx")
    onnx.save(graph, str(model), save_as_external_data=True, location=weights.name)
    words = ("--session", "net.tune", "-o", "net.json")
    done = run_lar("tune", model.name, "--budget", "1", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = ("run", model.name, "--settings", "net.json", "--iter", "1")
    assert run_lar(*again, cwd=tmp_path).returncode == 0
    weights.write_bytes(bytes(len(weights.read_bytes())))
    refused = run_lar("tune", "--resume", "net.tune", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is not valid here: net.data has SHA-256 " in refused.stderr
    refused = run_lar(*again, cwd=tmp_path)
    assert refused.returncode == 2
    assert "a file of its weights is not net.data with SHA-256 " in refused.stderr
    weights.unlink()
    refused = run_lar("tune", "--resume", "net.tune", cwd=tmp_path)
    assert "its file net.data is not here" in refused.stderr
