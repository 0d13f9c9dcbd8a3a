"""The torch style: its table against one of torch, byte for byte, and what its options change.

Torch has summed up too many calls in its example to make a profile of them: these are rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.profiles.calls import Memory
from lar.records.profile import Allocation, Profile
from lar.reports.report import Report
from lar.reports.styles.torch import KeyAverage, TableTotals, build, table_of
from tests.profiles.synthetic import WORKER, changed, profile_of_times, rows_in, small_profile
from tests.profiles.test_calls import with_range
from tests.refusals import refused
from tests.reports.golden_files import check_golden
from tests.tables import each_row

SAMPLE = (Path(__file__).parents[2] / "data" / "torch_key_averages.txt").read_text()
NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3}
BYTES = {"Gb": 1024**3, "Mb": 1024**2, "Kb": 1024, "b": 1}
# What they are of besides the 100 rows is not shown there.
TOTALS = TableTotals(self_cpu_ns=1_905_440_000_000, device_ns=1_002_922_000_000)


def text_of(rows: Sequence[KeyAverage], totals: TableTotals = TOTALS, device: str = "") -> str:
    table = table_of(rows, totals, device)
    return Report(style="torch", body=(table, *table.notes)).text


def row_of(**fields: Any) -> KeyAverage:
    return KeyAverage(**{"name": "x", "kind": "operator", "count": 1, **fields})


def test_the_whole_sample() -> None:
    rows = [row_of_sample(line) for line in SAMPLE.splitlines()[3:103]]
    assert text_of(rows, device="CUDA") == SAMPLE


def test_the_table_without_a_device() -> None:
    rows = [row_of(name="Convolution", count=2, self_cpu_ns=3, cpu_ns=6)]
    check_golden("torch_without_device.txt", text_of(rows, TableTotals(self_cpu_ns=6, device_ns=0)))


@each_row("reports/styles/cases/units of FLOPs")
def test_flops_are_in_the_unit_of_the_least(
    flops: list[int | None], header: str, cells: list[str]
) -> None:
    lines = text_of([row_of(flops=each) for each in flops]).splitlines()
    assert lines[1].endswith(f"{header:>12}  ")
    assert [line.split()[-1] for line in lines[3:5]] == cells


@each_row("reports/styles/cases/times and sizes")
def test_times_and_sizes_are_in_units_that_fit(
    time_ns: int, size_bytes: int, texts: list[str]
) -> None:
    row = row_of(cpu_ns=time_ns, memory=Memory(size_bytes), self_memory=Memory(0))
    cells = re.split("  +", text_of([row]).splitlines()[3].strip())
    assert [cells[4], cells[6]] == texts


def test_what_is_not_known_is_no_zero() -> None:
    nothing = TableTotals(self_cpu_ns=0, device_ns=0)
    assert text_of([row_of()], nothing, "CUDA").splitlines()[3].count("NaN") == 3
    cells = text_of([row_of(self_cpu_ns=None, cpu_ns=None)]).splitlines()[3].split()
    assert cells == ["x", "--", "--", "--", "--", "--", "1"]


Bounds = tuple[float, float]


def row_of_sample(line: str) -> KeyAverage:
    """The row of a line: for each cell a figure that is printed so, and fits the others."""
    name, cells = line[:55].strip(), re.findall(r"-?[\d.]+(?:%| ?[A-Za-z]+)?", line[55:])
    own_share, own, share, total, average = cells[:5]
    own_device, device_share, device, device_average = cells[5:9]
    count = int(cells[13])
    sizes = [round(float(size) * BYTES[unit]) for size, unit in map(str.split, cells[9:13])]
    return KeyAverage(
        name=name.replace("...", " and so on"),
        kind="kernel" if total == "0.000us" else "operator",
        count=count,
        self_cpu_ns=fit(time_bounds(own), share_bounds(own_share, TOTALS.self_cpu_ns)),
        cpu_ns=fit(
            time_bounds(total), share_bounds(share, TOTALS.self_cpu_ns), time_bounds(average, count)
        ),
        self_device_ns=fit(time_bounds(own_device), share_bounds(device_share, TOTALS.device_ns)),
        device_ns=fit(time_bounds(device), time_bounds(device_average, count)),
        memory=Memory(sizes[0], sizes[2]),
        self_memory=Memory(sizes[1], sizes[3]),
    )


def time_bounds(text: str, count: int = 1) -> Bounds:
    found = re.fullmatch(r"([\d.]+)(\w+)", text)
    assert found
    value, unit = float(found[1]), count * NANOSECONDS[found[2]]
    return (value - 0.0005) * unit, (value + 0.0005) * unit


def share_bounds(text: str, total: int) -> Bounds:
    value = float(text.rstrip("%"))
    return (value - 0.005) * total / 100, (value + 0.005) * total / 100


def fit(*bounds: Bounds) -> int:
    """The middle of what all bounds have in common."""
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    assert low <= high
    return max(0, round((low + high) / 2)) if low > 0 else 0


def rows_of(profile: Profile, **options: Any) -> dict[str, dict[str, Any]]:
    """The rows of the report by name, a device's kernels by `kernel NAME`."""
    rows = rows_in(build(profile, options).tables[0])
    return {("kernel " if row["Kind"] == "kernel" else "") + str(row["Name"]): row for row in rows}


def test_nothing_timed_is_told() -> None:
    refused("no timed iterations", build, Profile(), {})


def test_operators_have_all_of_the_time_and_what_is_around_them_none() -> None:
    profile = small_profile(dispatch_us=10)
    rows = rows_of(profile)
    assert rows["Convolution"]["# of Calls"] == 4
    assert rows["Elemwise"]["CPU time avg (us)"] == 17
    assert rows["LITE_forward"]["Self CPU %"] is rows["LITE_wait"]["CPU total %"] is None
    assert build(profile, {}).text.endswith("Self CPU time total: 1.658ms\n")
    shares = [row["Self CPU %"] for row in rows.values() if row["Self CPU %"] is not None]
    assert sum(shares) == pytest.approx(100)


def test_a_device_has_columns_of_its_own() -> None:
    profile = with_range(
        small_profile(dispatch_us=10, device="cuda0"), "head", 1000, 1400, thread=WORKER
    )
    rows, report = rows_of(profile), build(profile, {})
    # Ranges and operators have the time of kernels again: the total is that of these.
    assert rows["kernel Convolution"]["Self CUDA %"] == pytest.approx(100 * 1600 / 1614)
    assert (rows["head"]["Kind"], rows["head"]["CUDA total (us)"]) == ("range", 400)
    assert [*rows][:2] == ["Convolution", "kernel Convolution"]
    assert report.text.endswith("Self CPU time total: 60.000us\nSelf CUDA time total: 1.614ms\n")
    assert len(report.text.splitlines()[1]) == len(report.text.splitlines()[0]) + 1
    unknown = rows_of(small_profile(device="cuda0"))["Convolution"]
    assert unknown["CPU total (us)"] is unknown["Self CPU %"] is None


def test_a_cpu_is_no_device() -> None:
    assert not re.search("cuda|gpu|device|kernel", build(small_profile(), {}).text, re.IGNORECASE)


@each_row("reports/styles/cases/memory of devices")
def test_memory_is_that_of_the_device_too(device: str, shown: str) -> None:
    profile = small_profile(device=device, dispatch_us=10)
    assert "Mem" not in build(profile, {}).text
    taken = (
        Allocation(1_001_000, 2 * 1024**3, 0, device=device),
        Allocation(2_001_000, 1024**3, 0, device=device),
    )
    lines = build(replace(profile, allocations=taken), {}).text.splitlines()
    assert ("CUDA Mem" in lines[1]) == (device == "cuda0")
    (line,) = (line for line in lines if "Convolution" in line and "3.00" in line)
    assert line.endswith(shown)


def test_the_order() -> None:
    profile = small_profile(dispatch_us=10)
    assert [*rows_of(profile)] == ["Convolution", "Elemwise", "LITE_forward", "LITE_wait"]
    least = ["LITE_wait", "Elemwise", "LITE_forward", "Convolution"]
    assert [*rows_of(profile, sort="+cpu_time")] == least
    device = small_profile(dispatch_us=10, device="cuda0")
    texts = {build(device, {"sort": f"self_{it}_time_total"}).text for it in ("cuda", "device")}
    assert texts == {build(device, {}).text}


def test_what_the_profile_does_not_know_is_no_order() -> None:
    refused("has no device times", build, small_profile(), {"sort": "device_time_total"})
    refused("has no values for this key", build, small_profile(), {"sort": "flops"})


def test_100_rows_unless_told() -> None:
    types = {f"op{number}": f"Type{number}" for number in range(120)}
    profile = profile_of_times(types, [dict.fromkeys(types, 1)], step_us=1000)
    lines = {top: len(build(profile, {"top": top}).text.splitlines()) for top in (1, 200)}
    assert lines == {1: 6, 200: 127}
    assert len(build(profile, {}).text.splitlines()) == 105
    assert len(build(profile, {}).tables[0].records) == 122
    assert len(build(profile, {"top": 1}).tables[0].records) == 1


def test_operators_of_one_shape_or_instance_are_groups() -> None:
    profile = small_profile()
    first, second, third = profile.operators
    operators = first, *changed([second], inputs=second.inputs * 2), third
    text = build(replace(profile, operators=operators), {"group_by": "shape"}).text
    lines = [line for line in text.splitlines() if "Convolution" in line]
    assert "             2      [[1, 4, 4, 4], [1, 4, 4, 4]]  " in lines[0]
    assert "             2                    [[1, 4, 4, 4]]  " in lines[1]
    rows = rows_of(profile, group_by="instance")
    assert rows["conv2"]["CPU total (us)"] == 1000
    assert "Convolution" not in rows


def test_a_filter_leaves_the_totals() -> None:
    whole, text = (build(small_profile(), it).text for it in ({}, {"filter": "conv2|Elem"}))
    assert whole.splitlines()[-1] == text.splitlines()[-1]
    rows = rows_of(small_profile(), filter="conv2|Elem")
    assert {name: row["# of Calls"] for name, row in rows.items()} == {
        "Convolution": 2,
        "Elemwise": 2,
    }
    refused("nothing matches", build, small_profile(), {"filter": "resnet"})
