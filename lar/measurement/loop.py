"""The timed loop: the only code of lar between whose clock reads an engine runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Protocol

from lar.measurement.noise import Meter, Reading
from lar.measurement.rows import NAN, SampleRows

# A reading costs some 20 us and lets an engine's idle threads cool down. Iterations shorter than
# this share one, so that at most one in many of them feels it.
READING_INTERVAL_SECONDS = 1e-3

# What a reading covers is taken for the iteration where it is at most so many times as long.
WIDEST_WINDOW = 1.1


class Timed(Protocol):
    """What the loop needs of an engine's driver (`lar.engines.driver.Driver` says what each is)."""

    clock: Callable[[], float]
    start: Callable[[], object]
    wait: Callable[[], object]
    rearm: Callable[[], object] | None
    after_iteration: Callable[[], object] | None
    record: Callable[[float, float, float], object] | None
    own_seconds: Callable[[], float] | None
    device_seconds: Callable[[], float] | None

    def failure(self) -> Exception: ...


def take_samples(driver: Timed, count: int, rows: SampleRows, meter: Meter | None) -> None:
    """Run that many iterations and append one row for each.

    End to end is from before `start` to after `wait`; host is `start` alone; device is the
    engine's own figure, else the CPU time of the busiest thread where a reading tells it. What
    the engine has spent on its own profile is left out.

    Raises:
        Exception: what the driver's `failure` returns, when an iteration failed.
    """
    start, wait, now, rearm = driver.start, driver.wait, driver.clock, driver.rearm
    device_seconds, after_iteration = driver.device_seconds, driver.after_iteration
    record, own_seconds = driver.record, driver.own_seconds
    pending = rows.count
    collecting = gc.isenabled()  # it is not while several runners are timed
    if collecting:
        gc.collect()
        gc.disable()
    try:
        if meter is not None:
            meter.read()
        last_reading = now()
        for _ in range(count):
            if rearm is not None:
                rearm()
            began = now()
            start_status = start()
            dispatched = now()
            wait_status = wait()
            ended = now()
            if is_failure(start_status) or is_failure(wait_status):
                raise driver.failure()
            if own_seconds is not None:
                ended -= own_seconds()
            device = NAN if device_seconds is None else device_seconds()
            reading = None
            if meter is not None and ended - last_reading >= READING_INTERVAL_SECONDS:
                reading = meter.read()
                if device_seconds is None:
                    device = device_time_of(reading, ended - began, alone=pending == rows.count)
            rows.append(ended - began, dispatched - began, device, NAN)
            if reading is not None:
                rows.share_queue_delay(pending, rows.count, reading.queue_delay)
                pending = rows.count
                last_reading = now()
            if after_iteration is not None or record is not None:
                if record is not None:
                    record(began, dispatched, ended)
                if after_iteration is not None:
                    after_iteration()
                if meter is not None and pending == rows.count:
                    meter.read()  # what that took is no part of the next iteration
                    last_reading = now()
        if meter is not None and pending < rows.count:
            rows.share_queue_delay(pending, rows.count, meter.read().queue_delay)
    finally:
        if collecting:
            gc.enable()


def device_time_of(reading: Reading, seconds: float, *, alone: bool) -> float:
    """Return the CPU time of the busiest thread in an iteration that took so many seconds, NaN
    where that is not known; `alone` says that the reading covers no other iteration."""
    if alone and reading.busiest_thread <= seconds:
        return reading.busiest_thread
    # The rest was computed just before or after the iteration, and not while the thread waited
    # for a CPU.
    window = reading.window - (reading.waited if alone else 0.0)
    if window <= WIDEST_WINDOW * seconds:
        return reading.busiest_thread * seconds / window
    return NAN


def is_failure(status: object) -> bool:
    """Tell a C function's status number of a failure from what other functions return."""
    return isinstance(status, int) and status != 0
