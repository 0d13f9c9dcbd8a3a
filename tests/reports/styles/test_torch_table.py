"""The layout of the torch style, byte for byte.

Torch has summed up too many calls in its example to make a profile of them: these are rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lar.profiles.totals import totals_of
from lar.reports.report import Report
from lar.reports.styles.torch.table import KeyAverage, TableTotals, body_of, table_of

SAMPLE = (Path(__file__).parents[2] / "data" / "torch_key_averages.txt").read_text()
NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3}
BYTES = {"Gb": 1024**3, "Mb": 1024**2, "Kb": 1024, "b": 1}
TOTALS = TableTotals(self_cpu_ns=1_905_440_000_000, device_ns=1_002_922_000_000)


def format_table(
    rows: Sequence[KeyAverage],
    totals: TableTotals,
    *,
    device: str = "",
    unit: str | None = None,
    limit: int = 100,
) -> str:
    table = table_of(rows, totals, device, unit)
    return Report(style="torch", body=body_of(table, totals, device, unit, limit)).text


class TestLayout:
    """The formatter, byte for byte: torch has summed up too many calls to make a profile of."""

    def test_the_whole_sample(self) -> None:
        rows = [row_of_sample(line) for line in SAMPLE.splitlines()[3:103]]
        # What the totals are of besides is not shown; the rows shown are the first 100.
        assert format_table(rows, TOTALS, device="CUDA", limit=100) == SAMPLE

    def test_a_row_more_than_the_limit_is_not_shown(self) -> None:
        rows = [row_of_sample(line) for line in SAMPLE.splitlines()[3:103]]
        assert format_table(rows, TOTALS, device="CUDA", limit=99).count("\n") == 105

    def test_without_a_device(self) -> None:
        rows = [KeyAverage(name="Convolution", kind="operator", count=2, self_cpu_ns=3, cpu_ns=6)]
        dash = "-" * 12
        totals = TableTotals(self_cpu_ns=6, device_ns=0)
        assert format_table(rows, totals).splitlines() == [
            f"---------------  {dash}  {dash}  {dash}  {dash}  {dash}  {dash}  ",
            "           Name    Self CPU %      Self CPU   CPU total %     CPU total  "
            "CPU time avg    # of Calls  ",
            f"---------------  {dash}  {dash}  {dash}  {dash}  {dash}  {dash}  ",
            "    Convolution        50.00%       0.003us       100.00%       0.006us  "
            "     0.003us             2  ",
            f"---------------  {dash}  {dash}  {dash}  {dash}  {dash}  {dash}  ",
            "Self CPU time total: 0.006us",
        ]

    @pytest.mark.parametrize(
        ("flops", "header", "cells"),
        [
            ((999, 5_000), "Total FLOPs", ("999.000", "5000.000")),
            ((1_000, None), "Total KFLOPs", ("1.000", "--")),
            ((2_500_000, 0), "Total MFLOPs", ("2.500", "--")),
            ((7 * 10**9, 10**12), "Total GFLOPs", ("7.000", "1000.000")),
        ],
    )
    def test_flops_are_in_the_unit_of_the_least(
        self, flops: tuple[int, int | None], header: str, cells: tuple[str, str]
    ) -> None:
        rows = [KeyAverage(name="x", kind="operator", count=1, flops=each) for each in flops]
        lines = format_table(rows, TOTALS).splitlines()
        assert lines[1].endswith(f"{header:>12}  ")
        assert [line.split()[-1] for line in lines[3:5]] == list(cells)

    def test_a_median_of_which_nothing_is_left_is_not_zero(self) -> None:
        """As a record it is empty; the text has the clock's step."""
        totals = totals_of([0, 0, 900])
        rows = [
            KeyAverage(name=name, kind="operator", count=3, cpu=totals, is_emptied=is_emptied)
            for name, is_emptied in (("emptied", True), ("kept", False))
        ]
        table = table_of(rows, TOTALS)
        median = next(each for each in table.columns if each.title == "CPU time med")
        assert [median.value(row) for row in rows] == [None, 0.0]
        assert median.cell(rows[0]).startswith("<")

    def test_shares_of_nothing(self) -> None:
        row = KeyAverage(name="x", kind="operator", count=1)
        text = format_table([row], TableTotals(self_cpu_ns=0, device_ns=0), device="CUDA")
        assert text.splitlines()[3].count("NaN") == 3

    def test_what_is_not_known_is_no_zero(self) -> None:
        row = KeyAverage(name="x", kind="operator", count=1, self_cpu_ns=None, cpu_ns=None)
        cells = format_table([row], TOTALS).splitlines()[3].split()
        assert cells == ["x", "--", "--", "--", "--", "--", "1"]


Bounds = tuple[float, float]


def row_of_sample(line: str) -> KeyAverage:
    """The row of a line: for each cell a figure that is printed so, and fits the others."""
    name, cells = line[:55].strip(), re.findall(r"-?[\d.]+(?:%| ?[A-Za-z]+)?", line[55:])
    own_share, own, share, total, average = cells[:5]
    own_device, device_share, device, device_average = cells[5:9]
    count = int(cells[13])
    memory = [round(float(size) * BYTES[unit]) for size, unit in map(str.split, cells[9:13])]
    return KeyAverage(
        name=name.replace("...", " and so on"),
        kind="kernel" if total == "0.000us" else "operator",
        count=count,
        self_cpu_ns=fit(time_bounds(own), share_bounds(own_share, TOTALS.self_cpu_ns)),
        cpu_ns=fit(
            time_bounds(total),
            share_bounds(share, TOTALS.self_cpu_ns),
            average_bounds(average, count),
        ),
        self_device_ns=fit(time_bounds(own_device), share_bounds(device_share, TOTALS.device_ns)),
        device_ns=fit(time_bounds(device), average_bounds(device_average, count)),
        cpu_memory_bytes=memory[0],
        self_cpu_memory_bytes=memory[1],
        device_memory_bytes=memory[2],
        self_device_memory_bytes=memory[3],
    )


def time_bounds(text: str) -> Bounds:
    found = re.fullmatch(r"([\d.]+)(\w+)", text)
    assert found
    unit = NANOSECONDS[found[2]]
    value = float(found[1])
    return (value - 0.0005) * unit, (value + 0.0005) * unit


def average_bounds(text: str, count: int) -> Bounds:
    low, high = time_bounds(text)
    return low * count, high * count


def share_bounds(text: str, total: int) -> Bounds:
    value = float(text.rstrip("%"))
    return (value - 0.005) * total / 100, (value + 0.005) * total / 100


def fit(*bounds: Bounds) -> int:
    """The middle of what all bounds have in common."""
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    assert low <= high
    return max(0, round((low + high) / 2)) if low > 0 else 0
