"""Statistics as `nsys profile --stats` of 2020 printed them: a table for each kind of event.

They cover the whole process except the warm-up. Numbers are right-aligned in columns of fixed
width, names padded to 80 characters or the longest, and cut at 333; the rule below `Name` has at
most 116 dashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from lar.profiles.devices import is_of_device
from lar.profiles.launches import launches_of
from lar.profiles.operator_filter import operators_matching
from lar.profiles.system_calls import Part, calls_by_part
from lar.profiles.times import own_times
from lar.profiles.totals import group_by
from lar.records.profile import Category, Profile, Span
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table
from lar.reports.report import Report
from lar.reports.sorting import sort_rows

# Calls of the operating system that are shorter are left out, as nsys does.
OS_CALL_MINIMUM_NS = 1000
WARMUP_ROW = "[warm-up]"
NAME_WIDTH = 80
NAME_LIMIT = 333
LAYOUT = Layout(under=Rule(longest=116))


class Event(NamedTuple):
    """One event: `value` is in nanoseconds or bytes, `operator` counts in `Profile.operators`."""

    name: str
    value: int
    operator: int | None = None


@dataclass(frozen=True)
class Row:
    """The events of one name, in nanoseconds or bytes; `share` is their part of all in percent."""

    name: str
    count: int
    total: int
    minimum: int
    maximum: int
    share: float

    @property
    def average(self) -> float:
        return self.total / self.count


def rows_of(events: Iterable[Event]) -> list[Row]:
    """Put events of one name together, in the order of the first."""
    groups = group_by(events, lambda event: event.name)
    values = {name: [event.value for event in own] for name, own in groups.items()}
    whole = sum(map(sum, values.values()))
    return [
        Row(name, len(own), sum(own), min(own), max(own), 100 * sum(own) / whole if whole else 0.0)
        for name, own in values.items()
    ]


def spans_without_warmup(profile: Profile, *categories: Category) -> list[Span]:
    """Return the spans of some categories, also those before the first iteration."""
    return [span for span in profile.spans_of(*categories, timed=False) if not span.warmup]


def api_calls(profile: Profile) -> Iterable[Event]:
    """Return the calls of the engine, each without those that were made within it."""
    spans = spans_without_warmup(profile, "runtime")
    times_ns = own_times([(span.thread, *span.interval) for span in spans])
    return (Event(span.name, ns) for span, ns in zip(spans, times_ns, strict=True))


def kernels(profile: Profile) -> Iterable[Event]:
    return (Event(it.kernel, it.piece.duration_ns, it.place) for it in launches_of(profile))


def memory_spans(profile: Profile) -> Iterable[Span]:
    """Return the memory operations of the device or, on a CPU, of the host."""
    spans = spans_without_warmup(profile, "memcpy", "memset", "relayout")
    return (span for span in spans if is_of_device(profile, span) == profile.on_device)


def memory_times(profile: Profile) -> Iterable[Event]:
    return (Event(it.name, it.duration_ns, it.operator) for it in memory_spans(profile))


def memory_sizes(profile: Profile) -> Iterable[Event]:
    """Return the sizes that are known."""
    return (
        Event(span.name, span.size_bytes, span.operator)
        for span in memory_spans(profile)
        if span.size_bytes is not None
    )


def ranges(profile: Profile) -> Iterable[Event]:
    """Return the ranges that open and close on one thread: all but NVTX's of start and end."""
    spans = spans_without_warmup(profile, "user_annotation")
    return (
        Event(span.name, span.duration_ns)
        for span in spans
        if not (span.style or "").lower().startswith("start")
    )


def system_calls(part: Part) -> Callable[[Profile], Iterable[Event]]:
    """Return what lists the calls of the operating system in one part of a run; with the rest
    stand those of the warm-up, all in one row."""

    def events(profile: Profile) -> Iterable[Event]:
        calls = calls_by_part(profile)
        named = [(span.name, span) for span in calls.get(part, ())]
        if part == "rest":
            named += [(WARMUP_ROW, span) for span in calls.get("warm-up", ())]
        found = (Event(name, span.duration_ns) for name, span in named)
        return (event for event in found if event.value >= OS_CALL_MINIMUM_NS)

    return events


class Section(NamedTuple):
    """One section: `title` on a device, `host_title` on a CPU, and what a profile lacks that has
    no `events` for it there.

    `counted` heads the column of counts; a section without is one of sizes. `banner` says whether
    the line `Generating ...` is before it, `gap` how many lines are empty after it. One that
    `is_extra`, which nsys does not have, is shown only where it has rows.
    """

    title: str
    host_title: str
    events: Callable[[Profile], Iterable[Event]]
    missing: str
    host_missing: str
    counted: str = ""
    sort: str = "total"
    banner: bool = True
    gap: int = 4
    label: str = "Name"
    is_extra: bool = False


def system_section(part: Part, title: str = "") -> Section:
    heading = f"Operating System Runtime API Statistics{title}"
    missing = "OS Runtime trace data"
    return Section(
        *(heading, heading, system_calls(part), missing, missing),
        counted="Calls",
        is_extra=bool(title),
    )


MEMORY = "CUDA Memory Operation Statistics", "Memory Operation Statistics"
SECTIONS: Mapping[str, Section] = {
    "api_calls": Section(
        *("CUDA API Statistics", "Engine API Statistics", api_calls),
        *("CUDA trace data", "calls of the engine's API", "Calls"),
    ),
    "computation": Section(
        *("CUDA Kernel Statistics", "Operator Algorithm Statistics", kernels),
        *("CUDA kernel data", "executions of operators", "Instances"),
        gap=3,
    ),
    "memory_time": Section(
        *(*MEMORY, memory_times, "GPU memory data", "memory operations", "Operations"), gap=2
    ),
    "memory_size": Section(
        *(*MEMORY, memory_sizes, "GPU memory data", "sizes of memory operations"),
        sort="name",
        banner=False,
    ),
    "os_runtime": system_section("iterations"),
    "os_runtime_rest": system_section("rest", " outside the iterations"),
    "os_runtime_profiler": system_section("profiler", " of the profiler"),
    "ranges": Section(
        *("NVTX Push-Pop Range Statistics", "User Range Statistics", ranges),
        *("NV Tools Extension (NVTX) data", "ranges of the user", "Instances"),
        label="Range",
    ),
}


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Make the sections, or those alone that --view names."""
    matches = matcher_of(profile, options.get("filter"))
    lines: list[str | AnyTable] = []
    tables: list[AnyTable] = []
    for name in options.get("view", SECTIONS):
        section = SECTIONS[name]
        title = section.title if profile.on_device else section.host_title
        heading = f"{title} ({'nanoseconds' if section.counted else 'KiB'})"
        events = [*section.events(profile)]
        if rows := rows_of(filter(matches, events)):
            key = options.get("sort", section.sort)
            table = Table(
                name=name,
                title=heading,
                columns=columns_of(section),
                rows=tuple(sort_by(rows, key)[: options.get("top")]),
                notes=sources_of(profile) if name.startswith("os_runtime") else (),
                layout=LAYOUT,
            )
            shown: Sequence[str | AnyTable] = [table, *table.notes]
            tables.append(table)
        elif section.is_extra and "view" not in options:
            continue
        else:
            missing = section.missing if profile.on_device else section.host_missing
            shown = [f"SKIPPED: the profile does not contain {missing}."]
            if events:
                shown = ["SKIPPED: nothing in it matches --filter."]
        lines += [f"Generating {title}..."] if section.banner else []
        lines += [heading, "", *shown, *[""] * section.gap]
    while lines and not lines[-1]:
        lines.pop()
    return Report(style="nsys", body=tuple(lines), tables=tuple(tables))


def matcher_of(profile: Profile, pattern: str | None) -> Callable[[Event], bool]:
    """Return a test of whether an event's name, or its operator's name or type, matches."""
    if pattern is None:
        return lambda event: True
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return lambda event: event.operator in operators or search(event.name) is not None


def sort_by(rows: Iterable[Row], key: str) -> list[Row]:
    """Sort by a figure or, from A, by name."""
    name = key.lstrip("+-")
    return sort_rows(rows, key, attrgetter(name), smallest_first=name == "name")


def sources_of(profile: Profile) -> tuple[str, ...]:
    """Return what recorded the calls of the operating system."""
    sources = {span.source for span in spans_without_warmup(profile, "osrt") if span.source}
    return tuple(f"Source: {source}" for source in sorted(sources))


def columns_of(section: Section) -> tuple[Column[Row], ...]:
    """Return the columns of a section; records are rounded as the text. On a narrow terminal
    names give way first, then what follows from other columns."""
    name = Column[Row](
        *(section.label, attrgetter("name"), lambda row: row.name[:NAME_LIMIT]),
        width=NAME_WIDTH,
        rank=0,
    )
    if not section.counted:
        return (
            size_column("Total", 19, 0),
            number_column("Operations", 14, 0, attrgetter("count")),
            size_column("Average", 19, 2),
            size_column("Minimum", 17, 1),
            size_column("Maximum", 19, 1),
            name,
        )
    return (
        number_column("Time(%)", 7, 0, lambda row: round(row.share, 1), "{:.1f}".format),
        number_column("Total Time", 14, 0, attrgetter("total"), unit="ns"),
        number_column(section.counted, 10, 0, attrgetter("count")),
        number_column(
            *("Average", 14, 2, lambda row: round(row.average, 1), "{:.1f}".format), unit="ns"
        ),
        number_column("Minimum", 14, 1, attrgetter("minimum"), unit="ns"),
        number_column("Maximum", 14, 1, attrgetter("maximum"), unit="ns"),
        name,
    )


def size_column(title: str, width: int, rank: int) -> Column[Row]:
    size: Callable[[Row], float] = attrgetter(title.lower())
    return number_column(
        *(title, width, rank, lambda row: round(size(row) / 1024, 3), "{:.3f}".format), unit="KiB"
    )


def number_column(
    title: str,
    width: int,
    rank: int,
    value: Callable[[Row], Cell],
    text: Callable[[Cell], str] = str,
    unit: str = "",
) -> Column[Row]:
    return Column(
        *(title, value, lambda row: text(value(row)), unit),
        align="right",
        width=width,
        is_fixed=True,
        rank=rank,
    )
