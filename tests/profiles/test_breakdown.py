"""Steps cut into buckets that sum to them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.operator_times import decode_any
from lar.measurement.summary import summarize
from lar.profiles.breakdown import (
    CAUSES,
    StepBreakdown,
    breakdown_of,
    describe_disturbance,
    disturbed_executions,
    disturbed_steps,
    noise_of,
    split_copies,
    waiting_by_step,
)
from lar.profiles.times import self_times_of
from lar.profiles.trace_file import encode_profile
from lar.records.profile import (
    Allocation,
    Category,
    CounterSample,
    Execution,
    Profile,
    Span,
    StepNoise,
)
from lar.records.run import RunResult, RunSpec, Samples
from tests.profiles.synthetic import operator_of, with_facts
from tests.profiles.timelines import HOST, WORKER, execution_of, profile_of, span_of, step_of
from tests.tables import each_row

CONV = operator_of("conv", "Convolution")


def in_one_step(executions: list[Execution], spans: list[Span], device: str = "cpu") -> Profile:
    """A profile of an iteration of 100 us."""
    return profile_of([CONV], [step_of(0, 0, 100)], executions, spans, device=device)


def microseconds_of(profile: Profile) -> list[dict[str, float]]:
    return [
        {bucket: ns / 1000 for bucket, ns in step.buckets_ns.items()}
        for step in breakdown_of(profile)
    ]


def test_a_cpu_has_no_buckets_of_a_device() -> None:
    profile = in_one_step(
        [execution_of(0, 30, 60, thread=WORKER, dispatch=(20, 40))],
        [span_of("phase", "dataloader", 0, 10), span_of("runtime", "forward", 0, 100)],
    )
    assert microseconds_of(profile) == [{"DataLoader": 10, "CPU Exec": 30, "Other": 60}]


def test_a_moment_counts_for_the_first_bucket_it_lies_in() -> None:
    profile = in_one_step(
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
    kernel = span_of("kernel", "gemm", 20, 50, device="cuda0")
    (buckets,) = microseconds_of(in_one_step([execution_of(0, 10, 90)], [kernel], device="cuda0"))
    assert (buckets["Kernel"], buckets["Other"]) == (30, 70)


def test_a_call_that_dispatches_operators_does_not_hide_them() -> None:
    dispatched = execution_of(0, 50, 60, dispatch=(10, 20))
    inner = span_of("runtime", "launch", 12, 15)
    forward = span_of("runtime", "forward", 0, 30)
    (buckets,) = microseconds_of(in_one_step([dispatched], [forward, inner], device="cuda0"))
    assert (buckets["Runtime"], buckets["CPU Exec"]) == (3, 7)


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_copy_between_places_of_the_host_is_none_of_the_device(device: str | None) -> None:
    copy = span_of("memcpy", "HtoH", 10, 20, device=device)
    profile = in_one_step([], [copy], device="cuda0")
    assert microseconds_of(profile)[0]["Memcpy"] == 0


def test_warmup_is_left_out() -> None:
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100, warmup=True), step_of(1, 100, 150)],
        [execution_of(0, 0, 105, warmup=True), execution_of(0, 140, 160, step=1)],
    )
    (step,) = breakdown_of(profile)
    assert (step.number, step.total_ns, step.buckets_ns["CPU Exec"]) == (1, 50_000, 15_000)


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
    operators = [CONV, operator_of("pool", "Pooling")]
    return profile_of(operators, steps, executions, spans, facts={"noise": noise}, **fields)


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
    assert [(each.step, each.waiting_ns) for each in noise_of(samples, copies=2)] == [
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
    waited = [1010.0] * 4
    profile = run_of([100.0] * 3 + [1100.0] * 4, [50.0] * 3 + [1050.0] * 4, [0, 0, 0, *waited])
    *_, last = breakdown_of(profile)
    assert last.buckets_ns["CPU Exec"] == sum(self_times_of(profile)[12:]) == 1_060_000
    assert last.buckets_ns["Waiting for a CPU"] == 0
    assert disturbed_executions(profile) == {6, 8, 10, 12}


def test_a_wait_of_the_engine_is_taken_out_of_its_overhead() -> None:
    profile = run_of([100, 101, 103, 1100], [50, 50, 50, 50], [0, 0, 0, 1010])
    *calm, waited = breakdown_of(profile)
    assert [step.buckets_ns["Waiting for a CPU"] for step in calm] == [0, 0, 0]
    assert waited.buckets_ns["Waiting for a CPU"] == 999_000


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


@each_row("profiles/breakdown/executions")
def test_an_execution_is_disturbed_if_it_is_longer_than_usual(
    usual: float, own: float, cause: str, is_disturbed: bool
) -> None:
    """On a slow core, all of an iteration is a little longer."""
    profile = run_of([9000] * 4, [usual - 1, usual, usual + 1, own], [0] * 4)
    noise = (*map(StepNoise, range(3)), StepNoise(3, 50, (cause,)))
    found = with_facts(profile, noise=noise)
    assert disturbed_executions(found) == ({6} if is_disturbed else set())
    longest = ", up to 0.000 ms" if cause == "queue delay" else ""
    said = f"1 of 4 iterations was disturbed: 1 {CAUSES[cause]}{longest}"
    assert describe_disturbance(found) == said


def test_each_copy_has_its_own_records() -> None:
    """Counters and memory are those of the process, and stand with the first copy."""
    steps = [msgspec.structs.replace(step_of(n, 100 * n, 100 * n + 90), copy=n) for n in (0, 1)]
    executions = [execution_of(0, 100 * n + 10, 100 * n + 20, step=n) for n in (0, 1)]
    spans = [span_of("phase", str(n), 0, 1, thread=1 + 1000 * n, step=None) for n in (0, 1)]
    spans += [span_of("phase", f"of step {n}", 0, 1, step=n) for n in (0, 1)]
    memory: Any = {"counters": (CounterSample("rss", 5, 1.0),), "allocations": (Allocation(5, 1),)}
    profile = profile_of([CONV], steps, executions, spans, **memory)
    fields = ("steps", "executions", "spans", *memory)
    found = split_copies(profile)
    own = [tuple(getattr(each, name) for name in fields) for each in found]
    first, second = (((steps[n],), (executions[n],), (spans[n], spans[n + 2])) for n in (0, 1))
    assert own == [(*first, *memory.values()), (*second, (), ())]
    assert [step.number for step in breakdown_of(profile)] == [0, 1]
