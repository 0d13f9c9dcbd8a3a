"""The trace for other programs: slices that nest, arrows, layers, names, counters, memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lar
from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.export import HOST as HOST_PROCESS
from lar.profiles.export import export_chrome, export_tensorboard
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, CounterSample, Profile
from lar.reports.styles import EXPORTS
from tests.conftest import WriteScript
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import TYPES, operator_of, profile_of_times
from tests.profiles.timelines import STREAM, WORKER, execution_of, profile_of, span_of, step_of
from tests.reports.golden_files import check_golden

TIMES = {"conv1": 300, "conv2": 500, "relu": 7}
Export = Callable[[Profile], Iterator[bytes]]
each_export = pytest.mark.parametrize("export", [export_chrome, export_tensorboard])
CONV = operator_of("conv", "Convolution", flops=2_000, size_bytes=512, algorithm="winograd")


def timed_run(**fields: Any) -> Profile:
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def events_of(profile: Profile, phase: str, export: Export = export_chrome) -> list[dict[str, Any]]:
    events = json.loads(b"".join(export(profile)))["traceEvents"]
    return [event for event in events if event["ph"] == phase]


def thread_names(profile: Profile) -> dict[int, str]:
    names = (event for event in events_of(profile, "M") if event["name"] == "thread_name")
    return {event["tid"]: event["args"]["name"] for event in names}


def test_all_that_was_recorded_is_there_with_its_times() -> None:
    slices = events_of(timed_run(dispatch_us=5), "X")
    steps = [each for each in slices if each["cat"] == "user_annotation"]
    assert [(each["name"], each["ts"], each["dur"]) for each in steps] == [
        ("Warmup#0", 1000, 1000),
        ("ProfilerStep#0", 2000.001, 999.999),
        ("ProfilerStep#1", 3000.001, 999.999),
    ]
    assert [each["args"]["warmup"] for each in steps] == [True, False, False]
    categories = [each["cat"] for each in slices]
    assert {it: categories.count(it) for it in categories} == {
        "user_annotation": 3,
        "cpu_op": 9,
        "dispatch": 9,
        "phase": 6,
        "engine_api": 6,
    }


@each_export
def test_traces_are_the_golden_ones(export: Export) -> None:
    check_golden(f"{export.__name__}.json", b"".join(export(profile_of_layers(1, 2))).decode())


def test_for_tensorboard_operators_have_their_types_and_the_warm_up_is_left_out() -> None:
    slices = events_of(timed_run(), "X", export_tensorboard)
    names = [each["name"] for each in slices if each["cat"] == "user_annotation"]
    assert names == ["ProfilerStep#0", "ProfilerStep#1"]
    operators = [each for each in slices if each["cat"] == "cpu_op"]
    assert [each["name"] for each in operators] == ["Convolution", "Convolution", "Elemwise"] * 2
    assert [each["args"]["name"] for each in operators] == [*TYPES] * 2
    with pytest.raises(UsageError, match="no timed operators"):
        export_tensorboard(profile_of_times(TYPES, [TIMES], step_us=1000, warmup=1))


def test_an_operator_carries_what_is_known_of_it() -> None:
    profile = profile_of([CONV], [step_of(0, 0, 100)], [execution_of(0, 5, 20.125, wait=2)])
    (own,) = (each for each in events_of(profile, "X") if each["cat"] == "cpu_op")
    assert (own["name"], own["ts"], own["dur"]) == ("conv", 5, 15.125)
    assert own["args"] == {
        "External id": 1,
        "step": 0,
        "name": "conv",
        "type": "Convolution",
        "Input Dims": [[1, 4, 4, 4]],
        "Input type": ["float32"],
        "outputs": ["float32[1, 4, 4, 4]"],
        "flops": 2000,
        "bytes": 512,
        "algorithm": "winograd",
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
    assert events_of(timed_run(), "s") == []  # without dispatches


def slice_at(slices: list[dict[str, Any]], event: dict[str, Any], category: str) -> Any:
    """The slice that a viewer binds an arrow's end to."""
    (found,) = (
        each
        for each in slices
        if (each["pid"], each["tid"], each["cat"]) == (event["pid"], event["tid"], category)
        and each["ts"] <= event["ts"] < each["ts"] + each["dur"]
    )
    return found


intervals = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30)), max_size=8)


@given(operators=intervals, dispatches=intervals, calls=intervals)
def test_slices_of_a_track_nest_and_no_two_begin_or_end_at_once(
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
                assert b < c or d < a or (a < c and d < b) or (c < a and b < d)
    recorded = sorted(start for start, _ in [*operators, *dispatches, *dispatches, *calls])
    drawn = sorted(each["ts"] for each in slices if each["cat"] != "user_annotation")
    assert drawn == pytest.approx(recorded, abs=0.1)


def edges(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def test_tracks_beside_a_thread_have_its_name() -> None:
    executions = [execution_of(0, 0, 50), execution_of(0, 25, 75), execution_of(0, 30, 80)]
    profile = profile_of([CONV], [step_of(0, 0, 100)], executions)
    names = thread_names(profile)
    assert sorted(names.values()) == ["host", "host (2)", "host (3)"]
    assert {event["tid"] for event in events_of(profile, "X")} == names.keys()


@each_export
def test_a_device_is_a_process_of_its_own(export: Export) -> None:
    spans = [
        span_of("kernel", "gemm", 20, 30, operator=0, device="cuda1", stream=STREAM, thread=STREAM),
        span_of("kernel", "nobody's", 31, 32, device="cuda1", thread=STREAM),
        span_of("memcpy", "HtoH", 0, 5),
        span_of("runtime", "synchronise", 60, 80),
    ]
    executed = execution_of(0, 10, 60, thread=STREAM, dispatch=(5, 9))
    profile = profile_of([CONV], [step_of(0, 0, 100)], [executed], spans, device="cuda1")
    processes = {
        event["pid"]: event["args"]["name"]
        for event in events_of(profile, "M", export)
        if event["name"] == "process_name"
    }
    assert processes == {HOST_PROCESS: "lar", 1: "GPU 1"}
    slices = events_of(profile, "X", export)
    places = {each["name"]: (each["pid"], each["tid"], each["cat"]) for each in slices}
    assert places["gemm"] == (1, STREAM, "kernel")
    assert places["HtoH"][::2] == (HOST_PROCESS, "host_copy")
    assert places["synchronise"][2] == "runtime"
    # Kernels belong to the operator that a call of the runtime with their number was made by.
    ids = {each["name"]: each["args"] for each in slices}
    (own,) = (each for each in slices if each["cat"] == "cpu_op")
    assert own["args"]["External id"] == ids["launch"]["External id"]
    assert ids["launch"]["correlation"] == ids["gemm"]["correlation"]
    assert ids["launch"]["correlation"] != ids["nobody's"]["correlation"]
    assert ids["nobody's"]["External id"] == 0


@each_export
def test_on_a_cpu_nothing_is_called_a_kernel_or_a_call_of_the_runtime(export: Export) -> None:
    slices = events_of(timed_run(dispatch_us=5), "X", export)
    assert {event["pid"] for event in slices} == {HOST_PROCESS}
    assert not {each["cat"] for each in slices} & {"kernel", "runtime", "memcpy", "memset"}


@each_export
def test_iterations_stand_on_the_thread_that_computes(export: Export) -> None:
    slices = events_of(timed_run(dispatch_us=5), "X", export)
    assert {each["tid"] for each in slices if each["name"].startswith("Profiler")} == {WORKER}


def test_layers_lie_around_operators_that_follow_one_another() -> None:
    modules = ["a.b", "a.b", "a.c", "", "a/c", "d"]
    operators = [operator_of(f"op{at}", "Op", module=it) for at, it in enumerate(modules)]
    executions = [execution_of(at, 10 * at, 10 * at + 9) for at in range(len(modules))]
    executions.insert(3, execution_of(5, 22, 24))  # within a.c's
    profile = profile_of(operators, [step_of(0, 0, 100)], executions)
    found = [each for each in events_of(profile, "X") if each["cat"] == "python_function"]
    names = {each["args"]["Python id"]: each["name"] for each in found}
    parents = [names.get(each["args"]["Python parent id"]) for each in found]
    times = [(round(each["ts"]), round(each["dur"])) for each in found]
    assert [each["name"] for each in found] == ["a", "b", "c", "a", "c", "d"]
    assert parents == [None, "a", "a", None, "a", None]
    assert times == [(0, 29), (0, 19), (20, 9), (40, 9), (40, 9), (50, 9)]
    assert [each["args"]["Python module id"] for each in found] == [0, 1, 2, 0, 2, 3]


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


MIXED = [operator_of("a", "A"), operator_of("b", "B")]


def test_an_allocation_lies_within_its_operator() -> None:
    """What one gives back when it ends would be the next one's, which begins then."""
    executions = [execution_of(0, 0, 10), execution_of(1, 10, 10), execution_of(0, 10, 20)]
    allocations = (
        Allocation(0, 64, 0, 1),
        Allocation(10_000, -64, 0, 1),
        Allocation(10_000, 32, 1, 2),
        Allocation(10_000, -32, 1, 2),
        Allocation(20_000, -8, None),
    )
    profile = profile_of(MIXED, [step_of(0, 0, 30)], executions, allocations=allocations)
    first, short, _ = (each for each in events_of(profile, "X") if each["cat"] == "cpu_op")
    memory = events_of(profile, "i")
    owners = [first, first, short, short]
    for event, owner in zip(memory, owners, strict=False):
        begin, end = edges(owner)
        assert begin <= event["ts"] < end
        assert event["tid"] == owner["tid"]
    assert [event["args"]["Addr"] for event in memory] == [1, 1, 2, 2, -5]
    assert [event["args"]["Total Allocated"] for event in memory] == [64, 0, 32, 0, -8]


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
    )
    events = json.loads(b"".join(export_chrome(profile)))["traceEvents"]
    found = {(event["name"], event["ph"]): event["ts"] for event in events if "ts" in event}
    assert found == {
        ("outer", "X"): 0,
        ("ProfilerStep#0", "X"): 600,
        ("conv", "X"): 605,
        ("dispatch conv", "X"): 597,
        ("dispatch", "s"): 597,
        ("dispatch", "f"): 605,
        ("rss", "C"): 599,
    }


def test_ranges_of_the_program_are_there_where_something_was_timed() -> None:
    """The steps are at 1000, which is the warm-up, 2000 and 3000 us."""
    ranges = [
        span_of("user_annotation", name, start, end, step=None, thread=0)
        for name, start, end in (
            ("around", -50, 9000),
            ("within", 2100, 2200),
            ("of the warm-up", 900, 1500),
            ("after", 4000, 4100),
        )
    ]
    run = timed_run()
    slices = events_of(replace(run, spans=(*run.spans, *ranges)), "X", export_tensorboard)
    found = {each["name"] for each in slices if each["cat"] == "user_annotation"}
    assert found == {"ProfilerStep#0", "ProfilerStep#1", "around", "within"}


def test_a_profile_that_has_lost_its_iterations_has_a_trace() -> None:
    slices = events_of(replace(timed_run(), steps=()), "X", export_tensorboard)
    assert len([each for each in slices if each["cat"] == "cpu_op"]) == 6


@pytest.mark.parametrize("export", ["perfetto", "tensorboard"])
def test_a_range_around_a_run_is_in_its_traces(
    write_script: WriteScript, tmp_path: Path, export: str
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


@pytest.mark.parametrize("name", EXPORTS)
def test_the_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "profile.json", tmp_path / "trace.json"
    write_profile(timed_run(dispatch_us=5), source)
    assert main(["report", str(source), "--export", name, "-o", str(target)]) == 0
    assert target.read_bytes() == b"".join(EXPORTS[name][0](timed_run(dispatch_us=5)))
    capsys.readouterr()
    assert main(["report", str(source), "--export", name]) == 2
    assert "add -o FILE" in capsys.readouterr().err


def test_the_help_names_the_exports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, (_, what) in EXPORTS.items():
        assert f"{name}: {what}" in text
