"""The pace of iterations: what a runner does before each, outside of its time.

A sleep ends late, by some 0.1 ms on a quiet machine. If a request must be served when it arrives,
the last part of the wait is spent asking the clock instead: half a millisecond of CPU time for
each.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Protocol

from lar.records.run import Pacing

# So much of a wait for a request is not slept: the noise is read and the clock asked in it.
AWAKE_SECONDS = 5e-4
# No sleep is longer than this, so that a waiting runner gives signs of life.
LONGEST_SLEEP = 0.25


class Sleeper(Protocol):
    """The part of a driver that passes time (`lar.engines.driver.Driver` explains each)."""

    clock: Callable[[], float]
    sleep: Callable[[float], object]
    spin: Callable[[float], object]


class Rest(Protocol):
    """Notes a rest between iterations, so that its time and noise do not count."""

    def begin_rest(self) -> None:
        """The runner sleeps from now on."""

    def end_rest(self) -> None:
        """The next iteration is about to begin."""

    def beat(self) -> None:
        """The runner still sleeps."""


class Idle:
    """A sleep before each iteration. Its methods are explained in `Requests`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wait(self, driver: Sleeper, rest: Rest) -> float | None:
        """Sleep."""
        rest.begin_rest()
        sleep_until(driver, driver.clock() + self.seconds, rest)
        rest.end_rest()
        return math.nan

    def has_time(self, now: float) -> bool:
        """It always has time."""
        return True


class Requests:
    """The requests of one queue, which all runners serve in the order of their arrival.

    The first arrives one interval after the queue opens. The queue closes after `most` requests, or
    after `seconds`; requests that are not served by then are turned away.
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
        """Open the queue, at this time on the clock of all drivers."""
        self._opened = now

    def wait(self, driver: Sleeper, rest: Rest) -> float | None:
        """Take the next request, and sleep until it arrives.

        Return when it arrived, NaN if there are no requests, None if no more come.
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
        """Return whether there is time to read the noise before the next request."""
        return self._opened + self._next - now > AWAKE_SECONDS

    def offered(self) -> int:
        """Return how many requests arrived until the queue closed, served or not."""
        left = self.seconds - self._next
        # Requests that nobody has begun are not drawn: their mean number counts.
        return self.begun + (math.ceil(left * self.rate) if 0 < left < math.inf else 0)

    def _interval(self) -> float:
        return 1 / self.rate if self.fixed else self._random.expovariate(self.rate)


Pace = Idle | Requests  # says when an iteration begins


def sleep_until(driver: Sleeper, when: float, rest: Rest) -> None:
    """Sleep until about a time on the driver's clock."""
    while (left := when - driver.clock()) > 0:
        driver.sleep(min(left, LONGEST_SLEEP))
        rest.beat()
