"""The findings of MLPerf's load generator, as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lar.errors import one_line
from lar.measurement.statistics import samples_for
from lar.records.run import RunResult, Scenario, ScenarioName, ScenarioResult
from lar.reports.run_text import format_ms

NANOSECONDS = 1e-9


class Metric(NamedTuple):
    """The figure by which MLPerf compares systems, and its name in LoadGen's log."""

    title: str
    key: str
    is_latency: bool


METRICS: dict[ScenarioName, Metric] = {
    "single-stream": Metric("p90 of the latency", "result_90.00_percentile_latency_ns", True),
    "multi-stream": Metric(
        "p99 of the latency of a query", "result_99.00_percentile_per_query_latency_ns", True
    ),
    "offline": Metric("throughput", "result_samples_per_second", False),
    "server": Metric("throughput, as scheduled", "result_scheduled_samples_per_sec", False),
}
PERCENTILES = (50, 90, 95, 97, 99)
QUERY_COUNT = "result_query_count"


def format_scenario(result: RunResult) -> list[str]:
    """Return the lines of a scenario that has ended; empty if it has not."""
    scenario, found = result.spec.scenario, result.scenario
    if scenario is None or found is None:
        return []
    return [
        f"scenario: {describe_scenario(scenario)}; MLPerf LoadGen {found.version}",
        *format_figures(scenario, found),
        f"result: {'valid' if found.valid else 'INVALID'} by LoadGen's rules",
        *(f"  {one_line(reason)}" for reason in found.reasons),
    ]


def describe_scenario(scenario: Scenario) -> str:
    """Return the requested scenario in a few words."""
    parts = [
        scenario.name,
        f"at least {scenario.min_seconds:g} s and {scenario.min_queries} queries",
    ]
    if scenario.name == "multi-stream":
        parts.append(f"{scenario.samples_per_query} samples a query")
    if scenario.name == "server":
        parts.append(f"{scenario.target_rate:g} queries/s")
        parts.append(f"each within {format_ms(scenario.target_latency_seconds)}ms")
    return ", ".join(parts)


def format_figures(scenario: Scenario, found: ScenarioResult) -> Iterator[str]:
    """Yield the figure that MLPerf compares, and the latencies."""
    metric = METRICS[scenario.name]
    value = found.figures.get(metric.key)
    if value is None:
        yield f"{metric.title}: N/A"
    elif metric.is_latency:
        yield f"{metric.title}: {format_ms(value * NANOSECONDS)}ms"
    else:
        yield f"{metric.title}: {value:.3f} samples/s"
    if scenario.name == "offline":
        return  # all samples are one query, with the latency of the whole run
    count = found.figures.get(QUERY_COUNT, 0.0)
    infix = "_per_query" if scenario.name == "multi-stream" else ""
    figures = (
        f"p{rank}={format_ms(found.figures[key] * NANOSECONDS)}ms"
        for rank in PERCENTILES
        if (key := f"result_{rank}.00_percentile{infix}_latency_ns") in found.figures
        and count >= samples_for(rank)
    )
    yield f"latency from the query's arrival: {' '.join(figures)}"
