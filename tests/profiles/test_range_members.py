"""What belongs to the user's ranges: the same in every style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.profiles.ranges import members_of_ranges, spans_of_patterns, starts_of
from lar.records.profile import Allocation, Profile
from lar.reports.styles import ncu, paddle, torch
from tests.profiles.synthetic import HOST, WORKER, profile_of_times, rows_in, span_of, with_facts

TYPES = {"a.const": "Const", "a.conv": "Conv", "b.const": "Const", "b.conv": "Conv", "c": "Copy"}
# Where the clock ticks in microseconds, many operators last none.
TIMES = {"a.const": 0, "a.conv": 30, "b.const": 0, "b.conv": 20, "c": 0}
PATTERNS = [("conv", "body"), ("const", "weights"), ("^c$", "copies")]


def with_patterns(profile: Profile, patterns: Sequence[tuple[str, str]]) -> Profile:
    """The profile of a run with these `--range-by`."""
    range_by = "\n".join(f"{pattern}={name}" for pattern, name in patterns)
    spans = (*profile.spans, *spans_of_patterns(profile, patterns))
    return with_facts(replace(profile, spans=spans), options={"range_by": range_by})


def named_profile(*iterations: dict[str, int], **fields: Any) -> Profile:
    times = iterations or (TIMES, TIMES)
    profile = profile_of_times(TYPES, times, step_us=200, warmup=1, **fields)
    return with_patterns(profile, PATTERNS)


def members_of(profile: Profile) -> list[tuple[str, list[str]]]:
    executions = profile.timed_executions
    begun = ((place, starts_of(each)) for place, each in enumerate(executions))
    return [
        (span.name, [profile.operators[executions[place].operator].name for place in places])
        for span, places in members_of_ranges(profile, begun)
    ]


def test_to_a_range_by_names_belongs_what_matches_and_nothing_that_touches_it() -> None:
    assert sorted(members_of(named_profile())) == [
        ("body", ["a.conv"]),
        ("body", ["b.conv"]),
        ("copies", ["c"]),
        ("weights", ["a.const"]),
        ("weights", ["b.const"]),
    ]


def test_ranges_that_last_no_time_at_one_moment_are_told_apart() -> None:
    still = named_profile(TIMES, dict.fromkeys(TIMES, 0))
    assert sorted(members_of(still)) == sorted(members_of(named_profile()))


def test_to_any_other_range_belongs_what_began_in_its_time() -> None:
    profile = profile_of_times(TYPES, [TIMES], step_us=200, dispatch_us=1)
    start = profile.steps[0].start_ns + 1000
    spans = [
        span_of("user_annotation", name, start, end, thread=thread, step=None)
        for name, end, thread in (
            ("python", start + 2000, 0),  # when they ran, wherever that was
            ("host", start + 2000, HOST),  # when they were dispatched
            ("worker", start + 40_000, WORKER),
        )
    ]
    assert members_of(replace(profile, spans=(*profile.spans, *spans))) == [
        ("python", ["a.const", "a.conv"]),
        ("host", ["a.conv", "b.const"]),
        ("worker", ["a.const", "a.conv", "b.const", "b.conv"]),
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda0"])
def test_every_style_has_the_same(device: str) -> None:
    profile = named_profile(TIMES, TIMES, TIMES, device=device, dispatch_us=1)
    found = {}
    for name in ("body", "weights", "copies"):
        report = ncu.build(profile, {"group_by": "type", "filter": f"^{name}$"})
        for row in rows_in(report.tables[0]):
            found[name, row["Name"]] = row["Calls"]
    assert found == {("body", "Conv"): 4, ("weights", "Const"): 4, ("copies", "Copy"): 2}
    in_ranges = rows_in(ncu.build(profile, {"group_by": "range"}).tables[0])
    assert {(row["Name"], row["Calls"]) for row in in_ranges} == {
        *(("body", 4), ("weights", 4), ("copies", 2))
    }


def test_a_kernel_belongs_to_a_range_in_which_it_was_dispatched() -> None:
    """The roofline had none in it, and torch's table had."""
    profile = profile_of_times(
        {"a": "Conv"}, [{"a": 20}], step_us=50, dispatch_us=4, device="cuda0"
    )
    start = profile.steps[0].start_ns
    run = span_of("kernel", "gemm", start + 9000, start + 9900, thread=0, operator=0)
    around = span_of("user_annotation", "mine", start, start + 5000, step=None)
    profile = replace(profile, spans=(*profile.spans, run, around))
    (row,) = rows_in(ncu.build(profile, {"filter": "^mine$"}).tables[0])
    assert (row["Name"], row["Calls"]) == ("gemm", 1)


def test_a_range_takes_the_memory_of_its_own_operators() -> None:
    profile = named_profile()
    taken = tuple(
        Allocation(each.start_ns, 10 ** (each.operator + 1), each.operator)
        for each in profile.timed_executions
    )
    rows = rows_in(torch.build(replace(profile, allocations=taken), {}).tables[0])
    memory = {row["Name"]: row["CPU Mem (bytes)"] for row in rows if row["Kind"] == "range"}
    assert memory == {"weights": 10 + 1000, "body": 100 + 10_000, "copies": 100_000}


def test_a_range_on_a_stream_has_the_work_of_its_own_operators() -> None:
    """Another stream was busy meanwhile."""
    profile = named_profile(device="cuda0", dispatch_us=1)
    (other,) = (each for each in profile.timed_executions if each.operator == 1)
    beside = msgspec.structs.replace(other, operator=4, thread=7)
    profile = replace(profile, executions=(*profile.executions, beside))
    rows = rows_in(paddle.build(profile, {"view": ["userdefined"]}).tables[0])
    assert {row["Name"]: row["GPU Total (ms)"] for row in rows}["body"] == pytest.approx(0.05)
