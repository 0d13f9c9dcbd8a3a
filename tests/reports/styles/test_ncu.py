"""The style `ncu`."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import (
    Execution,
    Profile,
    ProfileFacts,
    Step,
    TensorFact,
    ThreadUse,
)
from lar.reports.csv import format_csv
from lar.reports.json import format_json
from lar.reports.report import Report
from lar.reports.styles.ncu import build
from tests.profiles.layers import PEAK, profile_of_layers, span_of
from tests.profiles.synthetic import HOST, WORKER, operator_of, profile_of_times

# As the manual's command asks for them, in this order.
METRICS = [
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
]

TWO_OPERATORS = """\
Profile: model.mge, megengine, cpu, 1 thread, 2 timed iterations
Peak measured with 2 threads: 200.0 GFLOP/s, 40.0 GB/s; memory binds below 5.00 FLOP/byte

ID  Name  Of           Calls   Duration  p90       Mean        Min        Max      Total  Time%  GFLOP/s  Compute%   GB/s  Memory%  FLOP/byte  Bound    Could save
--  ----  -----------  -----  ---------  ---  ---------  ---------  ---------  ---------  -----  -------  --------  -----  -------  ---------  -------  ----------
 0  conv  Convolution      2  400.00 us  n/a  400.00 us  300.00 us  500.00 us  800.00 us  80.00   100.00     50.00   2.00     5.00      50.00  latency   200.00 us
 1  add   Elemwise         2  100.00 us  n/a  100.00 us  100.00 us  100.00 us  200.00 us  20.00      n/a       n/a  20.00    50.00        n/a  n/a             n/a
Duration is the median of one call; a range's is its own, from begin to end.
Could save: how much shorter an iteration would be with this at its roof, by its median time. Bound names the roof that it reaches 60% of, or latency.
"""  # noqa: E501

METRICS_OF_CONV = """\
  conv
    Section: Command line profiler metrics
    -------------------------------------------- ----------- ------------
    Metric Name                                  Metric Unit Metric Value
    cpu__time_duration.sum                                us       400.00
    cpu__compute_throughput.pct_of_measured_peak           %        50.00
    cpu__memory_throughput.pct_of_measured_peak            %         5.00
    cpu__time_duration.median                             us       400.00
    cpu__time_duration.p90                                us      (!) n/a
    cpu__time_duration.min                                us       300.00
    cpu__time_duration.max                                us       500.00
    cpu__time_duration.total                              us       800.00
    cpu__flops.sum.per_second                        Gflop/s       100.00
    cpu__bytes.sum.per_second                        Gbyte/s         2.00
    cpu__arithmetic_intensity                      flop/byte        50.00
    cpu__roofline_bound                                           latency
    cpu__roofline_saving.per_iteration                    us       200.00
    cpu__launch_count                                                   2
    -------------------------------------------- ----------- ------------
"""


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
    return replace(profile, operators=operators, facts=with_peak(profile.facts))


def with_peak(facts: ProfileFacts) -> ProfileFacts:
    return msgspec.structs.replace(facts, peak=PEAK)


def on_device() -> Profile:
    """Two kernels of one operator and one of another, on a device."""
    profile = two_operators()
    facts = msgspec.structs.replace(profile.facts, device="cuda:0")
    where = {"step": 1, "device": "0", "stream": 7}
    kernels = (
        span_of("kernel", "im2col", 0, 50_000, 3, operator=0, **where),
        span_of(
            "kernel", "sgemm", 50_000, 90_000, 3, operator=0,
            grid=(8, 2, 1), block=(128, 1, 1), **where,
        ),
        span_of("kernel", "add_kernel", 90_000, 190_000, 3, operator=1, **where),
    )  # fmt: skip
    return replace(profile, facts=facts, spans=(*profile.spans, *kernels))


def rows_of(report: Report) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = msgspec.json.decode(format_json(report))["rows"]
    return rows


def names_of(profile: Profile, **options: Any) -> list[str]:
    return [row["name"] for row in rows_of(build(profile, options))]


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: metric["value"] for name, metric in row["metrics"].items()}


def test_the_table_of_the_roofline() -> None:
    assert build(two_operators(), {"view": ["roofline"]}).text == TWO_OPERATORS


def test_the_block_of_metrics_is_laid_out_as_that_of_ncu() -> None:
    text = build(two_operators(), {"view": ["metrics"]}).text
    assert METRICS_OF_CONV in text
    assert "FLOP/byte  Bound" not in text


def test_a_profile_without_a_peak_has_no_percentages() -> None:
    profile = two_operators()
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, peak=None))
    report = build(profile, {})
    assert "Peak of this machine: not measured" in report.text
    values = values_of(rows_of(report)[0])
    assert values["cpu__compute_throughput.pct_of_measured_peak"] is None
    assert values["cpu__roofline_bound"] is None
    assert values["cpu__flops.sum.per_second"] == pytest.approx(100)


def test_a_kernel_has_the_metrics_that_the_manual_asks_for() -> None:
    report = build(on_device(), {"sort": "+duration"})
    row = rows_of(report)[0]
    assert list(row["metrics"])[:10] == METRICS
    told = {name: value for name, value in values_of(row).items() if value is not None}
    assert told == {
        "gpu__time_duration.sum": 40_000,
        **{f"gpu__time_duration.{name}": 40_000 for name in ("median", "min", "max", "total")},
        "launch__grid_size": 16,
        "launch__block_size": 128,
        "gpu__launch_count": 1,
    }
    assert "  sgemm (8, 2, 1)x(128, 1, 1), Stream 7, Device 0\n" in report.text
    dram = next(line for line in report.text.splitlines() if "gpu__dram_throughput" in line)
    assert dram.split()[1:] == ["%", "(!)", "n/a"]


def test_the_peak_of_the_host_is_not_that_of_the_device() -> None:
    text = build(on_device(), {}).text
    assert "Peak of cuda:0: not measured" in text
    assert "measured_peak" not in text


def test_an_operators_work_is_known_of_its_only_kernel() -> None:
    rows = {row["name"]: row for row in rows_of(build(on_device(), {}))}
    assert values_of(rows["add_kernel"])["gpu__bytes.sum.per_second"] == pytest.approx(20)
    assert values_of(rows["im2col"])["gpu__bytes.sum.per_second"] is None
    assert rows["im2col"]["of"] == "conv"


def test_nothing_on_a_cpu_is_named_for_a_device() -> None:
    for options in ({}, {"group_by": "kernel"}, {"group_by": "range"}):
        report = build(profile_of_layers(), options)
        shown = report.text + format_csv(report)
        assert "gpu__" not in shown
        assert "launch__" not in shown


def test_csv_has_the_columns_of_ncu() -> None:
    lines = list(csv.DictReader(io.StringIO(format_csv(build(on_device(), {"sort": "+duration"})))))
    assert list(lines[0]) == [
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
        *("Block Size", "Grid Size", "Device", "CC", "Section Name"),
        *("Metric Name", "Metric Unit", "Metric Value"),
    ]
    first = lines[0]
    assert (first["ID"], first["Kernel Name"], first["Stream"]) == ("0", "sgemm", "7")
    assert (first["Block Size"], first["Grid Size"]) == ("(128, 1, 1)", "(8, 2, 1)")
    assert (first["Metric Name"], first["Metric Unit"]) == ("gpu__time_duration.sum", "ns")
    assert float(first["Metric Value"]) == 40_000
    assert lines[1]["Metric Value"] == ""


def test_a_range_holds_what_ran_within_it() -> None:
    rows = rows_of(build(profile_of_layers(layers=2, iterations=3), {"group_by": "range"}))
    assert [(row["kind"], row["name"]) for row in rows[:2]] == [
        ("range", "head"),
        ("range", "backbone"),
    ]
    assert {row["name"] for row in rows[2:]} == {"head", "backbone"}
    for name in ("head", "backbone"):
        inside = [row for row in rows[2:] if row["name"] == name]
        assert [values_of(row)["cpu__launch_count"] for row in inside] == [3] * 4
    known = values_of(rows[0])["cpu__flops_known.pct_of_duration"]
    assert 80 < known < 100  # relayouts have no operations that are known


def with_range(profile: Profile, start_ns: int, end_ns: int, thread: int) -> Profile:
    span = span_of("user_annotation", "mine", start_ns, end_ns, thread, step=0)
    return replace(profile, spans=(*profile.spans, span))


@pytest.mark.parametrize(
    ("thread", "start_us", "end_us", "inside"),
    [
        (WORKER, 2, 12, ["a"]),  # ran there
        (HOST, 0, 1, ["a"]),  # was dispatched from there
        (HOST, 1, 2, ["b"]),
        (HOST, 2, 22, []),
        (99, 2, 22, ["a", "b"]),  # ran meanwhile
    ],
)
def test_a_range_is_of_its_thread(
    thread: int, start_us: int, end_us: int, inside: list[str]
) -> None:
    profile = profile_of_times(
        {"a": "A", "b": "B"}, [{"a": 10, "b": 10}], step_us=30, dispatch_us=1
    )
    base = profile.steps[0].start_ns
    ranged = with_range(profile, base + start_us * 1000, base + end_us * 1000, thread)
    rows = rows_of(build(ranged, {"group_by": "range", "filter": "mine"}))
    assert rows[0]["kind"] == "range"
    assert [row["of"] for row in rows[1:]] == [name.upper() for name in inside]


def test_the_warm_up_does_not_count() -> None:
    profile = profile_of_layers(iterations=2, warmup=3)
    for row in rows_of(build(profile, {})):
        assert values_of(row)["cpu__launch_count"] == 2


def test_a_filter_is_one_on_ranges_as_that_of_ncu() -> None:
    profile = profile_of_layers(layers=2)
    assert names_of(profile, filter="^head$")[0] == "head"
    assert all(name.startswith("layer1") for name in names_of(profile, filter="^head$")[1:])
    assert names_of(profile, filter="Pool") == ["layer1.pooling", "layer0.pooling"]
    with pytest.raises(UsageError, match="no operator, kernel or range"):
        build(profile, {"filter": "nothing"})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["conv", "add"]),
        ({"sort": "+duration"}, ["add", "conv"]),
        ({"sort": "-duration"}, ["conv", "add"]),
        ({"sort": "average"}, ["conv", "add"]),
        ({"sort": "calls"}, ["conv", "add"]),
        ({"sort": "memory"}, ["add", "conv"]),
        ({"sort": "bytes"}, ["add", "conv"]),
        ({"sort": "flops"}, ["conv", "add"]),
        ({"sort": "+compute"}, ["conv", "add"]),  # what is not known comes last
        ({"sort": "intensity"}, ["conv", "add"]),
        ({"sort": "saving"}, ["conv", "add"]),
        ({"sort": "+saving"}, ["conv", "add"]),
        ({"top": 1}, ["conv"]),
        ({"group_by": "type"}, ["Convolution", "Elemwise"]),
        ({"group_by": "kernel"}, ["GEMM", "Elemwise"]),
        ({"group_by": "range"}, ["outside the ranges", "outside the ranges"]),
    ],
)
def test_rows_are_sorted_cut_and_put_together(options: dict[str, Any], names: list[str]) -> None:
    assert names_of(two_operators(), **options) == names


def test_a_few_rows_are_printed_and_all_are_in_the_table() -> None:
    report = build(profile_of_layers(layers=10), {"view": ["roofline"]})
    assert len(rows_of(report)) == 2 + 40
    assert "12 of 42 rows; --top 42 shows all" in report.text
    assert "rows; --top" not in build(profile_of_layers(layers=10), {"top": 42}).text


def test_operators_of_one_name_have_a_row_each() -> None:
    profile = two_operators()
    rename = msgspec.structs.replace
    same = replace(profile, operators=tuple(rename(it, name="") for it in profile.operators))
    assert [row["of"] for row in rows_of(build(same, {}))] == ["Convolution", "Elemwise"]


def test_times_are_in_the_unit_asked_for() -> None:
    report = build(two_operators(), {"time_unit": "ms"})
    assert rows_of(report)[1]["metrics"]["cpu__time_duration.sum"] == {"unit": "ms", "value": 0.1}
    assert " 0.40 ms " in report.text


def test_figures_above_the_peak_are_explained() -> None:
    profile = two_operators()
    more = {"flops": 9 * 10**7, "size_bytes": 3 * 10**7}
    operators = tuple(msgspec.structs.replace(each, **more) for each in profile.operators)
    fast = replace(profile, operators=operators)
    text = build(fast, {}).text
    assert "came from the caches" in text
    assert "fewer operations than counted" in text
    notes = build(fast, {}).document["notes"]
    assert [note for note in notes if note.startswith("Above 100%")] == [
        line for line in text.splitlines() if line.startswith("Above 100%")
    ]
    assert "Above 100%" not in build(profile, {}).text


def test_a_percentage_that_cannot_be_right_is_withheld() -> None:
    profile = two_operators()
    operators = tuple(
        msgspec.structs.replace(each, flops=10**10, size_bytes=10**9) for each in profile.operators
    )
    report = build(replace(profile, operators=operators), {"view": ["roofline"]})
    for values in map(values_of, rows_of(report)):
        assert values["cpu__compute_throughput.pct_of_measured_peak"] is None
        assert values["cpu__memory_throughput.pct_of_measured_peak"] is None
        assert values["cpu__roofline_bound"] is None
    assert "Percentages are n/a where the time is too short to be right" in report.text


def test_a_view_has_no_bandwidth_and_quantised_work_no_peak() -> None:
    profile = two_operators()
    fact = TensorFact((1, 4, 4, 4), "QuantizedS8")
    conv, add = profile.operators
    operators = (
        msgspec.structs.replace(conv, inputs=(fact,), outputs=(fact,)),
        msgspec.structs.replace(add, type="Reshape", flops=0, size_bytes=0),
    )
    report = build(replace(profile, operators=operators), {"view": ["roofline"]})
    quantised, view = map(values_of, rows_of(report))
    assert quantised["cpu__flops.sum.per_second"] == pytest.approx(100)
    for name in ("compute_throughput.pct_of_measured_peak", "roofline_bound"):
        assert quantised[f"cpu__{name}"] is None
    assert quantised["cpu__roofline_saving.per_iteration"] is None
    assert view["cpu__bytes.sum.per_second"] is None
    assert view["cpu__memory_throughput.pct_of_measured_peak"] is None
    assert view["cpu__roofline_bound"] is None
    assert "Views, constants and pointers that are handed on move nothing" in report.text
    assert "The peak is one of float32" in report.text


def test_the_peak_is_printed_with_its_spread_and_its_date() -> None:
    profile = two_operators()
    peak = msgspec.structs.replace(
        PEAK, spread=0.04, rounds=9, measured_at="2026-11-22T10:00:00+00:00"
    )
    profile = replace(profile, facts=msgspec.structs.replace(profile.facts, peak=peak))
    report = build(profile, {})
    assert "(best of 9 rounds, their median 4.0% lower, last on 2026-11-22)\n" in report.text
    assert report.document["peak"].spread == 0.04


def test_operators_without_time_have_no_rate() -> None:
    facts = with_peak(ProfileFacts(engine="megengine"))
    profile = Profile(
        facts=facts,
        operators=(operator_of("empty", "Reshape", flops=5, size_bytes=5),),
        steps=(Step(0, 0, 10),),
        executions=(Execution(0, 0, WORKER, 5, 5),),
    )
    values = values_of(rows_of(build(profile, {}))[0])
    assert values["cpu__flops.sum.per_second"] is None
    assert values["cpu__time_duration.sum"] == 0


def metrics_in(report: Report, name: str) -> dict[str, object]:
    (row,) = [row for row in report.document["rows"] if row["name"] == name]
    return {metric: found["value"] for metric, found in row["metrics"].items()}


def test_the_use_of_an_engines_threads_is_a_metric() -> None:
    profile = two_operators()
    conv, add = profile.operators
    use = ThreadUse(2, 600, 100, 300, (5, 1))
    conv = msgspec.structs.replace(conv, threads=use)
    report = build(replace(profile, operators=(conv, add)), {})
    found = metrics_in(report, "conv")
    assert found["cpu__thread_waiting.pct_of_calling_thread"] == 30.0
    assert found["cpu__thread_shares.avg.per_call"] == 3.0
    assert not any("thread" in name for name in metrics_in(report, "add"))


def test_a_profile_without_timed_operators_is_refused() -> None:
    with pytest.raises(UsageError, match="no timed operators"):
        build(Profile(), {})


def test_the_command_line_makes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    write_profile(two_operators(), path)
    assert main(["report", str(path), "--style", "ncu", "--view", "roofline"]) == 0
    assert capsys.readouterr().out == TWO_OPERATORS
    assert main(["report", str(path), "--style", "ncu", "--sort", "name"]) == 2
    assert "duration, average" in capsys.readouterr().err
    assert main(["report", str(path), "--style", "ncu", "--csv", "-", "--top", "1"]) == 0
    assert capsys.readouterr().out.startswith("ID,Process ID,")
