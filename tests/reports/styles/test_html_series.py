"""The figures behind the plots of the page: every number of small profiles."""

from __future__ import annotations

import pytest

from lar.records.profile import (
    Allocation,
    CounterSample,
    Machine,
    MemoryChunk,
    MemoryPlan,
    Peak,
    ProfiledOperator,
    ProfileFacts,
    Step,
    StepNoise,
)
from lar.reports.styles.html import memory, series
from lar.reports.styles.html.facts import cards_of, describe_machine
from lar.reports.styles.html.memory import allocated_peak, memory_curves
from lar.reports.styles.html.series import (
    bins_of,
    breakdowns_of,
    latency_of,
    phases_of,
    roofline_of,
)
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of

KNOWN = operator_of("conv", "Conv", flops=3_000_000, size_bytes=1_500_000)
WITHOUT_BYTES = operator_of("fc", "MatMul", flops=8, size_bytes=None)
WITHOUT_FLOPS = operator_of("copy", "Copy", flops=None, size_bytes=8)
SECOND = operator_of("second", "Conv", flops=3_000_000, size_bytes=1_500_000)
IDLE = operator_of("reshape", "Reshape", flops=0, size_bytes=8)
STEPS = (step_of(0, 0, 100, warmup=True), step_of(1, 100, 300), step_of(2, 300, 700))


@pytest.mark.parametrize(
    ("count", "most", "lengths"),
    [
        (0, 3, []),
        (1, 3, [1]),
        (3, 3, [1, 1, 1]),
        (4, 3, [2, 2]),
        (7, 3, [3, 3, 1]),
        (9, 3, [3, 3, 3]),
    ],
)
def test_things_are_cut_into_bins(count: int, most: int, lengths: list[int]) -> None:
    bins = bins_of(count, most)
    assert [len(part) for part in bins] == lengths
    assert [index for part in bins for index in part] == list(range(count))


def test_the_machine_has_its_known_facts_in_words() -> None:
    machine: Machine = {
        "processor": "a CPU",
        "memory_bytes": 3 << 29,
        "governor": "",
        "affinity": (0, 2),
        "cpu_limit": None,
        "variables": {},
    }
    facts = ProfileFacts(machine=machine)
    assert describe_machine(facts) == "processor a CPU, memory 1.5 GiB, affinity 0 2"
    machine["variables"] = {"OMP_NUM_THREADS": "1"}
    assert describe_machine(facts).endswith(", variables OMP_NUM_THREADS=1")


def test_latency_has_the_timed_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of([KNOWN], STEPS)
    found = latency_of(profile)
    assert found is not None
    assert found["bins"] == [[0, 0, 0.2, 0.2, 0.2], [1, 1, 0.4, 0.4, 0.4]]
    assert (found["count"], found["minimum"], found["maximum"]) == (2, 0.2, 0.4)
    assert found["mean"] == found["median"] == pytest.approx(0.3)
    assert found["warmup"] == [0.1]
    monkeypatch.setattr(series, "MOST_ITERATIONS", 1)
    assert (latency_of(profile) or {})["bins"] == [[0, 1, 0.2, 0.3, 0.4]]
    assert latency_of(profile_of([KNOWN], STEPS[:1])) is None


def test_a_moment_in_two_phases_counts_for_the_first() -> None:
    spans = [
        span_of("phase", "wait", 150, 280, step=1),
        span_of("phase", "forward", 110, 200, step=1),
        span_of("phase", "forward", 250, 400, step=2),  # begins before its iteration
        span_of("phase", "wait", 690, 900, step=2),
        span_of("phase", "forward", 0, 50, step=0),  # of the warm-up
        span_of("phase", "load", 120, 130, step=None),
        span_of("runtime", "call", 100, 300, step=1),
    ]
    profile = profile_of([KNOWN], STEPS, [], spans)
    assert phases_of(profile) == {
        1: {"forward": 90_000, "wait": 80_000},
        2: {"forward": 100_000, "wait": 10_000},
    }
    _, by_phase = breakdowns_of(profile)
    assert by_phase["buckets"] == ("forward", "wait", "Other")
    assert by_phase["bins"] == [[0, 0, 0.09, 0.08, 0.03], [1, 1, 0.1, 0.01, 0.29]]
    assert by_phase["means"] == [0.095, 0.045, 0.16]
    assert by_phase["shares"] == pytest.approx([100 * 190 / 600, 15, 100 * 320 / 600], abs=0.01)


def test_waiting_is_taken_from_the_phases_too() -> None:
    spans = [
        span_of("phase", "forward", 100, 190, step=1),
        span_of("phase", "wait", 190, 280, step=1),
    ]
    profile = profile_of(
        [KNOWN], STEPS[:2], [], spans, facts={"noise": (StepNoise(1, 60_000, ("queue delay",)),)}
    )
    what, by_phase = breakdowns_of(profile)
    assert by_phase["buckets"] == ("forward", "wait", "Waiting for a CPU", "Other")
    assert by_phase["means"] == pytest.approx([0.06, 0.06, 0.06, 0.02])
    assert by_phase["means"][2] == what["means"][what["buckets"].index("Waiting for a CPU")]


def test_without_a_timed_iteration_there_is_no_breakdown() -> None:
    assert breakdowns_of(profile_of([KNOWN], STEPS[:1])) == []
    (alone,) = breakdowns_of(profile_of([KNOWN], STEPS, [execution_of(0, 100, 150, step=1)]))
    assert alone["bins"] == [[0, 0, 0, 0.05, 0.15], [1, 1, 0, 0, 0.4]]


def test_the_roofline_leaves_out_what_is_not_known_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = [KNOWN, WITHOUT_BYTES, WITHOUT_FLOPS, IDLE, SECOND]
    executions = [
        execution_of(0, 100, 140, step=1),
        execution_of(0, 300, 320, step=2),
        *(execution_of(place, 150, 160, step=1) for place in (1, 2, 3)),
        execution_of(4, 400, 530, step=2, wait=20),
    ]
    peak = Peak(200e9, 20e9, 2)
    profile = profile_of(operators, STEPS, executions, facts={"peak": peak})
    found = roofline_of(profile)
    # By time: 110 us of 200, then 60.
    assert found["points"] == [
        ["second", "Conv", 2, pytest.approx(3e6 / 110e-6 / 1e9, rel=1e-3), 55],
        ["conv", "Conv", 2, 100, 30],
    ]
    assert found["left_out"] == 3
    assert found["peak"] == {"gflops": 200, "gbytes": 20, "threads": 2}
    monkeypatch.setattr(series, "MOST_SAMPLES", 1)
    assert roofline_of(profile)["left_out"] == 4
    assert roofline_of(profile_of(operators))["peak"] is None


def test_memory_has_a_curve_for_each_thing_that_is_known() -> None:
    allocations = (Allocation(3_000_000_000, -(1 << 20)), Allocation(1_000_000_000, 3 << 20))
    counters = (CounterSample("rss", 500_000_000, 5 << 20), CounterSample("cpu", 10**9, 150.0))
    profile = profile_of([KNOWN], STEPS, allocations=allocations, counters=counters)
    found = {curve["title"]: curve for curve in memory_curves(profile)}
    assert [curve["points"] for curve in found.values()] == [
        [[1, 3], [3, 2]],
        [[0.5, 5]],
        [[1, 150]],
    ]
    assert [curve["step"] for curve in found.values()] == [True, False, False]
    assert memory_curves(profile_of([KNOWN], STEPS)) == []


def test_tensors_at_the_peak_have_the_names_of_the_model() -> None:
    """Two of one size are held, of which the second is given back first: the one that is read."""

    def operator(name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> ProfiledOperator:
        return operator_of(name, "Conv", reads=reads, writes=writes, names={"b_nchwc": "b"})

    operators = [
        operator("first", ("input",), ("a", "b_nchwc")),
        operator("second", ("b_nchwc",), ("c",)),
        operator("third", ("a", "c"), ("d",)),
    ]

    def taken(at_us: int, mebibytes: int, operator: int) -> Allocation:
        return Allocation(at_us * 1000, mebibytes << 20, operator, source="estimate")

    allocations = (
        *(taken(110, 2, 0), taken(110, 2, 0)),
        *(taken(120, 1, 1), taken(130, -2, 1)),  # b
        *(taken(140, 4, 2), taken(150, -2, 2), taken(150, -1, 2), taken(190, -4, 2)),
    )
    profile = profile_of(operators, STEPS, allocations=allocations)
    peak = allocated_peak(profile)
    assert peak is not None
    assert (peak.at, peak.total_mib) == (140e-6, 7)
    assert [(it.name, it.size_bytes >> 20, it.writer) for it in peak.tensors] == [
        ("d", 4, "third"),
        ("a", 2, "first"),
        ("c", 1, "second"),
    ]
    before = profile_of(operators, STEPS, allocations=allocations[:3])
    names = [it.name for it in (allocated_peak(before) or peak).tensors]
    assert names == ["a", "b", "c"]
    warm = profile_of(operators, STEPS[:1], allocations=allocations[:0])
    assert allocated_peak(warm) is None


def test_chunks_of_the_plan_that_share_memory_count_once() -> None:
    mebibyte = 1 << 20

    def chunk(first: int | None, last: int | None, start: int, end: int) -> MemoryChunk:
        return MemoryChunk(
            address=start * mebibyte,
            size_bytes=(end - start) * mebibyte,
            first_operator=first,
            last_operator=last,
        )

    plan = MemoryPlan(
        chunks=(chunk(0, 1, 0, 4), chunk(1, 2, 2, 6), chunk(2, 2, 8, 9), chunk(None, 2, 0, 99))
    )
    (curve,) = memory_curves(profile_of([KNOWN], STEPS, memory_plan=plan))
    assert curve["points"] == [[0, 4], [1, 6], [2, 5], [3, 0]]


def test_of_too_many_samples_the_greatest_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_SAMPLES", 2)
    values = (5, 9, 1, 3, 7)
    counters = tuple(CounterSample("cpu", at * 10**9, value) for at, value in enumerate(values))
    (curve,) = memory_curves(profile_of([KNOWN], STEPS, counters=counters))
    assert curve["points"] == [[1, 9], [4, 7]]


def test_the_throughput_is_that_of_all_copies() -> None:
    steps = [Step(0, 0, 200_000), Step(1, 0, 100_000, copy=1), Step(2, 100_000, 200_000, copy=1)]
    cards = dict(cards_of(profile_of([KNOWN], steps, [execution_of(0, 1, 2)])))
    assert cards["throughput"] == "15,000.0 iterations/s"


@pytest.mark.parametrize(
    ("batch", "throughput"),
    [(None, "3,333.3 iterations/s"), (1, "3,333.3 samples/s"), (8, "26,666.7 samples/s")],
)
def test_the_throughput_counts_the_samples_of_a_batch(batch: int | None, throughput: str) -> None:
    facts = {"batch": batch, "peak_memory_bytes": 3 << 20}
    cards = dict(cards_of(profile_of([KNOWN], STEPS, [execution_of(0, 1, 2)], facts=facts)))
    assert cards["throughput"] == throughput
    assert cards["median iteration"] == "0.300 ms"
    assert cards["standard deviation"] == "0.141 ms"
    assert cards["operators executed"] == "1"
    assert cards["peak memory"] == "3.0 MiB"
