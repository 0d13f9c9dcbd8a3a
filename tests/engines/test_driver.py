"""What all drivers have from their base class."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from lar.engines import engine_named
from lar.records.run import RunSpec


def compute(seconds: float) -> None:
    """Use the CPU for so long, counted by this thread's own clock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
@pytest.mark.parametrize(("runners", "seen"), [(1, True), (2, False)])
def test_the_meter_reads_other_threads_too_unless_they_may_be_of_other_runners(
    root: Path, runners: int, seen: bool
) -> None:
    settings: dict[str, bool | int | float | str] = {"thread": runners} if runners > 1 else {}
    model = str(root / "models/one_operator.onnx")
    spec = RunSpec(model=model, engine="onnxruntime", driver="session", settings=settings)
    meter = engine_named("onnxruntime").make_driver(spec).meter()
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


def test_a_driver_that_knows_no_reason_says_so(root: Path) -> None:
    spec = RunSpec(
        model=str(root / "models/one_operator.onnx"), engine="onnxruntime", driver="session"
    )
    failure = engine_named("onnxruntime").make_driver(spec).failure()
    assert str(failure) == "the engine reported no reason"


@pytest.mark.parametrize(("copies", "in_caller"), [(1, True), (1, False), (2, True), (2, False)])
def test_copies_whose_threads_cannot_be_told_apart_have_no_meter(
    copies: int, in_caller: bool
) -> None:
    spec = RunSpec(
        model="m.onnx", engine="onnxruntime", driver="session", settings={"thread": copies}
    )
    driver = engine_named("onnxruntime").make_driver(spec)
    driver.computes_in_caller = in_caller
    assert (driver.meter() is None) == (copies > 1 and not in_caller)
