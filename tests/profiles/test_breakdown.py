"""Steps cut into buckets that sum to them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.breakdown import breakdown_of
from lar.records.profile import Category, Profile
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import HOST, WORKER, execution_of, profile_of, span_of, step_of

CONV = operator_of("conv", "Convolution")


def microseconds_of(profile: Profile) -> list[dict[str, float]]:
    return [
        {bucket: ns / 1000 for bucket, ns in step.buckets_ns.items()}
        for step in breakdown_of(profile)
    ]


def test_a_cpu_has_no_buckets_of_a_device() -> None:
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100)],
        [execution_of(0, 30, 60, thread=WORKER, dispatch=(20, 40))],
        [span_of("phase", "dataloader", 0, 10), span_of("runtime", "forward", 0, 100)],
    )
    assert microseconds_of(profile) == [{"DataLoader": 10, "CPU Exec": 30, "Other": 60}]


def test_a_moment_counts_for_the_first_bucket_it_lies_in() -> None:
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100)],
        [execution_of(0, 12, 40, wait=8, dispatch=(10, 30))],
        [
            span_of("memcpy", "in", 35, 50, device="cuda0"),
            span_of("memset", "zero", 48, 55, device="cuda0"),
            span_of("runtime", "synchronise", 50, 70),
            span_of("phase", "dataloader", 65, 80),
        ],
        device="cuda0",
    )
    assert microseconds_of(profile) == [
        {
            "Kernel": 20,  # 20 to 40: without the wait
            "Memcpy": 10,
            "Memset": 5,
            "Runtime": 15,
            "DataLoader": 10,
            "CPU Exec": 10,  # 10 to 20: then the kernel runs
            "Other": 30,
        }
    ]


def test_kernels_count_instead_of_the_operators_that_launched_them() -> None:
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100)],
        [execution_of(0, 10, 90)],
        [span_of("kernel", "gemm", 20, 50, device="cuda0")],
        device="cuda0",
    )
    (buckets,) = microseconds_of(profile)
    assert (buckets["Kernel"], buckets["Other"]) == (30, 70)


def test_a_call_that_dispatches_operators_does_not_hide_them() -> None:
    dispatched = execution_of(0, 50, 60, dispatch=(10, 20))
    inner = span_of("runtime", "launch", 12, 15)
    forward = span_of("runtime", "forward", 0, 30)
    profile = profile_of(
        [CONV], [step_of(0, 0, 100)], [dispatched], [forward, inner], device="cuda0"
    )
    (buckets,) = microseconds_of(profile)
    assert (buckets["Runtime"], buckets["CPU Exec"]) == (3, 7)


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_copy_between_places_of_the_host_is_none_of_the_device(device: str | None) -> None:
    copy = span_of("memcpy", "HtoH", 10, 20, device=device)
    profile = profile_of([CONV], [step_of(0, 0, 100)], [], [copy], device="cuda0")
    assert microseconds_of(profile)[0]["Memcpy"] == 0


def test_warmup_is_left_out() -> None:
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100, warmup=True), step_of(1, 100, 150)],
        [execution_of(0, 0, 90, warmup=True), execution_of(0, 110, 120, step=1)],
    )
    (step,) = breakdown_of(profile)
    assert (step.number, step.total_ns, step.buckets_ns["CPU Exec"]) == (1, 50_000, 10_000)


def test_without_steps_the_span_of_the_operators_is_one() -> None:
    profile = profile_of([CONV], [], [execution_of(0, 10, 20), execution_of(0, 30, 50)])
    (step,) = breakdown_of(profile)
    assert (step.number, step.total_ns, step.buckets_ns["Other"]) == (0, 40_000, 10_000)


@pytest.mark.parametrize("steps", [(), (step_of(0, 0, 100, warmup=True),)])
def test_nothing_timed_has_no_steps(steps: Any) -> None:
    assert breakdown_of(profile_of([CONV], steps)) == []


intervals = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 120)), max_size=12)
categories: list[Category] = ["kernel", "memcpy", "memset", "runtime"]


@given(
    device=st.sampled_from(["cpu", "cuda0"]),
    edges=st.lists(st.integers(0, 400), min_size=2, max_size=7, unique=True),
    operators=intervals,
    dispatches=intervals,
    spans=st.lists(st.tuples(st.sampled_from([*categories, "phase"]), intervals), max_size=5),
)
def test_buckets_sum_to_the_step(
    device: str, edges: list[int], operators: Any, dispatches: Any, spans: Any
) -> None:
    edges = sorted(edges)
    steps = [step_of(n, a, b) for n, (a, b) in enumerate(pairwise(edges))]
    executions = [execution_of(0, start, start + length) for start, length in operators]
    executions += [
        execution_of(0, start, start, dispatch=(start, start + length), dispatch_thread=HOST)
        for start, length in dispatches
    ]
    parts = [
        span_of(category, "dataloader", start, start + length, device="cuda0")
        for category, own in spans
        for start, length in own
    ]
    breakdown = breakdown_of(profile_of([CONV], steps, executions, parts, device=device))
    assert len(breakdown) == len(steps)
    for step in breakdown:
        assert sum(step.buckets_ns.values()) == step.total_ns
        assert min(step.buckets_ns.values()) >= 0
