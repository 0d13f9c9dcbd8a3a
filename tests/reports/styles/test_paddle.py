"""Paddle's summaries: line by line those of a sample, and what must hold of any profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.records.profile import Correction, Execution, Profile, ProfiledOperator, Step, StepNoise
from lar.reports.report import Report
from lar.reports.styles import STYLES
from lar.reports.styles.paddle import SECTIONS, TimedRun, build, operator_table
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import profile_of_times, rows_in, with_facts
from tests.profiles.timelines import span_of
from tests.refusals import refused
from tests.reports.styles import paddle_sample as sample
from tests.reports.styles.paddle_sample import (
    DEVICE,
    STREAM,
    SampleRow,
    profile_on_device,
    rows_of,
    sample_table,
    span_at,
)
from tests.tables import each_row

TIMES = [
    {"wide": 900, "narrow": 100, "act": 300},
    {"wide": 40, "narrow": 40, "act": 31},
    {"wide": 40, "narrow": 40, "act": 32},
]
TYPES = {"wide": "Conv", "narrow": "Conv", "act": "Relu"}


@pytest.fixture
def profile() -> Profile:
    return profile_of_times(TYPES, TIMES, step_us=2000, warmup=1, dispatch_us=5)


def lines_of(profile: Profile, *views: str, **options: object) -> list[str]:
    """Return a report's lines; with `views`, of these alone."""
    text = build(profile, {"view": list(views), **options}).text
    assert text.endswith("\n")
    return text[:-1].split("\n")


def cells_of(profile: Profile, view: str, **options: object) -> Iterator[SampleRow]:
    return rows_of(lines_of(profile, view, **options))


def names_of(profile: Profile, view: str = "operator", **options: object) -> list[str]:
    """Return the names of the rows that have no parent."""
    return [row.name for row in cells_of(profile, view, **options) if row.level == 0]


def figures_of(profile: Profile, view: str) -> dict[Any, Any]:
    """Return the CPU time of each row of a table in nanoseconds, and its ratio."""
    (table,) = build(profile, {"view": [view], "time_unit": "ns"}).tables
    name, time, ratio = {
        "model": ("Name", "CPU Total (ns)", "CPU Ratio (%)"),
        "overview": ("Event Type", "Time (ns)", "Ratio (%)"),
    }[view]
    return {row[name]: (row[time], row[ratio]) for row in rows_in(table)}


COPIES, RANGES = "Memory Manipulation Summary", "UserDefined Summary"


@each_row("reports/styles/cases/tables of the sample")
def test_a_table_of_the_sample(view: str, title: str, made: str) -> None:
    profile = sample.profile_made(made) if made else sample.profile_of_ranges(title)
    assert lines_of(profile, view) == sample_table(title)


def test_the_operators_of_the_sample() -> None:
    run = TimedRun(profile_on_device(()), {})
    tables = operator_table(run, sample.rows_of_operators(), {0: "Thread: All threads merged"})
    text = Report(style="paddle", body=tuple(tables)).text
    assert text.split("\n")[:-1] == sample_table("Operator Summary")


def test_the_costs_of_iterations() -> None:
    assert lines_of(sample.profile_made("costs"), "perf") == [*sample.sample_lines()[-8:-1]]


def test_the_log_of_iterations() -> None:
    steps = (Step(0, 0, 1_467_000_000), Step(1, 2_000_000_000, 2_253_300_000))
    profile = profile_on_device([span_at("phase", "dataloader", 0, 600_000)], steps=steps)
    assert lines_of(with_facts(profile, batch=2), "log") == [
        "iter: [    0/2] batch_cost: 1.4670 data_cost: 0.0006 ips: 1.3633 images/s",
        "iter: [    1/2] batch_cost: 0.2533 data_cost: 0.0000 ips: 7.8958 images/s",
    ]


def test_a_copy_stands_below_the_call_that_made_it() -> None:
    copying = span_at("runtime", "GpuMemcpySync:CPU->GPU", 1_000_000, 500_000, operator=0)
    on_stream = {"thread": STREAM, "device": DEVICE, "operator": 0}
    copy = span_at("memcpy", "MEMCPY_HtoD", 1_100_000, 300_000, **on_stream)
    kernel = span_at("kernel", "add<float>", 2_000_000, 200_000, thread=STREAM, operator=0)
    times = (900_000, 2_500_000, None, 800_000, 1_800_000)
    profile = profile_on_device(
        [copying, copy, kernel],
        operators=[ProfiledOperator(id="a", type="add_n", name="a")],
        executions=[Execution(0, 0, STREAM, *times, sample.HOST)],
    )
    rows = cells_of(profile, "operator")
    assert [(row.name, row.level, row.cells[0][0], row.cells[1][0]) for row in rows] == [
        ("add_n", 0, "1.00", "0.50"),
        ("GpuMemcpySync:CPU->GPU", 1, "0.50", "0.30"),
        ("MEMCPY_HtoD", 2, "-", "0.30"),
        ("add<float>", 1, "-", "0.20"),
    ]


def test_a_device_that_reports_no_kernels_is_said_to() -> None:
    profile = profile_of_times({"a": "Add"}, [{"a": 20}], step_us=50, dispatch_us=4, device=DEVICE)
    lines = lines_of(profile, "kernel")
    assert next(rows_of(lines)).cells[0] == ("0.02", "0.02", "0.02", "0.02", "100.00")
    assert any(line.startswith("The engine reports no kernels") for line in lines)
    assert lines_of(profile, "device")[6].split() == ["GPU0", "40.00"]
    nothing, all_of_it = ("-",) * 5, ("0.02",) * 4 + ("100.00",)
    _, *parts = ((row.name, row.cells) for row in cells_of(profile, "operator"))
    assert parts[:2] == [
        ("Add dispatch", (("0.00",) * 4 + ("100.00",), ("0.00",) * 5)),
        ("Add compute", (nothing, all_of_it)),
    ]


def test_waiting_for_a_cpu_is_a_row_beside_the_phases() -> None:
    times = [{"conv": 500, "relu": 8040} for _ in range(10)]
    times[4] = {"conv": 500, "relu": 40}  # and the engine waits for the rest
    profile = profile_of_times({"conv": "Conv", "relu": "Relu"}, times, step_us=9000)
    noise = [StepNoise(number) for number in range(10)]
    noise[4] = StepNoise(4, 8_000_000, ("queue delay",))
    profile = with_facts(profile, noise=tuple(noise))
    model, overview = figures_of(profile, "model"), figures_of(profile, "overview")
    steps, _ = model.pop("ProfileStep")
    assert [*model] == ["Forward", "Waiting for a CPU", "Others"]
    assert model["Waiting for a CPU"] == pytest.approx((8_000_000, 100 * 8 / 90))
    assert sum(time for time, _ in model.values()) == steps == 90_000_000
    assert sum(ratio for _, ratio in model.values()) == pytest.approx(100)
    assert overview["Forward"] == (model["Forward"][0], pytest.approx(model["Forward"][1]))


@pytest.mark.parametrize("view", ["overview", "model"])
def test_what_profiling_cost_is_no_part_of_the_steps(view: str) -> None:
    profile = profile_of_times({"conv": "Conv"}, [{"conv": 500}] * 2, step_us=900)
    profile = replace(profile, correction=Correction(1.0, 300_000))
    figures = figures_of(profile, view)
    assert figures["ProfileStep"] == (1_200_000, 100)
    assert figures["Forward"] == (1_200_000, 100)
    assert figures["Profiling"] == (600_000, None)
    if view == "overview":
        assert figures["Operator"] == (1_000_000, pytest.approx(100 / 1.2))
        assert figures["Runtime"][0] <= 1_200_000
    (row,) = (line for line in lines_of(profile, "perf") if "batch_cost" in line)
    assert row.split()[3] == "0.00060"


def test_times_of_copies_that_ran_at_once_are_parts_of_their_sum() -> None:
    one = profile_of_times({"conv": "Conv"}, [{"conv": 500}] * 2, step_us=600)
    moved, numbers = msgspec.structs.replace, {0: 2, 1: 3}  # those of the other copy
    executions = (moved(it, step=numbers[it.step], thread=1001) for it in one.executions)
    spans = (moved(it, step=numbers[it.step or 0], thread=1001) for it in one.spans)
    steps = (moved(it, number=numbers[it.number], copy=1) for it in one.steps)
    profile = replace(
        one,
        steps=(*one.steps, *steps),
        executions=(*one.executions, *executions),
        spans=(*one.spans, *spans),
    )
    model, overview = figures_of(profile, "model"), figures_of(profile, "overview")
    assert model["ProfileStep"] == overview["ProfileStep"] == (2_400_000, 100)
    assert model["Forward"] == overview["Forward"] == (2_400_000, 100)
    assert next(iter(overview)) == "ProfileStep"
    assert overview["Operator"] == (2_000_000, pytest.approx(100 / 1.2))
    for view in ("overview", "model"):
        assert "Copies of the model ran at once" in "\n".join(lines_of(profile, view))
        assert "Copies of the model ran at once" not in "\n".join(lines_of(one, view))


def test_conversions_of_a_layout_are_no_events_of_the_user(profile: Profile) -> None:
    at = profile.timed_steps()[0].start_ns / 1000
    moved = (
        span_of("memcpy", "[CPU memcpy HtoH]", at, at + 9),
        span_of("relayout", "[relayout]", at + 10, at + 30, operator=0),
    )
    overview = figures_of(replace(profile, spans=(*profile.spans, *moved)), "overview")
    assert overview["UserDefined"][0] == 9000
    assert overview["OperatorInner"][0] == figures_of(profile, "overview")["OperatorInner"][0]


def test_a_range_around_several_steps_counts_within_them(profile: Profile) -> None:
    first, last = profile.steps[0].start_ns / 1000, profile.steps[-1].end_ns / 1000
    around = span_of("user_annotation", "all", first - 10**6, last, thread=0, step=None)
    profile = replace(profile, spans=(*profile.spans, around))
    row = next(cells_of(profile, "userdefined"))
    assert (row.name, row.calls, row.cells[0][0], row.cells[0][4]) == ("all", 1, "4.00", "100.00")
    assert figures_of(profile, "overview")["PythonUserDefined"] == (4_000_000, 100)


def test_times_are_in_the_unit_asked_for(profile: Profile) -> None:
    # Two executions of two convolutions, of 40 us each.
    for unit, total in {"s": "0.00", "ms": "0.16", "us": "160.00", "ns": "160000.00"}.items():
        lines = lines_of(profile, "kernel", time_unit=unit)
        assert lines[1] == f"Time unit: {unit}"
        assert next(rows_of(lines)).cells[0][0] == total


@pytest.mark.parametrize(("device", "where"), [("cpu", "cpu"), (DEVICE, "gpu")])
@pytest.mark.parametrize("view", ["operator", "kernel"])
def test_rows_are_sorted_by_the_key(device: str, where: str, view: str) -> None:
    times = [{"a": 9, "b": 4, "c": 1}, {"a": 2, "b": 4, "c": 7}, {"a": 2, "b": 4, "c": 1}]
    types = {"a": "A", "b": "B", "c": "C"}
    profile = profile_of_times(types, times, step_us=30, device=device)
    orders = {
        None: "ABC",
        "median": "BAC",
        f"{where}_avg": "ABC",
        f"{where}_max": "ACB",
        f"{where}_min": "CAB",
        f"+{where}_total": "CBA",
        f"-{where}_min": "BAC",
    }
    assert {key: "".join(names_of(profile, view, sort=key)) for key in orders} == orders


def test_the_first_rows_and_the_matching_ones_keep_their_ratios(profile: Profile) -> None:
    whole = {row.name: row.cells for row in cells_of(profile, "operator") if row.level == 0}
    assert [*whole] == ["Conv", "Relu"]
    for options in ({"filter": "^act$"}, {"filter": "Rel"}, {"top": 1, "sort": "+cpu_total"}):
        first, *others = cells_of(profile, "operator", **options)
        assert (first.name, first.cells) == ("Relu", whole["Relu"])
        assert [row.name for row in others] == ["Relu dispatch", "Relu wait", "Relu compute"]
    assert names_of(profile, "kernel", top=1) == ["Conv"]
    assert [row.calls for row in cells_of(profile, "kernel", filter="^wide$")] == [2]
    assert names_of(profile_of_layers(), "kernel", filter="^IM2COL") == ["IM2COL:X86_F32:192"]


def test_each_thread_has_a_block_of_its_own(profile: Profile) -> None:
    assert names_of(profile, group_by="name") == ["narrow", "wide", "act"]
    moved = tuple(
        msgspec.structs.replace(each, thread=5) if each.operator == 2 else each
        for each in profile.executions
    )
    marks = (
        span_of("user_annotation", "mine", 0, 1, step=1),
        span_of("user_annotation", "theirs", 0, 1, step=1, thread=5),
    )
    split = replace(profile, executions=moved, spans=(*profile.spans, *marks))
    lines = lines_of(split, "operator", "userdefined", group_by="thread")
    titles = [line.strip("-") for line in lines if "Thread:" in line]
    assert titles == ["Thread: 2 (worker)", "Thread: 5", "Thread: 1 (host)", "Thread: 5"]
    assert [row.cells[0][4] for row in rows_of(lines) if row.level == 0][:2] == ["100.00", "100.00"]
    assert build(split, {}).text.count("Thread: All threads merged") == 2


def test_views_are_printed_alone_in_their_order(profile: Profile) -> None:
    parts = {view: build(profile, {"view": [view]}).text for view in ("operator", "perf", "log")}
    every = build(profile, {}).text
    assert all(parts[view] in every for view in ("operator", "perf"))
    assert parts["log"] not in every
    assert build(profile, {"view": ["perf", "operator"]}).text == parts["operator"] + parts["perf"]
    assert {*SECTIONS} == {*STYLES["paddle"].views}


def test_what_is_not_known_is_a_dash(profile: Profile) -> None:
    assert [line.split()[1:] for line in lines_of(profile, "device")[4:6]] == [["-"]] * 2
    assert lines_of(profile, "operator")[6].split()[-1] == "-"
    perf = lines_of(profile, "perf")
    assert not any(line.startswith("Reader Ratio") for line in perf)
    assert [cell.strip() for cell in perf[3].split("|")[2:5]] == ["-"] * 3
    (device,) = build(profile, {"view": ["device"]}).tables
    assert device.records == (("CPU(Process)", None), ("CPU(System)", None))


def test_what_cannot_be_told_is_refused(profile: Profile) -> None:
    refused("no timed iteration", build, replace(profile, steps=profile.steps[:1]), {})
    refused("--view userdefined: the profile has no data", lines_of, profile, "userdefined")
    refused("--filter nix: no operator", lines_of, profile, "operator", filter="nix")
