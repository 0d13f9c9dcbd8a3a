"""What is said of suggestions that were tried: the best of those whose outputs are right."""

from __future__ import annotations

from typing import Any

import pytest

from lar.records.bench import BenchResult, OutputDifference, VariantResult
from lar.records.summary import Difference, Verdict
from lar.reports.tried_text import describe_best

NOTHING = "best: none of them is shown to be faster than the run as it was profiled"


def seldom(agreement: Any) -> VariantResult:
    outputs = OutputDifference(agreement=agreement)
    return VariantResult(name="--seldom", baseline="as profiled", output_difference=outputs)


def tried(ratio: float, verdict: Verdict, agreement: Any = "equal") -> VariantResult:
    difference = Difference(
        ratio=ratio, interval=None, verdict=verdict, smallest_detectable=None, processes=5, pairs=5
    )
    outputs = OutputDifference(agreement=agreement)
    return VariantResult(name=f"--at {ratio:g}", difference=difference, output_difference=outputs)


@pytest.mark.parametrize(
    ("variants", "stopped", "said"),
    [
        (
            [tried(0.8, "faster"), tried(0.5, "faster"), tried(2.0, "slower")],
            "clear",
            "best: --at 0.5, 2.00 times as fast, outputs equal bit by bit",
        ),
        (
            [tried(0.8, "faster"), tried(0.5, "faster", "different")],
            "clear",
            "best: --at 0.8, 1.25 times as fast, outputs equal bit by bit",
        ),
        ([tried(0.5, "faster", "different"), tried(1.2, "slower")], "clear", NOTHING),
        (
            [tried(0.8, "no difference shown"), tried(0.9, "no difference shown")],
            "budget",
            f"{NOTHING}; --at 0.8 seems 1.25 times as fast, and --budget 60 may show it",
        ),
        ([tried(1.1, "no difference shown")], "budget", NOTHING),
        ([tried(0.99, "no difference shown")], "precise", NOTHING),
        (
            [seldom("equal"), seldom("different")],
            "budget",
            "best: not known, since none was measured often enough; --budget 60 may show it",
        ),
        ([seldom("different")], "budget", NOTHING),
        ([seldom("equal")], "interrupted", NOTHING),
    ],
)
def test_the_best_is_right_and_shown(
    variants: list[VariantResult], stopped: Any, said: str
) -> None:
    plain = VariantResult(name="as profiled")
    bench = BenchResult(variants=(plain, *variants), stopped=stopped, budget_seconds=20.0)
    assert describe_best(bench) == said
