"""Workers that are alive at once load beside each other and warm up one after the other."""

from __future__ import annotations

import contextlib

import pytest

from lar.records.events import Event, PhaseEntered
from lar.records.run import RunContext, RunResult
from lar.running.plan import plan_run
from lar.running.rounds import TurnTaker, await_all
from tests.conftest import WriteScript

pytestmark = pytest.mark.usefixtures("nothing_left")


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
