"""What is kept of the runs of a testcase, and how a failure is told."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lar.records.run import RunContext, RunSpec, read_request, record_to_json, request_to_json
from lar.records.testcase import (
    Case,
    CaseResult,
    Expected,
    Packing,
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


def test_a_worker_reads_the_testcases_of_a_spec() -> None:
    case = Case(
        name="a",
        inputs=(("x", "0.npy"), ("", "folder")),
        expected=(Expected(file="1.npy", limit=math.pi),),
        variables=("y{}",),
    )
    spec = RunSpec(model="m", engine="e", driver="d", cases=(case, Case(name="b")))
    context = RunContext(packing=Packing(repeat=2), written={"pack": "there"}, ranges=("a", "b"))
    assert read_request(request_to_json(spec, context)) == (spec, context)
    assert read_request(record_to_json(spec)) == (spec, RunContext())
    assert spec.sample_count == 1 + 2 * 10


@pytest.mark.parametrize("text", ["[]", "5", "null", '"x"', '{"spec": null}', '{"spec": []}', "{}"])
def test_what_is_not_a_request_is_refused(text: str) -> None:
    with pytest.raises(TypeError):
        read_request(text)
