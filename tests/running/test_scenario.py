"""Runs that MLPerf's load generator drives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from lar.records.record import record_to_json
from lar.records.run import RunResult, Scenario, ScenarioName, read_result
from lar.reports.run_text import METRICS, format_scenario
from lar.running.api import run_scenario
from tests.running.isolated_runs import known

MODEL = str(Path(__file__).parents[2] / "models" / "digits_cnn.onnx")
SHORT: dict[str, Any] = {"min_seconds": 0.05, "min_queries": 64, "target_rate": 1000.0}


def run_short(name: ScenarioName, **values: Any) -> RunResult:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this machine")
    return run_scenario(MODEL, Scenario(name=name, **SHORT), values)


@pytest.mark.parametrize("name", get_args(ScenarioName))
def test_a_scenario_gives_what_mlperf_compares_by(name: ScenarioName) -> None:
    result = run_short(name)
    assert result.status == "ok", result.failure
    assert known(result.scenario).figures[METRICS[name].key] > 0
    assert len(result.samples.end_to_end) >= 64
    lines = format_scenario(result)
    assert lines[0].startswith(f"scenario: {name}, at least 0.05 s and 64 queries")
    assert lines[1].startswith(METRICS[name].title + ": ")
    assert any(line.startswith("result: ") for line in lines)


def test_a_result_with_a_scenario_reads_back() -> None:
    result = run_short("single-stream")
    assert read_result(record_to_json(result)) == result


def test_several_runners_serve_one_queue() -> None:
    result = run_short("offline", thread=2)
    assert result.status == "ok", result.failure
    assert {*result.samples.runner} == {0, 1}


def test_the_logs_of_loadgen_are_kept_where_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this machine")
    scenario = Scenario(name="single-stream", **SHORT)
    run_scenario(MODEL, scenario, {}, log_folder=str(tmp_path / "logs"))
    assert "Result is" in (tmp_path / "logs" / "mlperf_log_summary.txt").read_text()
