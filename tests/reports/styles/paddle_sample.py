"""Profiles that must give the rows of a summary that Paddle's profiler printed.

The rows tell sums to two decimals; the durations in the table beside this are such that they print
so again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lar.profiles.times import Totals
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
from lar.reports.styles.paddle import TimeRow
from tests.profiles.synthetic import HOST as HOST
from tests.profiles.synthetic import span_of

SAMPLE = Path(__file__).parents[2] / "data" / "paddle_summary.txt"
STREAM = 7
DEVICE = "cuda:0"
NUMBER = r"(?:[\d.]+|-)"
CELL = re.compile(rf"{NUMBER}(?: / {NUMBER}){{4}}")
STEP_NS, DEVICE_NS = 2_670_220_000, 1_968_060_000


@cache
def profiles() -> dict[str, Any]:
    return json.loads(Path(__file__).with_suffix(".json").read_text())  # type: ignore[no-any-return]


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


# Profiles of the table: `spans` begin somewhere and follow each other


def spread(lengths: Iterable[tuple[int, int]]) -> list[int]:
    """Return durations, of which the table has each with how often it comes."""
    return [length for length, count in lengths for _ in range(count)]


def profile_made(name: str) -> Profile:
    """Return the profile that gives some tables of the sample."""
    made = profiles()[name]
    spans: list[Span] = []
    for category, called, start_ns, lengths, fields in made["spans"]:
        spans += spans_in_row(category, called, spread(lengths), start_ns, **fields)
    begins = [0, *accumulate(made.get("steps", [STEP_NS]))]
    steps = [Step(number, *times) for number, times in enumerate(pairwise(begins))]
    begins = [0, *accumulate(spread(made.get("executions", [])))]
    executions = [
        Execution(0, 0, STREAM, begin, begin, None, begin, end, HOST)
        for begin, end in pairwise(begins)
    ]
    operators = [ProfiledOperator(id="o", type="o", name="o")] if executions else []
    return profile_on_device(spans, steps=steps, operators=operators, executions=executions)


def profile_of_ranges(title: str) -> Profile:
    """A profile that gives the sample's table of copies or that of named ranges."""
    spans: list[Span] = []
    at = device_ns = 0
    for name, lengths, works in profiles()[title]:
        for length, work in zip(spread(lengths), spread(works), strict=True):
            spans.append(span_at("user_annotation", name, at, length))
            spans.append(span_at("kernel", "k", at, work, thread=STREAM))
            at += length
            device_ns += work
    left_ns = DEVICE_NS - device_ns
    spans.append(span_at("memcpy", "MEMCPY_DtoH", at + 1, left_ns, thread=STREAM, device=DEVICE))
    return profile_on_device(spans)


def rows_of_operators() -> list[TimeRow]:
    """The rows of the sample's operators; the ratios of their parts are to the row above."""
    return [
        TimeRow(name, calls, cpu and Totals(*cpu), gpu and Totals(*gpu), *rest)
        for name, calls, cpu, gpu, *rest in profiles()["operators"]
    ]
