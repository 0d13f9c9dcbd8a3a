"""The timed loop: the only code of lar that runs between the two clock reads around an engine.

Copies of a model run at the same time, each in a thread of its own. The thread of a copy loads,
feeds and runs the copy, since an engine may bind data to the calling thread. Engines release
Python's lock while they run.

Before each iteration, a runner may sleep, or wait until a request arrives. This is not timed. A
sleep ends about 0.1 ms late on a quiet machine. A request must be served as soon as it arrives, and
not 0.1 ms later. Therefore, in the last half millisecond before a request arrives, the runner does
not sleep but reads the clock again and again, which costs CPU time.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from lar.measurement.noise import Meter, Reading
from lar.measurement.rows import NAN, SampleRows
from lar.records.run import Pacing

# In the last seconds of a wait for a request, a runner does not sleep: it reads the noise and the
# clock.
AWAKE_SECONDS = 5e-4

# No sleep is longer than this, so that the parent can see that a waiting runner is alive.
LONGEST_SLEEP = 0.25


class Sleeper(Protocol):
    """The functions that read a driver's clock or wait; see `lar.engines.driver.Driver`."""

    clock: Callable[[], float]
    sleep: Callable[[float], object]
    spin: Callable[[float], object]


class Rest(Protocol):
    """Records a pause between iterations, so that its time and noise belong to no iteration."""

    def begin_rest(self) -> None:
        """Record that the runner begins to sleep."""

    def end_rest(self) -> None:
        """Record that the next iteration is about to begin."""

    def beat(self) -> None:
        """Record that the runner still sleeps."""


class Idle:
    """Lets a runner sleep before each iteration; this class has the same methods as `Requests`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wait(self, driver: Sleeper, rest: Rest) -> float | None:
        """Sleep before the next iteration; return NaN in place of the arrival time of a request."""
        rest.begin_rest()
        sleep_until(driver, driver.clock() + self.seconds, rest)
        rest.end_rest()
        return math.nan

    def has_time(self, now: float) -> bool:
        """Return True: there is always time to read the noise."""
        return True


class Requests:
    """The requests of one queue, which all runners serve in the order of arrival.

    The first request arrives one interval after the queue opens. The queue closes after `most`
    requests, or after `seconds`. After the queue has closed, no runner begins to serve another
    request.
    """

    def __init__(
        self, pacing: Pacing, seed: int, *, most: int, seconds: float | None = None
    ) -> None:
        assert pacing.rate is not None
        self.rate = pacing.rate
        self.fixed = pacing.arrivals == "fixed"
        self.most = most
        self.seconds = math.inf if seconds is None else seconds
        self.begun = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._opened = math.nan
        self._next = self._interval()  # when the next request arrives, counted from the opening

    def open(self, now: float) -> None:
        """Open the queue; `now` is the time on the clock of all drivers."""
        self._opened = now

    def wait(self, driver: Sleeper, rest: Rest) -> float | None:
        """Take the next request, and wait until it arrives.

        Return the time at which the request arrives, or None if the queue is closed.
        """
        with self._lock:
            now = driver.clock()
            closes = self._opened + self.seconds
            arrival = self._opened + self._next
            if self.begun == self.most or arrival >= closes or now >= closes:
                return None
            self.begun += 1
            self._next += self._interval()
        if arrival - now > AWAKE_SECONDS:
            rest.begin_rest()
            sleep_until(driver, arrival - AWAKE_SECONDS, rest)
            rest.end_rest()
        while (left := arrival - driver.clock()) > 0:
            driver.spin(left)
        return arrival

    def has_time(self, now: float) -> bool:
        """Return whether the noise can be read before the next request arrives."""
        return self._opened + self._next - now > AWAKE_SECONDS

    def offered(self) -> int:
        """Return the number of requests that arrived until the queue closed, served or not."""
        left = self.seconds - self._next
        # Arrivals of requests that no runner has begun are not drawn: their mean number counts.
        return self.begun + (math.ceil(left * self.rate) if 0 < left < math.inf else 0)

    def _interval(self) -> float:
        return 1 / self.rate if self.fixed else self._random.expovariate(self.rate)


Pace = Idle | Requests  # says when an iteration begins


def sleep_until(driver: Sleeper, when: float, rest: Rest) -> None:
    """Sleep until about this time on the driver's clock."""
    while (left := when - driver.clock()) > 0:
        driver.sleep(min(left, LONGEST_SLEEP))
        rest.beat()


# A reading of the noise takes up to 0.1 ms, after which an engine's idle threads start more slowly.
# Short iterations share one reading, so that at most one of many iterations is affected.
READING_INTERVAL_SECONDS = 1e-3


class Timed(Sleeper, Protocol):
    """The functions of a driver that the loop needs; see `lar.engines.driver.Driver`."""

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
    """Run `count` iterations, and append a row for each iteration.

    The end-to-end time is the time from before `start` to after `wait`. The host time is the time
    of `start` alone. After `seconds`, the current iteration is the last one. `pace` says when each
    iteration begins.

    Raises:
        Exception: what the driver's `failure` returns, if an iteration failed.
    """
    clock, start, wait = driver.clock, driver.start, driver.wait
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
            if driver.rearm is not None:  # an iteration may have changed `rearm`
                driver.rearm()
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
    """Records a row for each finished iteration, and the noise around the iterations.

    The time in which the engine writes its own profile is not part of an iteration. The device time
    comes from the engine. If the engine does not measure the device time, lar records the longer of
    two times on the host instead: the dispatch, or the wait after the dispatch.
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
        """Append the row of an iteration, and read the noise if a reading is due."""
        driver, rows, meter = self.driver, self.rows, self.meter
        if driver.own_seconds is not None:
            ended -= driver.own_seconds()
        host, rest = dispatched - began, ended - dispatched
        device = host if host > rest else rest  # quicker than a call of max
        if driver.device_seconds is not None:
            device = driver.device_seconds()
        reading = None
        due = meter is not None and ended - self.last_reading >= READING_INTERVAL_SECONDS
        if meter is not None and due and (self.pace is None or self.pace.has_time(ended)):
            reading = meter.read()
        rows.append(ended - began, host, device, began, queueing)
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
        """Write a reading of the noise, which holds for all rows written since the last reading."""
        self.rows.add_reading(reading)
        self.pending = self.rows.count

    def begin_rest(self) -> None:
        """Read the noise of the iterations so far, before a sleep adds further noise."""
        if self.meter is not None and self.pending < self.rows.count:
            self.share(self.meter.read(ends=True))

    def beat(self) -> None:
        """Show the parent that the runner is alive."""
        self.rows.beat()

    def end_rest(self) -> None:
        """Begin the next reading of the noise now, to leave out the sleep that has just ended."""
        if self.meter is not None:
            self.meter.read()
            self.last_reading = self.driver.clock()


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Run Python's garbage collector now, and keep it from running inside the block."""
    if not gc.isenabled():  # an outer block has done so, for several runners or items
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def is_failure(status: object) -> bool:
    """Return whether a status is an error code of a C function (a Python function returns None)."""
    return isinstance(status, int) and status != 0


T = TypeVar("T")


class Threads:
    """The threads of several runners; a single runner uses the calling thread.

    A thread lives as long as the process. A function that is called in a thread gets the number of
    the thread's runner.
    """

    def __init__(self, count: int) -> None:
        self._threads: list[ThreadPoolExecutor] = []
        if count > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = [ThreadPoolExecutor(1) for _ in range(count)]

    def each(self, call: Callable[[int], T]) -> list[T]:
        """Call a function in the thread of each runner, one after the other."""
        if not self._threads:
            return [call(0)]
        return [thread.submit(call, runner).result() for runner, thread in enumerate(self._threads)]

    def together(self, call: Callable[[int], T]) -> list[T]:
        """Call a function in all threads at the same time; raise the first error at once."""
        from concurrent.futures import FIRST_EXCEPTION, wait
        from threading import Barrier

        barrier = Barrier(len(self._threads))

        def call_when_all_are_ready(runner: int) -> T:
            barrier.wait()
            return call(runner)

        with no_garbage_collection():  # once for all runners: a collection stops every thread
            threads = enumerate(self._threads)
            futures = [thread.submit(call_when_all_are_ready, runner) for runner, thread in threads]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises the error of one runner while others still run
            return [future.result() for future in futures]
