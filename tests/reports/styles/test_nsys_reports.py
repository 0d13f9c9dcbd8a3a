"""The nsys style with --view: the reports of `nsys stats` by their columns and sums."""

from __future__ import annotations

import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.records.profile import Profile
from lar.reports.csv import format_csv
from lar.reports.styles.nsys import build
from lar.reports.styles.nsys.groups import Group
from tests.profiles.synthetic import HOST, WORKER, profile_of_times
from tests.reports.styles.nsys_sample import TYPES, small_profile, span_of

STATISTICS = "Avg ({0}),Med ({0}),Min ({0}),Max ({0}),StdDev ({0})"


def table_of(profile: Profile, view: str, **options: Any) -> list[dict[str, Any]]:
    (table,) = build(profile, {"view": [view], **options}).tables
    return [dict(zip(table.headings, row, strict=True)) for row in table.records]


def full_profile() -> Profile:
    """A profile on a device with rows in every report."""
    return small_profile(
        span_of("user_annotation", "all", 1_000_000, 1_900_000),
        span_of("user_annotation", "open", 0, 900, style="start_end"),
        span_of(
            "kernel", "gemm", 0, 9, device="cuda0", operator=0, grid=(64, 1, 1), block=(256, 1, 1)
        ),
        span_of("memcpy", "[CUDA memcpy HtoD]", 0, 9, device="cuda0", size_bytes=9),
        span_of("osrt", "read", 0, 5000, source="shim"),
        span_of("osrt", "mmap", 0, 10, source="strace"),
        dispatch_us=10,
        device="cuda0",
    )


class TestReports:
    def test_the_layout(self) -> None:
        """A table of a report as nsys lays it out, without separators of thousands."""
        spans = [
            span_of("memcpy", "[CUDA memcpy DtoH]", 0, 848_963, device="cuda0"),
            span_of("memcpy", "[CUDA memcpy HtoD]", 0, 169_856, device="cuda0"),
            span_of("memcpy", "[CUDA memcpy HtoD]", 0, 172_992, device="cuda0"),
        ]
        report = build(small_profile(*spans, device="cuda0"), {"view": ["cuda_gpu_mem_time_sum"]})
        assert report.text.splitlines() == [
            " ** CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):",
            "",
            " Time (%)  Total Time (ns)  Count  Avg (ns)  Med (ns)  Min (ns)  Max (ns)"
            "  StdDev (ns)      Operation     ",
            " --------  ---------------  -----  --------  --------  --------  --------"
            "  -----------  ------------------",
            "     71.2           848963      1  848963.0  848963.0    848963    848963"
            "          0.0  [CUDA memcpy DtoH]",
            "     28.8           342848      2  171424.0  171424.0    169856    172992"
            "       2217.5  [CUDA memcpy HtoD]",
        ]

    def test_sizes(self) -> None:
        sizes = [span_of("memcpy", "copy", 0, 9, size_bytes=4_194_304) for _ in range(2)]
        unknown = span_of("memset", "fill", 0, 9)
        report = build(small_profile(*sizes, unknown), {"view": ["cuda_gpu_mem_size_sum"]})
        assert report.text.splitlines() == [
            " ** MemOps Summary (by Size) (mem_size_sum):",
            "",
            " Total (MB)  Count  Avg (MB)  Med (MB)  Min (MB)  Max (MB)  StdDev (MB)  Operation",
            " ----------  -----  --------  --------  --------  --------  -----------  ---------",
            "      8.389      2     4.194     4.194     4.194     4.194        0.000  copy     ",
        ]

    @pytest.mark.parametrize(
        ("view", "columns"),
        [
            (
                "cuda_api_sum",
                f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name",
            ),
            (
                "cuda_gpu_kern_sum",
                f"Time (%),Total Time (ns),Instances,{STATISTICS},Name",
            ),
            (
                "cuda_gpu_kern_gb_sum",
                f"Time (%),Total Time (ns),Instances,{STATISTICS},GridXYZ,BlockXYZ,Name",
            ),
            (
                "cuda_gpu_mem_time_sum",
                f"Time (%),Total Time (ns),Count,{STATISTICS},Operation",
            ),
            (
                "cuda_gpu_mem_size_sum",
                "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
            ),
            ("osrt_sum", f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name"),
            ("syscall_sum", f"Time (%),Total Time (ns),Num Calls,{STATISTICS},Name"),
            ("nvtx_sum", f"Time (%),Total Time (ns),Instances,{STATISTICS},Style,Range"),
            ("nvtx_pushpop_sum", f"Time (%),Total Time (ns),Instances,{STATISTICS},Range"),
            ("nvtx_startend_sum", f"Time (%),Total Time (ns),Instances,{STATISTICS},Range"),
            (
                "nvtx_kern_sum",
                "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),"
                f"{STATISTICS},Kernel Name",
            ),
            (
                "nvtx_gpu_proj_sum",
                "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,"
                "Proj Avg (ns),Proj Med (ns),Proj Min (ns),Proj Max (ns),Proj StdDev (ns),"
                "Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num Child",
            ),
            (
                "cuda_kern_exec_sum",
                "PID,TID,DevId,Count,QCount,"
                "TAvg (ns),TMed (ns),TMin (ns),TMax (ns),TStdDev (ns),"
                "AAvg (ns),AMed (ns),AMin (ns),AMax (ns),AStdDev (ns),"
                "QAvg (ns),QMed (ns),QMin (ns),QMax (ns),QStdDev (ns),"
                "KAvg (ns),KMed (ns),KMin (ns),KMax (ns),KStdDev (ns),API Name,Kernel Name",
            ),
        ],
    )
    def test_the_columns_in_csv(self, view: str, columns: str) -> None:
        report = build(full_profile(), {"view": [view]})
        assert report.text.startswith(" ** ")
        assert report.text.splitlines()[0].endswith(f" ({view}):")
        lines = format_csv(report).splitlines()
        assert lines[0] == columns.format("ns")
        assert len(lines) > 1

    @pytest.mark.parametrize(
        ("view", "name"),
        [
            ("cuda_api_sum", "Engine API Summary (engine_api_sum)"),
            ("cuda_gpu_kern_sum", "Operator Algorithm Summary (algorithm_sum)"),
            (
                "cuda_kern_exec_sum",
                "Operator Dispatch & Exec Time Summary (operator_exec_sum)",
            ),
        ],
    )
    def test_on_a_cpu_a_report_has_a_name_of_its_own(self, view: str, name: str) -> None:
        profile = small_profile(dispatch_us=10)
        text = build(profile, {"view": [view]}).text
        assert text.startswith(f" ** {name}:\n")
        own = re.findall(r"\((\w+)\):", text)[0]
        assert build(profile, {"view": [own, view]}).text == text

    def test_a_report_without_rows(self) -> None:
        views = ["osrt_sum", "nvtx_gpu_proj_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_mem_size_sum"]
        report = build(small_profile(), {"view": views})
        assert report.text.splitlines()[::2] == [
            "SKIPPED: the profile does not contain OS Runtime trace data.",
            "SKIPPED: the profile does not contain operations of a GPU within NVTX ranges.",
            "SKIPPED: the profile does not contain CUDA kernel data.",
            "SKIPPED: the profile does not contain sizes of memory operations.",
        ]
        text = build(small_profile(), {"view": ["algorithm_sum"], "filter": "resnet"}).text
        assert text == "SKIPPED: nothing in algorithm_sum matches --filter.\n"

    def test_launches(self) -> None:
        """The dispatch of each takes 10 us; the first has begun to compute before its end."""
        rows = table_of(small_profile(dispatch_us=10, device="cuda3"), "cuda_kern_exec_sum")
        by_name = {row["Kernel Name"]: row for row in rows}
        convolution = by_name["Convolution"]
        assert convolution["Count"] == 4
        assert convolution["QCount"] == 2
        assert convolution["DevId"] == 3
        assert convolution["TID"] == HOST
        assert convolution["PID"] is None
        assert convolution["API Name"] == "LITE_forward"
        assert convolution["AAvg (ns)"] == 10_000.0
        assert convolution["KMin (ns)"] == 300_000
        assert convolution["QMin (ns)"] == convolution["QMax (ns)"] == 302_000 - 20_000
        assert convolution["TMin (ns)"] == 302_000
        (row,) = table_of(small_profile(dispatch_us=1000), "operator_exec_sum", filter="conv1")
        assert row["QCount"] == 0
        assert row["QAvg (ns)"] is None
        assert row["DevId"] is None

    def test_what_is_not_known_is_no_zero(self) -> None:
        profile = small_profile(dispatch_us=1000)
        text = build(profile, {"view": ["operator_exec_sum"], "filter": "conv1"}).text
        assert text.splitlines()[-1].split()[:3] == ["-", str(HOST), "-"]

    def test_projections(self) -> None:
        ranges = [
            span_of("user_annotation", "all", 1_000_000, 1_900_000),
            span_of("user_annotation", "first", 1_000_000, 1_010_000),
            span_of("user_annotation", "empty", 1_950_000, 1_960_000),
        ]
        rows = table_of(small_profile(*ranges, dispatch_us=10, device="cuda0"), "nvtx_gpu_proj_sum")
        by_name = {row["Range"]: row for row in rows}
        assert set(by_name) == {"all", "first"}
        assert by_name["all"]["Total Proj Time (ns)"] == 807_000
        assert by_name["all"]["Total Range Time (ns)"] == 900_000
        assert by_name["all"]["Total GPU Ops"] == 3
        assert by_name["all"]["Avg Num Child"] == 1.0
        assert by_name["first"]["Proj Avg (ns)"] == 300_000.0
        assert by_name["first"]["Avg Range Lvl"] == 1.0

    def test_a_range_on_a_stream_is_around_what_runs_there(self) -> None:
        around = span_of("user_annotation", "conv", 1_000_000, 1_900_000, thread=WORKER)
        profile = small_profile(around, dispatch_us=10, device="cuda0")
        (row,) = table_of(profile, "nvtx_gpu_proj_sum")
        assert row["Total GPU Ops"] == 3

    def test_a_launch_is_within_the_innermost_call(self) -> None:
        calls = [
            span_of("runtime", "short", 1_000_000, 1_001_000),
            span_of("runtime", "launch", 1_010_000, 1_020_000),
        ]
        profile = small_profile(*calls, dispatch_us=10)
        rows = table_of(profile, "operator_exec_sum", filter="conv")
        assert {row["API Name"]: row["Count"] for row in rows} == {"LITE_forward": 3, "launch": 1}

    def test_operators_of_ranges_on_a_cpu(self) -> None:
        ranges = [
            span_of("user_annotation", "worker", 1_002_000, 1_802_000, thread=WORKER),
            span_of("user_annotation", "run", 0, 9_000_000, thread=0, step=None),
        ]
        rows = table_of(small_profile(*ranges, dispatch_us=10), "nvtx_kern_sum")
        found = {(row["NVTX Range"], row["Kernel Name"]): row["Kern Inst"] for row in rows}
        assert found == {
            ("run", "Convolution"): 4,
            ("run", "Elemwise"): 2,
            ("worker", "Convolution"): 2,
        }

    def test_styles_of_ranges(self) -> None:
        rows = table_of(full_profile(), "nvtx_sum")
        assert {row["Range"]: row["Style"] for row in rows} == {
            "all": "PushPop",
            "open": "StartEnd",
        }

    def test_grids(self) -> None:
        (row,) = table_of(full_profile(), "cuda_gpu_kern_gb_sum")
        assert row["GridXYZ"] == "  64    1    1"
        assert row["BlockXYZ"] == " 256    1    1"

    def test_only_strace_tells_of_system_calls(self) -> None:
        (row,) = table_of(full_profile(), "syscall_sum")
        assert row["Name"] == "mmap"
        assert row["Total Time (ns)"] == 10

    @pytest.mark.parametrize(
        ("unit", "total", "average"),
        [("us", "1600.000", "400.000"), ("ms", "1.6000", "0.4000"), ("s", "0.00160", "0.00040")],
    )
    def test_units(self, unit: str, total: str, average: str) -> None:
        report = build(small_profile(), {"view": ["algorithm_sum"], "time_unit": unit})
        assert f"Total Time ({unit})" in report.text
        assert report.text.splitlines()[4].split()[1:4] == [total, "4", average]
        assert report.tables[0].records[0][1] == float(total)

    @pytest.mark.parametrize(
        ("key", "first"),
        [
            ("total", "even"),
            ("-count", "even"),
            ("average", "wide"),
            ("median", "wide"),
            ("minimum", "even"),
            ("+minimum", "wide"),
            ("maximum", "wide"),
            ("stddev", "wide"),
            ("name", "even"),
            ("-name", "wide"),
        ],
    )
    def test_orders(self, key: str, first: str) -> None:
        spans = [span_of("user_annotation", "even", 0, 100) for _ in range(9)]
        spans += [span_of("user_annotation", "wide", 0, length) for length in (10, 400)]
        rows = table_of(small_profile(*spans), "nvtx_sum", sort=key, top=1)
        assert [row["Range"] for row in rows] == [first]

    def test_long_names_are_cut_in_the_text_alone(self) -> None:
        report = build(
            small_profile(span_of("user_annotation", "n" * 150, 0, 9)), {"view": ["nvtx_sum"]}
        )
        assert report.text.splitlines()[-1].endswith("  " + "n" * 99 + "…")
        assert report.tables[0].records[0][-1] == "n" * 150


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=30))
def test_statistics_of_a_group(values: list[int]) -> None:
    group = Group(("x",), values)
    assert group.minimum <= group.average <= group.maximum
    assert group.median == pytest.approx(statistics.median(values))
    expected = statistics.stdev(values) if len(values) > 1 else 0.0
    assert group.deviation == pytest.approx(expected, rel=1e-9, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({name: st.integers(1, 300) for name in TYPES}), min_size=1, max_size=4
    )
)
def test_percentages_are_of_what_is_listed(times: list[dict[str, int]]) -> None:
    profile = profile_of_times(TYPES, times, step_us=1000)
    rows = table_of(profile, "algorithm_sum")
    assert sum(row["Time (%)"] for row in rows) == pytest.approx(100, abs=0.1)
    durations = sum(each.compute_ns for each in profile.timed_executions)
    assert sum(row["Total Time (ns)"] for row in rows) == durations
