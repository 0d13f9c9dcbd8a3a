"""What a job asks for, besides a run: that is a `RunSpec` with its `RunContext`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lar.records.facts import MachineFacts
from lar.records.tuning import TuneRequest
from lar.running.variants import Variant


@dataclass(frozen=True)
class BenchRequest:
    """A bench: all of its variants are measured on one device."""

    variants: tuple[Variant, ...]
    baseline: int = 0
    budget_seconds: float = 120.0
    margin: float = 0.01


@dataclass(frozen=True)
class SearchRequest:
    """A search for the fastest settings, which shall be made: the arguments of
    `lar.tuning.requests.make_request`."""

    models: tuple[str, ...]
    options: dict[str, Any]
    asked: TuneRequest
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchAnswer:
    """The request of a search, with what can be tried on a worker's machine; the facts about that,
    and the versions of its engines."""

    request: TuneRequest
    machine: MachineFacts
    engines: dict[str, str]
