"""Groups of durations or sizes by name, and the events of a profile that make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lar.profiles.devices import is_of_device
from lar.profiles.launches import launches_of
from lar.profiles.operator_filter import operators_matching
from lar.records.profile import Category, Profile, Span
from lar.reports.sorting import sort_rows

Row = TypeVar("Row")

# Calls of the operating system that are shorter are left out, as nsys does.
OS_CALL_MINIMUM_NS = 1000
PUSH_POP, START_END = "PushPop", "StartEnd"


class Event(NamedTuple):
    """One event to count: `key` is what makes a row, its last item the name; `value` is in
    nanoseconds or bytes; `operator` counts in `Profile.operators`."""

    key: tuple[str, ...]
    value: int
    operator: int | None = None


@dataclass(frozen=True)
class Group:
    """The values of one row, nanoseconds or bytes; `share` is their part of all in percent."""

    key: tuple[str, ...]
    values: list[int] = field(repr=False)
    share: float = 0.0

    @property
    def name(self) -> str:
        return self.key[-1]

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
    def deviation(self) -> float:
        """The standard deviation of a sample (n-1), 0 of a single value as in nsys."""
        count = len(self.values)
        if count < 2:
            return 0.0
        squares = sum(value * value for value in self.values)
        return sqrt((count * squares - self.total**2) / (count * (count - 1)))


SORT_KEYS: Mapping[str, Callable[[Group], Any]] = {
    **{key: attrgetter(key) for key in ("total", "count", "average", "median")},
    **{key: attrgetter(key) for key in ("minimum", "maximum", "name")},
    "stddev": attrgetter("deviation"),
}


def groups_of(events: Iterable[Event]) -> list[Group]:
    """Put events together by their key, in the order of the first."""
    values: dict[tuple[str, ...], list[int]] = {}
    for event in events:
        values.setdefault(event.key, []).append(event.value)
    whole = sum(map(sum, values.values()))
    return [
        Group(key, members, 100 * sum(members) / whole if whole else 0.0)
        for key, members in values.items()
    ]


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
    spans = spans_without_warmup(profile, "runtime")
    return [Event((span.name,), span.duration_ns) for span in spans]


def kernel_events(profile: Profile) -> list[Event]:
    return [Event((it.kernel,), it.piece.duration_ns, it.place) for it in launches_of(profile)]


def grid_events(profile: Profile) -> list[Event]:
    """Return kernels by their grid and block; a kernel without a recorded launch has no row."""
    return [
        Event(
            (format_extent(it.grid), format_extent(it.block), it.kernel),
            it.piece.duration_ns,
            it.place,
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
    return [Event((span.name,), span.duration_ns, span.operator) for span in memory_spans(profile)]


def memory_size_events(profile: Profile) -> list[Event]:
    """Return the sizes that are known, in bytes."""
    return [
        Event((span.name,), span.size_bytes, span.operator)
        for span in memory_spans(profile)
        if span.size_bytes is not None
    ]


def os_events(profile: Profile) -> list[Event]:
    return [
        Event((span.name,), span.duration_ns)
        for span in spans_without_warmup(profile, "osrt")
        if span.duration_ns >= OS_CALL_MINIMUM_NS
    ]


def system_call_events(profile: Profile) -> list[Event]:
    """Return the system calls that strace recorded, however short."""
    spans = spans_without_warmup(profile, "osrt")
    return [
        Event((span.name,), span.duration_ns) for span in spans if "strace" in (span.source or "")
    ]


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
OS_CALLS = source_of_events(os_events, "OS Runtime trace data")
