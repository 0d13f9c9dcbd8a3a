"""What profiling cost, taken out of the times of operators."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec
import pytest

from lar.profiles.breakdown import breakdown_of
from lar.profiles.costs import correct, describe_cost, extra_share, is_high
from lar.profiles.range_members import executions_in_ranges
from lar.profiles.ranges import spans_of_patterns
from lar.profiles.trace_file import write_profile
from lar.records.profile import Cost, Execution, Profile, Span, Step
from tests.profiles.synthetic import operator_of, profile_of_times

if TYPE_CHECKING:
    from tests.conftest import RunLar

TYPES = {"conv": "Conv", "relu": "Relu", "fc": "Gemm"}
RECORDED = {"conv": 12, "relu": 3, "fc": 7}


def profile_with(profiled_us: float, plain_us: float, **options: object) -> Profile:
    profile = profile_of_times(TYPES, [RECORDED] * 4, step_us=28, warmup=1)
    cost = Cost(profiled_us * 1e-6, plain_us * 1e-6, 3, 3)
    facts = msgspec.structs.replace(profile.facts, cost=cost, options=options)
    return replace(profile, facts=facts)


def medians_us(profile: Profile) -> list[float]:
    groups = profile.executions_by_operator
    return [median(each.duration_ns for each in groups[place]) / 1e3 for place in sorted(groups)]


def test_a_low_cost_changes_nothing_and_is_said() -> None:
    profile = profile_with(21.0, 20.0)
    assert extra_share(profile) == pytest.approx(0.05)
    assert correct(profile) is profile
    assert describe_cost(profile) == (
        "Profiling cost +5.0%: a median iteration took 21.0 us with it, 20.0 us without."
    )


def test_a_run_that_was_faster_with_the_profiler_shows_no_cost() -> None:
    assert describe_cost(profile_with(20.0, 21.0)) == (
        "Profiling cost nothing that shows: a median iteration took 20.0 us with it, 21.0 us "
        "without."
    )


def test_without_a_plain_run_nothing_is_known() -> None:
    profile = profile_of_times(TYPES, [RECORDED], step_us=28)
    assert (extra_share(profile), is_high(profile), correct(profile)) == (None, False, profile)
    assert describe_cost(profile) == ""


def test_operators_fit_into_their_part_of_a_plain_iteration() -> None:
    # 22 of 27.5 us are operators: of a plain iteration of 20 us that leaves 16.
    recorded = profile_with(27.5, 20.0)
    profile = correct(recorded)
    assert medians_us(profile) == [10.0, 1.0, 5.0]
    assert [each.start_ns for each in profile.executions] == [
        each.start_ns for each in recorded.executions
    ]
    assert profile.steps == recorded.steps
    assert describe_cost(profile) == (
        "Profiling cost +37.5%: a median iteration took 27.5 us with it, 20.0 us without. The "
        "times of operators are estimates without it: each execution less 2.00 us. Of 1 operator "
        "less than 3 us is left: too little for the clock to say a rate, a bound or a saving."
    )
    assert profile.correction is not None
    assert sum(end - start for start, end in profile.correction.removed) == 4 * 3 * 2000
    assert correct(profile) is profile


def test_what_lies_between_operators_was_not_within_them() -> None:
    profile = profile_with(50.0, 40.0)
    apart = [
        msgspec.structs.replace(
            each,
            start_ns=each.start_ns + 10_000 * each.operator,
            end_ns=each.end_ns + 10_000 * each.operator,
        )
        for each in profile.executions
    ]
    found = correct(replace(profile, executions=tuple(apart)))
    assert medians_us(found) == [12.0, 3.0, 7.0]
    assert "It lies outside of operators, whose times are as recorded." in describe_cost(found)


def test_no_record_costs_more_than_the_shortest_operator_and_the_rest_is_shared() -> None:
    profile = correct(profile_with(27.5, 8.125))
    # Room for 6.5 us; without 3 us each there are 9, 0 and 4.
    assert medians_us(profile) == [4.5, 0.0, 2.0]
    assert describe_cost(profile).endswith(
        "each execution less 3.00 us, then 50%. Of 2 operators less than 3 us is left, of 1 of "
        "them nothing: too little for the clock to say a rate, a bound or a saving."
    )


@pytest.mark.parametrize("plain_us", [4.0, 9.0, 14.0, 20.0, 25.0])
def test_medians_sum_to_no_more_than_a_plain_iteration(plain_us: float) -> None:
    for times in (RECORDED, dict.fromkeys(TYPES, 8), {"conv": 1, "relu": 25, "fc": 1}):
        profile = profile_of_times(TYPES, [times] * 5, step_us=28)
        facts = msgspec.structs.replace(profile.facts, cost=Cost(28e-6, plain_us * 1e-6, 5, 5))
        recorded = replace(profile, facts=facts)
        found = correct(recorded)
        assert sum(medians_us(found)) <= plain_us
        before, after = medians_us(recorded), medians_us(found)
        assert all(a >= b for a, b in zip(before, after, strict=True))
        assert sorted(range(3), key=before.__getitem__) == sorted(range(3), key=after.__getitem__)


def test_disturbed_runs_say_nothing_of_the_cost() -> None:
    profile = profile_with(28.0, 20.0)
    cost = Cost(28e-6, 20e-6, 3, 3, disturbed=True)
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, cost=cost))
    assert (extra_share(profile), correct(profile)) == (None, profile)
    assert describe_cost(profile) == (
        "What profiling cost is not known, as other work disturbed the runs: a median iteration "
        "took 28.0 us with it, 20.0 us without."
    )


def test_calm_iterations_say_more_than_all() -> None:
    profile = profile_with(28.0, 20.0)
    cost = Cost(90e-6, 20e-6, 9, 9, calm_profiled_seconds=21e-6, calm_unprofiled_seconds=20e-6)
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, cost=cost))
    assert extra_share(profile) == pytest.approx(0.05)
    assert "took 21.0 us with it" in describe_cost(profile)


def test_dispatches_are_corrected_too_and_waits_stay() -> None:
    profile = profile_of_times(TYPES, [RECORDED] * 2, step_us=28, dispatch_us=9)
    waiting = [msgspec.structs.replace(each, wait_ns=2500) for each in profile.executions]
    facts = msgspec.structs.replace(profile.facts, cost=Cost(27e-6, 21e-6, 2, 2))
    profile = correct(replace(profile, facts=facts, executions=tuple(waiting)))
    assert {each.wait_ns for each in profile.executions} == {2500}
    # The computations take 14.5 us already, which is less than their part.
    assert [each.compute_ns for each in profile.executions[:3]] == [9500, 500, 4500]
    assert [each.dispatch_ns for each in profile.executions[:3]] == [7000, 7000, 7000]
    assert "each dispatch less 2.00 us" in describe_cost(profile)


def test_the_body_of_a_loop_stays_within_it() -> None:
    operators = (operator_of("loop", "Loop"), operator_of("body", "Add"))
    inner = [Execution(1, 0, 1, 1000 + 10_000 * k, 9000 + 10_000 * k) for k in range(3)]
    outer = Execution(0, 0, 1, 0, 31_000)
    profile = profile_with(31.0, 23.0)  # of the loop's own time 7 us are left
    profile = replace(
        profile, operators=operators, executions=(outer, *inner), steps=(Step(0, 0, 40_000),)
    )
    found = correct(profile)
    loop, *body = found.executions
    assert [each.duration_ns for each in body] == [6000] * 3
    assert loop.duration_ns == 31_000 - 4 * 2000
    assert [each.start_ns for each in body] == [1000, 9000, 17_000]
    assert all(loop.start_ns <= each.start_ns <= each.end_ns <= loop.end_ns for each in body)


def test_operators_of_several_threads_are_shortened_each_on_its_own() -> None:
    profile = profile_with(24.0, 16.0)
    executions = (Execution(0, 1, 1, 0, 12_000), Execution(2, 1, 2, 6000, 18_000))
    profile = replace(profile, executions=executions, steps=(Step(1, 0, 24_000),))
    found = correct(profile)
    assert [each.start_ns for each in found.executions] == [0, 6000]
    assert [each.duration_ns for each in found.executions] == [6000, 6000]


def test_ranges_of_operators_go_with_them() -> None:
    profile = profile_with(27.5, 20.0, range_by="conv|relu=body")
    relayout = Span(
        category="relayout",
        name="[relayout]",
        start_ns=profile.executions[3].start_ns,
        end_ns=profile.executions[3].end_ns,
        thread=1,
        step=1,
        operator=0,
    )
    named = spans_of_patterns(profile, [("conv|relu", "body")])
    profile = correct(replace(profile, spans=(*profile.spans, *named, relayout)))
    ranges = executions_in_ranges(profile)
    assert [len(each.places) for each in ranges] == [2, 2, 2]
    assert {each.span.duration_ns for each in ranges} == {13_000}
    (moved,) = [span for span in profile.spans if span.category == "relayout"]
    assert moved.duration_ns == 10_000


def test_the_breakdown_has_all_of_the_cost() -> None:
    """6 of 7.5 us were within operators; the rest was the engine's own time, as recorded."""
    recorded = profile_with(27.5, 20.0)
    before, after = breakdown_of(recorded), breakdown_of(correct(recorded))
    assert after.bucket_ns("Profiling") == 3 * 7500
    assert after.bucket_ns("CPU Exec") == before.bucket_ns("CPU Exec") - 3 * 6000
    assert after.bucket_ns("Engine Overhead") == before.bucket_ns("Engine Overhead") - 3 * 1500
    assert after.total_ns == before.total_ns


def test_a_device_is_not_slowed_by_the_records_of_the_host() -> None:
    profile = profile_of_times(TYPES, [RECORDED] * 2, step_us=28, dispatch_us=4, device="cuda:0")
    facts = msgspec.structs.replace(profile.facts, cost=Cost(12e-6, 6e-6, 2, 2))
    found = correct(replace(profile, facts=facts))
    assert medians_us(found) == [12.0, 3.0, 7.0]
    assert found.executions[0].dispatch_ns == 2000


def test_one_profile_is_reported_without_the_cost_and_two_are_compared_as_recorded(
    run_lar: RunLar, tmp_path: Path
) -> None:
    place = tmp_path / "p.json"
    profile = profile_with(27.5, 20.0)
    write_profile(
        replace(profile, facts=msgspec.structs.replace(profile.facts, lar_version="1")), place
    )
    alone = run_lar("report", str(place), "--style", "nsys", "--view", "computation")
    assert "are estimates without it: each execution less 2.00 us" in alone.stdout
    document = json.loads(run_lar("report", str(place), "--json", "-").stdout)
    assert "are estimates without it" in document["cost_of_profiling"]
    texts = run_lar("report", str(place), str(place)).stdout
    assert texts.count("The times of operators are as recorded, with it.") == 2
    run_lar("report", str(place), "--export", "chrome", "-o", str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [it["dur"] for it in events if it["name"] == "conv"] == [12.0] * 4
