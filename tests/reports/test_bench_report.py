"""The table of a bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lar.records.bench import BenchResult, VariantResult, read_bench
from lar.records.run import FedInput
from lar.records.summary import Difference, Summary
from lar.reports.bench_report import report_bench
from lar.reports.text import Screen
from tests.reports.golden_files import check_golden, describe_columns
from tests.tables import each_row

SUMMARY = Summary(
    count=9,
    mean=0.01,
    standard_deviation=0.001,
    minimum=0.01,
    maximum=0.02,
    median=0.01,
    items_per_second=100.0,
    disturbed_count=1,
    undisturbed_median=0.01,
)


def variant_of(name: str, rows: int, difference: Difference | None = None) -> VariantResult:
    fed = FedInput(name="data", dtype="float32", shape=(rows, 4), source="generated")
    compared: dict[str, Any] = {"baseline": "a" if difference else "", "difference": difference}
    return VariantResult(name=name, values={"batch": name}, fed=(fed,), latency=SUMMARY, **compared)


def difference_of(ratio: float, **fields: Any) -> Difference:
    given: dict[str, Any] = {"smallest_detectable": 0.01, "interval": None, **fields}
    return Difference(ratio=ratio, processes=5, pairs=50, **given)


def test_benches_print_their_golden_file() -> None:
    """Of benches with differences, with failures, and of one variant; on paper and on screens."""
    rows = json.loads(Path(__file__).with_name("benches.json").read_text())
    rows.append(json.loads(json.dumps(rows[0]).replace("batch_size", "python")))
    reports = [report_bench(read_bench(json.dumps(row))) for row in rows]
    widths = (None, 110, 80, 60, 50)
    texts = [report.text_for(Screen(width)) for report in reports for width in widths]
    columns = ("\n".join(describe_columns(report)) for report in reports)
    check_golden("benches.txt", "\n\n".join([*texts, *columns]))


@each_row("reports/cases/changes that may hide")
def test_a_change_that_is_seen_only_if_it_is_large_is_a_number_of_times(
    smallest: float, text: str
) -> None:
    found = difference_of(1.0, verdict="no difference shown", smallest_detectable=smallest)
    variants = (variant_of("a", 1), variant_of("b", 2, found))
    assert text in report_bench(BenchResult(variants=variants, stopped="budget")).text
