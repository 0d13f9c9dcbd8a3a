"""Groups of durations or sizes by name, and the events of a profile that make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lar.measurement.statistics import percentile_of, samples_for
from lar.profiles.devices import is_of_device
from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.launches import launches_of
from lar.profiles.operator_filter import operators_matching
from lar.profiles.system_calls import Part, calls_by_part
from lar.profiles.times import own_times
from lar.profiles.totals import ranking_of
from lar.records.profile import Category, Profile, Span
from lar.reports.sorting import sort_rows

Row = TypeVar("Row")

# Calls of the operating system that are shorter are left out, as nsys does.
OS_CALL_MINIMUM_NS = 1000
PUSH_POP, START_END = "PushPop", "StartEnd"
OS_PARTS: tuple[Part, ...] = ("iterations", "rest", "profiler")
WARMUP_ROW = "[warm-up]"


class Event(NamedTuple):
    """One event to count: `key` is what makes a row, its last item the name; `value` is in
    nanoseconds or bytes; `operator` counts in `Profile.operators`, and `disturbed` says that
    something else on the machine made its execution longer, None if that is not known. One that
    `is_estimate` is a time without what profiling cost."""

    key: tuple[str, ...]
    value: int
    operator: int | None = None
    disturbed: bool | None = None
    is_estimate: bool = False


@dataclass(frozen=True)
class Group:
    """The values of one row, nanoseconds or bytes; `share` is their part of all in percent.

    `owners` has the operator of each, empty where they are of none. Of values of an operator that
    are estimates without what profiling cost (`is_estimate`) 0 means that nothing is left.
    """

    key: tuple[str, ...]
    values: list[int] = field(repr=False)
    share: float = 0.0
    owners: list[int | None] = field(default_factory=list, repr=False)
    disturbed: int | None = None
    is_estimate: bool = False

    @property
    def name(self) -> str:
        return self.key[-1]

    def figure(self, name: str) -> float | None:
        """Return a figure of single values, None where it is a time of which nothing is left."""
        value: float | None = getattr(self, name)
        return None if self.is_estimate and not value else value

    @property
    def count(self) -> int:
        return len(self.values)

    @cached_property
    def total(self) -> int:
        return sum(self.values)

    @property
    def average(self) -> float:
        return self.total / len(self.values)

    @property
    def minimum(self) -> int:
        return min(self.values)

    @property
    def maximum(self) -> int:
        return max(self.values)

    @cached_property
    def median(self) -> float:
        ordered, half = sorted(self.values), len(self.values) // 2
        if len(ordered) % 2:
            return float(ordered[half])
        return (ordered[half - 1] + ordered[half]) / 2

    @cached_property
    def p90(self) -> float | None:
        """The 90th percentile, None of too few values."""
        if len(self.values) < samples_for(90):
            return None
        return percentile_of(sorted(self.values), 90)

    @cached_property
    def typical(self) -> float:
        """The median of each operator times its executions, in sum; of what is no operator's work
        the total."""
        return ranking_of(self.values, self.owners) if self.owners else self.total

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of a sample (n-1), 0 of a single value as in nsys."""
        count = len(self.values)
        if count < 2:
            return 0.0
        squares = sum(value * value for value in self.values)
        return sqrt((count * squares - self.total**2) / (count * (count - 1)))


SORT_KEYS: Mapping[str, Callable[[Group], Any]] = {
    **{key: attrgetter(key) for key in ("typical", "total", "count", "average")},
    **{key: attrgetter(key) for key in ("median", "p90", "minimum", "maximum", "name")},
    "stddev": attrgetter("deviation"),
}


def groups_of(events: Iterable[Event]) -> list[Group]:
    """Put events together by their key, in the order of the first."""
    found: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        found.setdefault(event.key, []).append(event)
    whole = sum(event.value for members in found.values() for event in members)
    groups = []
    for key, members in found.items():
        values = [event.value for event in members]
        owners = [event.operator for event in members]
        known = [event.disturbed for event in members if event.disturbed is not None]
        groups.append(
            Group(
                key,
                values,
                100 * sum(values) / whole if whole else 0.0,
                [] if owners.count(None) == len(owners) else owners,
                sum(known) if known else None,
                any(event.is_estimate for event in members),
            )
        )
    return groups


def sort_by_group(rows: Iterable[Row], key: str, group_of: Callable[[Row], Group]) -> list[Row]:
    """Sort by a key of SORT_KEYS, names from A."""
    name = key.lstrip("+-")
    value = SORT_KEYS[name]
    return sort_rows(rows, key, lambda row: value(group_of(row)), smallest_first=name == "name")


def matcher_of(profile: Profile, pattern: str | None) -> Callable[[str, int | None], bool]:
    """Return a test of whether a name, or an operator's name or type, matches `pattern`."""
    if pattern is None:
        return lambda name, operator: True
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return lambda name, operator: operator in operators or search(name) is not None


class Source(NamedTuple):
    """What a report is made of: `rows` takes a profile and what --filter says.

    `missing` is what a profile without any lacks, and on a CPU `host_missing`, where it differs.
    """

    rows: Callable[[Profile, str | None], list[Any]]
    missing: str
    host_missing: str = ""

    def skipped(self, profile: Profile, pattern: str | None, name: str = "it") -> str:
        """Return the line that explains why there are no rows."""
        if pattern is not None and self.rows(profile, None):
            return f"SKIPPED: nothing in {name} matches --filter."
        missing = self.missing if profile.on_device else self.host_missing or self.missing
        return f"SKIPPED: the profile does not contain {missing}."


def source_of_events(
    events_of: Callable[[Profile], list[Event]], missing: str, host_missing: str = ""
) -> Source:
    """Return a source whose rows are groups of events."""

    def rows(profile: Profile, pattern: str | None) -> list[Group]:
        matches = matcher_of(profile, pattern)
        events = events_of(profile)
        return groups_of(it for it in events if matches(it.key[-1], it.operator))

    return Source(rows, missing, host_missing)


def spans_without_warmup(profile: Profile, *categories: Category) -> list[Span]:
    """Return the spans of some categories, also those before the first iteration."""
    return [span for span in profile.spans_of(*categories, timed=False) if not span.warmup]


def api_events(profile: Profile) -> list[Event]:
    """Return the calls of the engine, each without those that were made within it."""
    spans = spans_without_warmup(profile, "runtime")
    times_ns = own_times([(span.thread, *span.interval) for span in spans])
    return [Event((span.name,), own_ns) for span, own_ns in zip(spans, times_ns, strict=True)]


def kernel_events(profile: Profile) -> list[Event]:
    launches = launches_of(profile)
    known, estimates = is_recorded(profile), profile.has_estimates
    disturbed = disturbed_executions(profile)
    return [
        Event(
            (it.kernel,),
            it.piece.duration_ns,
            it.place,
            it.begun.execution in disturbed if known else None,
            estimates,
        )
        for it in launches
    ]


def grid_events(profile: Profile) -> list[Event]:
    """Return kernels by their grid and block; a kernel without a recorded launch has no row."""
    return [
        Event(
            (format_extent(it.grid), format_extent(it.block), it.kernel),
            it.piece.duration_ns,
            it.place,
            is_estimate=profile.has_estimates,
        )
        for it in launches_of(profile)
        if it.grid is not None and it.block is not None
    ]


def format_extent(extent: Sequence[int]) -> str:
    return " ".join(f"{size:4d}" for size in extent)


def memory_spans(profile: Profile) -> list[Span]:
    """Return the memory operations of the device or, on a CPU, of the host."""
    spans = spans_without_warmup(profile, "memcpy", "memset", "relayout")
    return [span for span in spans if is_of_device(profile, span) == profile.on_device]


def memory_time_events(profile: Profile) -> list[Event]:
    estimates = profile.has_estimates
    return [
        Event(
            (span.name,),
            span.duration_ns,
            span.operator,
            is_estimate=estimates and span.operator is not None,
        )
        for span in memory_spans(profile)
    ]


def memory_size_events(profile: Profile) -> list[Event]:
    """Return the sizes that are known, in bytes."""
    return [
        Event((span.name,), span.size_bytes, span.operator)
        for span in memory_spans(profile)
        if span.size_bytes is not None
    ]


def is_listed_call(span: Span) -> bool:
    """Return whether a call of the operating system is long enough to be listed."""
    return span.duration_ns >= OS_CALL_MINIMUM_NS


def is_traced_call(span: Span) -> bool:
    """Return whether strace recorded a call, which counts however short it is."""
    return "strace" in (span.source or "")


def calls_of_part(part: Part, is_counted: Callable[[Span], bool], missing: str) -> Source:
    """Return the source of the calls of the operating system in one part of a run; with the rest
    stand those of the warm-up, all in one row."""

    def events(profile: Profile) -> list[Event]:
        calls = calls_by_part(profile)
        named = [(span.name, span) for span in calls.get(part, ())]
        if part == "rest":
            named += [(WARMUP_ROW, span) for span in calls.get("warm-up", ())]
        return [Event((name,), span.duration_ns) for name, span in named if is_counted(span)]

    return source_of_events(events, missing)


def notes_of_os_events(profile: Profile) -> tuple[str, ...]:
    """Return what recorded the calls of the operating system."""
    sources = {span.source for span in spans_without_warmup(profile, "osrt") if span.source}
    return tuple(f"Source: {source}" for source in sorted(sources))


def range_events(profile: Profile) -> list[Event]:
    """Return the user's ranges: style and name."""
    return [
        Event((range_style_of(span), span.name), span.duration_ns)
        for span in spans_without_warmup(profile, "user_annotation")
    ]


def events_of_style(style: str) -> Callable[[Profile], list[Event]]:
    """Return what lists the user's ranges of a style, by name."""
    return lambda profile: [
        event._replace(key=event.key[1:])
        for event in range_events(profile)
        if event.key[0] == style
    ]


def range_style_of(span: Span) -> str:
    """Return the style in the words of NVTX; a range of lar opens and closes on its thread."""
    return START_END if (span.style or "").lower().startswith("start") else PUSH_POP


# `nsys` counts these in sections and in reports alike.
API_CALLS = source_of_events(api_events, "CUDA trace data", "calls of the engine's API")
KERNELS = source_of_events(kernel_events, "CUDA kernel data", "executions of operators")
MEMORY_TIMES = source_of_events(memory_time_events, "GPU memory data", "memory operations")
MEMORY_SIZES = source_of_events(memory_size_events, "GPU memory data", "sizes of memory operations")
OS_CALLS, OS_CALLS_OF_REST, OS_CALLS_OF_PROFILER = (
    calls_of_part(part, is_listed_call, "OS Runtime trace data") for part in OS_PARTS
)
SYSTEM_CALLS, SYSTEM_CALLS_OF_REST, SYSTEM_CALLS_OF_PROFILER = (
    calls_of_part(part, is_traced_call, "syscall data") for part in OS_PARTS
)
# The parts that stand apart where the profile has calls of them.
OS_PARTS_APART = (OS_CALLS_OF_REST, OS_CALLS_OF_PROFILER)
OS_SOURCES = (OS_CALLS, *OS_PARTS_APART)
