"""The meter sees what threads computed and how long they stood without a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lar.measurement import noise
from lar.measurement.noise import ThreadMeter

needs_schedstat = pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{os.getpid()}/schedstat"),
    reason="this system tells no run-queue delays",
)


def spin(cpu_seconds: float) -> None:
    """Use that much of this thread's CPU time."""
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        pass


def opened() -> ThreadMeter:
    meter = ThreadMeter.open()
    assert meter is not None
    return meter


@needs_schedstat
def test_a_busy_thread_shows_its_cpu_time() -> None:
    meter = opened()
    spin(0.05)
    busiest = meter.read().busiest_thread
    # Above: what reading itself costs; far more than that would be another thread's time.
    assert 0.05 <= busiest < 0.1


@needs_schedstat
def test_a_sleeping_process_shows_next_to_none() -> None:
    meter = opened()
    time.sleep(0.1)
    assert meter.read().busiest_thread < 0.05


@needs_schedstat
def test_a_reading_begins_where_the_last_one_ended() -> None:
    meter = opened()
    spin(0.05)
    meter.read()
    assert meter.read().busiest_thread < 0.04


@needs_schedstat
def test_the_busiest_of_several_threads_is_told() -> None:
    meter = opened()
    busy, leave = threading.Event(), threading.Event()

    def work() -> None:
        spin(0.08)
        busy.set()
        leave.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    busy.wait(30)
    spin(0.02)
    busiest = meter.read().busiest_thread
    leave.set()
    thread.join()
    assert 0.08 <= busiest < 0.16


@needs_schedstat
def test_a_thread_that_ended_disturbs_no_reading() -> None:
    meter = opened()
    thread = threading.Thread(target=spin, args=(0.01,))
    thread.start()
    meter.read()
    thread.join()
    assert meter.read().queue_delay >= 0


@needs_schedstat
def test_a_thread_that_waits_for_a_cpu_shows_the_delay(root: Path) -> None:
    # In a process of its own, on one CPU with another that wants it too: of two seconds that the
    # two take together, this one waits a good part; the kernel shares the CPU between them.
    code = """if True:
        import os, time
        from lar.measurement.noise import ThreadMeter
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        rival = os.fork()
        if not rival:
            end = time.monotonic() + 30
            while time.monotonic() < end:
                pass
            os._exit(0)
        try:
            time.sleep(0.1)
            meter = ThreadMeter.open()
            end = time.thread_time() + 0.3
            while time.thread_time() < end:
                pass
            print(meter.read().queue_delay)
        finally:
            os.kill(rival, 9)
            os.waitpid(rival, 0)
    """
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60
    )
    # 0.3 s is expected, or more where other work wants that CPU as well.
    assert float(output.stdout) > 0.05, output.stderr


def test_a_wait_that_began_before_the_last_reading_is_told_as_far_as_it_can_be_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel adds four seconds of waiting at once, when the thread has its CPU at last.
    monkeypatch.setattr(noise, "TASKS", str(tmp_path))
    statistics = tmp_path / str(threading.get_native_id()) / "schedstat"
    statistics.parent.mkdir()
    statistics.write_text("1000 2000000000 1\n")
    began = time.monotonic()
    meter = opened()
    statistics.write_text("1000 6000000000 2\n")
    spin(0.02)
    reading = meter.read()
    assert reading.window <= time.monotonic() - began
    assert reading.busiest_thread >= 0.02
    assert 0 < reading.queue_delay <= reading.window - reading.busiest_thread + 1e-9


def test_there_is_no_meter_where_the_system_has_no_threads_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "TASKS", str(tmp_path / "none"))
    assert ThreadMeter.open() is None


def test_there_is_no_meter_where_threads_have_no_schedstat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / str(os.getpid())).mkdir()
    monkeypatch.setattr(noise, "TASKS", str(tmp_path))
    assert ThreadMeter.open() is None
