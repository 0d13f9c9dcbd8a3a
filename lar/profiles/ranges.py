"""Ranges that the user names: by `with lar.range("head"): ...`, or by `--range-by`.

A range of `--range-by` consists of the executions of operators whose names match a pattern. lar
does not find the executions of such a range by their times: if the clock counts whole microseconds,
a short execution may touch the end of another range. A range of `lar.range` consists of all records
that begin during the range.

The worker and this process use the same clock: the monotonic clock of the system.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lar.errors import UsageError

if TYPE_CHECKING:
    from lar.records.profile import Execution, Profile, ProfiledOperator, Span

Color: TypeAlias = "str | int | None"

# The thread of this process's ranges; the worker numbers its threads from 1.
PYTHON_THREAD = 0

# The style of ranges that are made from operators.
OPERATOR_RANGE = "operators"

# The threads of a record, each with its begin there; the thread where the record ran comes first.
Starts = tuple[tuple[int, int], ...]
# The position of a record's execution among the timed executions (None without an execution), and
# the begins of the record.
Begun = tuple["int | None", Starts]

# How many ended ranges are kept: a program may name any number of ranges.
MOST_ENDED = 10_000


@dataclass(eq=False)
class NamedRange:
    """A range of this process, and the profiles that were written while the range was open.

    A profile is identified by its path and by the zero of its clock.
    """

    name: str
    color: str | None
    start_ns: int
    end_ns: int = 0  # 0 while the range is open
    profiles: list[tuple[str, int]] = field(default_factory=list)


OPEN: list[NamedRange] = []
ENDED: deque[NamedRange] = deque(maxlen=MOST_ENDED)


def range(name: str, color: Color = None) -> contextlib.AbstractContextManager[None]:
    """Give a name to the work inside the block; profiles made inside the block show this name.

    `color` is a color's name, or 0xRRGGBB or 0xAARRGGBB. If a profile is written inside the block,
    the range is added to this profile when the block ends. If the package `nvtx` is installed, the
    range is an NVTX range too. The NVTX range is open in this process and in the processes of the
    runs, so that nsys and ncu show the range for the kernels.

    Raises:
        UsageError: the name is not a string, or the color is not in an allowed form.
    """
    if not is_text(name):
        raise UsageError(f"lar.range: name: {name!r} is not text", "give the name as a str")
    return open_range(name, color, text_of(color))


def is_text(value: object) -> bool:
    """Return whether a value is a string that a file can hold, without unpaired surrogates."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def text_of(color: Color) -> str | None:
    """Return a color in the form of a profile: a name, or `#rrggbb`.

    Raises:
        UsageError: the value is not a color.
    """
    if color is None or (isinstance(color, str) and is_text(color)):
        return color
    if type(color) is int and 0 <= color <= 0xFFFFFFFF:
        return f"#{color & 0xFFFFFF:06x}"
    raise UsageError(
        f"lar.range: color: {color!r} is not a color",
        "give a name such as 'blue', 0xRRGGBB or 0xAARRGGBB",
    )


@contextlib.contextmanager
def open_range(name: str, color: Color, stored_color: str | None) -> Iterator[None]:
    """Open a range for the work inside the block, and close the range when the block ends.

    `color` is used for NVTX, and `stored_color` is used in profiles.
    """
    named = NamedRange(name, stored_color, time.perf_counter_ns())
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
def nvtx_range(name: str, color: Color = None) -> Iterator[None]:
    """Open an NVTX range for the block, if the package `nvtx` is installed."""
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
    """Return the names of the open ranges of this process, the outermost first."""
    return tuple(named.name for named in OPEN)


def ranges_during(start_ns: int) -> list[NamedRange]:
    """Return the ranges that ended after a time on this process's clock."""
    return [each for each in [*ENDED] if each.end_ns > start_ns]


def watch_open_ranges(path: str, t0_ns: int) -> None:
    """Register a profile in all open ranges; a range that ends is added to the profile.

    The profile's clock begins at `t0_ns`.
    """
    for each in [*OPEN]:
        each.profiles.append((path, t0_ns))


def add_range(path: str, t0_ns: int, named: NamedRange) -> None:
    """Add a range to the profile in a file, if the file still has this profile.

    Raises:
        UsageError: the file cannot be written.
    """
    from dataclasses import replace

    from lar.profiles.trace_file import change_profile

    def add(profile: Profile) -> Profile:
        if profile.facts.clock.t0_ns != t0_ns:
            raise ValueError("is another run's")
        spans = tuple(spans_of_ranges([named], t0_ns))
        return replace(profile, spans=spans, threads={PYTHON_THREAD: "python"})

    try:
        change_profile(path, add)
    except (FileNotFoundError, ValueError):
        return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"the range {named.name!r} cannot be written: {reason}", subject=path
        ) from None


def spans_of_ranges(ranges: Iterable[NamedRange], t0_ns: int) -> list[Span]:
    """Return the spans of ended ranges, for a profile whose clock begins at `t0_ns`."""
    from lar.records.profile import Span

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
    ]


def patterns_of(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the regular expressions of `--range-by` in settings, each with its range's name."""
    texts = filter(None, str(settings.get("range_by", "")).split("\n"))
    return [(pattern, name) for pattern, _, name in (text.rpartition("=") for text in texts)]


def unmatched(
    operators: Sequence[ProfiledOperator], patterns: Sequence[tuple[str, str]]
) -> list[str]:
    """Return a warning, with an operator's name, for each pattern that matches no operator."""
    if not operators:
        return []
    longest = max((operator.name for operator in operators), key=len)
    return [
        f"--range-by {pattern}={name}: no operator's name matches; one is {longest}"
        for pattern, name in patterns
        if not any(re.search(pattern, operator.name) for operator in operators)
    ]


def spans_of_patterns(profile: Profile, patterns: Sequence[tuple[str, str]]) -> list[Span]:
    """Return the ranges that patterns select; a pattern is a regular expression with a name."""
    return [
        span_of_run(name, [profile.executions[place] for place in run])
        for pattern, name in patterns
        for run in runs_of_pattern(pattern, profile.operators, profile.executions)
    ]


def runs_of_pattern(
    pattern: str, operators: Sequence[ProfiledOperator], executions: Sequence[Execution]
) -> list[list[int]]:
    """Return groups of executions, as lists of their positions; each group becomes a range.

    The executions of a group follow each other on one thread in one iteration. In each group, the
    operators of all executions match the pattern.
    """
    search = re.compile(pattern).search
    matching = [search(operator.name) is not None for operator in operators]
    runs: list[list[int]] = []
    going: dict[int, list[int]] = {}  # by thread: the group that has not ended yet
    for place, execution in enumerate(executions):
        run = going.get(execution.thread)
        if not matching[execution.operator]:
            going.pop(execution.thread, None)
            continue
        if run is None or executions[run[0]].step != execution.step:
            run = going[execution.thread] = []
            runs.append(run)
        run.append(place)
    return runs


def span_of_run(name: str, executions: Sequence[Execution]) -> Span:
    """Return the range of a group of executions that follow each other."""
    from lar.records.profile import Span

    first = executions[0]
    return Span(
        category="user_annotation",
        name=name,
        start_ns=first.start_ns,
        end_ns=max(each.end_ns for each in executions),
        thread=first.thread,
        step=first.step,
        warmup=first.warmup,
        style=OPERATOR_RANGE,
    )


def members_of_ranges(profile: Profile, records: Iterable[Begun]) -> list[tuple[Span, list[int]]]:
    """Return the user's ranges, each with the positions of its records; leave out the warm-up.

    A range of `--range-by` has the records of its executions. Any other range has the records of
    all work that began to run on the thread of the range during the range. If the profile has no
    work on this thread, the range has the work that this thread dispatched during the range. If the
    thread dispatched no work either, the range has all work that began to run during the range.
    """
    spans = [it for it in profile.spans if it.category == "user_annotation" and not it.warmup]
    if not spans:
        return []  # saves the memory that the steps below take for each record
    begun = [*records]
    made_of, starts = executions_by_range(profile), starts_by_thread(begun)
    parts: dict[int | None, list[int]] = {}
    for place, (execution, _) in enumerate(begun):
        parts.setdefault(execution, []).append(place)
    found = []
    for span in spans:
        if same := made_of.get(span):
            # Ranges of the same name without length may be equal.
            places = [place for execution in same.pop() for place in parts.get(execution, ())]
        else:
            known = starts.get(span.thread, starts[None])
            first = bisect_left(known, (span.start_ns,))
            last = bisect_left(known, (span.end_ns,))
            places = [place for _, place in known[first:last]]
        found.append((span, places))
    return found


def executions_by_range(profile: Profile) -> dict[Span, list[list[int]]]:
    """For each range of `--range-by`, return the positions of its timed executions.

    A range that occurs several times has several lists of positions.
    """
    executions = profile.timed_executions
    found: dict[Span, list[list[int]]] = {}
    for pattern, name in patterns_of(profile.facts.options):
        with contextlib.suppress(re.error):  # a damaged file may hold a wrong pattern
            for run in runs_of_pattern(pattern, profile.operators, executions):
                span = span_of_run(name, [executions[place] for place in run])
                found.setdefault(span, []).append(run)
    return found


def starts_of(execution: Execution) -> Starts:
    """Return pairs (thread, start): of an execution and, if it is known, of its dispatch."""
    starts = [(execution.thread, execution.start_ns)]
    if execution.dispatch_start_ns is not None and execution.dispatch_thread is not None:
        starts.append((execution.dispatch_thread, execution.dispatch_start_ns))
    return tuple(starts)


def starts_by_thread(begun: Sequence[Begun]) -> dict[int | None, list[tuple[int, int]]]:
    """Return the sorted begins of records by thread; the key None has the begins of all records.

    If no record ran on a thread, the result has the begins of the records that this thread
    dispatched.
    """
    ran: dict[int | None, list[tuple[int, int]]] = {None: []}
    dispatched: dict[int | None, list[tuple[int, int]]] = {}
    for place, (_, ((thread, start_ns), *earlier)) in enumerate(begun):
        ran.setdefault(thread, []).append((start_ns, place))
        ran[None].append((start_ns, place))
        for thread, start_ns in earlier:
            dispatched.setdefault(thread, []).append((start_ns, place))
    return {thread: sorted(starts) for thread, starts in (dispatched | ran).items()}
