"""`lar bench MODEL --scenario NAME`, from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_lines import run_lar

MODEL = str(Path(__file__).parents[2] / "models" / "digits_cnn.onnx")
SHORT = ("--min-duration", "0.05", "--min-queries", "64")


def test_a_scenario_prints_what_loadgen_found_and_writes_it(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this machine")
    file = tmp_path / "result.json"
    done = run_lar("bench", MODEL, "--scenario", "multi-stream", *SHORT, "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("scenario: multi-stream, at least 0.05 s and 64 queries")
    assert lines[1].startswith("p99 of the latency of a query: ")
    result = json.loads(file.read_text())
    assert result["spec"]["scenario"]["samples_per_query"] == 8
    assert isinstance(result["scenario"]["valid"], bool)


def test_a_crash_in_a_scenario_has_the_code_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this machine")
    script = tmp_path / "crash.fake"
    script.write_text(
        json.dumps(
            {
                "inputs": [{"name": "data", "dtype": "float32", "shape": [1, 4]}],
                "outputs": {"prob": [1.0]},
                "times": [[0.001, 0.0, None]],
                "faults": [{"at": "start", "index": 9, "do": "raise"}],
            }
        )
    )
    done = run_lar("bench", str(script), "--scenario", "single-stream", *SHORT, code=4)
    assert done.stdout == ""
    assert "scripted failure" in done.stderr
