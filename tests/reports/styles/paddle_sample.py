"""Profiles that must give the rows of a summary that Paddle's profiler printed.

The rows tell sums to two decimals; the durations here are such that they print so again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from math import ceil, floor
from pathlib import Path
from typing import Any, NamedTuple

from lar.profiles.totals import Totals
from lar.records.profile import (
    Category,
    CpuUse,
    Execution,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
)
from lar.reports.styles.paddle.layout import TimeRow
from tests.profiles.synthetic import HOST as HOST
from tests.profiles.synthetic import span_of

SAMPLE = Path(__file__).parents[2] / "data" / "paddle_summary.txt"
STREAM = 7
DEVICE = "cuda:0"
NUMBER = r"(?:[\d.]+|-)"
CELL = re.compile(rf"{NUMBER}(?: / {NUMBER}){{4}}")
STEP_NS, KERNEL_NS = 2_670_220_000, 1_856_840_000
DEVICE_NS = 1_968_060_000


@cache
def sample_lines() -> tuple[str, ...]:
    return tuple(SAMPLE.read_text(encoding="utf-8").split("\n"))


def sample_table(title: str) -> list[str]:
    """Return the lines of one table, up to the empty lines after it."""
    lines = sample_lines()
    first = next(number for number, line in enumerate(lines) if f"-{title}-" in line)
    after = (n for n in range(first, len(lines)) if not lines[n] and not lines[n + 1])
    return list(lines[first : next(after) + 2])


class SampleRow(NamedTuple):
    """A row: its level, and the five parts of each cell as printed."""

    name: str
    level: int
    calls: int
    cells: tuple[tuple[str, ...], ...]


def rows_of(lines: Iterable[str]) -> Iterator[SampleRow]:
    """Yield the rows with cells of times."""
    for line in lines:
        cells = [(found.start(), found.group()) for found in CELL.finditer(line)]
        if not cells:
            continue
        name, calls = re.split(r"\s{2,}", line[: cells[0][0]].strip())
        level = (len(line) - len(line.lstrip())) // 2
        parts = tuple(tuple(cell.split(" / ")) for _, cell in cells)
        yield SampleRow(name, level, int(calls) if calls != "-" else 0, parts)


def bounds_of(printed: str, scale: float = 1e6) -> tuple[int, int]:
    """Return between what a value lies that prints so with two decimals."""
    value = float(printed)
    return ceil(max(value - 0.00499, 0) * scale), floor((value + 0.00499) * scale)


def durations_of(
    calls: int, parts: Sequence[str], whole_ns: float, *, near_ns: float | None = None
) -> list[int]:
    """Return durations in nanoseconds with that total, average, maximum, minimum and ratio; the
    longest comes first, the shortest second. Their sum is as near to `near_ns` as may be."""
    if set(parts) == {"0.00"}:
        return [0] * calls
    low, high = total_bounds(calls, parts, whole_ns)
    (least, short_ns), longest = bounds_of(parts[3]), parts[2]
    total_ns = round(min(max((low + high) / 2 if near_ns is None else near_ns, low), high))
    if calls == 1:
        return [total_ns]
    for first in samples(bounds_of(longest)):
        for second in samples((least, short_ns)):
            if calls == 2:
                second = total_ns - first
                if least <= second <= min(short_ns, first):
                    return [first, second]
                continue
            rest, others = total_ns - first - second, calls - 2
            if second * others <= rest <= first * others:
                short, extra = divmod(rest, others)
                return [first, second, *([short + 1] * extra), *([short] * (others - extra))]
    raise AssertionError(f"no durations print as {parts}")


def total_bounds(calls: int, parts: Sequence[str], whole_ns: float) -> tuple[int, int]:
    """Return between what the sum of durations lies that print as these five parts."""
    total, average, longest, shortest, ratio = parts
    (least, short_ns), (long_ns, most) = bounds_of(shortest), bounds_of(longest)
    limits = [
        bounds_of(total),
        bounds_of(average, 1e6 * calls),
        bounds_of(ratio, whole_ns / 100),
        (least * (calls - 1) + long_ns, most * (calls - 1) + short_ns),
    ]
    low, high = max(low for low, _ in limits), min(high for _, high in limits)
    assert low <= high, parts
    return low, high


def samples(bounds: tuple[int, int]) -> list[int]:
    low, high = bounds
    return sorted(
        (round(low + (high - low) * part / 10) for part in range(11)),
        key=lambda value: abs(value - (low + high) / 2),
    )


def profile_on_device(
    spans: Iterable[Span],
    *,
    steps: Sequence[Step] = (Step(0, 0, STEP_NS),),
    operators: Sequence[ProfiledOperator] = (),
    executions: Sequence[Execution] = (),
) -> Profile:
    return Profile(
        facts=ProfileFacts(device=DEVICE, cpu=CpuUse(32, 106.03, 6.57)),
        operators=tuple(operators),
        steps=tuple(steps),
        executions=tuple(executions),
        spans=tuple(spans),
    )


def span_at(category: Category, name: str, start_ns: int, length_ns: int, **fields: Any) -> Span:
    return span_of(category, name, start_ns, start_ns + length_ns, **fields)


def spans_in_row(
    category: Category, name: str, durations: Iterable[int], start_ns: int = 0, **fields: Any
) -> list[Span]:
    """Return spans one after the other."""
    spans = []
    for length_ns in durations:
        spans.append(span_at(category, name, start_ns, length_ns, **fields))
        start_ns += length_ns
    return spans


def split_evenly(total_ns: int, count: int) -> list[int]:
    short, extra = divmod(total_ns, count)
    return [short + (number < extra) for number in range(count)]


def profile_of_phases() -> Profile:
    """A profile that gives the sample's first three tables."""
    rows = {row.name: row for row in rows_of(sample_table("Model Summary"))}
    cpu, gpu = {}, {}
    for name in ("ProfileStep", "Dataloader", "Forward", "Backward"):
        row = rows[name]
        cpu[name] = durations_of(row.calls, row.cells[0], STEP_NS)
        gpu[name] = durations_of(row.calls, row.cells[1], KERNEL_NS)
    whole_ns = sum(gpu["Forward"]) + sum(gpu["Backward"]) + 18_370_000
    row = rows["ProfileStep"]
    gpu["ProfileStep"] = durations_of(row.calls, row.cells[1], KERNEL_NS, near_ns=whole_ns)
    counts = split_evenly(16525, 10)
    steps, spans, start = [], [], 0
    for number, length in enumerate(cpu["ProfileStep"]):
        steps.append(Step(number, start, start + length))
        here = {"step": number}
        forward, backward = cpu["Forward"][number], cpu["Backward"][number]
        loading = cpu["Dataloader"][number] if number < 9 else 0
        own = gpu["Forward"][number], gpu["Backward"][number]
        left = gpu["ProfileStep"][number] - sum(own)
        # A kernel that is begun in a phase may end after it.
        kernels = [*split_evenly(own[0], counts[number] - 3)]
        spans += spans_in_row("kernel", "k", kernels, start + 1_000_000, **here)
        spans += spans_in_row("kernel", "k", [1000, own[1] - 1000], start + forward, **here)
        at = start + forward + max(backward + loading, own[1])
        spans.append(span_at("kernel", "k", at, left, **here))
        spans.append(span_at("phase", "forward", start, forward - 5000, **here))
        spans.append(span_at("phase", "wait", start + forward - 5000, 5000, **here))
        spans.append(span_at("phase", "backward", start + forward, backward, **here))
        if loading:
            at = start + forward + backward
            spans.append(span_at("phase", "dataloader", at, loading, **here))
        start += length
    spans += spans_in_row("memcpy", "MEMCPY_HtoD", split_evenly(105_980_000, 3026), device=DEVICE)
    spans += spans_in_row("memset", "MEMSET", split_evenly(5_240_000, 1007), device=DEVICE)
    spans += spans_in_row("memcpy", "memcpy", split_evenly(2_092_900_000, 9049))
    spans += spans_in_row("runtime", "cudaLaunchKernel", split_evenly(1_597_650_000, 91042))
    inner = spans_in_row("runtime", "compute", split_evenly(1_174_700_000, 28326), operator=0)
    spans += inner
    spans += spans_in_row("user_annotation", "head", split_evenly(1_129_580_000, 200))
    executions = []
    at = 0
    for length in split_evenly(2_008_740_000, 21174):
        executions.append(Execution(0, 0, STREAM, at, at, None, at, at + length, HOST))
        at += length
    operator = ProfiledOperator(id="o", type="o", name="o")
    return profile_on_device(spans, steps=steps, operators=[operator], executions=executions)


def profile_of_kernels() -> Profile:
    """A profile that gives the sample's table of kernels.

    Rows that print equal totals stand in the order of the exact ones: each is at least the largest
    that must come after it, and at most the one before it.
    """
    rows = list(rows_of(sample_table("Kernel Summary")))
    bounds = [total_bounds(row.calls, row.cells[0], KERNEL_NS) for row in rows]
    lows = list(accumulate((low for low, _ in reversed(bounds)), max))[::-1]
    spans: list[Span] = []
    last = KERNEL_NS
    for number, (row, (low, high)) in enumerate(zip(rows, bounds, strict=True)):
        near_ns = min(max((low + high) / 2, lows[number]), last)
        durations = durations_of(row.calls, row.cells[0], KERNEL_NS, near_ns=near_ns)
        last = sum(durations)
        name = row.name
        if name.endswith("..."):
            name = f"{name[:-3]}, cut off here, number {number}"
        elif name.endswith(">"):
            name += "(float const*, (anonymous)::Dim, int)"
        spans += spans_in_row("kernel", name, durations)
    return profile_on_device(spans)


def profile_of_ranges(title: str) -> Profile:
    """A profile that gives the sample's table of copies or that of named ranges."""
    spans: list[Span] = []
    at = device_ns = 0
    for row in rows_of(sample_table(title)):
        lengths = durations_of(row.calls, row.cells[0], STEP_NS)
        works = durations_of(row.calls, row.cells[1], DEVICE_NS)
        for length, work in zip(lengths, works, strict=True):
            spans.append(span_at("user_annotation", row.name, at, length))
            spans.append(span_at("kernel", "k", at, work, thread=STREAM))
            at += length
            device_ns += work
    left_ns = DEVICE_NS - device_ns
    spans.append(span_at("memcpy", "MEMCPY_DtoH", at + 1, left_ns, thread=STREAM, device=DEVICE))
    return profile_on_device(spans)


def profile_of_costs() -> Profile:
    """A profile that gives the sample's costs of reading and of iterations, and their rate."""
    count = 20
    lengths = costs_of(count, 1 / 1.42885, 9.35223, 1 / 4.50119)
    readings = costs_of(count, 0.00074, 0.00117, 0.00031)
    steps, spans, at = [], [], 0
    for number, (length, reading) in enumerate(zip(lengths, readings, strict=True)):
        steps.append(Step(number, at, at + length))
        spans.append(span_at("phase", "dataloader", at, reading, step=number))
        at += length
    return profile_on_device(spans, steps=steps)


def costs_of(count: int, average: float, longest: float, shortest: float) -> list[int]:
    """Return durations in nanoseconds of an average, a maximum and a minimum in seconds."""
    first, last = round(longest * 1e9), round(shortest * 1e9)
    return [first, *split_evenly(round(count * average * 1e9) - first - last, count - 2), last]


def rows_of_operators() -> list[TimeRow]:
    """The rows of the sample's operators; the ratios of their parts are to the row above."""
    wholes = [(2_977_580_000, 2_763_970_000)]
    rows = []
    for sample in rows_of(sample_table("Operator Summary")):
        wholes = wholes[: sample.level + 1]
        whole = wholes[-1]
        cpu, gpu = (
            totals_of_cell(sample.calls, cell, ns)
            for cell, ns in zip(sample.cells, whole, strict=True)
        )
        wholes.append((cpu.total_ns if cpu else 0, gpu.total_ns if gpu else 0))
        name = sample.name.replace("...", ", cut off there")
        row = TimeRow(name, sample.calls, cpu, gpu, *whole, sample.level)
        rows.append(row._replace(flops=None if sample.level else 0))
    return rows


def totals_of_cell(calls: int, parts: Sequence[str], whole_ns: int) -> Totals | None:
    if parts[0] == "-":
        return None
    low, high = total_bounds(calls, parts, whole_ns)
    longest, shortest = (round(float(part) * 1e6) for part in parts[2:4])
    return Totals(calls, (low + high) // 2, longest, shortest)
