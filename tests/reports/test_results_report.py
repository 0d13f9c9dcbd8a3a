"""Reports of results side by side, of stored ones, and of checks for regressions."""

from __future__ import annotations

from collections.abc import Iterator

from lar.records.run import RunResult
from lar.reports.report import Report
from lar.reports.results_report import report_check, report_course, report_history, report_results
from lar.reports.text import Screen
from lar.results import NamedResult
from lar.results.side_by_side import Check, check_kind, compare_results
from lar.results.store import Entry, columns_of
from tests.reports.golden_files import check_golden
from tests.results.made_results import make_result, make_runs

RUNS: tuple[RunResult, ...] = (
    *make_runs(5, 0.010, 1),
    *make_runs(5, 0.012, 2, multithread=2),
    *make_runs(3, 0.009, 3, engine="other", processor="another"),
    make_result(),
    make_result([0.01] * 40, queue_delay=[0.004] * 40, fast_run=True),
)


def reports() -> Iterator[Report]:
    named = [NamedResult(f"r{number}", run) for number, run in enumerate(RUNS)]
    yield report_results(compare_results(named, ["engine", "option"], ""))
    yield report_results(compare_results(named[::4], [], "r0"))
    saved = "2025-06-01T12:00:00+00:00"
    entries = [
        Entry(id=number, **columns_of(run, b"", "v1" * (number % 2), saved))
        for number, run in enumerate(RUNS)
    ]
    yield report_history(entries, ["a note"])
    yield report_history(entries[:2])
    yield report_course(entries)
    none = Check(name="net.onnx", new=(), baseline=(), left_out=6, unit="runs", difference=None)
    checks = [check_kind(run, RUNS[5:10], RUNS[:5], {}) for run in ("net.onnx", "other.onnx")]
    yield report_check([*checks, none], "v1", ["a note"])


def test_results_print_their_golden_file() -> None:
    texts = [it.text_for(Screen(width)) for it in reports() for width in (None, 110, 80, 60, 50)]
    check_golden("results.txt", "\n\n".join(texts))


def test_what_stands_in_each_name_needs_no_column() -> None:
    for name in ("{}", "{} {}"):
        named = [NamedResult(name.format(at, it.spec.engine), it) for at, it in enumerate(RUNS)]
        text = report_results(compare_results(named, [], "")).text_for(Screen(None))
        assert (" engine " in text) == (name == "{}")
