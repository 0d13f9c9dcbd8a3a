"""Iterations whose number is open: they settle, are enough, and end in time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, pairwise, repeat
from typing import Any

import pytest

from lar.measurement.rows import SampleRows
from lar.records.run import Pacing, RunSpec, Stopped, Stopping
from lar.worker.execution import WINDOW_SECONDS, Copies, measure, warm_up, warnings_of
from tests.tables import each_row


class Played(Copies):
    """Runners that play times; all stop at the same time."""

    def __init__(self, *times: Iterable[float], capacity: int = 10**6) -> None:
        self.times = [iter(each) for each in times]
        self.tables: Sequence[SampleRows] = [SampleRows.anonymous(capacity) for _ in times]
        self.chunks: list[float] = []

    def run(self, count: int, look: object = None, *, seconds: float = math.inf, **_: Any) -> float:
        longest = 0.0
        for times, rows in zip(self.times, self.tables, strict=True):
            spent = 0.0
            for _number in range(count):
                time = next(times)
                rows.append(time, 0.0, 0.0)
                spent += time
                if spent >= seconds:
                    break
            longest = max(longest, spent)
        self.chunks.append(longest)
        return longest


def spec_of(**stopping: float | None) -> RunSpec:
    return RunSpec(model="", engine="", driver="", stopping=Stopping(**stopping))  # type: ignore[arg-type]


def ended(played: Played, **stopping: float) -> Stopped:
    return measure(played, spec_of(**stopping))


def correlated(seed: int, memory: float, spread: float = 0.1) -> Iterator[float]:
    """Times of which each is like the one before: an autoregressive process around 10 ms."""
    draw = random.Random(seed)
    state = draw.gauss(0, 1)
    while True:
        yield 0.01 * (1 + spread * state)
        state = memory * state + math.sqrt(1 - memory * memory) * draw.gauss(0, 1)


# The warm-up


def test_a_warmup_settles_when_two_windows_agree() -> None:
    slower = [0.02 * 1.1**-number for number in range(40)]
    played = Played(chain(slower, repeat(slower[-1])))
    assert warm_up(played, 10.0)
    assert 40 < played.tables[0].count < 40 + 3 * WINDOW_SECONDS / slower[-1]


def test_windows_are_long_enough_and_have_enough_iterations() -> None:
    short, long = Played(repeat(0.001)), Played(repeat(1.0))
    assert warm_up(short, 10.0)
    assert warm_up(long, 100.0)
    assert short.tables[0].count == pytest.approx(2 * WINDOW_SECONDS / 0.001, abs=3)
    assert long.tables[0].count == 2 * 5


def test_iterations_that_take_longer_than_the_warmup_may_end_it() -> None:
    played = Played(repeat(60.0))
    assert not warm_up(played, 15.0)
    assert played.tables[0].count == 1


def test_a_warmup_without_room_ends() -> None:
    played = Played(0.02 * 1.01**-number for number in range(99))
    played.tables = [SampleRows.anonymous(12)]
    assert not warm_up(played, 10.0)


# The end of measuring


def test_a_duration_ends_with_the_iteration_that_reaches_it() -> None:
    played = Played(repeat(0.0625))
    assert ended(played, duration_seconds=1.0) == Stopped(ending="duration", met=True, seconds=1.0)
    assert played.tables[0].count == 16


def test_all_runners_stop_together() -> None:
    played = Played(repeat(0.25), repeat(0.0625))
    ended(played, duration_seconds=1.0)
    assert [rows.count for rows in played.tables] == [4, 16]


def test_it_is_looked_at_when_the_time_has_grown_by_half() -> None:
    played = Played(cycle([0.01, 0.03]))
    stopped = ended(played, target_interval=1e-9, min_seconds=0.5, max_seconds=5.0)
    ends = [sum(played.chunks[: number + 1]) for number in range(len(played.chunks))]
    assert all(later / sooner > 1.45 for sooner, later in pairwise(ends[:-1]))
    assert (stopped.ending, stopped.met) == ("max_time", False)
    assert 5.0 <= stopped.seconds < 5.05


def test_no_fewer_seconds_are_measured_than_asked_for() -> None:
    played = Played(correlated(0, 0.0))
    stopped = ended(played, target_interval=0.5, min_seconds=3.0, max_seconds=60.0)
    assert stopped.met
    assert 3.0 <= stopped.seconds < 3.1


def test_samples_that_are_alike_need_more_of_them() -> None:
    def seconds(memory: float) -> float:
        found = [
            ended(
                Played(correlated(seed, memory)),
                target_interval=0.02,
                min_seconds=0.5,
                max_seconds=600.0,
            ).seconds
            for seed in range(5)
        ]
        return sorted(found)[2]

    assert seconds(0.9) > 3 * seconds(0.0)


@pytest.mark.parametrize("memory", [0.0, 0.7])
def test_the_true_median_is_as_near_as_is_said(memory: float) -> None:
    """Though it is looked at again and again until it looks near."""

    def is_near(seed: int) -> bool:
        played = Played(correlated(seed, memory))
        stopped = ended(played, target_interval=0.03, min_seconds=0.5, max_seconds=600.0)
        times = sorted(played.tables[0].end_to_end())
        assert stopped.met
        return abs(times[len(times) // 2] / 0.01 - 1) <= 0.03

    assert sum(map(is_near, range(60))) >= 53


def test_iterations_that_take_no_time_end_with_the_room() -> None:
    for played in (Played(repeat(0.0), capacity=50), Played(repeat(0.125), capacity=4)):
        stopped = ended(played, target_interval=0.1, max_seconds=9.0)
        assert (stopped.ending, stopped.met) == ("room", False)


@each_row("worker/cases/ends with a warning")
def test_a_warning_says_what_was_not_reached(
    stopped: dict[str, Any], target: float | None, rate: float | None, warnings: list[str]
) -> None:
    spec = replace(spec_of(target_interval=target), pacing=Pacing(rate=rate))
    ended = Stopped(**{"ending": "max_time", "met": False, "seconds": 2.5, **stopped})
    assert [*warnings_of(ended, spec)] == warnings
