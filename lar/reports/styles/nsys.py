"""The style `nsys`: tables of event statistics, as `nsys profile --stats` of 2020 printed them.

The tables cover the whole process except the warm-up. Numbers are right-aligned in columns of fixed
width. The column of names is as wide as the longest name, and at least 80 characters wide. A name
is cut after 333 characters. The rule below `Name` has at most 116 dashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lar.profiles.activities import Part, calls_by_part, is_of_device, launches_of
from lar.profiles.rows import Figure, asked_for, figure_columns
from lar.profiles.times import Totals, group_by, operators_matching, own_times, totals_of
from lar.records.profile import Category, Profile, Span
from lar.reports.model import AnyTable, Column, Layout, Rule, Table, sort_rows
from lar.reports.report import Report

# Shorter calls of the operating system are left out, as in nsys.
OS_CALL_MINIMUM_NS = 1000
WARMUP_ROW = "[warm-up]"
NAME_WIDTH = 80
NAME_LIMIT = 333
LAYOUT = Layout(under=Rule(longest=116))


class Event(NamedTuple):
    """An event of a profile.

    `value` is in nanoseconds or bytes, and `operator` is an index of `Profile.operators`.
    """

    name: str
    value: int
    operator: int | None = None


@dataclass(frozen=True)
class Row:
    """The totals of all events of one name.

    `times` has the figures of the events: times in nanoseconds, or sizes in bytes. `share` is the
    total of the events of this name, in percent of the total of all events.
    """

    name: str
    times: Totals
    share: float
    saving_ns: None = None


SORTS: Mapping[str, Callable[[Row], Any]] = {
    "total": lambda row: row.times.total_ns,
    "count": lambda row: row.times.calls,
    "average": lambda row: row.times.average_ns,
    "minimum": lambda row: row.times.min_ns,
    "maximum": lambda row: row.times.max_ns,
    "median": lambda row: row.times.median_ns,
    "p90": lambda row: row.times.p90_ns,
    "name": lambda row: row.name,
}


def rows_of(events: Sequence[Event], matches: Callable[[Event], bool]) -> list[Row]:
    """Return the matching events grouped by name; rows keep the order of their first events.

    A share is the part of a row in the total of all events, including events that do not match.
    """
    groups = group_by(filter(matches, events), lambda event: event.name)
    times = {name: totals_of(event.value for event in own) for name, own in groups.items()}
    whole = sum(event.value for event in events) or 1
    return [Row(name, own, 100 * own.total_ns / whole) for name, own in times.items()]


def spans_without_warmup(profile: Profile, *categories: Category) -> list[Span]:
    """Return all spans of some categories except those of the warm-up."""
    return [span for span in profile.spans_of(*categories, timed=False) if not span.warmup]


def api_calls(profile: Profile) -> Iterable[Event]:
    """Return the calls of the engine as events, each with its own time without inner calls."""
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
    """Return the known sizes of memory operations."""
    return (
        Event(span.name, span.size_bytes, span.operator)
        for span in memory_spans(profile)
        if span.size_bytes is not None
    )


def ranges(profile: Profile) -> Iterable[Event]:
    """Return the ranges that begin and end on one thread.

    NVTX's start and end ranges are left out.
    """
    return (
        Event(span.name, span.duration_ns)
        for span in spans_without_warmup(profile, "user_annotation")
        if not (span.style or "").lower().startswith("start")
    )


def system_calls(part: Part) -> Callable[[Profile], Iterable[Event]]:
    """Return a function that lists the calls of the operating system in one part of a run.

    For the part `rest`, the function also lists the calls of the warm-up, all under one name.
    """

    def events(profile: Profile) -> Iterable[Event]:
        calls = calls_by_part(profile)
        named = [(span.name, span) for span in calls.get(part, ())]
        if part == "rest":
            named += [(WARMUP_ROW, span) for span in calls.get("warm-up", ())]
        found = (Event(name, span.duration_ns) for name, span in named)
        return (event for event in found if event.value >= OS_CALL_MINIMUM_NS)

    return events


class Section(NamedTuple):
    """A section of the report.

    `title` is the heading for a device, and `host_title` is the heading for a CPU.

    If `events` finds no event, `missing` (for a device) or `host_missing` (for a CPU) names what
    the profile lacks. `counted` is the title of the column of counts; it is empty for a section of
    sizes. With `banner`, the line `Generating ...` comes first. `gap` empty lines follow the
    section. A section with `is_extra` does not exist in nsys, and is shown only if it has rows.
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
    """Return the report with all sections, or with the sections that --view names."""
    matches = matcher_of(profile, options.get("filter"))
    lines: list[str | AnyTable] = []
    tables: list[AnyTable] = []
    for name in options.get("view", SECTIONS):
        section = SECTIONS[name]
        title = section.title if profile.on_device else section.host_title
        heading = f"{title} ({'nanoseconds' if section.counted else 'KiB'})"
        events = [*section.events(profile)]
        if rows := rows_of(events, matches):
            table = Table(
                name=name,
                title=heading,
                columns=columns_of(section, asked_for(options)),
                rows=tuple(sort_by(rows, options.get("sort", section.sort))[: options.get("top")]),
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
    """Return a function that checks whether an event or its operator matches a pattern."""
    if pattern is None:
        return lambda event: True
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return lambda event: event.operator in operators or search(event.name) is not None


def sort_by(rows: Iterable[Row], key: str) -> list[Row]:
    """Return rows sorted by a figure with the largest first, or by name in alphabetical order."""
    name = key.lstrip("+-")
    return sort_rows(rows, key, SORTS[name], smallest_first=name == "name")


def sources_of(profile: Profile) -> tuple[str, ...]:
    """Return a line for each source from which the operating system's calls are known."""
    sources = {span.source for span in spans_without_warmup(profile, "osrt") if span.source}
    return tuple(f"Source: {source}" for source in sorted(sources))


def columns_of(section: Section, asked: Collection[str]) -> tuple[Column[Row], ...]:
    """Return the columns of a section; CSV and JSON are rounded like the text.

    On a narrow terminal, names are shortened first; columns that can be computed from other columns
    are left out next.
    """

    def added(name: str, figure: Figure) -> Column[Row]:
        return figure_column(*(name.title(), 14, 4, figure.value, 1, "ns"), in_text=name in asked)

    name = Column[Row](
        *(section.label, SORTS["name"], lambda row: row.name[:NAME_LIMIT]), width=NAME_WIDTH, rank=0
    )
    if not section.counted:
        sizes = (("Average", 19, 2), ("Minimum", 17, 1), ("Maximum", 19, 1))
        return (
            size_column("Total", 19, 0),
            figure_column("Operations", 14, 0, SORTS["count"], 0),
            *(size_column(*size) for size in sizes),
            name,
        )
    return (
        figure_column("Time(%)", 7, 0, lambda row: row.share, 1),
        figure_column("Total Time", 14, 0, SORTS["total"], 0, unit="ns"),
        figure_column(section.counted, 10, 0, SORTS["count"], 0),
        figure_column("Average", 14, 2, SORTS["average"], 1, unit="ns"),
        figure_column("Minimum", 14, 1, SORTS["minimum"], 0, unit="ns"),
        figure_column("Maximum", 14, 1, SORTS["maximum"], 0, unit="ns"),
        *figure_columns(("median", "p90"), added),
        name,
    )


def size_column(title: str, width: int, rank: int) -> Column[Row]:
    size = SORTS[title.lower()]
    return figure_column(title, width, rank, lambda row: size(row) / 1024, 3, unit="KiB")


def figure_column(
    title: str,
    width: int,
    rank: int,
    figure: Callable[[Row], float | None],
    decimals: int,
    unit: str = "",
    *,
    in_text: bool = True,
) -> Column[Row]:
    """Return a column of a figure with a number of decimals; an unknown figure is `-`."""

    def value(row: Row) -> float | None:
        known = figure(row)
        return round(known, decimals) if known is not None and decimals else known

    def text(row: Row) -> str:
        known = value(row)
        return "-" if known is None else f"{known:.{decimals}f}"

    return Column(
        *(title, value, text, unit),
        align="right",
        width=width,
        is_fixed=True,
        rank=rank,
        in_text=in_text,
    )
