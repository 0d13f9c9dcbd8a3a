"""A scenario of MLPerf Inference: what its load generator is asked for, and what it reports."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, get_args

from lar.records.record import Record

ScenarioName = Literal["single-stream", "multi-stream", "offline", "server"]
SCENARIOS: tuple[ScenarioName, ...] = get_args(ScenarioName)


class Scenario(Record):
    """One scenario, with the settings of the load generator.

    A query has one sample, in `multi-stream` `samples_per_query`, in `offline` all of them. A
    sample is one item of a batch. In `server` queries arrive at random, `target_rate` of them in a
    second, and are to be answered within `target_latency_seconds`. A run is valid if it lasts as
    long as `min_seconds`, has as many queries as `min_queries`, and meets LoadGen's other rules.
    """

    name: ScenarioName
    min_seconds: float = 10.0
    min_queries: int = 100
    target_rate: float | None = None
    target_latency_seconds: float = 0.1
    samples_per_query: int = 8
    seed: int = 0


class ScenarioResult(Record):
    """What the load generator found.

    `reasons` are those of an invalid run, in its own words. `figures` are its results by the
    names of its detailed log, as `result_99.00_percentile_latency_ns`.
    """

    version: str
    valid: bool
    reasons: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
