"""The style tensorboard: what TensorBoard's own plugin makes of lar's trace."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.records.profile import Allocation, Execution, Profile
from lar.reports.styles import STYLES
from lar.reports.styles.tensorboard import build
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import STREAM, execution_of, profile_of, span_of, step_of
from tests.refusals import refused
from tests.reports.conftest import Report

needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("torch_tb_profiler") is None, reason="the plugin is not installed"
)
TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
RUN = profile_of_times(
    TYPES, [{"conv1": 300, "conv2": 500, "relu": 7}] * 3, step_us=1000, warmup=1, dispatch_us=5
)
STYLE = ("--style", "tensorboard")
DOCUMENT = Path(__file__).parents[2] / "data" / "tensorboard_views.jsonl"


def view_of(profile: Profile, view: str, **options: Any) -> Any:
    return build(profile, {"view": [view], **options}).document[view]


def rows_of(profile: Profile, **options: Any) -> dict[str, dict[str, Any]]:
    _, table = view_of(profile, "operator", **options)
    return {row["name"]: row for row in table["data"]}


def device_run() -> Profile:
    """Kernels by name on a stream, a copy, and calls of the runtime beside dispatches."""
    executions, spans = [], []
    for step in (3, 4):
        at = step * 1000
        given: dict[str, Any] = {"step": step, "device": "cuda0", "thread": STREAM}
        executions += [
            execution_of(0, at + 60, at + 300, step=step, thread=STREAM, dispatch=(at, at + 50)),
            execution_of(
                1, at + 300, at + 400, step=step, thread=STREAM, dispatch=(at + 110, at + 120)
            ),
        ]
        spans += [
            span_of("kernel", "gemm", at + 60, at + 200, operator=0, **given),
            span_of("kernel", "gemm", at + 210, at + 300, operator=0, **given),
            span_of("memcpy", "HtoD", at + 300, at + 400, operator=1, **given),
            span_of("runtime", "synchronise", at + 500, at + 900, step=step),
            span_of("phase", "dataloader", at + 910, at + 960, step=step),
        ]
    return profile_of(
        [operator_of("conv", "Conv"), operator_of("copy", "Copy")],
        [step_of(3, 3000, 4000), step_of(4, 4000, 5000)],
        executions,
        spans,
        device="cuda0",
    )


@needs_plugin
def test_operators_take_as_long_as_recorded(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(RUN)
    assert {name: (row["calls"], row["host_self_duration"]) for name, row in rows.items()} == {
        "Convolution": (4, 1600),
        "Elemwise": (2, 14),
    }
    assert caplog.text == ""  # it drops what overlaps, and says so


@needs_plugin
def test_operators_that_nest_have_the_rest_of_their_time_to_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executions = [
        execution_of(0, 0, 100),
        *(execution_of(1, 10 * at, 10 * at + 8) for at in range(1, 6)),
        execution_of(2, 100, 100),
    ]
    operators = [operator_of(name, name) for name in ("Loop", "MatMul", "Identity")]
    rows = rows_of(profile_of(operators, [step_of(0, 0, 110)], executions))
    assert {name: (row["calls"], row["host_self_duration"]) for name, row in rows.items()} == {
        "Loop": (1, 60),
        "MatMul": (5, 40),
        "Identity": (1, 0),
    }
    assert rows["Loop"]["host_total_duration"] == 100
    assert caplog.text == ""


@needs_plugin
def test_a_step_is_cut_into_buckets() -> None:
    overview = view_of(device_run(), "overview")
    (step,) = overview["performance"]
    assert {each["name"]: each["value"] for each in step["children"]} == {
        **{"Kernel": 230, "Memcpy": 100, "Memset": 0, "Runtime": 400},
        **{"DataLoader": 50, "CPU Exec": 50, "Other": 170},
    }
    assert step["value"] == 1000
    assert overview["environments"][1] == {"title": "Device Type", "value": "GPU"}
    (step,) = view_of(RUN, "overview")["performance"]
    assert [(it["name"], it["value"]) for it in step["children"]] == [
        *(("DataLoader", 0), ("CPU Exec", 807), ("Other", 193)),
    ]


@needs_plugin
def test_kernels_belong_to_their_operators() -> None:
    times = {name: row["device_self_duration"] for name, row in rows_of(device_run()).items()}
    assert times == {"Conv": 460, "Copy": 200}
    table, pie = view_of(device_run(), "kernel")
    assert [row[0] for row in table["data"]["rows"]] == ["gemm"]
    assert table["data"]["rows"][0][2:] == [4, 460, 115, 140, 90]
    assert pie["total"]["rows"] == [["gemm", pytest.approx(460, abs=0.1)]]
    assert view_of(RUN, "kernel") == [None, None]
    assert view_of(device_run(), "trace")["traceEvents"]


@needs_plugin
def test_operators_by_input_shape() -> None:
    profile = profile_of_layers()
    _, table = view_of(profile, "operator", group_by="input_shape")
    shapes = Counter(
        (operator.type, str([list(fact.shape) for fact in operator.inputs]))
        for operator in (profile.operators[it.operator] for it in profile.timed_executions)
    )
    assert {(row["name"], row["input_shape"]): row["calls"] for row in table["data"]} == shapes


@needs_plugin
def test_layers_are_a_tree() -> None:
    operators = [operator_of(f"op{at}", "Op", module=f"net.{'ab'[at // 2]}") for at in range(4)]
    executions = [
        execution_of(at, 100 * step + 10 * at, 100 * step + 10 * at + 10, step=step)
        for step in range(2)
        for at in range(4)
    ]
    profile = profile_of(operators, [step_of(0, 0, 90), step_of(1, 100, 190)], executions)
    (net,) = view_of(profile, "module")["data"]
    assert (net["name"], net["occurences"], round(net["host_duration"])) == ("net", 2, 80)
    assert [
        (each["name"], each["operators"], round(each["host_duration"])) for each in net["children"]
    ] == [("a", 4, 40), ("b", 4, 40)]
    assert view_of(RUN, "module") is None


def memory_run(device: str) -> Profile:
    """Operators one right after the other, some of which last no time: each takes memory when it
    begins, and the next one gives it back when it ends. The first iteration is the warm-up."""
    steps, executions, allocations = [], [], []
    for number in (-1, 0, 1):
        start = at = 10_000 * (number + 2)
        for operator in range(9):
            end = at + (0, 1000, 2000)[operator % 3]
            own = Execution(operator, number, STREAM, at, end, warmup=number < 0)
            if device != "cpu":
                begin = start + 300 * operator
                own = msgspec.structs.replace(
                    own, dispatch_start_ns=begin, dispatch_end_ns=begin + 300, dispatch_thread=1
                )
            executions.append(own)
            place = 100 + operator
            allocations.append(Allocation(at, 1024, operator, place, device))
            if operator:
                allocations.append(Allocation(end, -1024, operator, place - 1, device))
            at = end
        allocations.append(Allocation(at, -1024, 8, 108, device))
        steps.append(step_of(number, start / 1000, at / 1000, number < 0))
    operators = [operator_of(f"op{at}", f"Type{at % 4}") for at in range(9)]
    profile = profile_of(operators, steps, executions, device=device)
    return replace(profile, allocations=tuple(allocations))


@needs_plugin
@pytest.mark.parametrize("device", ["cpu", "cuda0"])
def test_memory_is_its_operators_and_has_a_duration(device: str) -> None:
    statistics, curve, events = view_of(memory_run(device), "memory")
    title = "CPU" if device == "cpu" else "GPU0"
    taken = {row[0]: row[4] for row in statistics["rows"][title]}
    assert taken == {"Type0": 6, "Type1": 4, "Type2": 4, "Type3": 4}
    assert {row[0] for row in events["rows"][title]} == set(taken)
    assert len(events["rows"][title]) == 18
    assert all(row[2] is not None and row[4] is not None for row in events["rows"][title])
    assert curve["metadata"]["peaks"] == {title: "Peak Memory Usage: 2.0KB"}
    assert view_of(RUN, "memory") == [None, None, None]


@needs_plugin
def test_the_diff_has_the_operators_of_both() -> None:
    slower = [{"conv1": 300, "conv2": 700, "relu": 7}] * 2
    other = profile_of_times({**TYPES, "relu": "Relu"}, slower, step_us=1100)
    report = build(other, {}, RUN)
    sides = [report.document["diff"][side]["aggs"] for side in ("left", "right")]
    assert [
        {each["name"]: (each["calls"], round(each["host_duration"])) for each in side}
        for side in sides
    ] == [
        {"Convolution": (4, 1600), "Elemwise": (2, 14)},
        {"Convolution": (4, 2000), "Relu": (2, 14)},
    ]
    assert json.loads(report.text) == report.document["diff"]
    refused("two profiles allow only --view diff", build, other, {"view": ["overview"]}, RUN)


@needs_plugin
def test_its_lines_are_the_answers_of_the_document() -> None:
    theirs = [json.loads(line) for line in DOCUMENT.read_text().splitlines()]
    views = ["overview", "operator", "kernel"]
    ours = [*map(json.loads, build(device_run(), {"view": views}).text.splitlines())]
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        assert {*own} == {key.replace("mlu", "gpu") for key in other}
    assert [*ours[2]["data"][0]] == [*theirs[2]["data"][0]]
    assert ours[0]["steps"]["columns"] == theirs[0]["steps"]["columns"]
    assert ours[3]["data"]["columns"][2:] == theirs[3]["data"]["columns"][2:]


@needs_plugin
def test_the_command(report: Report) -> None:
    (line,) = report([RUN], *STYLE).splitlines()
    assert json.loads(line) == view_of(RUN, "overview")
    views = report([RUN], *STYLE, "--view", "operator", "--view", "module", "--json", "-")
    assert json.loads(views).keys() == {"operator", "module"}
    said = report([RUN], *STYLE, "--csv", "-", code=2)
    assert "--csv: the style tensorboard has no tables" in said


def test_without_the_plugin_one_line_says_what_to_install(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_tb_profiler.profiler.loader", None)
    assert "hint: pip install 'lar[tensorboard]'" in report([RUN], *STYLE, code=3)
    report([RUN], "--export", "tensorboard", "-o", str(tmp_path / "host_1.pt.trace.json"))
    assert STYLES["tensorboard"].profiles == (1, 2)
