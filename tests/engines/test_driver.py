"""What all drivers have from their base class."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from lar.engines import engine_named
from lar.engines.driver import Driver
from lar.records.run import RunSpec, Setting


def compute(seconds: float) -> None:
    """Use the CPU for so long, counted by this thread's own clock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def driver_of(copies: int) -> Driver:
    settings: dict[str, Setting] = {"thread": copies}
    spec = RunSpec(model="m.onnx", engine="onnxruntime", driver="session", settings=settings)
    return engine_named("onnxruntime").make_driver(spec)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
@pytest.mark.parametrize(("runners", "seen"), [(1, True), (2, False)])
def test_the_meter_reads_other_threads_too_unless_they_may_be_of_other_runners(
    runners: int, seen: bool
) -> None:
    meter = driver_of(runners).meter()
    assert meter is not None
    meter.read()
    ended, stay = threading.Event(), threading.Event()

    def work() -> None:
        compute(0.03)
        ended.set()
        stay.wait()  # a thread that has ended is not read any more

    other = threading.Thread(target=work)
    other.start()
    ended.wait()
    busiest = meter.read(ends=True).busiest_thread
    stay.set()
    other.join()
    assert (busiest > 0.025) == seen


def test_a_driver_that_knows_no_reason_says_so() -> None:
    assert str(driver_of(1).failure()) == "the engine reported no reason"


@pytest.mark.parametrize(("copies", "in_caller"), [(1, True), (1, False), (2, True), (2, False)])
def test_copies_whose_threads_cannot_be_told_apart_have_no_meter(
    copies: int, in_caller: bool
) -> None:
    driver = driver_of(copies)
    driver.computes_in_caller = in_caller
    assert (driver.meter() is None) == (copies > 1 and not in_caller)
