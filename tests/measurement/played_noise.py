"""Times as a machine with other work on it gives them, whose median is known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Times of around 1 s that scatter, correlated with their neighbours, and bursts among them.

    Attributes:
        scatter: the standard deviation of the logarithm.
        correlation: that of neighbours.
        quiet: the mean number of iterations between bursts; 0 without bursts.
        burst: the mean number of iterations of a burst.
        factor: how much slower they are in a burst, far more than the scatter.
    """

    scatter: float = 0.05
    correlation: float = 0.0
    quiet: float = 0.0
    burst: float = 0.0
    factor: float = 2.0

    @property
    def median(self) -> float:
        """The median of all that it will ever play: of the quiet times, if bursts are rarer."""
        if not self.quiet:
            return 1.0
        part = 0.5 * (self.quiet + self.burst) / self.quiet
        return math.exp(self.scatter * NormalDist().inv_cdf(part))

    def play(self, seed: int) -> Iterator[float]:
        """Yield the times of one process."""
        source = random.Random(seed)
        fresh = math.sqrt(1 - self.correlation**2)
        level = source.gauss(0, 1)
        busy = bool(self.quiet) and source.random() < self.burst / (self.quiet + self.burst)
        while True:
            yield math.exp(self.scatter * level) * (self.factor if busy else 1)
            level = self.correlation * level + fresh * source.gauss(0, 1)
            if self.quiet and source.random() < 1 / (self.burst if busy else self.quiet):
                busy = not busy
