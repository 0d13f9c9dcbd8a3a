"""Workers that are alive at once load beside each other and warm up one after the other."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from lar.records.events import Event, PhaseEntered
from lar.records.run import FedInput, ModelFile, RunContext, RunResult, RunSpec, Samples
from lar.running.plan import plan_run
from lar.running.rounds import (
    Member,
    Rounds,
    TurnTaker,
    await_all,
    compare_members,
    is_same_data,
    places_in_memory,
)
from lar.worker.execution import summarize_outputs
from tests.conftest import WriteScript
from tests.tables import each_row

pytestmark = pytest.mark.usefixtures("nothing_left")

SPEC = RunSpec(model="net", engine="e", driver="d")
OK = RunResult(spec=SPEC, status="ok", phase="done")


class Observed(TurnTaker):
    """Writes down what it does, with its number."""

    number = 0
    seen: list[tuple[int, str]]

    def on_event(self, event: Event, result: RunResult) -> None:
        super().on_event(event, result)
        if isinstance(event, PhaseEntered) and event.phase in ("warmup", "iterations"):
            self.seen.append((self.number, event.phase))

    def pause(self) -> None:
        super().pause()
        self.seen.append((self.number, "pause"))

    def go_on(self) -> None:
        super().go_on()
        self.seen.append((self.number, "go on"))


def start(
    stack: contextlib.ExitStack, scripts: list[str], seen: list[tuple[int, str]], **options: object
) -> list[TurnTaker]:
    takers: list[TurnTaker] = []
    for number, script in enumerate(scripts):
        taker = Observed(stack, plan_run(script, {"warmup_iter": 1, **options}), RunContext())
        taker.number, taker.seen = number, seen
        takers.append(taker)
    return takers


def test_workers_warm_up_one_after_the_other(write_script: WriteScript) -> None:
    scripts = [write_script(times=[[0.3, 0.001, None]], real_time=True) for _ in range(3)]
    seen: list[tuple[int, str]] = []
    with contextlib.ExitStack() as stack:
        takers = start(stack, scripts, seen)
        await_all(takers)
        assert all(taker.is_ready and not taker.ended for taker in takers)
        for number in range(3):
            own = [what for other, what in seen if other == number]
            assert own == ["warmup", "pause", "go on", "iterations", "pause"]
        # From here on nobody goes on before the one before it has done so, and is stopped again.
        later = [(number, what) for number, what in seen[-9:] if what != "iterations"]
        assert [what for _, what in later] == ["go on", "pause"] * 3
        assert all(a[0] == b[0] for a, b in zip(later[::2], later[1::2], strict=True))
        assert all(taker.take_turn(0, 1) is not None for taker in takers)


def test_one_that_fails_while_it_warms_up_is_reported_and_the_others_go_on(
    write_script: WriteScript,
) -> None:
    scripts = [
        write_script(times=[[0.5, 0.001, None]], real_time=True, faults=faults)
        for faults in ([{"at": "start", "index": 0, "do": "abort"}], [])
    ]
    with contextlib.ExitStack() as stack:
        takers = start(stack, scripts, [])
        await_all(takers)
        assert takers[0].result.status == "crashed"
        assert takers[1].is_ready
        assert not takers[1].ended


def test_the_time_of_one_that_waits_to_warm_up_stands_still(write_script: WriteScript) -> None:
    # A busy machine may take longer to start them.
    for seconds in (0.6, 4.0):
        scripts = [write_script(times=[[seconds, 0.001, None]], real_time=True) for _ in range(3)]
        with contextlib.ExitStack() as stack:
            takers = start(stack, scripts, [], timeout=2.5 * seconds)
            await_all(takers)
            ended = [taker.result.status for taker in takers if taker.ended]
        if not ended:
            break
    assert ended == []


@pytest.mark.parametrize(("known", "able"), [(0.0, [0, 1, 3, 4]), (0.01, [0, 1, 2, 3, 4])])
def test_one_that_stays_far_slower_than_the_first_gets_only_its_fastest_look(
    known: float, able: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look of the second was disturbed. The speed of the fourth was known. The last one
    ended, as the third does after three looks."""
    looks = [[0.01], [0.05, 0.02], [0.05, 0.04, 0.045], [], []]
    members = [Member(number=number, spec=None) for number in range(5)]
    members[0].seconds, members[3].seconds = known, 0.05
    rounds = Rounds(folder="", began=0, deadline=0, order=random.Random(0), slowest=3.0)
    for member, times in zip(members, looks, strict=True):
        turns = chain((Samples(end_to_end=(each,)) for each in times), repeat(None))
        rounds.takers[member] = Mock(**{"take_turn.side_effect": turns})
    monkeypatch.setattr("lar.running.rounds.time", Mock(monotonic=count(step=0.001).__next__))
    assert [it.number for it in rounds.leave_out_slow(members[0], members)] == able
    kept = [[max(turn.samples.end_to_end) for turn in it.turns] for it in members]
    assert kept == ([[]] * 5 if known else [[0.01], [], [0.04], [], []])


@dataclass
class Computed:
    """A process on a computed clock, some turns of which are disturbed.

    The process ends after `turns` turns. The engine's own clock runs `rate` times as fast.
    """

    clock: list[float]
    seconds: float
    turns: int = 999
    calm: int = 999
    rate: float = 1
    worker: Mock = field(default_factory=Mock)
    seen: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def ended(self) -> bool:
        return self.turns < 1

    def finish(self) -> RunResult:
        return replace(OK, status="crashed")

    def take_turn(self, untimed: int, timed: int) -> Samples:
        self.turns, self.calm = self.turns - 1, self.calm - 1
        self.clock[0] += (untimed + timed) * self.seconds
        self.seen[untimed, timed] += 1
        delays = (0.0 if self.calm >= 0 else self.seconds / 2,) * timed
        return Samples(end_to_end=(self.seconds * self.rate,) * timed, queue_delay=delays)


@each_row("running/cases/turns")
def test_turns_go_on_as_long_as_the_processes_took_to_start(
    processes: list[dict[str, Any]],
    start: float,
    limits: dict[str, Any],
    seen: list[str],
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("lar.running.rounds.time", Mock(monotonic=lambda: clock[0]))
    rounds = Rounds(**{"folder": "", "began": 0, "deadline": 99, **limits}, order=random.Random(0))
    members = [
        Member(number=number, spec=None, seconds=it["seconds"])
        for number, it in enumerate(processes)
    ]
    takers = [Computed(clock, **it) for it in processes]
    rounds.takers = dict(zip(members, takers, strict=True))  # type: ignore[arg-type]
    rounds.play_turns(members, start)
    told = [", ".join(f"{n} of {a}+{b}" for (a, b), n in it.seen.items()) for it in takers]
    assert told == seen
    assert clock[0] == pytest.approx(seconds)
    cycles = [[turn.cycle for turn in it.turns] for it in members]
    assert cycles == [[*range(it.seen.total())] for it in takers]
    assert [it.result is not None for it in members] == [taker.ended for taker in takers]


@each_row("running/cases/memory for processes")
def test_as_many_processes_live_at_once_as_fit_into_memory(
    sizes: list[Any], places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, held, count, mib = sizes
    monkeypatch.setattr("lar.running.rounds.read_memory", lambda _: mib and mib << 20)
    member = Member(number=0, spec=SPEC)
    if model:
        member.context = RunContext(model=ModelFile(path="", size_bytes=model << 20, sha256=""))
    if held:
        member.result = replace(OK, peak_memory_bytes=held << 20)
    assert places_in_memory([member] * count) == places


@each_row("running/cases/inputs of members")
def test_outputs_are_compared_if_the_inputs_were_the_same(
    mine: list[Any], its: list[Any], is_same: bool
) -> None:
    fields = ("name", "dtype", "shape", "source", "generated")
    one, other = (FedInput(**dict(zip(fields, each, strict=True))) for each in (mine, its))
    assert is_same_data(one, other) == is_same


def ended_with(folder: Path, outputs: Mapping[str, Any]) -> Member:
    """A member whose worker gave these outputs, of which those that are no arrays have no file."""
    arrays = {
        name: it if isinstance(it, str) else np.array(it, None if str in map(type, it) else "f4")
        for name, it in outputs.items()
    }
    result = replace(OK, outputs=tuple(summarize_outputs(arrays, str(folder))))
    return Member(number=0, spec=SPEC, result=result, outputs=str(folder))


@each_row("running/cases/outputs of members")
def test_the_output_that_differs_most_is_told(
    tmp_path: Path, actual: Any, expected: Any, told: list[Any] | None
) -> None:
    sides = ended_with(tmp_path / "one", actual), ended_with(tmp_path / "other", expected)
    found = compare_members(*sides)
    seen = found and [found.output, found.agreement, found.max_error, found.reason]
    assert seen == (told and [pytest.approx(it) for it in told])
