"""Ranges that the user names: `with lar.range("head"): ...`, and operators by their names.

The worker's clock is this process's: both read the monotonic clock of the system.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.profiling.profile import Profile, Span

# Spans of this process's ranges; the worker numbers its threads from 1.
PYTHON_THREAD = 0


@dataclass
class NamedRange:
    """A range of this process, and the profiles that were written while it was open."""

    name: str
    color: str | None
    start_ns: int
    end_ns: int | None = None
    profiles: list[str] = field(default_factory=list)


RANGES: list[NamedRange] = []


@contextlib.contextmanager
def range(name: str, color: str | None = None) -> Iterator[None]:
    """Name what is done inside, in the profiles of runs that it has in common time with.

    A profile that is written inside gets the range when it ends. Where the package `nvtx` is
    installed, the range is one of NVTX too, which nsys and ncu see.
    """
    named = NamedRange(name, color, time.perf_counter_ns())
    RANGES.append(named)
    try:
        with nvtx_range(name, color):
            yield
    finally:
        named.end_ns = time.perf_counter_ns()
        for path in named.profiles:
            if Path(path).is_file():
                add_range(path, named)


def nvtx_range(name: str, color: str | None) -> contextlib.AbstractContextManager[object]:
    """Return an NVTX range, nothing where the package is not installed."""
    if importlib.util.find_spec("nvtx") is None:
        return contextlib.nullcontext()
    annotate = importlib.import_module("nvtx").annotate
    context: contextlib.AbstractContextManager[object] = annotate(message=name, color=color)
    return context


def ranges_during(start_ns: int) -> list[NamedRange]:
    """Return the ranges that have ended since a time of this process's clock."""
    return [each for each in RANGES if each.end_ns is not None and each.end_ns > start_ns]


def watch_open_ranges(path: str) -> None:
    """Have the ranges that are still open added to a profile when they end."""
    for each in RANGES:
        if each.end_ns is None:
            each.profiles.append(path)


def add_range(path: str, named: NamedRange) -> None:
    """Add a range to the profile in a file.

    Raises:
        UsageError: it is no profile any more.
        OSError: it cannot be written.
    """
    from lar.profiling.trace_file import read_profile, write_profile

    profile = read_profile(path)
    added = spans_of_ranges([named], profile.facts.clock.t0_ns)
    write_profile(
        replace(
            profile,
            spans=(*profile.spans, *added),
            threads={**profile.threads, PYTHON_THREAD: "python"},
        ),
        path,
    )


def spans_of_ranges(ranges: Iterable[NamedRange], t0_ns: int) -> list[Span]:
    """Return spans of ranges that have ended, in a profile whose clock begins at `t0_ns`."""
    from lar.profiling.profile import Span

    return [
        Span(
            category="user_annotation",
            name=each.name,
            start_ns=each.start_ns - t0_ns,
            end_ns=each.end_ns - t0_ns,
            thread=PYTHON_THREAD,
            color=each.color,
            style="range",
        )
        for each in ranges
        if each.end_ns is not None
    ]


def spans_of_patterns(profile: Profile, patterns: Sequence[tuple[str, str]]) -> list[Span]:
    """Return the ranges of operators whose names match: (regular expression, name).

    A range is that of executions which follow each other on their thread and all match.
    """
    from lar.profiling.profile import Span

    spans = []
    for pattern, name in patterns:
        expression = re.compile(pattern)
        matching = [expression.search(operator.name) is not None for operator in profile.operators]
        last: dict[int, Span | None] = {}  # by thread: the range that goes on
        found: dict[int, list[Span]] = {}
        for execution in profile.executions:
            thread = execution.thread
            before = last.get(thread)
            if not matching[execution.operator]:
                last[thread] = None
                continue
            ranges = found.setdefault(thread, [])
            goes_on = before is not None and before.step == execution.step
            span = Span(
                category="user_annotation",
                name=name,
                start_ns=before.start_ns if before and goes_on else execution.start_ns,
                end_ns=execution.end_ns,
                thread=thread,
                step=execution.step,
                warmup=execution.warmup,
                style="operators",
            )
            if goes_on:
                ranges[-1] = span
            else:
                ranges.append(span)
            last[thread] = span
        spans += [span for ranges in found.values() for span in ranges]
    return spans
