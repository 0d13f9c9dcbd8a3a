"""What is kept of the runs of a testcase, and how a failure is told."""

from __future__ import annotations

from dataclasses import replace

from lar.records.run import (
    CaseResult,
    Verdict,
    add_verdicts,
    describe_failure,
)

GOOD = Verdict(output="y", name="y", id=0, shown=True, error=1e-6, limit=1e-4, passed=True)
BAD = replace(GOOD, error=0.5, passed=False, index=(0, 2), actual="1.5", expected="1.0")


def test_of_several_runs_the_worst_is_kept() -> None:
    results: tuple[CaseResult, ...] = ()
    for verdict in (GOOD, BAD, replace(BAD, error=0.25), GOOD):
        results = add_verdicts(results, 0, "a", [verdict, GOOD])
    assert results == (CaseResult(name="a", passed=False, verdicts=(BAD, GOOD)),)
    results = add_verdicts(results, 1, "b", [GOOD])
    assert [result.passed for result in results] == [False, True]


def test_an_error_that_is_not_finite_is_the_worst() -> None:
    infinite = replace(BAD, error=None)
    (result,) = add_verdicts(add_verdicts((), 0, "a", [infinite]), 0, "a", [BAD])
    assert result.verdicts == (infinite,)


def test_a_case_that_expects_nothing_neither_passes_nor_fails() -> None:
    (result,) = add_verdicts((), 0, "a", [])
    assert result.passed is None


def test_a_failure_names_the_element_and_both_values() -> None:
    assert describe_failure(3, BAD) == (
        "test #3: y[0,2] is 1.5, expected 1.0 (err=0.5, allowed 0.0001)"
    )
    other = replace(BAD, error=None, index=(), actual="float32{2}", expected="float32{3}")
    assert describe_failure(0, other) == "test #0: y is float32{2}, expected float32{3}"
