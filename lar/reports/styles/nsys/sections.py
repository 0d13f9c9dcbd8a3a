"""The statistics as `nsys profile --stats` of 2020 printed them: a section for each kind of event.

Numbers are right-aligned in columns of fixed width, names padded to 80 characters or the longest,
and cut at 333; the rule below `Name` has at most 116 dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lar.records.profile import Profile
from lar.reports.document import ReportTable
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

TIME_WIDTHS = (7, 14, 10, 14, 14, 14)
SIZE_WIDTHS = (19, 14, 19, 17, 19)
NAME_WIDTH = 80
NAME_LIMIT = 333
RULE_LIMIT = 116


class Section(NamedTuple):
    """One section: `title` on a device, `host_title` on a CPU, which is none.

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
) -> tuple[str, list[ReportTable]]:
    """Return all sections as text, and the tables of those that have rows."""
    lines: list[str] = []
    tables = []
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
            lines += format_section(section, shown, total)
            lines += notes
            tables.append(table_of(section, title, shown, total, notes))
        else:
            lines.append(skipped_line(events, missing_of(section, profile)))
        lines += [""] * section.gap
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n", tables


def title_of(section: Section, profile: Profile) -> str:
    return section.title if profile.on_device else section.host_title


def missing_of(section: Section, profile: Profile) -> str:
    return section.missing if profile.on_device else section.host_missing


def skipped_line(events: Sequence[Event], missing: str) -> str:
    """Say why there are no rows."""
    if events:
        return "SKIPPED: nothing in it matches --filter."
    return f"SKIPPED: the profile does not contain {missing}."


def notes_of(section: Section, profile: Profile) -> tuple[str, ...]:
    if section.name != "os_runtime":
        return ()
    return tuple(f"Source: {source}" for source in sources_of_os_events(profile))


def format_section(section: Section, shown: Sequence[Group], total: int) -> list[str]:
    """Return header, rule and rows."""
    longest = max(len(group.name) for group in shown)
    name_width = min(max(NAME_WIDTH, longest), NAME_LIMIT)
    if section.counted:
        header = ["Time(%)", "Total Time", section.counted, "Average", "Minimum", "Maximum"]
    else:
        header = ["Total", "Operations", "Average", "Minimum", "Maximum"]
    widths = TIME_WIDTHS if section.counted else SIZE_WIDTHS
    rule = ["-" * width for width in widths]
    lines = [
        format_line(header, widths, section.label, name_width),
        format_line(rule, widths, "-" * min(name_width, RULE_LIMIT), name_width),
    ]
    for group in shown:
        cells = time_cells(group, total) if section.counted else size_cells(group)
        lines.append(format_line(cells, widths, group.name[:NAME_LIMIT], name_width))
    return lines


def format_line(cells: Sequence[str], widths: Sequence[int], name: str, name_width: int) -> str:
    numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join((*numbers, f"{name:<{name_width}}"))


def time_cells(group: Group, total: int) -> tuple[str, ...]:
    return (
        f"{share_of(group, total):.1f}",
        str(group.total),
        str(group.count),
        f"{group.average:.1f}",
        str(group.minimum),
        str(group.maximum),
    )


def size_cells(group: Group) -> tuple[str, ...]:
    total, average, least, most = (
        f"{size / 1024:.3f}" for size in (group.total, group.average, group.minimum, group.maximum)
    )
    return total, str(group.count), average, least, most


def table_of(
    section: Section,
    title: str,
    shown: Sequence[Group],
    total: int,
    notes: tuple[str, ...],
) -> ReportTable:
    """Return the rows as values, rounded as they are printed."""
    columns: tuple[str, ...]
    rows: list[tuple[str | int | float, ...]]
    if section.counted:
        columns = ("Time(%)", "Total Time (ns)", section.counted)
        columns += ("Average (ns)", "Minimum (ns)", "Maximum (ns)", section.label)
        rows = [
            (
                round(share_of(group, total), 1),
                group.total,
                group.count,
                round(group.average, 1),
                group.minimum,
                group.maximum,
                group.name,
            )
            for group in shown
        ]
    else:
        columns = ("Total (KiB)", "Operations")
        columns += ("Average (KiB)", "Minimum (KiB)", "Maximum (KiB)", section.label)
        rows = [
            (
                round(group.total / 1024, 3),
                group.count,
                round(group.average / 1024, 3),
                round(group.minimum / 1024, 3),
                round(group.maximum / 1024, 3),
                group.name,
            )
            for group in shown
        ]
    unit = "nanoseconds" if section.counted else "KiB"
    return ReportTable(
        name=section.name,
        title=f"{title} ({unit})",
        columns=columns,
        rows=tuple(rows),
        notes=notes,
    )
