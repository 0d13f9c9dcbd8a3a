"""What is printed of a scenario."""

from __future__ import annotations

from lar.records.run import RunResult, RunSpec
from lar.records.scenario import Scenario, ScenarioResult
from lar.reports.scenario_text import format_scenario

FIGURES = {"result_90.00_percentile_latency_ns": 90e6}


def lines_of(*reasons: str) -> list[str]:
    spec = RunSpec(
        model="m.fake", engine="fake", driver="script", scenario=Scenario(name="single-stream")
    )
    found = ScenarioResult(version="6", valid=not reasons, reasons=reasons, figures=FIGURES)
    return format_scenario(RunResult(spec=spec, status="ok", phase="done", scenario=found))


def test_the_reasons_of_an_invalid_run_stand_below_it() -> None:
    assert lines_of("too\nshort")[2:] == ["result: INVALID by LoadGen's rules", "  too short"]
