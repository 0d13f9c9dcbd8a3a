"""The summary of a run's samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The range that holds the true value in `confidence` of the cases, in the value's unit."""

    low: float
    high: float
    confidence: float = 0.95
