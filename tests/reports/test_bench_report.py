"""The table of a bench."""

from __future__ import annotations

from typing import Any

from lar.records.bench import BenchResult, VariantResult
from lar.records.run import FedInput
from lar.records.summary import Difference, Interval, Summary
from lar.reports.bench_report import report_bench
from lar.reports.text import Screen
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


def test_a_narrow_screen_has_the_verdict_to_the_end() -> None:
    slower = difference_of(1.2, interval=Interval(low=1.1, high=1.3), verdict="slower")
    variants = (variant_of("a", 1), variant_of("b", 2, slower))
    bench = BenchResult(variants=variants, stopped="clear")
    headings = ["batch", "shape", "median ms", "undisturbed", "items/s", "ratio", "interval"]
    gone: list[str] = []
    for width in range(80, 30, -1):
        lines = report_bench(bench).lines_for(Screen(width))
        (header,) = (line for line in lines if line.startswith("batch"))
        gone += [each for each in headings if each not in header and each not in gone]
        assert "verdict" in header
    assert gone == ["undisturbed", "shape", "interval", "ratio", "items/s"]


@each_row("reports/cases/changes that may hide")
def test_a_change_that_is_seen_only_if_it_is_large_is_a_number_of_times(
    smallest: float, text: str
) -> None:
    found = difference_of(1.0, verdict="no difference shown", smallest_detectable=smallest)
    variants = (variant_of("a", 1), variant_of("b", 2, found))
    assert text in report_bench(BenchResult(variants=variants, stopped="budget")).text


def test_one_of_a_kind_has_no_plural() -> None:
    alone = BenchResult(variants=(variant_of("a", 1),), stopped="budget", rounds=1)
    assert ": 1 variant, 1 round of fresh processes, " in report_bench(alone).text
    two = BenchResult(variants=(variant_of("a", 1),) * 2, stopped="budget", rounds=2)
    assert ": 2 variants, 2 rounds of fresh processes, " in report_bench(two).text
