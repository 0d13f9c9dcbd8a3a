"""The record of a bench: what reads back, and what is printed of it."""

from __future__ import annotations

from lar.measurement.differences import compare_pairs
from lar.records.bench import BenchResult, VariantResult, read_bench
from lar.reports.bench_html import ratios_of
from lar.reports.bench_text import format_bench, format_csv


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
    assert "no difference shown (none could have been)" in "\n".join(format_bench(bench))
    assert "inf" not in format_csv(bench)
    assert [*ratios_of(bench)] == []
    assert bench.rows()[1]["smallest_detectable"] is None
