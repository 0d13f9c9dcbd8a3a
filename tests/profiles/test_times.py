"""The times of operators, of iterations and of calls."""

from __future__ import annotations

from dataclasses import replace

from lar.profiles.times import (
    iteration_times_of,
    own_times,
    self_host_times_of,
    self_times_of,
    waiting_calls,
)
from lar.records.profile import Profile
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import WORKER, execution_of, profile_of, span_of, step_of


def profile_of_one() -> Profile:
    """An operator that is dispatched for 2 us, waits for 3 and computes for 10."""
    execution = execution_of(0, 1, 14, thread=WORKER, wait=3, dispatch=(0, 2))
    return profile_of([operator_of("conv", "Convolution")], [step_of(0, 0, 20)], [execution])


def test_an_operator_computes_and_keeps_the_host_busy_without_what_it_waits() -> None:
    assert self_times_of(profile_of_one()) == [10_000]
    assert self_host_times_of(profile_of_one()) == [12_000]


def test_what_runs_within_an_operator_is_no_part_of_its_own_time() -> None:
    executions = [execution_of(0, 2, 20, dispatch=(0, 2)), execution_of(1, 5, 9)]
    operators = [operator_of("loop", "Loop"), operator_of("mm", "MatMul")]
    assert self_host_times_of(profile_of(operators, [], executions)) == [16_000, 4000]


def test_a_device_takes_of_the_host_the_dispatch_alone() -> None:
    profile = profile_of_one()
    profile = replace(profile, facts=profile_of([], device="cuda0").facts)
    assert self_host_times_of(profile) == [2000]
    assert self_times_of(profile) == [10_000]


def test_what_is_both_dispatched_and_computed_counts_once() -> None:
    execution = execution_of(0, 1, 14, wait=3, dispatch=(0, 6))
    profile = profile_of([operator_of("conv", "Convolution")], [], [execution])
    assert self_host_times_of(profile) == [14_000]


def test_what_stands_before_the_computation_of_the_thread_that_dispatches_is_no_wait() -> None:
    execution = execution_of(0, 1, 14, wait=3)
    profile = profile_of([operator_of("conv", "Convolution")], [], [execution])
    assert self_host_times_of(profile) == [13_000]
    assert self_times_of(profile) == [10_000]


def profile_of_items() -> Profile:
    """Steps of a data set: an item is loaded for 2 us and copied for 1, the iteration takes 8."""
    steps = [step_of(number, number * 20, number * 20 + 11) for number in range(3)]
    spans = [
        span_of("phase", name, at + begin, at + end, step=step.number)
        for step in steps
        for at in [step.start_ns / 1000]
        for name, begin, end in (
            *(("dataloader", 0, 2), ("input_copy", 2, 3)),
            *(("forward", 3, 5), ("wait", 5, 10), ("output_copy", 10, 11)),
        )
    ]
    return profile_of([], steps, [], spans)


def test_an_iteration_of_a_data_set_is_less_than_its_step() -> None:
    profile = profile_of_items()
    assert [step.duration_ns for step in profile.timed_steps()] == [11_000] * 3
    assert iteration_times_of(profile) == [8000] * 3


def test_a_step_without_loading_is_an_iteration() -> None:
    steps = [step_of(0, 0, 9)]
    phases = [span_of("phase", "forward", 0, 9)]
    for spans in (phases, ()):
        assert iteration_times_of(profile_of([], steps, [], spans)) == [9000]


def test_a_call_that_is_the_wait_of_an_iteration_only_waits() -> None:
    spans = [
        span_of("phase", "forward", 0, 2),
        span_of("runtime", "LITE_forward", 0, 2),
        span_of("phase", "wait", 2, 9),
        span_of("runtime", "LITE_wait", 2, 9),
        span_of("runtime", "LITE_wait", 2, 9, step=1),
    ]
    assert waiting_calls(profile_of([], [], [], spans)) == {id(spans[3])}


def test_what_a_call_takes_itself_sums_to_the_outermost() -> None:
    spans = [
        span_of("runtime", "inner", 2, 8),
        span_of("runtime", "load", 0, 10),
        span_of("runtime", "innermost", 3, 4),
        span_of("runtime", "next", 10, 12),
        span_of("runtime", "elsewhere", 1, 9, thread=WORKER),
    ]
    assert own_times([(it.thread, *it.interval) for it in spans]) == [5000, 4000, 1000, 2000, 8000]
