"""Paddle's summaries: line by line those of a sample, and what must hold of any profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.records.profile import Execution, Profile, ProfiledOperator, Step, StepNoise
from lar.reports.styles.paddle import build
from lar.reports.styles.paddle.overview import model_rows
from lar.reports.styles.paddle.layout import TimedRun
from tests.profiles.synthetic import profile_of_times
from tests.reports.styles.paddle_sample import (
    DEVICE,
    HOST,
    STREAM,
    profile_of_costs,
    profile_of_kernels,
    profile_of_operators,
    profile_of_phases,
    profile_of_ranges,
    profile_on_device,
    rows_of,
    sample_lines,
    sample_table,
    span_at,
)


def lines_of(profile: Profile, *views: str, **options: object) -> list[str]:
    """Return a report's lines; with `views`, of these alone."""
    text = build(profile, {"view": list(views), **options}).text
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.fixture(scope="module")
def phases() -> Profile:
    return profile_of_phases()


@pytest.mark.parametrize("title", ["Device Summary", "Overview Summary", "Model Summary"])
def test_the_first_tables_are_those_of_the_sample(phases: Profile, title: str) -> None:
    assert lines_of(phases, title.split()[0].lower()) == sample_table(title)


def test_kernels_are_those_of_the_sample() -> None:
    lines = lines_of(profile_of_kernels(), "kernel", sort="gpu_total")
    assert lines == sample_table("Kernel Summary")


@pytest.mark.parametrize(
    ("view", "title"),
    [("memory", "Memory Manipulation Summary"), ("userdefined", "UserDefined Summary")],
)
def test_ranges_are_those_of_the_sample(view: str, title: str) -> None:
    assert lines_of(profile_of_ranges(title), view) == sample_table(title)


def test_operators_are_those_of_the_sample() -> None:
    lines = lines_of(profile_of_operators(), "operator", sort="gpu_total")
    rest = next(number for number, line in enumerate(lines) if line.startswith("rest "))
    assert lines[rest + 1].startswith("  rest ")
    assert lines[:rest] + lines[rest + 2 :] == sample_table("Operator Summary")


def test_the_costs_of_iterations_are_those_of_the_sample() -> None:
    expected = sample_lines()[-7:-1]
    assert "Perf Summary" in sample_lines()[-8]
    lines = lines_of(profile_of_costs(), "perf")
    assert lines == [sample_lines()[-8], *expected]


def test_each_iteration_is_logged_as_in_the_sample() -> None:
    steps = (Step(0, 0, 1_467_000_000), Step(1, 2_000_000_000, 2_253_300_000))
    reading = span_at("phase", "dataloader", 0, 600_000)
    profile = profile_on_device([reading], steps=steps)
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, batch=2))
    assert lines_of(profile, "log") == [
        "iter: [    0/2] batch_cost: 1.4670 data_cost: 0.0006 ips: 1.3633 images/s",
        "iter: [    1/2] batch_cost: 0.2533 data_cost: 0.0000 ips: 7.8958 images/s",
    ]


def test_a_copy_on_the_device_stands_below_the_call_that_made_it() -> None:
    copying = span_at("runtime", "GpuMemcpySync:CPU->GPU", 1_000_000, 500_000, operator=0)
    on_stream = {"thread": STREAM, "device": DEVICE, "operator": 0}
    copy = span_at("memcpy", "MEMCPY_HtoD", 1_100_000, 300_000, **on_stream)
    kernel = span_at("kernel", "add<float>", 2_000_000, 200_000, thread=STREAM, operator=0)
    profile = profile_on_device(
        [copying, copy, kernel],
        operators=[ProfiledOperator(id="a", type="add_n", name="a")],
        executions=[Execution(0, 0, STREAM, 900_000, 2_500_000, None, 800_000, 1_800_000, HOST)],
    )
    rows = lines_of(profile, "operator")[6:-3]
    names = [(row.name, row.level, row.cells[0][0], row.cells[1][0]) for row in rows_of(rows)]
    assert names == [
        ("add_n", 0, "1.00", "0.50"),
        ("GpuMemcpySync:CPU->GPU", 1, "0.50", "0.30"),
        ("MEMCPY_HtoD", 2, "-", "0.30"),
        ("add<float>", 1, "-", "0.20"),
    ]


def test_a_device_that_tells_no_kernels_is_said_to() -> None:
    profile = profile_of_times({"a": "Add"}, [{"a": 20}], step_us=50, dispatch_us=4, device=DEVICE)
    lines = lines_of(profile, "kernel")
    assert next(rows_of(lines)).cells[0] == ("0.02", "0.02", "0.02", "0.02", "100.00")
    assert any(line.startswith("The engine reports no kernels") for line in lines)
    assert lines_of(profile, "device")[6].split() == ["GPU0", "40.00"]
    parts = [(row.name, row.level, row.cells) for row in rows_of(lines_of(profile, "operator"))]
    nothing = ("-",) * 5
    assert parts[1:3] == [
        ("Add dispatch", 1, (("0.00",) * 4 + ("100.00",), ("0.00",) * 5)),
        ("Add compute", 1, (nothing, ("0.02",) * 4 + ("100.00",))),
    ]


def test_the_device_time_of_iterations_is_that_of_their_kernels_to_the_nanosecond() -> None:
    times = [{"conv": 300, "relu": 7}, {"conv": 301, "relu": 9}]
    types = {"conv": "Convolution", "relu": "Elemwise"}
    profile = profile_of_times(types, times, step_us=1000, device="cuda0", dispatch_us=10)
    whole = model_rows(TimedRun(profile, {}))[0]
    assert whole.gpu is not None
    assert (whole.calls, whole.gpu.total_ns) == (2, 617_000)


def figures_of(profile: Profile, view: str) -> dict[Any, Any]:
    """Return the CPU time of each row of a table in nanoseconds, and its ratio."""
    (table,) = build(profile, {"view": [view], "time_unit": "ns"}).tables
    time = "CPU Total (ns)" if view == "model" else "Time (ns)"
    ratio = "CPU Ratio (%)" if view == "model" else "Ratio (%)"
    name = "Name" if view == "model" else "Event Type"
    rows = (dict(zip(table.headings, row, strict=True)) for row in table.records)
    return {row[name]: (row[time], row[ratio]) for row in rows}


def test_waiting_for_a_cpu_is_a_row_beside_the_phases_and_no_part_of_them() -> None:
    times = [{"conv": 500, "relu": 40} for _ in range(10)]
    times[4] = {"conv": 500, "relu": 8040}
    profile = profile_of_times({"conv": "Conv", "relu": "Relu"}, times, step_us=9000)
    noise = [StepNoise(number) for number in range(10)]
    noise[4] = StepNoise(4, 8_000_000, ("queue delay",))
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, noise=tuple(noise)))
    model, overview = figures_of(profile, "model"), figures_of(profile, "overview")
    steps, _ = model.pop("ProfileStep")
    assert [*model] == ["Forward", "Waiting for a CPU", "Others"]
    assert model["Waiting for a CPU"] == pytest.approx((8_000_000, 100 * 8 / 90))
    assert sum(time for time, _ in model.values()) == steps == 90_000_000
    assert sum(ratio for _, ratio in model.values()) == pytest.approx(100)
    del model["Others"]
    for name, (time, ratio) in model.items():
        assert overview[name] == (time, pytest.approx(ratio))
    assert "Waiting for a CPU is no part of the phases" in " ".join(lines_of(profile, "overview"))


def test_times_of_copies_that_ran_at_once_are_parts_of_their_sum() -> None:
    one = profile_of_times({"conv": "Conv"}, [{"conv": 500}] * 2, step_us=600)
    numbers = {0: 2, 1: 3}  # those of the other copy
    moved = msgspec.structs.replace
    profile = replace(
        one,
        steps=(*one.steps, *(moved(it, number=numbers[it.number], copy=1) for it in one.steps)),
        executions=tuple(
            each
            for it in one.executions
            for each in (it, moved(it, step=numbers[it.step], thread=1001))
        ),
        spans=tuple(
            each
            for it in one.spans
            for each in (it, moved(it, step=numbers[it.step or 0], thread=1001))
        ),
    )
    model, overview = figures_of(profile, "model"), figures_of(profile, "overview")
    assert model["ProfileStep"] == (2_400_000, 100)
    assert model["Forward"] == overview["Forward"] == (2_400_000, 100)
    assert next(iter(overview)) == "ProfileStep"
    assert overview["ProfileStep"] == (2_400_000, 100)
    assert overview["Operator"] == (2_000_000, pytest.approx(100 / 1.2))
    for view in ("overview", "model"):
        assert "Copies of the model ran at once" in "\n".join(lines_of(profile, view))
        assert "Copies of the model ran at once" not in "\n".join(lines_of(one, view))
