"""Reports of results side by side, of stored ones, and of checks for regressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lar.options.command_line import format_flags
from lar.records.run import FedInput, RunResult
from lar.reports.formats import format_csv
from lar.reports.report import Report
from lar.reports.results_report import report_check, report_course, report_history, report_results
from lar.reports.text import Screen
from lar.results import NamedResult
from lar.results.side_by_side import Check, check_kind, compare_results
from lar.results.store import Entry, columns_of
from tests.reports.golden_files import check_golden, describe_columns
from tests.results.made_results import make_result, make_runs

RUNS: tuple[RunResult, ...] = (
    *make_runs(5, 0.010, 1),
    *make_runs(5, 0.012, 2, multithread=2),
    *make_runs(3, 0.009, 3, engine="other", processor="another"),
    make_result(),
    make_result([0.01] * 40, queue_delay=[0.004] * 40, fast_run=True),
    *make_runs(2, 0.011, 5, sha256="b" * 64),
)


def runs_of_two() -> Iterator[RunResult]:
    """Runs of two runners, of four items an iteration, whose samples have all figures."""
    fed = FedInput(name="data", dtype="float32", shape=(4, 3), source="generated")
    for run in make_runs(2, 0.010, 4, thread=2):
        samples = replace(run.samples, runner=(0, 1) * 20, busiest_thread=run.samples.host)
        samples = replace(samples, queue_delay=(0.001, None, 0.0, 0.0) * 10)
        yield replace(run, samples=samples, fed=(fed,), load_seconds=0.5, peak_memory_bytes=1 << 20)


def reports() -> Iterator[Report]:
    named = [NamedResult(f"r{number}", run) for number, run in enumerate(RUNS)]
    yield report_results(compare_results(named, ["engine", "option"], ""))
    yield report_results(compare_results(named[::4], [], "r0"))
    of_two = [NamedResult(f"two {number}", run) for number, run in enumerate(runs_of_two())]
    yield report_results(compare_results([*of_two, named[0], named[13]], ["device"], ""))
    yield report_results(compare_results(named[:2], ["device"], ""))
    empty = NamedResult("empty", replace(make_result(), status="ok", failure=None))
    yield report_results(compare_results([*of_two, empty, named[13]], [], ""))
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
    texts += ["\n".join([*describe_columns(it), format_csv(it)]) for it in reports()]
    check_golden("results.txt", "\n\n".join(texts))


def test_what_stands_in_each_name_needs_no_column() -> None:
    for name in ("{}", "{} {} {}"):
        facts = ((it.spec.engine, format_flags(it.spec.settings)) for it in RUNS)
        names = (name.format(at, *own) for at, own in enumerate(facts))
        found = compare_results([*map(NamedResult, names, RUNS)], [], "")
        for title in ("  engine  ", "  --multithread  "):
            assert (title in report_results(found).text) == (name == "{}")
