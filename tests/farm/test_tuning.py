"""Rounds of a search on workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.farm.farm import Farm, Killed
from lar.farm.runs import CutShort, FarmPlayer, RoundFollower
from lar.measurement.machine import read_machine
from lar.records.run import RunResult, RunSpec
from lar.tuning.player import Entrant, RoundOrder
from tests.conftest import RunLar, WriteScript
from tests.farm.conftest import LocalCluster
from tests.tuning.made_tune import LANDSCAPES
from tests.tuning.test_search import measured

TIMES = [[0.01, 0, 0.01]]


def spec_of(model: str) -> RunSpec:
    return RunSpec(model=model, engine="fake", driver="script")


class DeadlyFarm(Farm):
    """Loses its workers with whatever they do."""

    def __init__(self) -> None:
        pass

    def alike(self, *asked: Any) -> tuple[str, ...]:
        return ("tcp://lost",)

    def play(self, *asked: Any, **others: Any) -> Any:
        raise Killed("the worker was lost")


@pytest.mark.parametrize(("count", "blamed"), [(1, 0), (2, 1), (4, 1)])
def test_one_candidate_alone_is_blamed_for_lost_workers(
    write_script: WriteScript, count: int, blamed: int
) -> None:
    entrants = (Entrant(spec=spec_of(write_script(times=TIMES))),) * count
    kept: dict[int, RunResult] = {}
    FarmPlayer(DeadlyFarm(), "arm", read_machine()).play(
        RoundOrder(number=2, seconds=0.1, left_seconds=600.0, entrants=entrants),
        print,
        kept.__setitem__,
    )
    assert [*kept] == [blamed]
    assert kept[blamed].status == "crashed"


def test_a_round_of_which_something_is_kept_does_not_begin_again() -> None:
    kept: dict[int, RunResult] = {}
    follower = RoundFollower(print, kept.__setitem__)
    made = RunResult(spec=spec_of("m"), status="ok", phase="done")
    follower.begin()
    follower.take(0, made)
    follower.begin()  # alone the plain run is of no use
    follower.take(0, made)
    assert not kept
    follower.take(1, made)
    assert [*kept] == [0, 1]
    with pytest.raises(CutShort):
        follower.begin()


def test_machines_are_never_mixed(farm: Farm) -> None:
    assert len(farm.alike("arm", read_machine())) == 1
    with pytest.raises(Exception, match="no worker's machine is like the machine"):
        farm.alike("arm", replace(read_machine(), processor="a board's"))


def test_a_search_on_another_machine(
    cluster: LocalCluster, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    model = write_script(**LANDSCAPES["one helps, one is wrong"])
    session = str(tmp_path / "session")
    words = ("tune", model, "--session", session, "--budget", "60", "--scheduler", cluster.address)
    run_lar(*words, "--json", str(tmp_path / "found.json"), code=0)
    found = json.loads((tmp_path / "found.json").read_text())
    assert str(cluster.folder) not in json.dumps(found)
    statuses = {each["name"]: each["status"] for each in found["ranking"]}
    assert statuses == {"constant": "ok", "plain": "ok", "wrong": "wrong"}
    before = measured(session)
    run_lar(*words, code=0)
    assert measured(session) == before
