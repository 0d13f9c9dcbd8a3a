"""LoadGen's log, and a LoadGen that is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lar.errors import LarError, UsageError
from lar.records.scenario import Scenario
from lar.worker.load_generator import LoadGenerator, read_result

# Lines of mlperf_log_detail.txt as LoadGen 6.0.17 wrote them, of a run of too few queries.
ENTRIES: list[tuple[str, object, bool]] = [
    ("loadgen_version", "6.0.17", False),
    ("result_validity", "INVALID", False),
    ("result_perf_constraints_met", True, False),
    ("result_min_duration_met", True, False),
    ("result_min_queries_met", True, False),
    ("early_stopping_met", False, False),
    ("result_invalid_reason", "", False),
    ("early_stopping_result", " * Run unsuccessful.\n * Processed 100 queries.", False),
    ("result_scheduled_samples_per_sec", 92.5674, False),
    ("result_99.00_percentile_latency_ns", 17410439, False),
    ("num_errors", 0, False),
]


def write_log(folder: Path, entries: list[tuple[str, object, bool]]) -> Path:
    log = folder / "mlperf_log_detail.txt"
    lines = (
        ":::MLLOG " + json.dumps({"key": key, "value": value, "metadata": {"is_error": is_error}})
        for key, value, is_error in entries
    )
    log.write_text("\n".join(lines) + "\n")
    return log


def test_a_log_gives_the_verdict_its_reasons_and_the_figures(tmp_path: Path) -> None:
    found = read_result(write_log(tmp_path, ENTRIES), "6.0.17")
    assert not found.valid
    assert found.reasons == (
        "there were too few queries for the percentile",
        "LoadGen says: Run unsuccessful. Processed 100 queries.",
    )
    assert found.figures == {
        "result_scheduled_samples_per_sec": 92.5674,
        "result_99.00_percentile_latency_ns": 17410439.0,
    }
    assert found.version == "6.0.17"


def test_a_valid_run_has_no_reasons(tmp_path: Path) -> None:
    entries = [
        (key, {"result_validity": "VALID", "early_stopping_met": True}.get(key, value), False)
        for key, value, _ in ENTRIES
    ]
    found = read_result(write_log(tmp_path, entries))
    assert found.valid
    assert found.reasons == ()


def test_an_error_of_loadgen_is_a_reason(tmp_path: Path) -> None:
    entries = [*ENTRIES, ("error_runtime", "Ending early: Ran out of queries", True)]
    found = read_result(write_log(tmp_path, entries))
    assert found.reasons[-1] == "Ending early: Ran out of queries"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), True, "fast"])
def test_a_figure_that_is_no_number_is_left_out(tmp_path: Path, value: object) -> None:
    log = write_log(tmp_path, [*ENTRIES, ("result_samples_per_second", value, False)])
    assert "result_samples_per_second" not in read_result(log).figures


def test_a_line_that_is_not_json_is_passed_over(tmp_path: Path) -> None:
    log = write_log(tmp_path, ENTRIES)
    log.write_text(':::MLLOG {"key": "broken", "value": "a "quote""}\nother\n' + log.read_text())
    assert not read_result(log).valid


def test_a_log_without_a_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LarError, match="has no result"):
        read_result(write_log(tmp_path, ENTRIES[:1]))


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LarError, match="wrote no log"):
        read_result(tmp_path / "gone.txt")


def test_a_missing_loadgen_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(UsageError, match="LoadGen is not installed") as caught:
        LoadGenerator(Scenario(name="offline"), 1, 1, "")
    assert "uv pip install mlcommons-loadgen" in caught.value.hint
