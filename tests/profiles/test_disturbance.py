"""What disturbed the iterations of a profile: which they were, what it took, which executions."""

from __future__ import annotations

from typing import Any

import pytest

from lar.engines.profile_files import decode_any
from lar.measurement.summary import summarize
from lar.profiles.breakdown import StepBreakdown, breakdown_of
from lar.profiles.disturbance import (
    describe_disturbance,
    disturbed_executions,
    disturbed_steps,
    noise_of,
    waiting_by_step,
)
from lar.profiles.times import self_times_of
from lar.profiles.trace_file import encode_profile
from lar.records.profile import Profile, StepNoise
from lar.records.run import RunResult, RunSpec, Samples
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of

CONV, POOL = operator_of("conv", "Convolution"), operator_of("pool", "Pooling")
WAITED = ("queue delay",)


def run_of(
    lengths: list[float], conv: list[float], waits: list[float | None], **fields: Any
) -> Profile:
    """A profile of iterations that take so many microseconds each, of which a convolution takes
    some and waits as long; a pooling takes 10, and the engine is in its calls all the time."""
    starts = [10_000.0 * number for number in range(len(lengths))]
    executions, spans = [], []
    for number, (start, length, own) in enumerate(zip(starts, lengths, conv, strict=True)):
        executions.append(execution_of(0, start + 5, start + 5 + own, step=number))
        executions.append(execution_of(1, start + 5 + own, start + 15 + own, step=number))
        spans.append(span_of("phase", "forward", start, start + length, step=number))
    noise = tuple(
        StepNoise(
            number,
            None if wait is None else round(wait * 1000),
            WAITED if (wait or 0) > 100 else (),
        )
        for number, wait in enumerate(waits)
    )
    steps = [
        step_of(n, start, start + length)
        for n, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
    return profile_of([CONV, POOL], steps, executions, spans, facts={"noise": noise}, **fields)


def in_steps(steps: list[StepBreakdown], *buckets: str) -> int:
    return sum(step.buckets_ns[bucket] for step in steps for bucket in buckets)


def test_the_run_and_the_profile_count_the_same_iterations() -> None:
    times, waits = (0.01,) * 6, (0.004, 0.0, 0.0006, None, 0.00005, 0.0004)
    samples = Samples(end_to_end=times, queue_delay=waits)
    noise = noise_of(samples)
    assert [each.step for each in noise] == [0, 1, 2, 3, 4, 5]
    assert [each.waiting_ns for each in noise][:4] == [4_000_000, 0, 600_000, None]
    disturbed = [each.step for each in noise if each.causes]
    assert disturbed == [0, 2]
    spec = RunSpec(model="m.mge", engine="megengine", driver="lite")
    run = summarize(RunResult(spec=spec, status="ok", phase="finish", samples=samples))
    assert run is not None
    assert run.disturbed_count == len(disturbed)


def test_iterations_of_copies_are_numbered_in_turn() -> None:
    samples = Samples(
        end_to_end=(0.01,) * 4, queue_delay=(0.0, 0.001, 0.002, 0.003), runner=(0, 0, 1, 1)
    )
    noise = noise_of(samples, copies=2)
    assert [(each.step, each.waiting_ns) for each in noise] == [
        *((0, 0), (1, 2_000_000), (2, 1_000_000), (3, 3_000_000)),
    ]


def test_the_file_keeps_what_disturbed_the_iterations() -> None:
    profile = run_of([100, 100], [50, 50], [None, 200])
    again = decode_any(encode_profile(profile), "p.json")
    assert again.facts.noise == (StepNoise(0, None, ()), StepNoise(1, 200_000, WAITED))


def test_most_of_a_disturbed_run_is_waiting_for_a_cpu() -> None:
    # Each iteration waits at another place, as on a machine with more threads than CPUs.
    lengths = [800.0, 800, 900, 700, 800, 1000]
    profile = run_of(lengths, [90, 90, 90, 90, 90, 90], [680, 685, 800, 590, 690, 890])
    steps = breakdown_of(profile)
    assert in_steps(steps, "CPU Exec") == 600_000
    assert in_steps(steps, "Waiting for a CPU") == pytest.approx(4_330_000, abs=100_000)
    assert in_steps(steps, "Other", "Engine Overhead") < 150_000
    for step in steps:
        assert sum(step.buckets_ns.values()) == step.total_ns
        assert [*step.buckets_ns] == [*steps[0].buckets_ns]
    assert describe_disturbance(profile) == (
        "6 of 6 iterations were disturbed: 6 waited for a CPU that other work held, up to 0.890 ms"
    )


def test_a_wait_within_an_operator_counts_there() -> None:
    """Operators have their own times in every table, and what disturbed them is marked."""
    profile = run_of([100, 100, 100, 1100], [50, 50, 50, 1050], [0, 0, 0, 1010])
    *_, waited = breakdown_of(profile)
    assert waited.buckets_ns["CPU Exec"] == sum(self_times_of(profile)[6:]) == 1_060_000
    assert waited.buckets_ns["Waiting for a CPU"] == 0
    assert disturbed_executions(profile) == {6}


def test_a_wait_of_the_engine_is_taken_out_of_its_overhead() -> None:
    profile = run_of([100, 100, 100, 1100], [50, 50, 50, 50], [0, 0, 0, 1010])
    *calm, waited = breakdown_of(profile)
    assert [step.buckets_ns["Waiting for a CPU"] for step in calm] == [0, 0, 0]
    assert waited.buckets_ns["Waiting for a CPU"] == 1_000_000


def test_a_thread_that_the_step_did_not_need_may_wait_all_the_time() -> None:
    profile = run_of([100] * 5, [50] * 5, [0, 0, 0, 100, 100])
    assert in_steps(breakdown_of(profile), "Waiting for a CPU") == 0


def test_of_an_older_profile_waiting_is_not_known() -> None:
    profile = run_of([100, 100], [50, 50], [])
    assert "Waiting for a CPU" not in breakdown_of(profile)[0].buckets_ns
    assert describe_disturbance(profile) == ""
    assert waiting_by_step(profile) == {}


def test_executions_that_took_longer_in_a_disturbed_step_are_marked() -> None:
    profile = run_of([100, 100, 100, 1100, 100], [50, 50, 50, 1050, 400], [0, 0, 0, 1010, 0])
    assert disturbed_steps(profile) == {3: WAITED}
    # The last is longer in a step that nothing disturbed: that is the operator's own.
    assert [profile.executions[place].step for place in disturbed_executions(profile)] == [3]


def test_a_slow_core_makes_all_of_an_iteration_longer() -> None:
    profile = run_of([100] * 5, [50, 50, 50, 75, 50], [0] * 5)
    noise = (*profile.facts.noise[:3], StepNoise(3, 0, ("slow core",)), profile.facts.noise[4])
    slow = profile_of(profile.operators, profile.steps, profile.executions, facts={"noise": noise})
    assert "1 of 5" in describe_disturbance(slow)
