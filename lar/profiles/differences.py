"""The difference of a figure between two runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """A figure in both runs; `percent` is None for a difference from nothing.

    `error` is how far the figure of the second run may lie, by chance alone, from what the first
    and the factor of the whole run let expect; `exceeds_noise` is whether it lies farther. Both are
    None for what is not judged.
    """

    baseline: float
    experiment: float
    error: float | None = None
    exceeds_noise: bool | None = None

    @property
    def delta(self) -> float:
        return self.experiment - self.baseline

    @property
    def percent(self) -> float | None:
        return self.delta / self.baseline * 100 if self.baseline else None
