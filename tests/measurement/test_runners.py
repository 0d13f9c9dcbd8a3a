"""Runners: each has a thread of its own, all begin together, the first error ends them."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from lar.measurement.loop import Threads


def test_each_runner_keeps_its_thread() -> None:
    team = Threads(3)
    first = team.each(lambda runner: (runner, threading.get_ident()))
    assert [runner for runner, _ in first] == [0, 1, 2]
    assert len({thread for _, thread in first}) == 3
    assert threading.get_ident() not in {thread for _, thread in first}
    assert team.together(lambda runner: (runner, threading.get_ident())) == first
    assert Threads(1).each(lambda it: (it, threading.get_ident())) == [(0, threading.get_ident())]


def test_runners_run_at_the_same_time() -> None:
    # Each waits for the others: one after the other they would never end.
    meeting = threading.Barrier(3)
    assert sorted(Threads(3).together(lambda runner: meeting.wait(timeout=10))) == [0, 1, 2]


def test_garbage_is_collected_by_no_runner() -> None:
    assert gc.isenabled()
    assert Threads(2).together(lambda runner: gc.isenabled()) == [False, False]
    assert gc.isenabled()


def test_the_first_error_does_not_wait_for_the_others() -> None:
    release = threading.Event()

    def run(runner: int) -> None:
        if runner == 1:
            raise ValueError("runner 1")
        release.wait(timeout=30)

    began = time.monotonic()
    with pytest.raises(ValueError, match="runner 1"):
        Threads(2).together(run)
    release.set()
    assert time.monotonic() - began < 20
    assert gc.isenabled()
