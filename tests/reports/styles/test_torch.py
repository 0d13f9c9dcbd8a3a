"""The torch style: its table against a table of torch, and what its rows sum up."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, Profile, Span
from lar.reports.csv import format_csv
from lar.reports.styles.torch import build
from lar.profiles.calls import calls_of
from tests.profiles.synthetic import HOST, WORKER, profile_of_times

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}


def small_profile(**fields: Any) -> Profile:
    """Two timed iterations of three operators."""
    times = {"conv1": 300, "conv2": 500, "relu": 7}
    return profile_of_times(TYPES, [times, times], step_us=1000, **fields)


def annotation(name: str, start_us: int, end_us: int, **fields: Any) -> Span:
    return Span(
        category="user_annotation",
        name=name,
        start_ns=start_us * 1000,
        end_ns=end_us * 1000,
        **{"thread": HOST, "step": 0, **fields},
    )


def rows_of(profile: Profile, **options: Any) -> dict[str, dict[str, Any]]:
    """The rows of the report by name, a device's kernels by `kernel NAME`."""
    table = build(profile, options).tables[0]
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.records]
    return {("kernel " if row["Kind"] == "kernel" else "") + str(row["Name"]): row for row in rows}


class TestRows:
    def test_nothing_timed_is_told(self) -> None:
        with pytest.raises(UsageError, match="no timed iterations"):
            build(Profile(), {})

    def test_an_operator_on_the_cpu(self) -> None:
        rows = rows_of(small_profile())
        assert rows["Convolution"]["CPU total (us)"] == 1600
        assert rows["Convolution"]["# of Calls"] == 4
        assert rows["Elemwise"]["CPU time avg (us)"] == 7

    def test_a_call_is_within_the_one_around_it(self) -> None:
        """The engine's `forward` is 30 us of dispatches and 0 besides."""
        rows = rows_of(small_profile(dispatch_us=10))
        assert rows["LITE_forward"]["CPU total (us)"] == 60
        assert rows["LITE_forward"]["Self CPU (us)"] == 0
        # Its dispatch, which has begun before it ran, and its execution.
        assert rows["Elemwise"]["CPU total (us)"] == 2 * (10 + 7)

    def test_a_call_that_waits_is_no_work_of_the_cpu(self) -> None:
        """Operators take 60 us of dispatches and 1614 of computing, 16 of them at once."""
        profile = small_profile(dispatch_us=10)
        rows = rows_of(profile)
        assert rows["LITE_wait"]["CPU total (us)"] == 0
        assert rows["LITE_wait"]["Self CPU %"] is None
        assert build(profile, {}).text.endswith("Self CPU time total: 1.658ms\n")
        assert sum(step.duration_ns for step in profile.steps) == 2_000_000

    def test_what_is_computed_within_a_wait_is_work(self) -> None:
        profile = small_profile(dispatch_us=10)
        executions = [
            msgspec.structs.replace(each, thread=HOST, dispatch_start_ns=None)
            for each in profile.executions
        ]
        rows = rows_of(replace(profile, executions=tuple(executions)))
        assert rows["LITE_wait"]["CPU total (us)"] > 0
        assert rows["LITE_wait"]["Self CPU (us)"] == 0

    def test_what_an_operator_waits_is_not_its_time(self) -> None:
        profile = small_profile(dispatch_us=0)
        executions = [
            msgspec.structs.replace(each, wait_ns=each.duration_ns // 2)
            for each in profile.executions
        ]
        rows = rows_of(replace(profile, executions=tuple(executions)))
        assert rows["Convolution"]["CPU total (us)"] == 800

    def test_a_range_has_what_is_within_on_its_thread(self) -> None:
        profile = small_profile()
        first = profile.executions[0]
        around = annotation("head", 1000, 1400)
        other = annotation("elsewhere", 1000, 1400, thread=WORKER)
        profile = replace(profile, spans=(*profile.spans, around, other))
        rows = rows_of(profile)
        assert first.start_ns >= 1_000_000
        assert first.end_ns <= 1_400_000
        assert rows["head"]["CPU total (us)"] == 400
        assert rows["head"]["Self CPU (us)"] == 100
        assert rows["elsewhere"]["Self CPU (us)"] == 400

    def test_a_range_around_the_run_counts_in_timed_iterations_alone(self) -> None:
        profile = small_profile()
        around = annotation("all", 0, 60_000_000, thread=0, step=None)
        before = annotation("before", 0, 10, thread=0, step=None)
        rows = rows_of(replace(profile, spans=(*profile.spans, around, before)))
        assert rows["all"]["CPU total (us)"] == 2000
        assert rows["all"]["Self CPU (us)"] == 0  # calls of the engine fill the iterations
        assert "before" not in rows

    def test_the_warmup_is_left_out(self) -> None:
        assert rows_of(small_profile(warmup=1))["Elemwise"]["# of Calls"] == 1

    def test_a_device(self) -> None:
        profile = small_profile(dispatch_us=10, device="cuda0")
        report = build(profile, {})
        rows = rows_of(profile)
        assert rows["Convolution"]["Self CUDA (us)"] == 1600
        assert rows["Convolution"]["CPU total (us)"] == 40
        assert rows["kernel Convolution"]["Self CUDA (us)"] == 1600
        assert rows["kernel Convolution"]["Self CPU (us)"] == 0
        assert rows["LITE_forward"]["Self CUDA (us)"] == 0
        assert rows["LITE_forward"]["CUDA total (us)"] == 1614
        assert report.text.endswith(
            "Self CPU time total: 60.000us\nSelf CUDA time total: 1.614ms\n"
        )
        assert len(report.text.splitlines()[1]) == len(report.text.splitlines()[0]) + 1

    def test_kernels_and_copies_that_a_device_tells_of(self) -> None:
        profile = small_profile(dispatch_us=10, device="cuda0")
        spans = (
            *profile.spans,
            Span(category="kernel", name="gemm", start_ns=0, end_ns=500, step=0, device="cuda0"),
            Span(category="memcpy", name="copy", start_ns=0, end_ns=70, step=0, device="cuda0"),
            Span(category="memcpy", name="host", start_ns=0, end_ns=70, step=0, device="cpu"),
        )
        rows = rows_of(replace(profile, spans=spans))
        kernels = {name for name in rows if name.startswith("kernel")}
        assert kernels == {"kernel gemm", "kernel copy"}
        assert "host" not in rows

    def test_a_range_on_a_stream_keeps_no_cpu_busy(self) -> None:
        profile = small_profile(dispatch_us=10, device="cuda0")
        around = annotation("head", 1000, 1400, thread=WORKER)
        rows = rows_of(replace(profile, spans=(*profile.spans, around)))
        assert rows["head"]["CPU total (us)"] == 0
        assert rows["head"]["CUDA total (us)"] == 400
        assert rows["head"]["Kind"] == "range"
        # Kernels have that time again: the total is theirs.
        assert rows["kernel Convolution"]["Self CUDA %"] == pytest.approx(100 * 1600 / 1614)

    def test_a_dispatch_that_is_not_told_is_not_known(self) -> None:
        rows = rows_of(small_profile(device="cuda0"))
        assert rows["Convolution"]["CPU total (us)"] is None
        assert rows["Convolution"]["Self CPU %"] is None
        assert rows["Convolution"]["Self CUDA (us)"] == 1600

    def test_a_cpu_is_no_device(self) -> None:
        profile = small_profile()
        copy = Span(category="memcpy", name="copy", start_ns=0, end_ns=70, step=0)
        text = build(replace(profile, spans=(*profile.spans, copy)), {}).text
        assert not re.search("cuda|gpu|device|kernel", text, re.IGNORECASE)

    def test_memory_of_operators(self) -> None:
        profile = small_profile()
        allocations = (
            Allocation(1_001_000, 2048, 0),
            Allocation(1_500_000, -1024, 0),
            Allocation(1_500_000, 300, 2),
            Allocation(2_500_000, 100, 1),
        )
        spans = (*profile.spans, annotation("head", 1000, 1400))
        profile = replace(profile, allocations=allocations, spans=spans)
        rows = rows_of(profile)
        assert rows["Convolution"]["Self CPU Mem (bytes)"] == 1024 + 100
        assert rows["head"]["CPU Mem (bytes)"] == 1024
        assert rows["head"]["Self CPU Mem (bytes)"] is None
        lines = build(profile, {}).text.splitlines()
        assert "CPU Mem  Self CPU Mem    # of Calls" in lines[1]
        (line,) = (line for line in lines if "Elemwise" in line)
        assert "       300 b         300 b             2  " in line

    def test_memory_of_an_iteration_that_tells_none_is_not_known(self) -> None:
        """The second iteration's, and so the sum."""
        profile = replace(small_profile(), allocations=(Allocation(1_001_000, 2048, 0),))
        rows = rows_of(profile)
        assert rows["Convolution"]["CPU Mem (bytes)"] is None
        assert rows["Elemwise"]["CPU Mem (bytes)"] is None

    def test_an_operator_that_takes_no_time_is_within_no_other(self) -> None:
        """It has the same begin as the one after it, where the clock is coarse."""
        profile = profile_of_times(TYPES, [{"conv1": 0, "relu": 7}], step_us=1000)
        rows = rows_of(replace(profile, allocations=(Allocation(1_002_000, 2048, 0),)))
        assert rows["Convolution"]["CPU Mem (bytes)"] == 2048
        assert rows["Elemwise"]["CPU Mem (bytes)"] == 0

    def test_memory_that_is_not_known_has_no_column(self) -> None:
        assert "Mem" not in build(small_profile(), {}).text
        assert "Mem" not in build(small_profile(device="cuda0", dispatch_us=1), {}).text

    def test_memory_of_the_host_alone_has_no_columns_of_a_device(self) -> None:
        profile = small_profile(device="cuda0", dispatch_us=10)
        taken = tuple(Allocation(at, 2048, 0) for at in (1_001_000, 2_001_000))
        text = build(replace(profile, allocations=taken), {}).text
        assert "CPU Mem" in text
        assert "CUDA Mem" not in text

    def test_memory_of_a_device(self) -> None:
        profile = small_profile(device="cuda0", dispatch_us=10)
        taken = (
            Allocation(1_001_000, 3 * 1024**3, 0, device="cuda0"),
            Allocation(2_001_000, 2 * 1024**3, 0, device="cuda0"),
        )
        text = build(replace(profile, allocations=taken), {}).text
        (line,) = (line for line in text.splitlines() if "Convolution" in line and "5.00" in line)
        assert line.endswith(
            "           0 b           0 b       5.00 Gb       5.00 Gb             4  "
        )

    def test_flops_are_of_all_calls(self) -> None:
        profile = small_profile()
        operators = tuple(
            msgspec.structs.replace(each, flops=flops)
            for each, flops in zip(profile.operators, (2_000_000, 1_000_000, None), strict=True)
        )
        text = build(replace(profile, operators=operators), {}).text
        assert "  Total MFLOPs  " in text.splitlines()[1]
        assert {line.split()[0]: line.split()[-5] for line in text.splitlines()[3:-2]} == {
            "Convolution": "6.000",
            "Elemwise": "--",
            "LITE_forward": "--",
            "LITE_wait": "--",
        }


class TestOptions:
    def test_the_order(self) -> None:
        profile = small_profile(dispatch_us=10)
        slowest = [row[0] for row in build(profile, {}).tables[0].records]
        assert slowest == ["Convolution", "Elemwise", "LITE_forward", "LITE_wait"]
        by_count = [row[0] for row in build(profile, {"sort": "count"}).tables[0].records]
        assert by_count[0] == "Convolution"
        least = [row[0] for row in build(profile, {"sort": "+cpu_time"}).tables[0].records]
        assert least == ["LITE_wait", "Elemwise", "LITE_forward", "Convolution"]

    def test_a_device_is_sorted_by_its_time(self) -> None:
        rows = build(small_profile(dispatch_us=10, device="cuda0"), {}).tables[0].records
        assert [row[0] for row in rows][:4] == ["Convolution"] * 2 + ["Elemwise"] * 2

    def test_keys_of_cuda_are_those_of_the_device(self) -> None:
        profile = small_profile(dispatch_us=10, device="cuda0")
        first = build(profile, {"sort": "self_cuda_time_total"}).text
        assert first == build(profile, {"sort": "self_device_time_total"}).text

    def test_what_the_profile_does_not_know_is_no_order(self) -> None:
        with pytest.raises(UsageError, match="ran on the CPU"):
            build(small_profile(), {"sort": "device_time_total"})
        with pytest.raises(UsageError, match="does not know"):
            build(small_profile(), {"sort": "flops"})

    def test_top(self) -> None:
        report = build(small_profile(), {"top": 1})
        assert len(report.text.splitlines()) == 6
        assert len(report.tables[0].records) == 1

    def test_100_rows_unless_told(self) -> None:
        types = {f"op{number}": f"Type{number}" for number in range(120)}
        profile = profile_of_times(types, [dict.fromkeys(types, 1)], step_us=1000)
        assert len(build(profile, {}).text.splitlines()) == 105
        assert len(build(profile, {"top": 200}).text.splitlines()) == 127
        assert len(build(profile, {}).tables[0].records) == 122

    def test_group_by_shape(self) -> None:
        profile = small_profile()
        other = msgspec.structs.replace(
            profile.operators[1],
            inputs=(*profile.operators[1].inputs, *profile.operators[1].inputs),
        )
        operators = (profile.operators[0], other, profile.operators[2])
        text = build(replace(profile, operators=operators), {"group_by": "shape"}).text
        lines = [line for line in text.splitlines() if "Convolution" in line]
        assert "             2      [[1, 4, 4, 4], [1, 4, 4, 4]]  " in lines[0]
        assert "             2                    [[1, 4, 4, 4]]  " in lines[1]
        assert "Input Shapes" in text

    def test_group_by_instance(self) -> None:
        rows = rows_of(small_profile(), group_by="instance")
        assert rows["conv2"]["CPU total (us)"] == 1000
        assert "Convolution" not in rows

    def test_filter_leaves_the_totals(self) -> None:
        text = build(small_profile(), {"filter": "conv2|Elem"}).text
        assert build(small_profile(), {}).text.splitlines()[-1] == text.splitlines()[-1]
        rows = rows_of(small_profile(), filter="conv2|Elem")
        assert set(rows) == {"Convolution", "Elemwise"}
        assert rows["Convolution"]["# of Calls"] == 2

    def test_a_filter_that_nothing_matches(self) -> None:
        with pytest.raises(UsageError, match="nothing matches"):
            build(small_profile(), {"filter": "resnet"})

    @pytest.mark.parametrize(
        ("unit", "shown"), [("s", "0.002s"), ("ms", "1.600ms"), ("ns", "1600000.000ns")]
    )
    def test_the_unit_of_times(self, unit: str, shown: str) -> None:
        report = build(small_profile(), {"time_unit": unit})
        (line,) = (line for line in report.text.splitlines() if "Convolution" in line)
        assert line.split()[4] == shown
        assert f"CPU total ({unit})" in report.tables[0].headings


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(
        st.fixed_dictionaries({name: st.integers(0, 300) for name in TYPES}), min_size=1, max_size=4
    ),
    dispatch=st.one_of(st.none(), st.integers(0, 50)),
    ranges=st.lists(
        st.tuples(st.integers(900, 3000), st.integers(0, 900), st.sampled_from([HOST, WORKER])),
        max_size=5,
    ),
    device=st.sampled_from(["cpu", "cuda0"]),
)
def test_a_part_is_no_more_than_the_whole(
    times: list[dict[str, int]],
    dispatch: int | None,
    ranges: list[tuple[int, int, int]],
    device: str,
) -> None:
    profile = profile_of_times(TYPES, times, step_us=1000, dispatch_us=dispatch, device=device)
    added = [
        annotation(f"range{number}", start, start + length, thread=thread)
        for number, (start, length, thread) in enumerate(ranges)
    ]
    profile = replace(profile, spans=(*profile.spans, *added))
    for call in calls_of(profile):
        if call.cpu_ns is not None and call.self_cpu_ns is not None:
            assert 0 <= call.self_cpu_ns <= call.cpu_ns
        assert call.self_device_ns <= call.device_ns
    rows = rows_of(profile)
    shares = [row["Self CPU %"] for row in rows.values() if row["Self CPU %"] is not None]
    assert not shares or sum(shares) == pytest.approx(100)
    if device == "cuda0":
        kernels = [row["Self CUDA %"] for name, row in rows.items() if name.startswith("kernel")]
        assert None in kernels or sum(kernels) == pytest.approx(100)


class TestCommand:
    def test_text_and_csv(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "profile.json"
        write_profile(small_profile(), path)
        assert main(["report", str(path), "--style", "torch", "--top", "2"]) == 0
        assert capsys.readouterr().out == build(small_profile(), {"top": 2}).text
        assert main(["report", str(path), "--style", "torch", "--csv", "-"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert {row["Name"]: row["CPU total (us)"] for row in rows}["Convolution"] == "1600.0"
        assert format_csv(build(small_profile(), {})).startswith(
            "Name,Kind,Self CPU %,Self CPU (us)"
        )

    def test_what_it_does_not_honour_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "profile.json"
        write_profile(small_profile(), path)
        assert main(["report", str(path), "--style", "torch", "--view", "x"]) == 2
        assert "--view: the style torch does not know this" in capsys.readouterr().err
        assert main(["report", str(path), "--style", "torch", "--sort", "beauty"]) == 2
        assert "it sorts by typical, self_cpu_time_total" in capsys.readouterr().err
