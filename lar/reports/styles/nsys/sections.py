"""The statistics as `nsys profile --stats` of 2020 printed them: a section for each kind of event.

Numbers are right-aligned in columns of fixed width, names padded to 80 characters or the longest,
and cut at 333; the rule below `Name` has at most 116 dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from lar.records.profile import Profile
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table
from lar.reports.styles.nsys.groups import (
    API_CALLS,
    KERNELS,
    MEMORY_SIZES,
    MEMORY_TIMES,
    OS_CALLS,
    OS_CALLS_OF_PROFILER,
    OS_CALLS_OF_REST,
    OS_PARTS_APART,
    OS_SOURCES,
    PUSH_POP,
    Group,
    Source,
    events_of_style,
    notes_of_os_events,
    sort_by_group,
    source_of_events,
)

NAME_WIDTH = 80
NAME_LIMIT = 333
LAYOUT = Layout(under=Rule(longest=116))
# The columns that are left out first on a narrow terminal, those of 0 never.
RANKS = {
    **dict.fromkeys(("Calls", "Instances", "Operations", "Total Time", "Total", "Median"), 0),
    **{"Time(%)": 1, "P90": 2, "Disturbed": 2, "Average": 3, "Minimum": 4, "Maximum": 4},
}


class Section(NamedTuple):
    """One section: `title` on a device, `host_title` on a CPU.

    `banner` says whether the line `Generating ...` is before it, `gap` how many lines are empty
    after it. `counted` heads the column of counts; a section without is one of sizes.
    """

    name: str
    title: str
    host_title: str
    source: Source
    counted: str = ""
    sort: str = "typical"
    banner: bool = True
    gap: int = 4
    label: str = "Name"


MEMORY = "CUDA Memory Operation Statistics", "Memory Operation Statistics"
OS_RUNTIME = "Operating System Runtime API Statistics"
RANGES = source_of_events(
    events_of_style(PUSH_POP), "NV Tools Extension (NVTX) data", "ranges of the user"
)
SECTIONS = (
    Section("api_calls", "CUDA API Statistics", "Engine API Statistics", API_CALLS, "Calls"),
    Section(
        "computation",
        "CUDA Kernel Statistics",
        "Operator Algorithm Statistics",
        KERNELS,
        "Instances",
        gap=3,
    ),
    Section("memory_time", *MEMORY, MEMORY_TIMES, "Operations", gap=2),
    Section("memory_size", *MEMORY, MEMORY_SIZES, sort="name", banner=False),
    Section("os_runtime", OS_RUNTIME, OS_RUNTIME, OS_CALLS, "Calls"),
    Section(
        "os_runtime_rest",
        *(f"{OS_RUNTIME} outside the iterations",) * 2,
        OS_CALLS_OF_REST,
        "Calls",
    ),
    Section(
        "os_runtime_profiler",
        *(f"{OS_RUNTIME} of the profiler",) * 2,
        OS_CALLS_OF_PROFILER,
        "Calls",
    ),
    Section(
        "ranges",
        "NVTX Push-Pop Range Statistics",
        "User Range Statistics",
        RANGES,
        "Instances",
        label="Range",
    ),
)


def build_sections(
    profile: Profile, sort: str | None, top: int | None, pattern: str | None
) -> tuple[list[str | AnyTable], list[AnyTable]]:
    """Return the text of all sections, and the tables of those that have rows."""
    lines: list[str | AnyTable] = []
    tables: list[AnyTable] = []
    for section in SECTIONS:
        title = section.title if profile.on_device else section.host_title
        heading = f"{title} ({'nanoseconds' if section.counted else 'KiB'})"
        groups: list[Group] = section.source.rows(profile, pattern)
        if section.source in OS_PARTS_APART and not groups:
            continue
        lines += [f"Generating {title}..."] if section.banner else []
        lines += [heading, ""]
        if groups:
            columns = time_columns(section.counted) if section.counted else SIZE_COLUMNS
            table = Table(
                name=section.name,
                title=heading,
                columns=(
                    *columns,
                    *(
                        call_columns(groups, in_text=not profile.on_device)
                        if section.source is KERNELS
                        else ()
                    ),
                    name_column(section.label),
                ),
                rows=tuple(sort_by_group(groups, sort or section.sort, lambda it: it)[:top]),
                notes=notes_of_os_events(profile) if section.source in OS_SOURCES else (),
                layout=LAYOUT,
            )
            lines += [table, *table.notes]
            tables.append(table)
        else:
            lines.append(section.source.skipped(profile, pattern))
        lines += [""] * section.gap
    while lines and not lines[-1]:
        lines.pop()
    return lines, tables


def name_column(label: str) -> Column[Group]:
    return Column(
        *(label, lambda it: it.name, lambda it: it.name[:NAME_LIMIT]),
        width=NAME_WIDTH,
        rank=0,
    )


def time_columns(counted: str) -> tuple[Column[Group], ...]:
    """Return the columns of a section of times; records are rounded as the text."""

    def whole(title: str, name: str) -> Column[Group]:
        return time_column(title, lambda it: it.figure(name), str)

    return (
        number_column("Time(%)", 7, lambda it: round(it.share, 1), lambda it: f"{it.share:.1f}"),
        number_column("Total Time", 14, attrgetter("total"), key="Total Time (ns)"),
        number_column(counted, 10, attrgetter("count")),
        time_column("Average", lambda it: rounded(it.figure("average")), "{:.1f}".format),
        whole("Minimum", "minimum"),
        whole("Maximum", "maximum"),
    )


def time_column(
    title: str,
    value: Callable[[Group], float | None],
    text: Callable[[float], str],
    *,
    in_text: bool = True,
) -> Column[Group]:
    """Return a column of times in nanoseconds; text has `-` for one that is not known."""
    return number_column(
        *(title, 14, value),
        lambda row: "-" if (known := value(row)) is None else text(known),
        f"{title} (ns)",
        in_text=in_text,
    )


def rounded(time_ns: float | None) -> float | None:
    return None if time_ns is None else round(time_ns, 1)


def call_columns(groups: Sequence[Group], *, in_text: bool) -> tuple[Column[Group], ...]:
    """Return the columns of operators that this version of nsys has not; beside the kernels of a
    device they stand in records alone."""

    def time(title: str, name: str) -> Column[Group]:
        return time_column(
            title, lambda it: rounded(it.figure(name)), "{:.1f}".format, in_text=in_text
        )

    return (
        time("Median", "median"),
        time("P90", "p90"),
        number_column(
            *("Disturbed", 10, lambda it: it.disturbed),
            lambda it: str(it.disturbed or ""),
            in_text=in_text and any(it.disturbed for it in groups),
        ),
    )


def number_column(
    title: str,
    width: int,
    value: Callable[[Group], Cell],
    text: Callable[[Group], str] | None = None,
    key: str = "",
    *,
    in_text: bool = True,
) -> Column[Group]:
    return Column(
        *(title, value, text),
        key=key,
        align="right",
        width=width,
        is_fixed=True,
        in_text=in_text,
        rank=RANKS[title],
    )


def size_column(title: str, width: int) -> Column[Group]:
    size: Callable[[Group], float] = attrgetter(title.lower())
    return number_column(
        title,
        width,
        lambda it: round(size(it) / 1024, 3),
        lambda it: f"{size(it) / 1024:.3f}",
        f"{title} (KiB)",
    )


SIZE_COLUMNS = (
    size_column("Total", 19),
    number_column("Operations", 14, attrgetter("count")),
    size_column("Average", 19),
    size_column("Minimum", 17),
    size_column("Maximum", 19),
)
