"""Groups of durations or sizes by name, for the statistics of nsys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

from lar.profiles.devices import is_of_device, kernel_runs
from lar.profiles.operator_filter import operators_matching
from lar.records.profile import Category, Profile, Span

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
    """The values of one row, nanoseconds or bytes."""

    key: tuple[str, ...]
    values: list[int] = field(repr=False)

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
    "total": lambda group: group.total,
    "count": lambda group: group.count,
    "average": lambda group: group.average,
    "median": lambda group: group.median,
    "minimum": lambda group: group.minimum,
    "maximum": lambda group: group.maximum,
    "stddev": lambda group: group.deviation,
    "name": lambda group: group.name,
}


def groups_of(events: Iterable[Event]) -> list[Group]:
    """Put events together by their key, in the order of the first."""
    values: dict[tuple[str, ...], list[int]] = {}
    for event in events:
        values.setdefault(event.key, []).append(event.value)
    return [Group(key, members) for key, members in values.items()]


def sort_groups(groups: Iterable[Group], key: str) -> list[Group]:
    """Sort by a key of SORT_KEYS: names from A, all else from the greatest; +KEY and -KEY say
    which is wanted."""
    name = key.lstrip("+-")
    ascending = key.startswith("+") or (name == "name" and not key.startswith("-"))
    return sorted(groups, key=SORT_KEYS[name], reverse=not ascending)


def share_of(group: Group, total: int) -> float:
    """Return the part of a total in percent, 0 of nothing."""
    return 100 * group.total / total if total else 0.0


def matcher_of(profile: Profile, pattern: str | None) -> Callable[[str, int | None], bool]:
    """Return a test of whether a name, or an operator's name or type, matches `pattern`."""
    if pattern is None:
        return lambda name, operator: True
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return lambda name, operator: operator in operators or search(name) is not None


def filter_events(profile: Profile, events: Iterable[Event], pattern: str | None) -> list[Event]:
    """Return the events that match a regular expression."""
    matches = matcher_of(profile, pattern)
    return [event for event in events if matches(event.key[-1], event.operator)]


def spans_without_warmup(profile: Profile, *categories: Category) -> list[Span]:
    """Return the spans of some categories, also those before the first iteration."""
    return [span for span in profile.spans_of(*categories, timed=False) if not span.warmup]


def api_events(profile: Profile) -> list[Event]:
    spans = spans_without_warmup(profile, "runtime")
    return [Event((span.name,), span.duration_ns) for span in spans]


def kernel_events(profile: Profile) -> list[Event]:
    return [
        Event((run.name,), run.end_ns - run.start_ns, run.operator) for run in kernel_runs(profile)
    ]


def memory_spans(profile: Profile) -> list[Span]:
    """Return the memory operations of the device, on a CPU those of the host."""
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


def sources_of_os_events(profile: Profile) -> tuple[str, ...]:
    """Return what recorded the calls of the operating system."""
    sources = {span.source for span in spans_without_warmup(profile, "osrt") if span.source}
    return tuple(sorted(sources))


def range_events(profile: Profile) -> list[Event]:
    """Return the user's ranges: style and name."""
    return [
        Event((range_style_of(span), span.name), span.duration_ns)
        for span in spans_without_warmup(profile, "user_annotation")
    ]


def push_pop_events(profile: Profile) -> list[Event]:
    return events_of_style(profile, PUSH_POP)


def start_end_events(profile: Profile) -> list[Event]:
    return events_of_style(profile, START_END)


def events_of_style(profile: Profile, style: str) -> list[Event]:
    events = range_events(profile)
    return [event._replace(key=event.key[1:]) for event in events if event.key[0] == style]


def range_style_of(span: Span) -> str:
    """Return the style in the words of NVTX; a range of lar opens and closes on its thread."""
    return START_END if (span.style or "").lower().startswith("start") else PUSH_POP
