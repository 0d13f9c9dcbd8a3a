"""The tensorboard style: its lines against the plugin's own, and what its views sum up."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.breakdown import breakdown_of
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, MemoryPlan, Profile
from lar.reports.csv import format_csv
from lar.reports.json import format_json
from lar.reports.styles import STYLES
from lar.reports.styles.tensorboard import LINES, VIEWS, build
from lar.reports.styles.tensorboard.operators import GROUPS, SORTS
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of
from tests.reports.styles import tensorboard_sample as sample

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
TIMES = {"conv1": 300, "conv2": 500, "relu": 7}


def small_profile(**fields: Any) -> Profile:
    """A warm-up and two timed iterations of three operators."""
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def views_of(profile: Profile, **options: Any) -> Any:
    return build(profile, options).document


def names_of(view: Any) -> list[str]:
    return [row["name"] for row in view["data"]]


def text_of(profile: Profile, *views: str) -> str:
    return build(profile, {"view": views}).text


# The layout, byte for byte.


def test_the_overview_is_the_samples() -> None:
    assert text_of(sample.profile_of_overview(), "overview") == sample.OVERVIEW + "\n"


def test_operator_table_and_pie_are_the_samples() -> None:
    lines = text_of(sample.profile_of_operators(), "operator_pie", "operator_table")
    assert lines.splitlines() == [sample.OPERATOR_PIE, sample.OPERATOR_TABLE]


def test_kernel_table_and_pie_are_the_samples() -> None:
    lines = text_of(sample.profile_of_kernels(), "kernel_table", "kernel_pie")
    assert lines.splitlines() == [sample.KERNEL_TABLE, sample.KERNEL_PIE]


def test_the_text_has_the_five_lines_in_the_samples_order() -> None:
    lines = build(sample.profile_of_overview(), {}).text.splitlines()
    keys = [list(json.loads(line)) for line in lines]
    assert keys == [list(json.loads(line)) for line in sample.LINES]


# What is shown of a CPU.


def test_a_cpu_has_no_columns_of_a_device() -> None:
    profile = small_profile()
    views = views_of(profile)
    named = [column["name"] for column in views["overview"]["steps"]["columns"] if "name" in column]
    assert named == ["Step", "DataLoader", "CPU Exec", "Engine Overhead", "Other"]
    assert views["overview"]["environments"][1] == {"title": "Device Type", "value": "CPU"}
    assert views["operator_table"]["metadata"]["sort"] == "host_self_duration"
    assert not any("device" in key for row in views["operator_table"]["data"] for key in row)
    empty = ("kernel_table", "kernel_pie", "stack", "memory", "module")
    assert [views[name] for name in empty] == [None] * 5
    assert views["operator_pie"]["device_self_time"] is None
    assert not re.search("GPU|Kernel", build(profile, {}).text.replace("self-kernels", ""))


def test_steps_are_those_of_the_breakdown_to_the_nanosecond() -> None:
    profile = profile_of(
        [operator_of("conv", "Convolution")], [step_of(4, 0, 99.5)], [execution_of(0, 0.125, 60.25)]
    )
    (row,) = views_of(profile)["overview"]["steps"]["rows"]
    assert row[:2] == ["4", 0]
    assert row[3::2] == [60.125, 39.375]
    assert "Step 4<br>Total: 99.5us<br><b>CPU Exec: 60.125us</b><br>Percentage: 60.43%" in row[4]
    assert sum(row[1::2]) == breakdown_of(profile).total_ns / 1000


def test_the_average_is_that_of_the_timed_steps() -> None:
    (average,) = views_of(small_profile())["overview"]["performance"]
    assert (average["value"], average["extra"]) == (1000, 100)
    assert {child["name"]: child["value"] for child in average["children"]} == {
        "DataLoader": 0,
        "CPU Exec": 807,
        "Engine Overhead": 193,
        "Other": 0,
    }
    assert sum(child["extra"] for child in average["children"]) == pytest.approx(100)


def test_a_dispatch_elsewhere_has_a_row_of_its_own() -> None:
    rows = views_of(small_profile(dispatch_us=5))["operator_table"]["data"]
    figures = {row["name"]: (row["calls"], row["host_self_duration"]) for row in rows}
    assert figures == {
        "Convolution": (4, 1600),
        "Elemwise": (2, 14),
        "Convolution dispatch": (4, 20),
        "Elemwise dispatch": (2, 10),
    }


def test_an_operator_within_another_is_no_part_of_its_self_time() -> None:
    profile = profile_of(
        [operator_of("loop", "Loop"), operator_of("conv", "Conv")],
        [step_of(0, 0, 100)],
        [execution_of(0, 0, 90), execution_of(1, 10, 30)],
    )
    rows = {row["name"]: row for row in views_of(profile)["operator_table"]["data"]}
    assert (rows["Loop"]["host_self_duration"], rows["Loop"]["host_total_duration"]) == (70, 90)


# What is shown of a device.


def test_without_a_dispatch_the_hosts_times_are_not_known() -> None:
    rows = views_of(small_profile(device="cuda0"))["operator_table"]["data"]
    assert [(row["name"], row["calls"], row["device_self_duration"]) for row in rows] == [
        ("Convolution", 4, 1600),
        ("Elemwise", 2, 14),
    ]
    assert [row["host_self_duration"] for row in rows] == [None, None]


def test_of_a_cuda_device_nothing_is_said_of_tensor_cores() -> None:
    views = views_of(small_profile(device="cuda0", dispatch_us=5))
    assert {row["tc_eligible"] for row in views["operator_table"]["data"]} == {None}
    assert {row[1] for row in views["kernel_table"]["data"]["rows"]} == {None}
    metrics = views["overview"]["gpu_metrics"]
    assert metrics["title"] == "GPU Summary"
    assert "Tensor" not in json.dumps(metrics)
    assert {"title": "GPU Utilization", "value": "80.7 %"} in metrics["data"]


def test_self_times_of_the_device_are_those_of_its_kernels() -> None:
    profile = sample.profile_of_operators()
    views = views_of(profile)
    own = sum(row["device_self_duration"] for row in views["operator_table"]["data"])
    assert own == sum(row[3] for row in views["kernel_table"]["data"]["rows"])


# The options.


def test_the_styles_row_names_what_there_is() -> None:
    style = STYLES["tensorboard"]
    assert (style.sorts, style.groups, style.views) == (SORTS, GROUPS, VIEWS)
    assert set(LINES) < set(VIEWS)


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("name", "Convolution"),
        ("-name", "Elemwise"),
        ("calls", "Convolution"),
        ("+calls", "Elemwise"),
        ("+host_total_duration", "Elemwise"),
        ("host_self_duration", "Convolution"),
    ],
)
def test_sort(sort: str, first: str) -> None:
    table = views_of(small_profile(), sort=sort)["operator_table"]
    assert names_of(table)[0] == first
    assert table["metadata"]["sort"] == sort.lstrip("+-")


def test_what_is_not_known_is_sorted_last() -> None:
    profile = small_profile(device="cuda0", dispatch_us=5)
    without = [
        replace_dispatch(each) if each.operator == 2 else each for each in profile.executions
    ]
    profile = replace(profile, executions=tuple(without))
    for sort in ("host_self_duration", "+host_self_duration"):
        rows = views_of(profile, sort=sort)["operator_table"]["data"]
        assert [row["host_self_duration"] for row in rows] == [20, None]


def replace_dispatch(execution: Any) -> Any:
    return type(execution)(
        execution.operator, execution.step, execution.thread, execution.start_ns, execution.end_ns
    )


def test_a_cpu_is_not_sorted_by_a_device() -> None:
    with pytest.raises(UsageError, match="device_self_duration: this profile is of a CPU"):
        build(small_profile(), {"sort": "device_self_duration"})


def test_group_by() -> None:
    by_name = views_of(small_profile(), group_by="name")["operator_table"]
    assert names_of(by_name) == ["conv2", "conv1", "relu"]
    by_shape = views_of(small_profile(), group_by="input_shape")["operator_table"]
    assert [(row["name"], row["input_shape"]) for row in by_shape["data"]] == [
        ("Convolution", "[[1, 4, 4, 4]]"),
        ("Elemwise", "[[1, 4, 4, 4]]"),
    ]


def test_filter_and_top() -> None:
    profile = small_profile(device="cuda0", dispatch_us=5)
    views = views_of(profile, filter="^relu$", group_by="name")
    assert names_of(views["operator_table"]) == ["relu"]
    assert [row[0] for row in views["kernel_table"]["data"]["rows"]] == ["Elemwise"]
    assert views["overview"] == views_of(profile)["overview"]
    top = views_of(profile, top=1)
    assert names_of(top["operator_table"]) == ["Convolution"]
    assert len(top["kernel_pie"]["total"]["rows"]) == 1
    assert len(top["operator_pie"]["host_self_time"]["rows"]) == 1
    assert views_of(profile, filter="nothing")["operator_table"]["data"] == []


def test_views_are_those_asked_for_in_their_order() -> None:
    report = build(small_profile(), {"view": ["kernel_pie", "overview", "module"]})
    assert list(report.document) == ["overview", "kernel_pie", "module"]
    assert len(report.text.splitlines()) == 3


def test_nothing_timed_is_refused() -> None:
    profile = profile_of_times(TYPES, [TIMES], step_us=1000, warmup=1)
    with pytest.raises(UsageError, match="no timed iterations"):
        build(profile, {})


# The other views.


def test_modules_are_a_tree() -> None:
    operators = [
        operator_of("a", "Conv", module="net.layer1"),
        operator_of("b", "Conv", module="net.layer1.0"),
        operator_of("c", "Conv", module="net/layer2"),
        operator_of("d", "Conv"),
    ]
    executions = [
        execution_of(number, 10 * number, 10 * number + number + 1, step=step)
        for step in (0, 1)
        for number in range(4)
    ]
    steps = [step_of(0, 0, 50), step_of(1, 50, 100)]
    (net,) = views_of(profile_of(operators, steps, executions))["module"]["data"]
    assert (net["name"], net["occurences"], net["operators"]) == ("net", 2, 0)
    assert (net["host_duration"], net["self_host_duration"]) == (12, 0)
    assert net["device_duration"] is None
    assert [(part["name"], part["host_duration"]) for part in net["children"]] == [
        ("layer1", 6),
        ("layer2", 6),
    ]
    assert [part["name"] for part in net["children"][0]["children"]] == ["0"]


def test_memory_has_statistics_a_curve_and_events() -> None:
    allocations = (
        Allocation(2_000_000, 4096, 0, 100, "cpu", "static plan"),
        Allocation(3_000_000, 1024, 2, 200, "cpu", "static plan"),
        Allocation(6_000_000, -4096, 0, 100, "cpu", "static plan"),
        Allocation(7_000_000, -512, None, 300, "cpu", "static plan"),
    )
    profile = replace(
        small_profile(), allocations=allocations, memory_plan=MemoryPlan(static_bytes=8192)
    )
    memory = views_of(profile)["memory"]
    assert memory["statistics"]["rows"] == {
        "CPU": [["Convolution", 4, 0, 0, 1, 1, 4, 4], ["Elemwise", 2, 1, 1, 1, 1, 1, 1]]
    }
    assert memory["curve"]["metadata"]["peaks"] == {"CPU": "Peak Memory Usage: 5.0KB"}
    assert memory["curve"]["rows"]["CPU"][:3] == [[2, 4, 8], [3, 4, 8], [3, 5, 8]]
    assert memory["events"]["rows"]["CPU"] == [
        ["Convolution", 4, 2, 6, 4],
        ["Elemwise", 1, 3, None, None],
        ["<unknown>", 0.5, None, 7, None],
    ]
    without = views_of(replace(profile, memory_plan=MemoryPlan()))["memory"]
    assert {row[2] for row in without["curve"]["rows"]["CPU"]} == {None}


def test_statistics_of_memory_leave_out_the_warmup() -> None:
    allocations = (Allocation(1_500_000, 4096, 0), Allocation(2_500_000, 1024, 0))
    memory = views_of(replace(small_profile(), allocations=allocations))["memory"]
    assert memory["statistics"]["rows"]["CPU"] == [["Convolution", 4, 1, 1, 1, 1, 1, 1]]
    assert len(memory["events"]["rows"]["CPU"]) == 2


def test_the_trace_is_a_chrome_trace() -> None:
    trace = json.loads(views_of(small_profile())["trace"].encode())
    names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert {"conv1", "relu", "ProfilerStep#1", "forward"} <= names


# As files.


def test_csv_has_the_tables() -> None:
    profile = replace(
        small_profile(device="cuda0", dispatch_us=5),
        allocations=(Allocation(1_000_000, 4096, 0, 100, "cuda0"),),
        operators=tuple(operator_of(n, t, module="net") for n, t in TYPES.items()),
    )
    text = format_csv(build(profile, {}))
    titles = re.findall(r"^# (.*)$", text, re.MULTILINE)
    assert titles == ["Steps", "Operators", "Kernels", "Modules", "Memory GPU0"]
    rows = list(csv.reader(text.splitlines()))
    assert rows[1][:2] == ["Step", "Kernel (us)"]
    assert rows[2] == ["0", "807", "0", "0", "191", "0", "2", "0", "0"]
    assert ["net", "2", "6", "30", "30", "1614", "1614"] in rows


def test_json_is_one_object_by_view() -> None:
    document = json.loads(format_json(build(small_profile(), {})))
    assert list(document) == list(VIEWS[:-1])  # a diff takes two profiles


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    write_profile(small_profile(), path)
    words = ["report", str(path), "--style", "tensorboard"]
    assert main([*words, "--view", "operator_table", "--sort=-name", "--top", "1"]) == 0
    assert names_of(json.loads(capsys.readouterr().out)) == ["Elemwise"]
    assert main([*words, "--json", "-"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(VIEWS[:-1])
    assert main([*words, "--time-unit", "ms"]) == 2
    assert "--time-unit: the style tensorboard does not know this" in capsys.readouterr().err
    assert main([*words, "--view", "pie"]) == 2
    assert "--view pie" in capsys.readouterr().err


def test_unknown_spans_do_not_stop_it() -> None:
    profile = replace(small_profile(), spans=(span_of("osrt", "read", 0, 5, step=None),))
    assert len(build(profile, {}).text.splitlines()) == 5
