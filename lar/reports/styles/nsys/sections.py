"""The statistics as `nsys profile --stats` of 2020 printed them: a section for each kind of event.

Numbers are right-aligned in columns of fixed width, names padded to 80 characters or the longest,
and cut at 333; the rule below `Name` has at most 116 dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lar.records.profile import Profile
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table
from lar.reports.styles.nsys.groups import (
    Event,
    Group,
    api_events,
    filter_events,
    groups_of,
    kernel_events,
    memory_size_events,
    memory_time_events,
    os_events,
    push_pop_events,
    share_of,
    sort_groups,
    sources_of_os_events,
)

NAME_WIDTH = 80
NAME_LIMIT = 333
LAYOUT = Layout(under=Rule(longest=116))
# The columns that are left out first on a narrow terminal.
RANKS = {"Minimum": 4, "Maximum": 4, "Average": 3}


class Section(NamedTuple):
    """One section: `title` on a device, `host_title` on a CPU.

    `banner` says whether the line `Generating ...` is before it, `gap` how many lines are empty
    after it. `counted` heads the column of counts; a section without is one of sizes.
    """

    name: str
    title: str
    host_title: str
    events: Callable[[Profile], list[Event]]
    missing: str
    host_missing: str
    counted: str = ""
    sort: str = "total"
    banner: bool = True
    gap: int = 4
    label: str = "Name"


SECTIONS = (
    Section(
        name="api_calls",
        title="CUDA API Statistics",
        host_title="Engine API Statistics",
        events=api_events,
        counted="Calls",
        missing="CUDA trace data",
        host_missing="calls of the engine's API",
    ),
    Section(
        name="computation",
        title="CUDA Kernel Statistics",
        host_title="Operator Algorithm Statistics",
        events=kernel_events,
        counted="Instances",
        missing="CUDA kernel data",
        host_missing="executions of operators",
        gap=3,
    ),
    Section(
        name="memory_time",
        title="CUDA Memory Operation Statistics",
        host_title="Memory Operation Statistics",
        events=memory_time_events,
        counted="Operations",
        missing="GPU memory data",
        host_missing="memory operations",
        gap=2,
    ),
    Section(
        name="memory_size",
        title="CUDA Memory Operation Statistics",
        host_title="Memory Operation Statistics",
        events=memory_size_events,
        missing="GPU memory data",
        host_missing="sizes of memory operations",
        sort="name",
        banner=False,
    ),
    Section(
        name="os_runtime",
        title="Operating System Runtime API Statistics",
        host_title="Operating System Runtime API Statistics",
        events=os_events,
        counted="Calls",
        missing="OS Runtime trace data",
        host_missing="OS Runtime trace data",
    ),
    Section(
        name="ranges",
        title="NVTX Push-Pop Range Statistics",
        host_title="User Range Statistics",
        events=push_pop_events,
        counted="Instances",
        missing="NV Tools Extension (NVTX) data",
        host_missing="ranges of the user",
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
        title = title_of(section, profile)
        if section.banner:
            lines.append(f"Generating {title}...")
        lines.append(f"{title} ({'nanoseconds' if section.counted else 'KiB'})")
        lines.append("")
        events = section.events(profile)
        groups = groups_of(filter_events(profile, events, pattern))
        shown = sort_groups(groups, sort or section.sort)[:top]
        total = sum(group.total for group in groups)
        notes = notes_of(section, profile)
        if shown:
            table = table_of(section, title, shown, total, notes)
            lines += [table, *notes]
            tables.append(table)
        else:
            lines.append(skipped_line(events, missing_of(section, profile)))
        lines += [""] * section.gap
    while lines and not lines[-1]:
        lines.pop()
    return lines, tables


def title_of(section: Section, profile: Profile) -> str:
    return section.title if profile.on_device else section.host_title


def missing_of(section: Section, profile: Profile) -> str:
    return section.missing if profile.on_device else section.host_missing


def skipped_line(events: Sequence[Event], missing: str) -> str:
    """Return the line that explains why a section has no rows."""
    if events:
        return "SKIPPED: nothing in it matches --filter."
    return f"SKIPPED: the profile does not contain {missing}."


def notes_of(section: Section, profile: Profile) -> tuple[str, ...]:
    if section.name != "os_runtime":
        return ()
    return tuple(f"Source: {source}" for source in sources_of_os_events(profile))


def table_of(
    section: Section,
    title: str,
    shown: Sequence[Group],
    total: int,
    notes: tuple[str, ...],
) -> Table[Group]:
    """Return the table; the values of records are rounded as they are printed."""
    unit = "nanoseconds" if section.counted else "KiB"
    columns = time_columns(section, total) if section.counted else size_columns()
    return Table(
        name=section.name,
        title=f"{title} ({unit})",
        columns=(*columns, name_column(section.label)),
        rows=tuple(shown),
        notes=notes,
        layout=LAYOUT,
    )


def name_column(label: str) -> Column[Group]:
    return Column(
        label, lambda it: it.name, lambda it: it.name[:NAME_LIMIT], width=NAME_WIDTH, rank=0
    )


def time_columns(section: Section, total: int) -> tuple[Column[Group], ...]:
    """Return the columns of a section of times."""

    def share(group: Group) -> float:
        return share_of(group, total)

    return (
        number_column("Time(%)", lambda it: round(share(it), 1), lambda it: f"{share(it):.1f}", 7),
        number_column("Total Time", lambda it: it.total, None, 14, "Total Time (ns)"),
        number_column(section.counted, lambda it: it.count, None, 10),
        number_column(
            "Average",
            lambda it: round(it.average, 1),
            lambda it: f"{it.average:.1f}",
            *(14, "Average (ns)"),
        ),
        number_column("Minimum", lambda it: it.minimum, None, 14, "Minimum (ns)"),
        number_column("Maximum", lambda it: it.maximum, None, 14, "Maximum (ns)"),
    )


def size_columns() -> tuple[Column[Group], ...]:
    """Return the columns of a section of sizes."""
    return (
        size_column("Total", lambda it: it.total, 19),
        number_column("Operations", lambda it: it.count, None, 14),
        size_column("Average", lambda it: it.average, 19),
        size_column("Minimum", lambda it: it.minimum, 17),
        size_column("Maximum", lambda it: it.maximum, 19),
    )


def number_column(
    title: str,
    value: Callable[[Group], Cell],
    text: Callable[[Group], str] | None,
    width: int,
    key: str = "",
) -> Column[Group]:
    rank = RANKS.get(title, 1)
    return Column(title, value, text, key=key, align="right", width=width, is_fixed=True, rank=rank)


def size_column(title: str, size: Callable[[Group], float], width: int) -> Column[Group]:
    return number_column(
        title,
        lambda it: round(size(it) / 1024, 3),
        lambda it: f"{size(it) / 1024:.3f}",
        *(width, f"{title} (KiB)"),
    )
