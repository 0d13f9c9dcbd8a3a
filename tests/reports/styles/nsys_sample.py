"""A profile of which nsys would have printed the statistics in tests/data/nsys_stats.txt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lar.records.profile import Category, Profile, ProfileFacts, Span
from tests.profiles.synthetic import span_of

# One average of the sample is not its total by its count: 357331 / 4 is 89332.75, exactly between
# 89332.7 and .8, and nsys has added up otherwise.
SAMPLE = (Path(__file__).parents[2] / "data" / "nsys_stats.txt").read_text()
SAMPLE = SAMPLE.replace("        89332.7  ", "        89332.8  ")


def profile_of_sample() -> Profile:
    """Spans whose statistics are those of the sample."""
    table = re.compile(r"^.*\((?:nanoseconds|KiB)\)\n\n.*\n.*\n", re.MULTILINE)
    api, kernels, copies, sizes, system = table.split(SAMPLE)[1:]
    spans = [*spans_of_rows("runtime", rows_of(api, 7)), *spans_of_rows("osrt", rows_of(system, 7))]
    spans += spans_of_rows("kernel", rows_of(kernels, 7), device="cuda0")
    by_name = {name: figures for *figures, name in rows_of(sizes, 6)}
    for copy in rows_of(copies, 7):
        total, count, _, least, most = map(float, by_name[copy[-1]])
        bounds = (round(size * 1024) for size in (least, most))
        sizes_bytes = spread(round(total * 1024), int(count), *bounds)
        spans += [
            msgspec.structs.replace(span, size_bytes=size)
            for span, size in zip(
                spans_of_rows("memcpy", [copy], device="cuda0"), sizes_bytes, strict=True
            )
        ]
    return Profile(facts=ProfileFacts(device="cuda0"), spans=tuple(spans))


def rows_of(text: str, columns: int) -> list[list[str]]:
    """The cells of a table's rows, the last being a name."""
    return [line.rstrip().split(None, columns - 1) for line in text.split("\n\n")[0].splitlines()]


def spans_of_rows(category: Category, rows: Sequence[Sequence[str]], **fields: Any) -> list[Span]:
    """Spans with these statistics, one after the other."""
    at, spans = 0, []
    for _, total, count, _, least, most, name in rows:
        for duration in spread(int(total), int(count), int(least), int(most)):
            spans.append(span_of(category, name, at, at + duration, **fields))
            at += duration
    return spans


def spread(total: int, count: int, least: int, most: int) -> list[int]:
    """Values with that sum, number and extremes."""
    if count == 1:
        return [total]
    values = [least, most, *[least] * (count - 2)]
    left = total - sum(values)
    for index in range(2, count):
        more = min(left, most - least)
        values[index] += more
        left -= more
    assert left == 0
    return values
