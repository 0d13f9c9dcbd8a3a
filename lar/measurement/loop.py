"""The timed loop: the only code of lar that runs between the clock reads around an engine."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator
from typing import Protocol

from lar.measurement.noise import Meter, Reading
from lar.measurement.pacing import Pace, Sleeper
from lar.measurement.rows import NAN, SampleRows

# A reading costs up to 0.1 ms and lets an engine's idle threads cool down. Shorter iterations share
# one reading, so that at most one of many iterations is affected.
READING_INTERVAL_SECONDS = 1e-3


class Timed(Sleeper, Protocol):
    """The part of a driver that the loop needs (`lar.engines.driver.Driver` explains each)."""

    start: Callable[[], object]
    wait: Callable[[], object]
    rearm: Callable[[], object] | None
    after_iteration: Callable[[], object] | None
    record: Callable[[float, float, float], object] | None
    own_seconds: Callable[[], float] | None
    device_seconds: Callable[[], float] | None

    def failure(self) -> Exception: ...


def take_samples(
    driver: Timed,
    count: int,
    rows: SampleRows,
    meter: Meter | None,
    *,
    seconds: float = math.inf,
    pace: Pace | None = None,
) -> None:
    """Run `count` iterations and append a row for each.

    End to end is from before `start` to after `wait`; host is `start` alone. After `seconds`, the
    current iteration is the last. `pace` says when each begins.

    Raises:
        Exception: what the driver's `failure` returns, if an iteration failed.
    """
    clock, start, wait, rearm = driver.clock, driver.start, driver.wait, driver.rearm
    keeper = Keeper(driver, rows, meter, pace)
    with no_garbage_collection(), keeper:
        end = math.inf if seconds == math.inf else clock() + seconds
        arrived = NAN
        for _ in range(count):
            if pace is not None:
                request = pace.wait(driver, keeper)
                if request is None:
                    break
                arrived = request
            if rearm is not None:
                rearm()
            began = clock()
            start_status = start()
            dispatched = clock()
            wait_status = wait()
            ended = clock()
            if is_failure(start_status) or is_failure(wait_status):
                raise driver.failure()
            keeper.keep(began, dispatched, ended, began - arrived)
            if ended >= end:
                break


class Keeper:
    """Keeps the row of an iteration when it has ended, and the noise around it.

    The engine's time for its own profile is left out. The device's time is the engine's own figure,
    else the longer of the host's two waits: in the dispatch, or after it.
    """

    def __init__(
        self, driver: Timed, rows: SampleRows, meter: Meter | None, pace: Pace | None = None
    ) -> None:
        self.driver, self.rows, self.meter, self.pace = driver, rows, meter, pace
        self.first = self.pending = rows.count  # of rows without a reading
        self.last_reading = 0.0

    def __enter__(self) -> None:
        if self.meter is not None:
            self.meter.read(ends=True)
            self.last_reading = self.driver.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None and self.meter is not None and self.first < self.rows.count:
            self.share(self.meter.read(ends=True))

    def keep(self, began: float, dispatched: float, ended: float, queueing: float = NAN) -> None:
        """Append the row of an iteration, and read the noise if that is due."""
        driver, rows, meter = self.driver, self.rows, self.meter
        if driver.own_seconds is not None:
            ended -= driver.own_seconds()
        device = max(dispatched - began, ended - dispatched)
        if driver.device_seconds is not None:
            device = driver.device_seconds()
        reading = None
        due = meter is not None and ended - self.last_reading >= READING_INTERVAL_SECONDS
        if meter is not None and due and (self.pace is None or self.pace.has_time(ended)):
            reading = meter.read()
        rows.append(ended - began, dispatched - began, device, began, queueing)
        if reading is not None:
            self.share(reading)
            self.last_reading = driver.clock()
        if driver.record is not None:
            driver.record(began, dispatched, ended)
        if driver.after_iteration is not None:
            driver.after_iteration()
        if (driver.record or driver.after_iteration) and self.pending == rows.count:
            self.end_rest()  # the driver's time does not count for the next iteration

    def share(self, reading: Reading) -> None:
        """Add a reading for the rows since the last one."""
        self.rows.add_reading(reading)
        self.pending = self.rows.count

    def begin_rest(self) -> None:
        """Read the noise of the iterations so far: what follows belongs to none of them."""
        if self.meter is not None and self.pending < self.rows.count:
            self.share(self.meter.read(ends=True))

    def beat(self) -> None:
        """Give a sign of life."""
        self.rows.beat()

    def end_rest(self) -> None:
        """Begin the next reading now."""
        if self.meter is not None:
            self.meter.read()
            self.last_reading = self.driver.clock()


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage now, and not inside this block."""
    if not gc.isenabled():  # done once for several runners, and for the items of a data set
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def is_failure(status: object) -> bool:
    """Return whether a status means that a C function failed; other functions return no number."""
    return isinstance(status, int) and status != 0
