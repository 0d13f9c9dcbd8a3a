"""Iterations whose number is open: until they settle, until a median is known, until time is up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from lar.measurement.loop import Requests
from lar.measurement.rows import SampleRows, samples_since
from lar.measurement.summary import precision_of, windows_agree
from lar.records.run import Ending, RunSpec, Stopped, Stopping

# A window of the warm-up has at least so many iterations, and lasts at least so long.
WINDOW_ITERATIONS = 5
WINDOW_SECONDS = 0.1
# The warm-up ends after this share of --max-time, whether or not it has settled.
WARMUP_SHARE = 0.25
# The interval is looked at again when the time measured has grown by this factor, and is narrow
# enough if it is at two looks, one after the other. The first narrow one among many is too often
# narrow by chance: it holds the median in fewer than 92 of 100 runs (simulated).
GROWTH = 1.5
NARROW_LOOKS = 2


class Runners(Protocol):
    """Runs iterations; has the table of each runner."""

    tables: Sequence[SampleRows]

    def run(
        self, count: int, *, seconds: float = math.inf, requests: Requests | None = None
    ) -> float: ...


def room_in(tables: Sequence[SampleRows]) -> int:
    """Return how many more iterations every table has room for."""
    return min(rows.capacity - rows.count for rows in tables)


def warm_up(runners: Runners, most_seconds: float) -> bool:
    """Run windows of iterations until two of them agree; return whether that was in time."""
    spent, before = 0.0, None
    while spent < most_seconds:
        firsts = [rows.count for rows in runners.tables]
        count = min(WINDOW_ITERATIONS, room_in(runners.tables))
        took = runners.run(count, seconds=most_seconds - spent)
        if took < WINDOW_SECONDS:
            took += runners.run(room_in(runners.tables), seconds=WINDOW_SECONDS - took)
        spent += took
        window = samples_since(runners.tables, firsts).end_to_end
        if not window:
            return False
        if before is not None and windows_agree(before, window):
            return True
        before = window
    return False


def measure(runners: Runners, spec: RunSpec) -> Stopped:
    """Run the timed iterations; return how that ended."""
    stopping = spec.stopping
    if spec.pacing.rate is not None:
        return serve(runners, spec, spec.pacing.rate)
    if stopping.duration_seconds is None:
        return approach(runners, stopping)
    seconds = runners.run(room_in(runners.tables), seconds=stopping.duration_seconds)
    met = seconds >= stopping.duration_seconds
    return Stopped(ending="duration" if met else "room", met=met, seconds=seconds)


def serve(runners: Runners, spec: RunSpec, rate: float) -> Stopped:
    """Serve requests that arrive at a rate."""
    duration, room = spec.stopping.duration_seconds, room_in(runners.tables)
    firsts = [rows.count for rows in runners.tables]
    requests = Requests(spec.pacing, spec.seed, most=min(spec.iterations, room), seconds=duration)
    seconds, offered = runners.run(room, requests=requests), requests.offered()
    services = samples_since(runners.tables, firsts).end_to_end
    load = rate * math.fsum(services) / max(1, len(services)) / len(runners.tables)
    ending: Ending = "iterations" if duration is None else "duration"
    if duration is not None and requests.begun == requests.most:
        ending = "room"
    return Stopped(
        ending=ending,
        met=ending != "room" and load < 1,
        seconds=seconds,
        load=load,
        offered=offered,
        unserved=offered - requests.begun,
    )


def approach(runners: Runners, stopping: Stopping) -> Stopped:
    """Run iterations until the median is known as well as is asked for."""
    target, least = stopping.target_interval or 0.0, stopping.min_seconds or 0.0
    most = math.inf if stopping.max_seconds is None else stopping.max_seconds
    firsts = [rows.count for rows in runners.tables]
    seconds, until, narrow_looks = 0.0, least / GROWTH, 0
    ending: Ending | None = None
    while ending is None:
        seconds += runners.run(room_in(runners.tables), seconds=until - seconds)
        reached, undisturbed = precision_of(samples_since(runners.tables, firsts))
        narrow_looks = narrow_looks + 1 if reached is not None and reached <= target else 0
        if narrow_looks >= NARROW_LOOKS and seconds >= least:
            ending = "target"
        elif seconds >= most:
            ending = "max_time"
        elif room_in(runners.tables) == 0:
            ending = "room"
        until = min(most, max(least, seconds * GROWTH))
    return Stopped(
        ending=ending,
        met=ending == "target",
        seconds=seconds,
        reached=reached,
        undisturbed=undisturbed,
    )
