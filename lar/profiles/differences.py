"""The change of a figure between two runs."""

from __future__ import annotations

from dataclasses import dataclass

from lar.records.summary import Difference


@dataclass(frozen=True)
class Change:
    """A figure in both runs; `percent` is None for a change from nothing.

    `difference` is what pairs of runs show of it, None for what is not compared.
    """

    baseline: float
    experiment: float
    difference: Difference | None = None

    @property
    def delta(self) -> float:
        return self.experiment - self.baseline

    @property
    def percent(self) -> float | None:
        return self.delta / self.baseline * 100 if self.baseline else None

    @property
    def verdict(self) -> str:
        return self.difference.verdict if self.difference else "not judged"
