"""What a job asks for, besides a run: that is a `RunSpec` with its `RunContext`."""

from __future__ import annotations

from dataclasses import dataclass

from lar.running.variants import Variant


@dataclass(frozen=True)
class BenchRequest:
    """A bench: all of its variants are measured on one device."""

    variants: tuple[Variant, ...]
    baseline: int = 0
    budget_seconds: float = 120.0
    margin: float = 0.01
