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
from msgspec.structs import replace as replaced

import lar
from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.export import export_chrome, export_tensorboard
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, CounterSample, MemoryPlan, Profile
from lar.reports.styles import EXPORTS
from tests.conftest import WriteScript
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import TYPES, operator_of, profile_of_times
from tests.profiles.test_every_report import on_device
from tests.profiles.timelines import WORKER, execution_of, profile_of, span_of, step_of
from tests.reports.golden_files import check_golden

TIMES = {"conv1": 300, "conv2": 500, "relu": 7}
Export = Callable[[Profile], Iterator[bytes]]
CONV = operator_of("conv", "Convolution", flops=2_000, size_bytes=512, algorithm="winograd")


def timed_run(**fields: Any) -> Profile:
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def events_of(profile: Profile, phase: str, export: Export = export_chrome) -> list[dict[str, Any]]:
    events = json.loads(b"".join(export(profile)))["traceEvents"]
    return [event for event in events if event["ph"] == phase]


def profile_of_device() -> Profile:
    """A profile of a device with copies, calls, the loading of data and memory on the device."""
    made = on_device(profile_of_layers(1, 2), has_kernels=True)
    first, *others = made.operators
    loading = span_of("phase", "dataloader", 1000, 1030)
    waiting = span_of("runtime", "synchronise", 1700, 1710, operator=1)
    filling = span_of("memset", "[CUDA memset]", 1720, 1725, device="cuda0", thread=WORKER)
    return replace(
        made,
        operators=(replaced(first, module="", provider="CUDA"), *others),
        spans=(*made.spans, loading, waiting, filling),
        allocations=tuple(replaced(it, device="cuda1") for it in made.allocations),
        memory_plan=MemoryPlan(),
    )


def profile_in_layers() -> Profile:
    """A profile with layers in layers, and an operator within another one."""
    modules = ["a.b", "a.b", "a.c", "", "a/c", "d"]
    operators = [operator_of(f"op{at}", "Op", module=it) for at, it in enumerate(modules)]
    executions = [execution_of(at, 10 * at, 10 * at + 9) for at in range(len(modules))]
    executions[3:3] = [execution_of(5, 22, 24), execution_of(5, 40, 40)]  # the first within a.c's
    return profile_of(operators, [step_of(0, 0, 100)], executions)


def profile_before_zero() -> Profile:
    """A profile of a device without kernels; viewers would drop times before its clock's zero."""
    outer = span_of("user_annotation", "outer", -600, 200, thread=0, step=None)
    executed = execution_of(0, 5, 20, thread=WORKER, dispatch=(-3, 2))
    more: Any = {"counters": (CounterSample("rss", -1_000, 1e6),), "device": "cuda0"}
    return profile_of([CONV], [step_of(0, 0, 100)], [executed], [outer], **more)


MADE = {
    "": profile_of_layers(1, 2),
    "_device": profile_of_device(),
    "_layers": profile_in_layers(),
    "_early": profile_before_zero(),
}


@pytest.mark.parametrize("export", [export_chrome, export_tensorboard])
@pytest.mark.parametrize("kind", MADE)
def test_traces_are_the_golden_ones(export: Export, kind: str) -> None:
    check_golden(f"{export.__name__}{kind}.json", b"".join(export(MADE[kind])).decode())


def test_without_timed_operators_tensorboard_has_nothing_to_show() -> None:
    with pytest.raises(UsageError, match="no timed operators"):
        export_tensorboard(profile_of_times(TYPES, [TIMES], step_us=1000, warmup=1))


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
    recorded = [(a, a + length) for a, length in [*operators, *dispatches, *calls]]
    recorded += [(a, a) for a, _ in dispatches]
    drawn = [edges(each) for each in slices if each["cat"] != "user_annotation"]
    for ours, theirs in zip(zip(*drawn, strict=True), zip(*recorded, strict=True), strict=True):
        assert sorted(ours) == pytest.approx(sorted(theirs), abs=0.1)


def edges(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


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
    profile = profile_of([CONV, CONV], [step_of(0, 0, 30)], executions, allocations=allocations)
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


def test_ranges_of_the_program_are_there_where_something_was_timed() -> None:
    """The steps are at 1000, which is the warm-up, 2000 and 3000 us."""
    ranges = [
        span_of("user_annotation", name, start, end, step=None, thread=0)
        for name, start, end in (
            ("around", -50, 9000),
            ("within", 3100, 3200),
            ("of the warm-up", 900, 2000),
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
