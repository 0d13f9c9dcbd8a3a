"""Trials of a search on workers, in a cluster without Dask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lar.farm import executor, worker
from lar.farm.field import Field
from lar.farm.tuning import FarmPlayer, request_on_farm
from lar.measurement.machine import read_machine
from lar.records.bench import OutputDifference
from lar.records.run import RunContext, RunSpec
from lar.records.tuning import Candidate, ModelSpace, TrialKind, TrialRow
from lar.tuning import player
from lar.tuning.numbers import judge_by_layers
from lar.tuning.player import CutShort, Entrant, TrialOrder
from lar.tuning.session import read_session
from tests.conftest import RunLar, WriteScript
from tests.farm.fake_cluster import FakeCluster, fake_farm

TIMES = [[0.01, 0, 0.01]]


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    workers = {"one": ("device", "arm"), "two": ("device", "arm"), "three": ("device", "x86")}
    return FakeCluster(tmp_path / "workers", workers)


@pytest.fixture
def farm(cluster: FakeCluster) -> Iterator[Field]:
    with fake_farm(cluster) as found:
        yield found


def entrant(number: int, model: str, **settings: bool | str) -> Entrant:
    spec = RunSpec(model=model, engine="fake", driver="script", settings={**settings})
    return Entrant(candidate=Candidate(choices=("c",) * number), name=f"c{number}", spec=spec)


def order_of(*entrants: Entrant, kind: TrialKind = "screen", seconds: float = 0.1) -> TrialOrder:
    return TrialOrder(number=2, kind=kind, seconds=seconds, entrants=entrants, began=7.0)


def test_a_trial_is_played_by_one_worker(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    effects = [{"when": {"const_shape": True}, "factor": 0.5}]
    model = write_script(times=TIMES, effects=effects, outputs={"y": [1.0]})
    shown: list[str] = []
    played = FarmPlayer(farm, "arm", read_machine())
    order = order_of(entrant(0, model), entrant(1, model, const_shape=True))
    trial = played.play(order, lambda text, seconds: shown.append(text))
    assert [row.status for row in trial.rows] == ["ok", "ok"]
    times = [row.turns[-1].samples.end_to_end[0] for row in trial.rows]
    assert times[1] == pytest.approx(times[0] / 2)
    assert trial.rows[1].output_difference
    assert (trial.number, trial.began) == (2, 7.0)
    assert shown
    assert cluster.count("play") == 1


def test_a_search_brings_its_cache(farm: Field, write_script: WriteScript, tmp_path: Path) -> None:
    model = write_script(times=TIMES, search_seconds=1)
    cache = tmp_path / "cache"
    found = entrant(0, model, fast_run=True, fast_run_algo_policy=str(cache))
    trial = FarmPlayer(farm, "arm").play(
        order_of(found, kind="search", seconds=60.0), lambda *_: None
    )
    assert trial.rows[0].status == "ok", trial.rows[0].failure
    assert cache.is_file()


def test_a_trial_that_loses_its_worker_begins_again(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose = lambda name, address: name == "play" and len(cluster.labels) == 3
    trial = FarmPlayer(farm).play(order_of(entrant(0, write_script(times=TIMES))), lambda *_: None)
    assert trial.rows[0].status == "ok"
    assert cluster.count("play") == 2


def test_a_trial_is_cut_short_by_a_loss_after_rows(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose_after = lambda name: name == "play"
    model, kept = write_script(times=TIMES), dict[int, TrialRow]()

    def keep(place: int, row: TrialRow, seconds: float) -> None:
        kept[place] = row

    with pytest.raises(CutShort):
        FarmPlayer(farm).play(order_of(entrant(0, model), entrant(1, model)), lambda *_: None, keep)
    assert [row.status for row in kept.values()] == ["ok", "ok"]
    assert all(row.turns for row in kept.values())
    assert cluster.count("play") == 1


def test_a_search_that_loses_its_last_worker_keeps_what_was_measured(
    farm: Field, cluster: FakeCluster, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    constant = {"name": "constant", "options": {"const_shape": True}}
    model = write_script(
        times=TIMES,
        outputs={"y": [1.0]},
        effects=[{"when": {"const_shape": True}, "factor": 0.5}],
        dimensions=[{"name": "shapes", "choices": [constant]}],
    )
    cluster.labels = {"one": ["device", "arm"]}
    cluster.lose_after = lambda name: name == "play" and cluster.kinds[-1] == "trial"
    session = str(tmp_path / "search.tune")
    elsewhere = ("--scheduler", "dask://x", "--on", "arm")
    words = ("--budget", "5", "--session", session)
    done = run_lar("tune", model, *words, *elsewhere)
    assert done.returncode == 4
    assert "constant" in done.stdout
    assert "no worker with the label 'arm' is left" in done.stdout
    resume = f"`lar tune --resume {session} {' '.join(elsewhere)}` goes on"
    assert resume in done.stderr.replace("\n", " ")
    with read_session(session) as opened:
        (trial,) = opened.trials
    assert [row.candidate.choices for row in trial.rows] == [(), ("constant",)]
    assert all(row.turns for row in trial.rows)
    cluster.labels = {"two": ["device", "arm"]}
    cluster.lose_after = lambda name: False
    again = run_lar("tune", "--resume", session, *elsewhere)
    assert again.returncode == 0, again.stderr
    with read_session(session) as opened:
        assert opened.trials[0] == trial
        assert opened.ending in ("settled", "budget")


def test_a_trial_that_loses_all_workers_blames_its_candidates(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose = lambda name, address: name == "play"
    model = write_script(times=TIMES)
    trial = FarmPlayer(farm).play(order_of(entrant(0, model), entrant(1, model)), lambda *_: None)
    assert [row.status for row in trial.rows] == ["ok", "crashed"]
    assert trial.rows[1].failure
    assert "the worker was lost, 3 times" in trial.rows[1].failure.message


def test_of_several_one_alone_is_blamed_for_lost_workers(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.labels = {f"board{number}": ["device"] for number in range(6)}
    cluster.lose = lambda name, address: name == "play"
    model = write_script(times=TIMES)
    order = order_of(*(entrant(number, model) for number in range(4)))
    trial = FarmPlayer(farm).play(order, lambda *_: None)
    assert [(row.candidate.choices, row.status) for row in trial.rows] == [
        ((), "ok"),
        (("c",), "crashed"),
    ]


def test_numbers_that_differ_are_looked_at_there(
    farm: Field, cluster: FakeCluster, write_script: WriteScript, root: Path
) -> None:
    make_on = FarmPlayer(farm, "arm").make_on
    spec = RunSpec(model=write_script(times=TIMES), engine="fake", driver="script")
    assert make_on(spec, RunContext(), "").status == "ok"
    assert next(address for name, address in cluster.calls if name == "play") in ("one", "two")
    cluster.labels = {}
    space = ModelSpace(
        model=str(root / "models" / "one_operator.onnx"), engine="onnxruntime", dimensions=()
    )
    different = OutputDifference(agreement="different")
    judged = judge_by_layers(different, Candidate(), [space], {}, 60.0, make_on)
    assert judged.reason.endswith("no worker with the label 'arm' is left")


def test_what_can_be_tried_is_asked_there(farm: Field, write_script: WriteScript) -> None:
    choice = {"name": "constant", "options": {"const_shape": True}}
    model = write_script(dimensions=[{"name": "shapes", "choices": [choice]}])
    answer = request_on_farm(farm, "x86", [model], {}, budget_seconds=3.0, extent="full")
    (space,) = answer.request.spaces
    assert (space.model, space.engine) == (model, "fake")
    assert [each.name for each in space.dimensions] == ["shapes"]
    assert answer.request.budget_seconds == 3.0
    assert answer.machine.cores
    assert [*answer.engines] == ["fake"]


def test_a_search_on_another_machine(
    farm: Field,
    cluster: FakeCluster,
    write_script: WriteScript,
    run_lar: RunLar,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = replace(read_machine(), processor="a board's")
    for module in (worker, executor, player):
        monkeypatch.setattr(module, "read_machine", lambda: board)
    constant = {"name": "constant", "options": {"const_shape": True}}
    wrong = {"name": "wrong", "options": {"enable_ioc16": True}}
    model = write_script(
        times=TIMES,
        outputs={"y": [1.0]},
        effects=[
            {"when": {"const_shape": True}, "factor": 0.5},
            {"when": {"enable_ioc16": True}, "factor": 0.2, "error": 0.5},
        ],
        dimensions=[
            {"name": "shapes", "choices": [constant]},
            {"name": "types", "choices": [wrong]},
        ],
    )
    session = str(tmp_path / "search.tune")
    words = ("--budget", "8", "--json", str(tmp_path / "found.json"))
    elsewhere = ("--scheduler", "dask://x", "--on", "arm")
    done = run_lar("tune", model, "--session", session, *words, *elsewhere)
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "found.json").read_text()
    assert '"processor":"a board\'s"' in found
    assert "workers" not in found.replace(model, "")
    assert "constant" in done.stdout
    assert '"status":"wrong"' in found
    assert {*cluster.kinds} == {"space", "trial"}
    more = ("--budget", "9")
    again = run_lar("tune", "--resume", session, *more, *elsewhere)
    assert again.returncode == 0, again.stderr
    here = run_lar("tune", "--resume", session, *more)
    assert here.returncode == 2
    assert "a board's" in here.stderr
    board = replace(board, processor="another")
    with fake_farm(cluster):
        for module in (worker, executor, player):
            monkeypatch.setattr(module, "read_machine", lambda: board)
        other = run_lar("tune", "--resume", session, *more, *elsewhere)
    assert "no worker has a machine like the one that was measured before" in other.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "arm"), "--on needs --scheduler"),
        (("--scheduler", "dask://x", "--algorithms", "c"), "algorithms are timed on this machine"),
    ],
)
def test_searches_that_cannot_be_made_elsewhere(
    write_script: WriteScript, run_lar: RunLar, words: tuple[str, ...], message: str
) -> None:
    done = run_lar("tune", write_script(times=TIMES), *words)
    assert message in done.stderr
    assert done.returncode == 2
