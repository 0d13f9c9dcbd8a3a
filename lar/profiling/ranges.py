"""Ranges that the user names: `with lar.range("head"): ...`, and operators by their names.

The worker's clock is this process's: both read the monotonic clock of the system.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lar.errors import UsageError

if TYPE_CHECKING:
    from lar.profiling.profile import Profile, ProfiledOperator, Span
    from lar.records import RunSpec

# Spans of this process's ranges; the worker numbers its threads from 1.
PYTHON_THREAD = 0


# A program that names ranges for ever keeps the last ones alone.
MOST_ENDED = 10_000


@dataclass(eq=False)
class NamedRange:
    """A range of this process, and the profiles that were written while it was open: where, and
    the zero of their clocks, by which they are known."""

    name: str
    color: str | None
    start_ns: int
    end_ns: int | None = None
    profiles: list[tuple[str, int]] = field(default_factory=list)


OPEN: list[NamedRange] = []
ENDED: deque[NamedRange] = deque(maxlen=MOST_ENDED)


@contextlib.contextmanager
def range(name: str, color: str | None = None) -> Iterator[None]:
    """Name what is done inside, in the profiles of runs that it has in common time with.

    A profile that is written inside gets the range when it ends. Where the package `nvtx` is
    installed, the range is one of NVTX too, here and in the processes of the runs, where nsys and
    ncu see the kernels.
    """
    named = NamedRange(name, color, time.perf_counter_ns())
    OPEN.append(named)
    try:
        with nvtx_range(name, color):
            yield
    finally:
        named.end_ns = time.perf_counter_ns()
        OPEN.remove(named)
        ENDED.append(named)
        for path, t0_ns in named.profiles:
            add_range(path, t0_ns, named)


@contextlib.contextmanager
def nvtx_range(name: str, color: str | None = None) -> Iterator[None]:
    """Give what is done inside an NVTX range, where the package is installed."""
    if importlib.util.find_spec("nvtx") is None:
        yield
        return
    nvtx = importlib.import_module("nvtx")
    started = nvtx.start_range(message=name, color=color)
    try:
        yield
    finally:
        nvtx.end_range(started)


def open_ranges() -> tuple[str, ...]:
    """Return the names of the ranges that this process is in, the outermost first."""
    return tuple(named.name for named in OPEN)


def ranges_during(start_ns: int) -> list[NamedRange]:
    """Return the ranges that have ended since a time of this process's clock."""
    return [each for each in [*ENDED] if each.end_ns is not None and each.end_ns > start_ns]


def watch_open_ranges(path: str, t0_ns: int) -> None:
    """Have the ranges that are still open added to a profile, whose clock begins at `t0_ns`, when
    they end."""
    for each in [*OPEN]:
        each.profiles.append((path, t0_ns))


def add_range(path: str, t0_ns: int, named: NamedRange) -> None:
    """Add a range to the profile in a file, if that is still there.

    Raises:
        UsageError: it cannot be written.
    """
    from lar.profiling.additions import read_unread, write_with

    try:
        trace = read_unread(path)
    except (OSError, ValueError):
        return
    if trace.facts.clock.t0_ns != t0_ns:
        return
    try:
        write_with(trace, spans_of_ranges([named], t0_ns), {PYTHON_THREAD: "python"}, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: the range {named.name!r} cannot be added: {reason}") from None


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


def patterns_of(spec: RunSpec) -> list[tuple[str, str]]:
    """Return the regular expressions of `--range-by` and the names that they give."""
    texts = str(spec.settings.get("range_by", "")).split("\n")
    return [
        (pattern, name) for pattern, _, name in (text.rpartition("=") for text in texts if text)
    ]


def unmatched(
    operators: Sequence[ProfiledOperator], patterns: Sequence[tuple[str, str]]
) -> list[str]:
    """Say which regular expressions match no operator's name, with one that there is."""
    if not operators:
        return []
    longest = max((operator.name for operator in operators), key=len)
    return [
        f"--range-by {pattern}={name}: no operator's name matches; one is {longest}"
        for pattern, name in patterns
        if not any(re.search(pattern, operator.name) for operator in operators)
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
            if before is not None and before.step != execution.step:
                before = None
            span = Span(
                category="user_annotation",
                name=name,
                start_ns=before.start_ns if before else execution.start_ns,
                end_ns=max(before.end_ns, execution.end_ns) if before else execution.end_ns,
                thread=thread,
                step=execution.step,
                warmup=execution.warmup,
                style="operators",
            )
            if before is not None:
                ranges[-1] = span
            else:
                ranges.append(span)
            last[thread] = span
        spans += [span for ranges in found.values() for span in ranges]
    return spans
