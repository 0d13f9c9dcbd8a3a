"""Calls: what is within what, what a call takes itself, what a device did for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lar.profiles.calls import Call, Kind, calls_of
from lar.records.profile import Allocation, Correction, Profile
from tests.profiles.synthetic import HOST, TYPES, WORKER, changed, profile_of_times, small_profile
from tests.profiles.timelines import span_of


def with_range(
    profile: Profile, name: str, start_us: float, end_us: float, **fields: Any
) -> Profile:
    mark = span_of("user_annotation", name, start_us, end_us, **fields)
    return replace(profile, spans=(*profile.spans, mark))


def times_of(profile: Profile, name: str, kind: Kind | None = None) -> dict[str, float | None]:
    """Return the sums of the calls of a name in microseconds."""
    calls = [it for it in calls_of(profile) if it.name == name and kind in (None, it.kind)]
    assert calls
    return {
        field: sum(getattr(it, field) for it in calls) / 1000
        for field in ("cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns")
        if all(getattr(it, field) is not None for it in calls)
    }


def cpu_of(profile: Profile, name: str) -> tuple[float | None, float | None]:
    """Return how long calls of a name took, and how long themselves, in microseconds."""
    times = times_of(profile, name)
    return times.get("cpu_ns"), times.get("self_cpu_ns")


def test_a_call_is_within_the_one_around_it() -> None:
    """The engine's `forward` is 30 us of dispatches and 0 besides."""
    profile = small_profile(dispatch_us=10)
    assert cpu_of(profile, "LITE_forward") == (60, 0)
    # Its dispatch, which has begun before it ran, and its execution.
    assert cpu_of(profile, "Elemwise") == (34, 34)
    assert cpu_of(small_profile(warmup=1), "Elemwise") == (7, 7)


def test_a_call_that_waits_is_no_work_of_the_cpu_but_what_is_computed_within() -> None:
    profile = small_profile(dispatch_us=10)
    assert cpu_of(profile, "LITE_wait") == (0, 0)
    executions = changed(profile.executions, thread=HOST, dispatch_start_ns=None)
    assert cpu_of(replace(profile, executions=executions), "LITE_wait") == (1014, 0)


def test_what_an_operator_waits_is_not_its_time() -> None:
    profile = small_profile(dispatch_us=0)
    executions = (
        msgspec.structs.replace(it, wait_ns=it.duration_ns // 2) for it in profile.executions
    )
    assert cpu_of(replace(profile, executions=tuple(executions)), "Convolution") == (800, 800)


def test_a_range_has_what_is_within_on_its_thread() -> None:
    assert cpu_of(with_range(small_profile(), "head", 1000, 1400), "head") == (400, 100)
    elsewhere = with_range(small_profile(), "head", 1000, 1400, thread=WORKER)
    assert cpu_of(elsewhere, "head") == (400, 400)


def test_a_range_around_the_run_counts_in_timed_iterations_alone() -> None:
    outer = {"thread": 0, "step": None}
    profile = with_range(small_profile(), "all", 0, 60_000_000, **outer)
    profile = with_range(profile, "before", 0, 10, **outer)
    assert cpu_of(profile, "all") == (2000, 0)  # calls of the engine fill the iterations
    assert all(call.name != "before" for call in calls_of(profile))


def test_what_profiling_cost_is_no_part_of_the_engines_calls() -> None:
    profile = small_profile()
    _, before = cpu_of(profile, "LITE_forward")
    whole = sum(call.self_cpu_ns or 0 for call in calls_of(profile))
    fitted = replace(profile, correction=Correction(1.0, 1000))
    assert [*times_of(fitted, "Profiling").values()] == [2, 2, 0, 0]
    assert cpu_of(fitted, "LITE_forward")[1] == (before or 0) - 2
    assert sum(call.self_cpu_ns or 0 for call in calls_of(fitted)) == whole


def test_what_a_device_did_counts_for_the_calls_around() -> None:
    profile = small_profile(dispatch_us=10, device="cuda0")
    operators, kernels = (times_of(profile, "Convolution", kind) for kind in ("operator", "kernel"))
    assert operators == {"cpu_ns": 40, "self_cpu_ns": 40, "device_ns": 1600, "self_device_ns": 1600}
    assert kernels == {"cpu_ns": 0, "self_cpu_ns": 0, "device_ns": 1600, "self_device_ns": 1600}
    forward = times_of(profile, "LITE_forward")
    assert (forward["device_ns"], forward["self_device_ns"]) == (1614, 0)
    unknown = [it.cpu_ns for it in calls_of(small_profile(device="cuda0")) if it.kind == "operator"]
    assert unknown == [None] * 6  # no dispatch was recorded


def test_kernels_and_copies_that_a_device_reports_stand_alone() -> None:
    profile = small_profile(dispatch_us=10, device="cuda0")
    spans = (
        span_of("kernel", "gemm", 0, 1, device="cuda0"),
        span_of("memcpy", "copy", 0, 1, device="cuda0"),
        span_of("memcpy", "host", 0, 1, device="cpu"),
    )
    calls = calls_of(replace(profile, spans=(*profile.spans, *spans)))
    kernels = {it.name: it.memory for it in calls if it.kind == "kernel"}
    assert kernels == {"gemm": None, "copy": None}
    assert all(call.name not in ("copy", "host") for call in calls if call.kind != "kernel")


def test_a_range_on_a_stream_keeps_no_cpu_busy() -> None:
    profile = small_profile(dispatch_us=10, device="cuda0")
    times = times_of(with_range(profile, "head", 1000, 1400, thread=WORKER), "head")
    assert times == {"cpu_ns": 0, "self_cpu_ns": 0, "device_ns": 400, "self_device_ns": 400}


class TestMemory:
    def memory_of(self, profile: Profile, name: str) -> list[tuple[int | None, int | None]]:
        """Return what each call of a name took of the host or a device, and itself."""

        def size(call: Call, field: str) -> int | None:
            memory = getattr(call, field)
            return None if memory is None else sum(memory)

        calls = (call for call in calls_of(profile) if call.name == name)
        return [(size(call, "memory"), size(call, "self_memory")) for call in calls]

    def test_it_is_that_of_the_operators(self) -> None:
        allocations = (
            Allocation(999_999, 7, 0),
            Allocation(1_001_000, 2048, 0),
            Allocation(2_000_000, -1024, 0),
            Allocation(1_500_000, 300, 2),
            Allocation(2_000_000, 100, 1),
        )
        profile = with_range(replace(small_profile(), allocations=allocations), "head", 1000, 1400)
        assert self.memory_of(profile, "Convolution") == [(1024, 1024), (0, 0), (0, 0), (100, 100)]
        assert self.memory_of(profile, "head") == [(1024, None)]

    def test_that_of_an_iteration_that_reports_none_is_not_known(self) -> None:
        known, unknown = Allocation(1_001_000, 2048, 0), Allocation(2_500_000, 5)
        profile = replace(small_profile(), allocations=(known, unknown))
        assert self.memory_of(profile, "Elemwise") == [(0, 0), (None, None)]

    def test_an_operator_that_takes_no_time_is_within_no_other(self) -> None:
        """It has the same begin as the one after it, where the clock is coarse."""
        profile = profile_of_times(TYPES, [{"conv1": 0, "conv2": 9, "relu": 7}], step_us=1000)
        *outer, relu = profile.executions
        inner = msgspec.structs.replace(relu, start_ns=outer[1].start_ns, end_ns=outer[1].end_ns)
        memory = Allocation(1_002_000, 7, 0), Allocation(1_003_000, 2048, 2)
        profile = replace(profile, executions=(*outer, inner), allocations=memory)
        assert self.memory_of(profile, "Convolution") == [(7, 7), (2048, 0)]
        assert self.memory_of(profile, "Elemwise") == [(2048, 2048)]


@given(
    times=st.lists(
        st.fixed_dictionaries({name: st.integers(0, 300) for name in TYPES}), min_size=1, max_size=4
    ),
    dispatch=st.one_of(st.none(), st.integers(0, 50)),
    ranges=st.lists(
        st.tuples(st.integers(900, 3000), st.integers(0, 900), st.sampled_from([HOST, WORKER])),
        max_size=5,
    ),
    device=st.sampled_from(["cpu", "cuda0"]),
)
def test_a_part_is_no_more_than_the_whole(
    times: list[dict[str, int]],
    dispatch: int | None,
    ranges: list[tuple[int, int, int]],
    device: str,
) -> None:
    profile = profile_of_times(TYPES, times, step_us=1000, dispatch_us=dispatch, device=device)
    for start, length, thread in ranges:
        profile = with_range(profile, "range", start, start + length, thread=thread)
    for call in calls_of(profile):
        if call.cpu_ns is not None and call.self_cpu_ns is not None:
            assert 0 <= call.self_cpu_ns <= call.cpu_ns
        assert call.self_device_ns <= call.device_ns
    if device == "cpu" and not ranges:
        busy = sum(call.self_cpu_ns or 0 for call in calls_of(profile) if call.kind == "operator")
        assert busy == sum(profile.host_times_ns)
