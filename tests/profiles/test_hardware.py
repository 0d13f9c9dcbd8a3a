"""The processor's counters by type of operator."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest

from lar.profiles.hardware import describe_hardware, hardware_of
from lar.records.profile import Execution, Hardware, HardwareCounts, Profile, Step
from tests.profiles.synthetic import operator_of

NAMES = ("cycles", "instructions", "cache_references", "cache_misses")
OPERATORS = (operator_of("a", "Conv"), operator_of("b", "Relu"), operator_of("c", "Conv"))
# A warm-up, then a step in which a runs from 100 to 140, b to 160 and c from 170 to 190.
STEPS = (Step(0, 0, 100, warmup=True), Step(1, 100, 200))
EXECUTIONS = (
    Execution(0, 0, 1, 10, 50, warmup=True),
    Execution(0, 1, 1, 100, 140),
    Execution(1, 1, 1, 140, 160),
    Execution(2, 1, 1, 170, 190),
)
T0 = 5000


class Sample(NamedTuple):
    at_ns: int
    running_ns: int
    values: tuple[int, ...]


def counted(*samples: tuple[int, int, tuple[int, ...]]) -> Hardware:
    made = [Sample(T0 + at, running, values) for at, running, values in samples]
    pairs = {7: [*pairwise(made)]}
    return hardware_of(NAMES, pairs, T0, STEPS, EXECUTIONS, OPERATORS)


def test_what_grows_while_an_operator_runs_is_its_own() -> None:
    found = counted(
        (110, 10, (0, 0, 0, 0)),
        (130, 30, (60, 120, 6, 3)),
        (145, 45, (90, 240, 6, 3)),  # 10 of it Conv, 5 Relu
        (155, 55, (110, 250, 6, 3)),
        (165, 60, (110, 250, 16, 13)),  # half Relu, half of it in no operator
    )
    by_type = {each.type: each for each in found.counts}
    assert found.samples == 4
    assert [each.type for each in found.counts] == ["Conv", "Relu", ""]
    conv = by_type["Conv"]
    assert (conv.cycles, conv.instructions, conv.running_ns) == (80, 200, 30)
    assert conv.instructions_per_cycle == 2.5
    assert conv.hertz == pytest.approx(80e9 / 30)
    assert (conv.misses_per_thousand, conv.miss_share) == (15.0, 0.5)
    assert (by_type["Relu"].cycles, by_type["Relu"].cache_misses) == (30, 5)
    assert (by_type[""].cycles, by_type[""].cache_misses) == (0, 5)


def test_what_lies_outside_of_timed_steps_is_left_out() -> None:
    found = counted((10, 0, (0, 0, 0, 0)), (50, 40, (99, 9, 9, 9)), (90, 60, (120, 9, 9, 9)))
    assert found == Hardware()
    found = counted((90, 0, (0, 0, 0, 0)), (110, 20, (200, 0, 0, 0)))
    assert [(each.type, each.cycles) for each in found.counts] == [("Conv", 100)]


def test_operators_that_run_at_once_share_the_time() -> None:
    both = (Execution(0, 1, 1, 100, 140), Execution(1, 1, 2, 100, 140))
    samples = [Sample(T0 + 100, 0, (0,)), Sample(T0 + 140, 40, (400,))]
    found = hardware_of(("cycles",), {7: [(samples[0], samples[1])]}, T0, STEPS, both, OPERATORS)
    assert {(each.type, each.cycles) for each in found.counts} == {("Conv", 200), ("Relu", 200)}


def test_what_is_not_counted_is_not_known() -> None:
    counts = HardwareCounts(type="Conv")
    assert counts.instructions_per_cycle is None
    assert (counts.hertz, counts.misses_per_thousand, counts.miss_share) == (None, None, None)


def test_a_profile_says_why_it_has_no_counts() -> None:
    profile = Profile()
    assert describe_hardware(profile) == ""
    facts = msgspec.structs.replace(profile.facts, hardware=Hardware(missing="not permitted: x"))
    assert describe_hardware(replace(profile, facts=facts)) == (
        "Hardware counters: not permitted: x."
    )
