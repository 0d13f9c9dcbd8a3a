"""The tables of stored results."""

from __future__ import annotations

from lar.reports.results_report import report_check
from lar.results.side_by_side import Check


def test_a_check_without_a_difference_is_a_row_and_not_judged() -> None:
    check = Check(name="net.onnx", new=(), baseline=(), left_out=6, unit="runs", difference=None)
    report = report_check([check], "v1", ["a note"])
    heading, row, note = (" ".join(line.split()) for line in report.text.splitlines())
    assert heading.startswith("runs of runs")
    assert row == "net.onnx 0 0 runs latency not judged (all 6 runs were disturbed)"
    assert note == "a note"
