"""The record of a bench: what reads back, and what is printed of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lar.measurement.differences import compare_pairs
from lar.records.bench import BenchResult, VariantResult, read_bench
from lar.records.comparison import read_comparison
from lar.records.run import read_result
from lar.reports.bench_report import report_bench
from lar.reports.formats import format_csv
from lar.reports.model import Plot


def test_a_difference_of_no_known_size_reads_back() -> None:
    """Two pairs of processes that contradict each other leave room for any ratio."""
    difference = compare_pairs([[-4.0], [5.0]])
    assert difference is not None
    bench = BenchResult(
        variants=(
            VariantResult(name="a"),
            VariantResult(name="b", baseline="a", difference=difference),
        ),
        stopped="budget",
    )
    assert read_bench(bench.to_json()) == bench
    report = report_bench(bench)
    assert "not judged (2 pairs of processes, and 3 are needed)" in report.text
    assert "inf" not in format_csv(report)
    assert not any(isinstance(part, Plot) for part in report.body)
    assert bench.rows()[1]["smallest_detectable"] is None


@pytest.mark.parametrize(
    ("read", "wanted"), [(read_result, "lar.result/1"), (read_comparison, "lar.comparison/1")]
)
def test_a_record_of_another_kind_is_named(read: Callable[[str], object], wanted: str) -> None:
    text = BenchResult(variants=(), stopped="budget").to_json()
    with pytest.raises(ValueError, match=f"^format 'lar.bench/1' is not '{wanted}'$"):
        read(text)
