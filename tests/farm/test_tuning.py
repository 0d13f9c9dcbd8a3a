"""Rounds of a search on workers, in a cluster without Dask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lar.farm import executor, worker
from lar.farm.field import Field
from lar.farm.tuning import FarmPlayer, request_on_farm
from lar.measurement.listener import Listener
from lar.measurement.machine import read_machine
from lar.records.run import RunResult, RunSpec
from lar.records.tuning import TuneRequest
from lar.tuning import player
from lar.tuning.player import Entrant, RoundOrder
from tests.conftest import RunLar, WriteScript
from tests.farm.fake_cluster import FakeCluster, fake_farm
from tests.tuning.test_search import measured

TIMES = [[0.01, 0, 0.01]]


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    workers = {"one": ("device", "arm"), "two": ("device", "arm"), "three": ("device", "x86")}
    return FakeCluster(tmp_path / "workers", workers)


@pytest.fixture
def farm(cluster: FakeCluster) -> Iterator[Field]:
    with fake_farm(cluster) as found:
        yield found


def spec_of(model: str, **settings: bool | str) -> RunSpec:
    return RunSpec(model=model, engine="fake", driver="script", settings={**settings})


def play(
    farm: Field, *specs: RunSpec, label: str = "", shown: list[str] | None = None
) -> dict[int, RunResult]:
    """Play a round of these runs; return what was kept, by the place in the round."""
    order = RoundOrder(number=2, seconds=0.1, entrants=tuple(Entrant(spec=spec) for spec in specs))
    kept: dict[int, RunResult] = {}
    show = (shown if shown is not None else []).append
    FarmPlayer(farm, label, read_machine()).play(order, show, kept.__setitem__)
    return kept


def test_a_round_is_played_by_one_worker(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    effects = [{"when": {"const_shape": True}, "factor": 0.5}]
    model, shown = write_script(times=TIMES, effects=effects, outputs={"y": [1.0]}), list[str]()
    specs = spec_of(model), spec_of(model, const_shape=True)
    kept = play(farm, *specs, label="arm", shown=shown)
    assert [kept[place].status for place in (0, 1)] == ["ok", "ok"]
    times = [kept[place].samples.end_to_end[0] for place in (0, 1)]
    assert times[1] == pytest.approx(times[0] / 2)
    assert kept[1].numeric_errors[0].relative == 0.0
    assert shown
    assert cluster.count("play") == 1


def test_a_search_brings_its_cache(farm: Field, write_script: WriteScript, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    model = write_script(times=TIMES, search_seconds=1)
    spec = spec_of(model, fast_run=True, fast_run_algo_policy=str(cache))
    found = FarmPlayer(farm, "arm", read_machine()).search(spec, Listener())
    assert found.status == "ok", found.failure
    assert cache.is_file()


def test_a_round_that_loses_its_worker_begins_again(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose = lambda name, address: name == "play" and len(cluster.labels) == 3
    assert play(farm, spec_of(write_script(times=TIMES)))[0].status == "ok"
    assert cluster.count("play") == 2


def test_what_had_ended_before_a_loss_is_kept(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose_after = lambda name: name == "play"
    model = write_script(times=TIMES)
    kept = play(farm, spec_of(model), spec_of(model))
    assert [each.status for each in kept.values()] == ["ok", "ok"]
    assert cluster.count("play") == 1


@pytest.mark.parametrize(("count", "blamed"), [(1, 0), (2, 1), (4, 1)])
def test_one_candidate_alone_is_blamed_for_lost_workers(
    farm: Field, cluster: FakeCluster, write_script: WriteScript, count: int, blamed: int
) -> None:
    cluster.labels = {f"board{number}": ["device"] for number in range(6)}
    cluster.lose = lambda name, address: name == "play"
    kept = play(farm, *[spec_of(write_script(times=TIMES))] * count)
    assert [*kept] == [blamed]
    assert kept[blamed].status == "crashed"
    failure = kept[blamed].failure
    assert failure
    assert "the worker was lost, 3 times" in failure.message


def test_what_can_be_tried_is_asked_there(farm: Field, write_script: WriteScript) -> None:
    choice = {"name": "constant", "options": {"const_shape": True}}
    model = write_script(dimensions=[{"name": "shapes", "choices": [choice]}])
    answer = request_on_farm(
        farm, "x86", [model], {}, TuneRequest(budget_seconds=3.0, extent="full")
    )
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
    session = str(tmp_path / "session")
    elsewhere = ("--scheduler", "dask://x", "--on", "arm")
    words = ("tune", model, "--session", session, "--budget", "8", *elsewhere)
    done = run_lar(*words, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["processor"] == "a board's"
    assert "workers" not in json.dumps(found).replace(model, "")
    statuses = {each["name"]: each["status"] for each in found["ranking"]}
    assert statuses == {"constant": "ok", "plain": "ok", "wrong": "wrong"}
    assert {*cluster.kinds} == {"space", "round"}
    before = measured(session)
    again = run_lar(*words)
    assert again.returncode == 0, again.stderr
    assert measured(session) == before
    # On this machine nothing of it counts.
    here = run_lar("tune", model, "--session", session, "--budget", "3")
    assert "another model, machine, engine or command, and not used" in here.stdout


def test_a_label_needs_a_scheduler(write_script: WriteScript, run_lar: RunLar) -> None:
    done = run_lar("tune", write_script(times=TIMES), "--on", "arm")
    assert "--on needs --scheduler" in done.stderr
    assert done.returncode == 2
