"""LoadGen's log, and a LoadGen that is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lar.errors import LarError, UsageError
from lar.records.run import Scenario
from lar.worker.load_generator import LoadGenerator, read_result
from tests.command_lines import ROOT

# Lines as LoadGen 6.0.17 wrote them, of a run of too few queries.
LOG = (ROOT / "tests/data/mlperf_log_detail.txt").read_text()


def write_log(folder: Path, text: str = LOG) -> Path:
    (folder / "log.txt").write_text(text)
    return folder / "log.txt"


def line_of(key: str, value: object, is_error: bool = False) -> str:
    return ":::MLLOG " + json.dumps(
        {"key": key, "value": value, "metadata": {"is_error": is_error}}
    )


def test_a_log_gives_the_verdict_its_reasons_and_the_figures(tmp_path: Path) -> None:
    found = read_result(write_log(tmp_path), "6.0.17")
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
    log = LOG.replace('"INVALID"', '"VALID"').replace('met", "value": false', 'met", "value": true')
    found = read_result(write_log(tmp_path, log))
    assert found.valid
    assert found.reasons == ()


def test_an_error_of_loadgen_is_a_reason(tmp_path: Path) -> None:
    line = line_of("error_runtime", "Ending early: Ran out of queries", is_error=True)
    found = read_result(write_log(tmp_path, LOG + line))
    assert found.reasons[-1] == "Ending early: Ran out of queries"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), True, "fast"])
def test_a_figure_that_is_no_number_is_left_out(tmp_path: Path, value: object) -> None:
    log = write_log(tmp_path, LOG + line_of("result_samples_per_second", value))
    assert "result_samples_per_second" not in read_result(log).figures


def test_a_line_that_is_not_json_is_passed_over(tmp_path: Path) -> None:
    broken = ':::MLLOG {"key": "broken", "value": "a "quote""}\nother\n'
    assert not read_result(write_log(tmp_path, broken + LOG)).valid


def test_a_log_without_a_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LarError, match="has no result"):
        read_result(write_log(tmp_path, LOG.splitlines()[0]))


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LarError, match="wrote no log"):
        read_result(tmp_path / "gone.txt")


def test_a_missing_loadgen_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(UsageError, match="LoadGen is not installed") as caught:
        LoadGenerator(Scenario(name="offline"), 1, 1, "")
    assert "uv pip install mlcommons-loadgen" in caught.value.hint
