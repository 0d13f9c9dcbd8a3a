"""Algorithms that were timed again, as text."""

from __future__ import annotations

from dataclasses import replace

from lar.records.algorithms import AlgorithmsResult, TimedOperator, TriedAlgorithm
from lar.records.bench import OutputDifference
from lar.records.facts import EngineFacts, ModelFile
from lar.records.run import Failure
from lar.records.summary import Difference, Interval
from lar.reports.algorithms_text import format_algorithms


def difference(ratio: float) -> Difference:
    return Difference(
        ratio=ratio,
        interval=Interval(ratio - 0.02, ratio + 0.02),
        verdict="faster",
        smallest_detectable=0.01,
        processes=5,
        pairs=5,
    )


OPERATORS = (
    TimedOperator(
        name="Convolution",
        shapes="{1,3}",
        share=0.5,
        before="OLD",
        after="NEW",
        search_seconds=1e-5,
        seconds=1.2345e-5,
        tried=(
            TriedAlgorithm(
                name="NEW", search_seconds=2e-5, difference=difference(0.8), verdict="faster"
            ),
            TriedAlgorithm(name="LATE", search_seconds=2e-5, verdict="much slower"),
            TriedAlgorithm(
                name="BAD", search_seconds=2e-5, verdict="out", failure=Failure("it crashed")
            ),
        ),
    ),
    TimedOperator(
        name="Pooling", shapes="{1}", share=0.1, before="ONE", after="ONE", search_seconds=1e-6
    ),
)
RESULT = AlgorithmsResult(
    model=ModelFile(path="m.mge", size_bytes=1, sha256=""),
    caches=("a.cache",),
    output="b.cache",
    ending="settled",
    operators=OPERATORS,
    left_out=3,
    whole=difference(0.9),
    seconds_before=0.010,
    seconds_after=0.009,
    output_difference=OutputDifference(agreement="within the tolerance", max_error=1e-7),
    written=True,
    engine=EngineFacts(name="megengine", version="1.13", driver="lite", device="cpu"),
    rounds=7,
    wall_seconds=12.34,
)


def test_the_gain_is_printed_operator_by_operator() -> None:
    lines = format_algorithms(RESULT)
    assert lines[0] == (
        "m.mge on megengine 1.13 lite: 2 of 5 operators in the cache timed again, 3 other "
        "algorithms, 7 rounds of fresh processes, 12.3 s"
    )
    assert lines[2].split() == [
        *("operator", "shapes", "share", "ms", "algorithm", "faster", "one"),
        *("ratio", "interval", "gain", "others"),
    ]
    assert lines[3].split() == [
        *("Convolution", "{1,3}", "50.0%", "0.0123", "OLD", "NEW", "0.800", "0.780..0.820"),
        *("10.00%", "1", "much", "slower,", "1", "out"),
    ]
    assert lines[4].split() == ["Pooling", "{1}", "10.0%", "ONE"]
    assert lines[6:] == [
        "every algorithm that could matter is decided",
        "out: BAD of Convolution {1,3}: it crashed",
        "gain of 1 operator with a faster algorithm: 10.00% (9.00% to 11.00%) of the time of all "
        "operators",
        "whole model: 10.000 -> 9.000 ms, ratio 0.900 (0.880..0.920): faster",
        "outputs, against a run without a cache: within the tolerance, error 1e-07",
        "written: b.cache, with another choice for 1 operator",
    ]


def test_a_reason_is_printed_where_nothing_is_written() -> None:
    result = replace(
        RESULT, ending="budget", budget_seconds=5.0, written=False, whole=None, reason="of this"
    )
    lines = format_algorithms(result)
    assert "the budget of 5 s is spent; --budget S gives more" in lines
    assert lines[-1] == "b.cache is not changed: of this"
    lines = format_algorithms(replace(result, output_exists=False))
    assert lines[-1] == "b.cache is not written: of this"
    lines = format_algorithms(replace(result, ending="failed"))
    assert "an error has ended it; what was timed before stands above" in lines
    lines = format_algorithms(replace(result, searched=True))
    assert lines[-1] == "b.cache has the choices of the searches: of this"
