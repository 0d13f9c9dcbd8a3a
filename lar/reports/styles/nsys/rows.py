"""The rows of the reports of `nsys stats`, with values as they are known, and their headings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from lar.profiles.devices import device_number, kernel_name_of, kernel_runs
from lar.records.profile import Profile
from lar.reports.styles.nsys.groups import (
    Event,
    Group,
    filter_events,
    groups_of,
    matcher_of,
    memory_size_events,
    share_of,
)
from lar.reports.styles.nsys.launches import (
    LaunchTimes,
    launch_times,
    launches_in_ranges,
)

Value = str | int | float | None


Kind = Literal["text", "number", "percent", "decimal", "size", "time", "mean"]


class Heading(NamedTuple):
    """The content of a column: `kind` is text, number (an integer), percent and decimal (one
    decimal), size (bytes), time (whole nanoseconds) or mean (nanoseconds with a fraction)."""

    title: str
    kind: Kind


class Row(NamedTuple):
    """The values of a row, and the group that it is sorted by."""

    group: Group
    values: tuple[Value, ...]


# Makes the rows of a report from a profile; its second argument is --filter.
MakeRows = Callable[[Profile, str | None], list[Row]]

TIMES = (
    *(Heading("Avg", "mean"), Heading("Med", "mean"), Heading("Min", "time")),
    *(Heading("Max", "time"), Heading("StdDev", "mean")),
)


def time_columns(count: str, *names: str) -> tuple[Heading, ...]:
    """Return the columns of a report of times; the last are texts."""
    texts = (Heading(name, "text") for name in names)
    totals = (Heading("Time", "percent"), Heading("Total Time", "time"), Heading(count, "number"))
    return (*totals, *TIMES, *texts)


def spread_of(group: Group) -> tuple[Value, ...]:
    return group.average, group.median, group.minimum, group.maximum, group.deviation


def time_rows(events: Callable[[Profile], list[Event]]) -> MakeRows:
    """Return what makes the rows of a report of times, whose texts are the events' keys."""

    def make(profile: Profile, pattern: str | None) -> list[Row]:
        groups = groups_of(filter_events(profile, events(profile), pattern))
        total = sum(group.total for group in groups)
        return [
            Row(
                group,
                (
                    share_of(group, total),
                    group.total,
                    group.count,
                    *spread_of(group),
                    *group.key,
                ),
            )
            for group in groups
        ]

    return make


SIZE_COLUMNS = (
    *(Heading("Total", "size"), Heading("Count", "number"), Heading("Avg", "size")),
    *(Heading("Med", "size"), Heading("Min", "size"), Heading("Max", "size")),
    *(Heading("StdDev", "size"), Heading("Operation", "text")),
)


def size_rows(profile: Profile, pattern: str | None) -> list[Row]:
    groups = groups_of(filter_events(profile, memory_size_events(profile), pattern))
    return [
        Row(group, (group.total, group.count, *spread_of(group), *group.key)) for group in groups
    ]


def grid_events(profile: Profile) -> list[Event]:
    """Return kernels by their grid and block; a kernel without a recorded launch has no row."""
    return [
        Event(
            (format_extent(run.grid), format_extent(run.block), run.name),
            run.end_ns - run.start_ns,
            run.operator,
        )
        for run in kernel_runs(profile)
        if run.grid is not None and run.block is not None
    ]


def format_extent(extent: Sequence[int]) -> str:
    return " ".join(f"{size:4d}" for size in extent)


LAUNCH_COLUMNS = (
    *(Heading("PID", "number"), Heading("TID", "number"), Heading("DevId", "number")),
    *(Heading("Count", "number"), Heading("QCount", "number")),
    *(
        Heading(phase + column.title, column.kind)
        for phase in ("T", "A", "Q", "K")
        for column in TIMES
    ),
    *(Heading("API Name", "text"), Heading("Kernel Name", "text")),
)


def launch_rows(profile: Profile, pattern: str | None) -> list[Row]:
    """Return launches by thread, API call and kernel: total, API, queue and kernel time."""
    launches: dict[tuple[int, str | None, str], list[LaunchTimes]] = {}
    matches = matcher_of(profile, pattern)
    for launch in launch_times(profile):
        if matches(launch.kernel_name, launch.operator):
            key = (launch.thread, launch.api_name, launch.kernel_name)
            launches.setdefault(key, []).append(launch)
    number = device_number(profile.facts.device) if profile.on_device else None
    rows = []
    for (thread, api, kernel), members in launches.items():
        total = Group((kernel,), [launch.total_ns for launch in members])
        queued = [launch.queue_ns for launch in members if launch.queue_ns is not None]
        calls = Group((kernel,), [launch.api_ns for launch in members])
        runs = Group((kernel,), [launch.kernel_ns for launch in members])
        queue = spread_of(Group((kernel,), queued)) if queued else (None,) * len(TIMES)
        spreads = (*spread_of(total), *spread_of(calls), *queue, *spread_of(runs))
        counts = (None, thread, number, len(members), len(queued))
        rows.append(Row(total, (*counts, *spreads, api, kernel)))
    return rows


PROJECTION_COLUMNS = (
    *(Heading("Range", "text"), Heading("Style", "text"), Heading("Total Proj Time", "time")),
    *(Heading("Total Range Time", "time"), Heading("Range Instances", "number")),
    *(Heading(f"Proj {column.title}", column.kind) for column in TIMES),
    *(Heading("Total GPU Ops", "number"), Heading("Avg GPU Ops", "decimal")),
    *(Heading("Avg Range Lvl", "decimal"), Heading("Avg Num Child", "decimal")),
)


def projection_rows(profile: Profile, pattern: str | None) -> list[Row]:
    """Return ranges with the time from the first to the last of what they have launched on a
    device; a range without has no row."""
    projected: dict[tuple[str, str], list[tuple[int, int, int, int, int]]] = {}
    matches = matcher_of(profile, pattern)
    for each in launches_in_ranges(profile) if profile.on_device else ():
        runs = [(e.start_ns + (e.wait_ns or 0), e.end_ns) for e in each.executions]
        if runs and matches(each.span.name, None):
            length = max(end for _, end in runs) - min(start for start, _ in runs)
            figures = (length, each.span.duration_ns, len(runs), each.level, each.children)
            projected.setdefault((each.span.name, each.style), []).append(figures)
    rows = []
    for (name, style), members in projected.items():
        lengths, ranges, operations, levels, children = (
            list(each) for each in zip(*members, strict=True)
        )
        group, count = Group((name,), lengths), len(members)
        sums = (group.total, sum(ranges), count)
        averages = (sum(operations) / count, sum(levels) / count, sum(children) / count)
        values = (name, style, *sums, *spread_of(group), sum(operations), *averages)
        rows.append(Row(group, values))
    return rows


RANGE_KERNEL_COLUMNS = (
    *(Heading("NVTX Range", "text"), Heading("Style", "text")),
    *(Heading("PID", "number"), Heading("TID", "number")),
    *(Heading("NVTX Inst", "number"), Heading("Kern Inst", "number")),
    Heading("Total Time", "time"),
    *TIMES,
    Heading("Kernel Name", "text"),
)


def range_kernel_rows(profile: Profile, pattern: str | None) -> list[Row]:
    """Return kernels by the ranges that they were launched in, every one around them."""
    times: dict[tuple[str, str, int, str], list[int]] = {}
    instances: dict[tuple[str, str, int, str], set[int]] = {}
    matches = matcher_of(profile, pattern)
    for number, each in enumerate(launches_in_ranges(profile)):
        for execution in each.executions:
            kernel = kernel_name_of(profile.operators[execution.operator])
            if matches(kernel, execution.operator):
                key = (each.span.name, each.style, each.span.thread, kernel)
                times.setdefault(key, []).append(execution.compute_ns)
                instances.setdefault(key, set()).add(number)
    rows = []
    for key, values in times.items():
        name, style, thread, kernel = key
        group = Group((kernel,), values)
        counts = (None, thread, len(instances[key]), group.count, group.total)
        rows.append(Row(group, (name, style, *counts, *spread_of(group), kernel)))
    return rows
