"""The style `ncu`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.errors import UsageError
from lar.records.profile import Profile, ThreadUse
from lar.reports.report import Report
from lar.reports.styles.ncu import build
from tests.profiles.layers import PEAK, profile_of_layers
from tests.profiles.synthetic import (
    operator_of,
    profile_of_times,
    rows_in,
    span_of,
    with_facts,
)
from tests.refusals import refused
from tests.reports.csv_rows import csv_rows
from tests.reports.golden_files import check_golden
from tests.tables import each_row

TABLES = json.loads(Path(__file__).with_name("ncu.json").read_text())

# As the document's command asks for them, in this order.
METRICS = tuple(TABLES["metrics of the document"])


def two_operators() -> Profile:
    """Two operators of known work, in two iterations after one of warm-up."""
    profile = profile_of_times(
        {"conv": "Convolution", "add": "Elemwise"},
        [{"conv": 999, "add": 999}, {"conv": 500, "add": 100}, {"conv": 300, "add": 100}],
        step_us=2000,
        warmup=1,
    )
    operators = (
        operator_of("conv", "Convolution", flops=40_000_000, size_bytes=800_000, algorithm="GEMM"),
        operator_of("add", "Elemwise", size_bytes=2_000_000),
    )
    return with_facts(replace(profile, operators=operators), peak=PEAK)


def on_device() -> Profile:
    """Two kernels of one operator and one of another, on a device."""
    profile = two_operators()
    where: dict[str, Any] = {"step": 1, "thread": 3, "device": "0", "stream": 7}
    size = {"grid": (8, 2, 1), "block": (128, 1, 1)}
    kernels = (
        span_of("kernel", "im2col", 0, 50_000, operator=0, **where),
        span_of("kernel", "sgemm", 50_000, 90_000, operator=0, **size, **where),
        span_of("kernel", "add_kernel", 90_000, 190_000, operator=1, **where),
    )
    return with_facts(replace(profile, spans=(*profile.spans, *kernels)), device="cuda:0")


def rows_of(report: Report) -> list[dict[str, Any]]:
    return rows_in(report.tables[0])


def names_of(profile: Profile, **options: Any) -> list[str]:
    return [row["Name"] for row in rows_of(build(profile, options))]


def metrics_of(profile: Profile, **options: Any) -> dict[str, dict[str, Any]]:
    """The metrics by name, of each row by its name."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows_of(build(profile, {"view": ["metrics"], **options})):
        found.setdefault(row["Kernel Name"], {})[row["Metric Name"]] = row["Metric Value"]
    return found


def test_the_table_of_the_roofline_is_the_default() -> None:
    check_golden("ncu_two_operators.txt", build(two_operators(), {}).text)


def test_a_block_has_the_metrics_asked_for_laid_out_as_that_of_ncu() -> None:
    names = ("cpu__time_duration.sum", "cpu__launch_count", "cpu__roofline_bound")
    check_golden("ncu_metrics.txt", build(two_operators(), {"metrics": names}).text)
    both = build(two_operators(), {"metrics": names, "view": ["roofline", "metrics"]})
    assert [table.name for table in both.tables] == ["roofline", "metrics"]


def test_a_profile_without_a_peak_has_no_percentages() -> None:
    report = build(with_facts(two_operators(), peak=None), {})
    assert "Peak of this machine: not measured" in report.text
    first = rows_of(report)[0]
    assert first["Compute%"] is first["Bound"] is None
    assert first["GFLOP/s"] == pytest.approx(100)


def test_a_kernel_has_the_metrics_that_the_document_asks_for() -> None:
    report = build(on_device(), {"sort": "+time", "metrics": METRICS})
    lines = csv_rows(report)
    assert list(lines[0]) == [
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
        *("Block Size", "Grid Size", "Device", "CC", "Section Name"),
        *("Metric Name", "Metric Unit", "Metric Value"),
    ]
    first = lines[0]
    assert (first["ID"], first["Kernel Name"], first["Stream"]) == ("0", "sgemm", "7")
    assert (first["Block Size"], first["Grid Size"]) == ("(128, 1, 1)", "(8, 2, 1)")
    values = {line["Metric Name"]: line["Metric Value"] for line in lines[:10]}
    assert tuple(values) == METRICS
    assert {name: float(value) for name, value in values.items() if value} == {
        "gpu__time_duration.sum": 40,
        "launch__grid_size": 16,
        "launch__block_size": 128,
    }
    assert "  sgemm (8, 2, 1)x(128, 1, 1), Stream 7, Device 0\n" in report.text
    dram = next(line for line in report.text.splitlines() if "gpu__dram_throughput" in line)
    assert dram.split()[1:] == ["%", "(!)", "n/a"]


def test_the_peak_of_the_host_is_not_that_of_the_device() -> None:
    report = build(on_device(), {})
    rows = {row["Name"]: row for row in rows_of(report)}
    assert "Peak of cuda:0: not measured" in report.text
    assert {row["Compute%"] for row in rows.values()} == {None}
    # An operator's work is known of its only kernel.
    assert rows["add_kernel"]["GB/s"] == pytest.approx(20)
    assert (rows["im2col"]["GB/s"], rows["im2col"]["Of"]) == (None, "Convolution")


@each_row("reports/styles/ncu/filters by ranges")
def test_a_filter_is_one_on_ranges_as_that_of_ncu(
    why: str, thread: int, start_us: int, end_us: int, inside: list[str]
) -> None:
    profile = profile_of_times(
        {"a": "A", "b": "B"}, [{"a": 10, "b": 10}], step_us=30, dispatch_us=1
    )
    start, end = (profile.steps[0].start_ns + us * 1000 for us in (start_us, end_us))
    span = span_of("user_annotation", "mine", start, end, thread=thread)
    ranged = replace(profile, spans=(*profile.spans, span))
    if inside:
        assert names_of(ranged, filter="^mine$") == inside
    else:
        with pytest.raises(UsageError, match="no operator, kernel or range of that name ran"):
            build(ranged, {"filter": "^mine$"})
    assert names_of(ranged, filter="^B$") == ["b"]


def test_a_bound_of_several_operators_says_of_how_much_of_the_time() -> None:
    """A type was said to be bound by memory, though a part of its time alone was."""
    names = {"near": "Conv", "slow": "Conv"}
    profile = profile_of_times(names, [{"near": 100, "slow": 900}], step_us=2000)
    operators = (
        operator_of("near", "Conv", flops=1000, size_bytes=3_900_000),
        operator_of("slow", "Conv", flops=1000, size_bytes=1_000_000),
    )
    made = with_facts(replace(profile, operators=operators), peak=PEAK)
    (row,) = rows_of(build(made, {"group_by": "type"}))
    assert row["Bound"] == "far 90%, memory 10%"


@pytest.mark.parametrize(("options", "names"), TABLES["rows"])
def test_rows_are_sorted_cut_and_put_together(options: dict[str, Any], names: list[str]) -> None:
    assert names_of(two_operators(), **options) == names


def test_a_few_rows_are_printed_and_all_are_in_the_table() -> None:
    report = build(profile_of_layers(layers=10), {})
    assert len(rows_of(report)) == 40
    assert "10 of 40 rows; --top 0 shows all" in report.text
    assert "rows; --top" not in build(profile_of_layers(layers=10), {"top": 42}).text


def test_the_peak_is_printed_with_its_spread_and_its_date() -> None:
    peak = msgspec.structs.replace(
        PEAK, spread=0.04, rounds=9, measured_at="2026-11-22T10:00:00+00:00"
    )
    text = build(with_facts(two_operators(), peak=peak), {}).text
    assert "(best of 9 rounds, their median 4.0% lower, last on 2026-11-22)\n" in text


def test_the_use_of_an_engines_threads_is_a_metric() -> None:
    profile = two_operators()
    conv, add = profile.operators
    conv = msgspec.structs.replace(conv, threads=ThreadUse(2, 600, 100, 300, (5, 1)))
    found = metrics_of(replace(profile, operators=(conv, add)))
    names = (f"{part}.pct_of_calling_thread" for part in ("computing", "handing_out", "waiting"))
    for name, value in zip(names, (60, 10, 30), strict=True):
        assert found["conv"][f"cpu__thread_{name}"] == pytest.approx(value)
    assert found["conv"]["cpu__thread_tasks.of_other_threads"] == "5 1"
    assert {it for name, it in found["add"].items() if "thread" in name} == {None}


def test_a_profile_without_timed_operators_is_refused() -> None:
    refused("no timed operators", build, Profile(), {})
