"""Iterations whose number is open: they settle, are enough, and end in time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle
from typing import Any

import pytest

from lar.measurement.rows import SampleRows
from lar.records.run import Pacing, RunSpec, Stopped, Stopping
from lar.worker.execution import Copies, measure, warm_up, warnings_of
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


@each_row("worker/cases/warm-ups")
def test_a_warmup_has_windows_until_two_agree(
    times: list[float], most: float, room: int, settled: bool, windows: list[float]
) -> None:
    played = Played(cycle(times), capacity=room)
    assert warm_up(played, most) == settled
    assert played.chunks == pytest.approx(windows)


# The end of measuring


@each_row("worker/cases/ends of measuring")
def test_measuring_ends_when_it_was_told_to(
    times: list[list[float]],
    room: int,
    stopping: dict[str, float],
    stopped: dict[str, Any],
    looks: list[float],
) -> None:
    """Each list in `times` has the times of a runner, again and again. All runners stop together;
    `looks` has when the samples were looked at."""
    played = Played(*map(cycle, times), capacity=room)
    assert ended(played, **stopping) == Stopped(**stopped)
    assert [*accumulate(played.chunks)] == pytest.approx(looks)


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


@each_row("worker/cases/ends with a warning")
def test_a_warning_says_what_was_not_reached(
    stopped: dict[str, Any], target: float | None, rate: float | None, warnings: list[str]
) -> None:
    spec = replace(spec_of(target_interval=target), pacing=Pacing(rate=rate))
    ended = Stopped(**{"ending": "max_time", "met": False, "seconds": 2.5, **stopped})
    assert [*warnings_of(ended, spec)] == warnings
