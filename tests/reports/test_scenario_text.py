"""What is printed of a scenario."""

from __future__ import annotations

from lar.records.run import RunResult, RunSpec, Scenario, ScenarioResult
from lar.reports.scenario_text import format_scenario

FIGURES = {f"result_{rank}.00_percentile_latency_ns": rank * 1e6 for rank in (50, 90, 95, 97, 99)}


def lines_of(queries: int, *reasons: str) -> list[str]:
    spec = RunSpec(
        model="m.fake", engine="fake", driver="script", scenario=Scenario(name="single-stream")
    )
    figures = {**FIGURES, "result_query_count": float(queries)}
    found = ScenarioResult(version="6", valid=not reasons, reasons=reasons, figures=figures)
    return format_scenario(RunResult(spec=spec, status="ok", phase="done", scenario=found))


def test_percentiles_are_those_that_the_queries_support() -> None:
    assert lines_of(20)[2] == (
        "latency from the query's arrival: p50=50.000ms p90=90.000ms p95=95.000ms"
    )
    assert "p99=99.000ms" in lines_of(100)[2]


def test_the_reasons_of_an_invalid_run_stand_below_it() -> None:
    assert lines_of(20, "too\nshort")[3:] == ["result: INVALID by LoadGen's rules", "  too short"]
