"""The Chrome trace: slices that nest, arrows, names, counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lar
from lar.cli.main import main
from lar.profiles.activities import HostActivity
from lar.profiles.export import HOST as HOST_PROCESS
from lar.profiles.export import (
    are_within_steps,
    chrome_trace_of,
    export_chrome,
    utilization_of,
)
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, CounterSample, Profile, Step
from lar.reports.styles import EXPORTS
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import (
    HOST,
    STREAM,
    WORKER,
    execution_of,
    profile_of,
    span_of,
    step_of,
)

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
TIMES = {"conv1": 300, "conv2": 500, "relu": 7}
CONV = operator_of("conv", "Convolution", flops=2_000, size_bytes=512, algorithm="winograd")


def timed_run(**fields: Any) -> Profile:
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def events_of(profile: Profile, phase: str) -> list[dict[str, Any]]:
    return [event for event in chrome_trace_of(profile)["traceEvents"] if event["ph"] == phase]


def thread_names(profile: Profile) -> dict[int, str]:
    names = (event for event in events_of(profile, "M") if event["name"] == "thread_name")
    return {event["tid"]: event["args"]["name"] for event in names}


def test_all_that_was_recorded_is_there_with_its_times() -> None:
    profile = timed_run(dispatch_us=5)
    slices = events_of(profile, "X")
    steps = [each for each in slices if each["cat"] == "profiler_step"]
    assert [(each["name"], each["ts"], each["dur"]) for each in steps] == [
        ("Warmup#0", 1000, 1000),
        ("ProfilerStep#0", 2000, 1000),
        ("ProfilerStep#1", 3000, 1000),
    ]
    assert [each["args"]["warmup"] for each in steps] == [True, False, False]
    by_category: dict[str, int] = {}
    for each in slices:
        by_category[each["cat"]] = by_category.get(each["cat"], 0) + 1
    assert by_category == {
        "profiler_step": 3,
        "cpu_op": 9,
        "dispatch": 9,
        "phase": 6,
        "runtime": 6,
    }


def test_an_operator_carries_what_is_known_of_it() -> None:
    profile = profile_of([CONV], [step_of(0, 0, 100)], [execution_of(0, 5, 20.125, wait=2)])
    (own,) = (each for each in events_of(profile, "X") if each["cat"] == "cpu_op")
    assert (own["name"], own["ts"], own["dur"]) == ("conv", 5, 15.125)
    assert own["args"] == {
        "step": 0,
        "type": "Convolution",
        "inputs": ["float32[1, 4, 4, 4]"],
        "outputs": ["float32[1, 4, 4, 4]"],
        "flops": 2000,
        "bytes": 512,
        "algorithm": "winograd",
        "wait_us": 2,
    }


def test_arrows_lead_from_dispatches_to_executions() -> None:
    profile = timed_run(dispatch_us=5)
    slices = events_of(profile, "X")
    starts, ends = ({e["id"]: e for e in events_of(profile, phase)} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) == 9
    for number, start in starts.items():
        source = slice_at(slices, start, "dispatch")
        target = slice_at(slices, ends[number], "cpu_op")
        assert source["name"] == f"dispatch {target['name']}"
        assert source["args"]["step"] == target["args"]["step"]
        assert ends[number]["bp"] == "e"


def slice_at(slices: list[dict[str, Any]], event: dict[str, Any], category: str) -> Any:
    """The slice that a viewer binds an arrow's end to."""
    (found,) = (
        each
        for each in slices
        if (each["pid"], each["tid"], each["cat"]) == (event["pid"], event["tid"], category)
        and each["ts"] <= event["ts"] < each["ts"] + each["dur"]
    )
    return found


def test_without_dispatches_there_are_no_arrows() -> None:
    assert events_of(timed_run(), "s") == []


intervals = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30)), max_size=8)


@given(operators=intervals, dispatches=intervals, calls=intervals)
def test_slices_of_a_track_are_apart_or_one_contains_the_other(
    operators: Any, dispatches: Any, calls: Any
) -> None:
    executions = [execution_of(0, start, start + length) for start, length in operators]
    executions += [
        execution_of(0, a, a, thread=WORKER, dispatch=(a, a + length)) for a, length in dispatches
    ]
    spans = [span_of("runtime", "call", start, start + length) for start, length in calls]
    slices = events_of(profile_of([CONV], [step_of(0, 0, 100)], executions, spans), "X")
    assert len(slices) == 1 + len(executions) + len(dispatches) + len(calls)
    for index, one in enumerate(slices):
        for other in slices[:index]:
            if (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
                a, b, c, d = *edges(one), *edges(other)
                assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)


def edges(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def test_tracks_beside_a_thread_have_its_name() -> None:
    executions = [execution_of(0, 0, 50), execution_of(0, 25, 75), execution_of(0, 30, 80)]
    profile = profile_of([CONV], [step_of(0, 0, 100)], executions)
    names = thread_names(profile)
    assert sorted(names.values()) == ["host", "host (2)", "host (3)", "iterations"]
    used = {event["tid"] for event in events_of(profile, "X")}
    assert used == names.keys()


def test_a_device_is_a_process_of_its_own() -> None:
    spans = [
        span_of("kernel", "gemm", 20, 30, operator=0, device="cuda1", stream=STREAM),
        span_of("memcpy", "HtoH", 0, 5),
    ]
    executed = execution_of(0, 10, 60, thread=STREAM, dispatch=(5, 9))
    profile = profile_of([CONV], [step_of(0, 0, 100)], [executed], spans, device="cuda1")
    processes = {
        event["pid"]: event["args"]["name"]
        for event in events_of(profile, "M")
        if event["name"] == "process_name"
    }
    assert processes == {HOST_PROCESS: "host (lar)", 1: "GPU 1"}
    places = {event["name"]: (event["pid"], event["tid"]) for event in events_of(profile, "X")}
    assert places["gemm"] == places["conv"] == (1, STREAM)
    assert places["HtoH"] == places["dispatch conv"] == (HOST_PROCESS, HOST)


def test_a_cpu_has_no_process_of_a_device() -> None:
    assert {event["pid"] for event in events_of(timed_run(dispatch_us=5), "X")} == {HOST_PROCESS}
    assert b"Utilization" not in b"".join(export_chrome(timed_run()))


def test_counters_and_memory_in_use() -> None:
    profile = replace(
        timed_run(),
        counters=(CounterSample("rss", 1_500_000, 1e6), CounterSample("cpu", 2_000_000, 97.5)),
        allocations=(Allocation(1_000, 64), Allocation(2_000, 32), Allocation(3_000, -64)),
    )
    assert [(e["name"], e["ts"], e["args"]) for e in events_of(profile, "C")] == [
        ("rss", 1500, {"rss": 1e6}),
        ("cpu", 2000, {"cpu": 97.5}),
        ("memory cpu", 1, {"allocated": 64}),
        ("memory cpu", 2, {"allocated": 96}),
        ("memory cpu", 3, {"allocated": 32}),
    ]


def test_utilization_is_told_in_at_most_100_parts() -> None:
    executions = [execution_of(0, 0, 150), execution_of(0, 1500, 1999)]
    profile = profile_of([CONV], [step_of(0, 0, 2000)], executions, device="cuda0")
    parts = utilization_of(profile)
    assert len(parts) == 21  # of 100 us each, and the end
    assert parts[:3] == [(0, 1), (100_000, 0.5), (200_000, 0)]
    assert parts[-1] == (2_000_000, 0)
    busy = sum(share * 100_000 for _, share in parts)
    assert busy == pytest.approx(150_000 + 499_000)
    assert utilization_of(profile_of([CONV], [step_of(0, 0, 10)], device="cuda0")) == []


def test_utilization_is_a_counter_of_the_devices_process() -> None:
    executions = [execution_of(0, 0, 150)]
    profile = profile_of([CONV], [step_of(0, 0, 200)], executions, device="cuda1")
    events = [e for e in events_of(profile, "C") if "utilization" in e["args"]]
    assert [event["ts"] for event in events] == [at / 1000 for at, _ in utilization_of(profile)]
    assert {(event["name"], event["pid"], event["tid"]) for event in events} == {
        ("GPU 1 Utilization", 1, 0)
    }


def test_an_empty_profile_has_a_trace_too() -> None:
    assert json.loads(b"".join(export_chrome(Profile())))["traceEvents"]


def test_what_begins_before_the_clocks_zero_is_drawn_too() -> None:
    """Viewers drop events before 0."""
    outer = span_of("user_annotation", "outer", -600, 200, thread=0, step=None)
    executed = execution_of(0, 5, 20, thread=WORKER, dispatch=(-3, 2))
    profile = profile_of(
        [CONV],
        [step_of(0, 0, 100)],
        [executed],
        [outer],
        counters=(CounterSample("rss", -1_000, 1e6),),
        allocations=(Allocation(7_000, 64),),
    )
    events = chrome_trace_of(profile)["traceEvents"]
    found = {(event["name"], event["ph"]): event["ts"] for event in events if "ts" in event}
    assert found == {
        ("outer", "X"): 0,
        ("ProfilerStep#0", "X"): 600,
        ("conv", "X"): 605,
        ("dispatch conv", "X"): 597,
        ("dispatch", "s"): 597,
        ("dispatch", "f"): 605,
        ("rss", "C"): 599,
        ("memory cpu", "C"): 607,
    }


@pytest.mark.parametrize("export", ["perfetto", "tensorboard"])
def test_a_range_around_a_run_is_in_its_traces(
    write_script: Callable[..., str], tmp_path: Path, export: str
) -> None:
    profile, trace = tmp_path / "p.json", tmp_path / "trace.json"
    operators = [{"name": "fc", "type": "MatMul", "part": 0.5}]
    script = write_script(operators=operators, times=[[0.01, 0.001, None]], real_time=True)
    with lar.range("outer"):
        lar.run(script, iter=2, profile=str(profile))
    assert main(["report", str(profile), "--export", export, "-o", str(trace)]) == 0
    for path in (profile, trace):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] != "M"]
        (outer,) = (event for event in events if event["name"] == "outer")
        assert outer["ts"] == min(event["ts"] for event in events) == 0
        steps = [event for event in events if event["name"].startswith("ProfilerStep")]
        assert max(map(end_of, steps)) < end_of(outer)


def end_of(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


@pytest.mark.parametrize("name", ["chrome", "perfetto"])
def test_the_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "profile.json", tmp_path / "trace.json"
    write_profile(timed_run(dispatch_us=5), source)
    assert main(["report", str(source), "--export", name, "-o", str(target)]) == 0
    assert target.read_bytes() == b"".join(export_chrome(timed_run(dispatch_us=5)))
    capsys.readouterr()
    assert main(["report", str(source), "--export", name]) == 2
    assert "add -o FILE" in capsys.readouterr().err


def test_the_help_names_the_exports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, (_, what) in EXPORTS.items():
        assert f"{name}: {what}" in text


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "within"),
    [(5, 10, True), (10, 20, True), (9, 10, True), (9, 11, False), (15, 21, False), (25, 30, True)],
)
def test_an_activity_lies_across_a_step_from_one_nanosecond_on(
    start_ns: int, end_ns: int, within: bool
) -> None:
    activity = HostActivity("a", 0, 0, HOST, 0, start_ns, end_ns, 0, -1, False)
    assert are_within_steps([activity], [Step(0, 10, 20)]) == within
