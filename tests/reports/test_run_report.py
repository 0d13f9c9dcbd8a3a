"""A run as CSV: a row an iteration, which other programs read without help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lar.records.run import Failure, RunResult, RunSpec, Samples, Setting, read_result
from lar.reports.model import Plot
from lar.reports.run_report import SAMPLE_COLUMNS, report_run
from tests.reports.csv_rows import csv_rows

DATA = Path(__file__).resolve().parent.parent / "data"


@pytest.fixture
def result() -> RunResult:
    return read_result((DATA / "result_v1.json").read_bytes())


def rows_of(result: RunResult) -> list[dict[str, str]]:
    return csv_rows(report_run(result))


def test_each_iteration_is_a_row(result: RunResult) -> None:
    rows = rows_of(result)
    assert [(row["phase"], row["index"]) for row in rows] == [
        ("warmup", "0"),
        *(("iterations", str(index)) for index in range(10)),
    ]
    assert all(len(row) == len(rows[0]) and None not in row for row in rows)


def test_each_runner_counts_its_iterations(result: RunResult) -> None:
    samples = replace(result.samples, runner=(0,) * 6 + (1,) * 4)
    rows = rows_of(replace(result, samples=samples, warmup=Samples()))
    told = [(row["runner"], row["index"]) for row in rows]
    assert told == [*(("0", str(i)) for i in range(6)), *(("1", str(i)) for i in range(4))]


def test_the_page_of_a_run_draws_each_runner(result: RunResult) -> None:
    spec = replace(result.spec, settings={"thread": 2})
    samples = replace(result.samples, runner=(0,) * 6 + (1,) * 4)
    for run in (result, replace(result, spec=spec, samples=samples)):
        (plot,) = (it for it in report_run(run).body if isinstance(it, Plot))
        lanes = [(it["name"], it["total"], it["points"][0][0]) for it in plot.figures["lanes"]]
        several = [("runner 0", 6, 0), ("runner 1", 4, 0)]
        assert lanes == ([("iterations", 10, 0)] if run is result else several)


def test_times_are_seconds_without_loss(result: RunResult) -> None:
    warmup, samples = (replace(each, cpu=each.host) for each in (result.warmup, result.samples))
    rows = rows_of(replace(result, warmup=warmup, samples=samples))
    assert {"end_to_end_seconds", "frequency_hz"} <= rows[0].keys()
    for name, column in SAMPLE_COLUMNS.items():
        values = getattr(warmup, column) + getattr(samples, column)
        cells = [row[name] for row in rows]
        read = [float(cell) if cell else None for cell in cells]
        assert read == list(values or [None] * len(rows))


def test_each_row_repeats_the_facts_of_the_run(result: RunResult) -> None:
    for row in rows_of(result):
        assert row["model"] == "models/one_operator.mge"
        assert row["sha256"] == (result.model.sha256 if result.model else "")
        assert (row["engine"], row["engine_version"]) == ("megengine", "1.13.0")
        assert (row["driver"], row["device"], row["status"]) == ("lite", "cpu", "ok")
        assert float(row["load_seconds"]) == result.load_seconds
        assert row["error"] == ""


def test_settings_variables_and_inputs_are_one_cell_each(result: RunResult) -> None:
    assert rows_of(result)[0]["environment"] == ""
    settings: dict[str, Setting] = {"fast_run": True, "workspace_limit": 10}
    environment = {"MKL_DEBUG_CPU_TYPE": "5", "A": "b=c"}
    spec = replace(result.spec, settings=settings, environment=environment)
    row = rows_of(replace(result, spec=spec))[0]
    assert row["settings"] == "fast_run=True workspace_limit=10"
    assert row["environment"] == "MKL_DEBUG_CPU_TYPE=5 A=b=c"
    assert row["inputs"] == "uniform, seed 0"


def test_a_run_that_failed_at_once_has_one_row_of_facts() -> None:
    failed = RunResult(
        spec=RunSpec(model='odd "name",\nwith all.fake', engine="fake", driver="script"),
        status="failed",
        phase="load",
        failure=Failure("no, it broke"),
    )
    (row,) = rows_of(failed)
    assert (row["phase"], row["index"], row["status"]) == ("load", "", "failed")
    assert row["error"] == "no, it broke"
    assert row["model"] == 'odd "name",\nwith all.fake'
    assert all(row[name] == "" for name in SAMPLE_COLUMNS)
    assert row["engine_version"] == row["sha256"] == row["processor"] == ""
