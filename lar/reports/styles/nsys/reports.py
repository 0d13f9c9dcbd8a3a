"""The reports of `nsys stats`, by their names, in the layout of its versions since 2022.

NVIDIA's post-collection analysis guide describes their columns. Each column is as wide as its
widest cell; headers are centred, numbers right-aligned without separators of thousands, and names
longer than 100 characters cut. On a CPU the reports of CUDA have their counterparts under names of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from lar.profiles.devices import device_number, kernel_name_of
from lar.profiles.disturbance import disturbed_executions, is_recorded
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
    OS_SOURCES,
    PUSH_POP,
    START_END,
    SYSTEM_CALLS,
    SYSTEM_CALLS_OF_PROFILER,
    SYSTEM_CALLS_OF_REST,
    Event,
    Group,
    Source,
    events_of_style,
    grid_events,
    groups_of,
    matcher_of,
    notes_of_os_events,
    range_events,
    sort_by_group,
    source_of_events,
)
from lar.reports.styles.nsys.launches import LaunchTimes, launch_times, launches_in_ranges

NAME_LIMIT = 100
MEGABYTE = 1_000_000
# Of each unit the nanoseconds, and the decimals of times in it. Those of seconds are ours: what
# nsys prints of them was not seen.
UNITS = {"ns": (1, 1), "us": (1_000, 3), "ms": (1_000_000, 4), "s": (1_000_000_000, 5)}
LAYOUT = Layout(start=" ", under=Rule(left=" "), header_align="middle")
# The columns that are left out first on a narrow terminal, those of 0 never; of the others, the
# last goes first. Figures of a part of the time are ranked by the end of their titles.
RANKS = {
    **dict.fromkeys(("Num Calls", "Instances", "Count", "Range Instances", "Kern Inst"), 0),
    **dict.fromkeys(("Total Time", "Total", "Med", "TMed", "Proj Med"), 0),
    **dict.fromkeys(("Name", "Range", "Operation", "Kernel Name", "NVTX Range"), 0),
    **{"P90": 2, "Disturbed": 2, "PID": 8, "DevId": 7, "QCount": 6},
}
RANKS_OF_ENDS = {"Med": 2, "P90": 4, "KTotal": 4, "Avg": 3, "Min": 4, "Max": 4, "StdDev": 6}

# Integers, percentages and decimals (with one decimal), bytes, whole nanoseconds, and nanoseconds
# with a fraction.
Kind = Literal["text", "number", "percent", "decimal", "size", "time", "mean"]


class Heading(NamedTuple):
    """A column whose title and text depend on the unit of times; `value` is None if it is not
    known. nsys has none that `is_added`, and its reports of a device have none either."""

    title: str
    kind: Kind
    value: Callable[[Any], str | int | float | None]
    is_added: bool = False


def spread_of(
    group: str = "",
    prefix: str = "",
    kinds: tuple[Kind, Kind] = ("mean", "time"),
    *,
    of_operators: bool = False,
) -> tuple[Heading, ...]:
    """Return the columns of a group of a row, or of the row itself, which may have none; those of
    operators have a percentile too."""
    group_of: Callable[[Any], Group | None] = attrgetter(group) if group else lambda row: row

    def heading(title: str, kind: Kind, name: str) -> Heading:
        def value(row: Any) -> float | None:
            own = group_of(row)
            return None if own is None else own.figure(name)

        return Heading(prefix + title, kind, value)

    mean, whole = kinds
    return (
        heading("Avg", mean, "average"),
        heading("Med", mean, "median"),
        *((heading("P90", mean, "p90")._replace(is_added=True),) if of_operators else ()),
        heading("Min", whole, "minimum"),
        heading("Max", whole, "maximum"),
        heading("StdDev", mean, "deviation"),
    )


# How many executions of a row something else on the machine made longer.
DISTURBED = Heading("Disturbed", "number", lambda row: group_of(row).disturbed, is_added=True)


def time_columns(count: str, *names: str, of_operators: bool = False) -> tuple[Heading, ...]:
    """Return the columns of a report of times; the last are the texts of a group's key."""

    def text(title: str, place: int) -> Heading:
        return Heading(title, "text", lambda group: group.key[place])

    return (
        Heading("Time", "percent", attrgetter("share")),
        Heading("Total Time", "time", attrgetter("total")),
        Heading(count, "number", attrgetter("count")),
        *spread_of(of_operators=of_operators),
        *((DISTURBED,) if of_operators else ()),
        *(text(title, place) for place, title in enumerate(names)),
    )


SIZE_COLUMNS = (
    Heading("Total", "size", attrgetter("total")),
    Heading("Count", "number", attrgetter("count")),
    *spread_of(kinds=("size", "size")),
    Heading("Operation", "text", attrgetter("name")),
)


class LaunchRow(NamedTuple):
    """Launches of a thread, an API call and a kernel: total, API, queue and kernel time."""

    thread: int
    device: int | None
    api: str | None
    kernel: str
    group: Group
    calls: Group
    queue: Group | None
    runs: Group


LAUNCH_COLUMNS = (
    Heading("PID", "number", lambda row: None),
    Heading("TID", "number", attrgetter("thread")),
    Heading("DevId", "number", attrgetter("device")),
    Heading("Count", "number", attrgetter("group.count")),
    Heading("QCount", "number", lambda row: row.queue.count if row.queue else 0),
    *spread_of("group", "T", of_operators=True),
    *spread_of("calls", "A", of_operators=True),
    *spread_of("queue", "Q", of_operators=True),
    *spread_of("runs", "K", of_operators=True),
    Heading("KTotal", "time", attrgetter("runs.total"), is_added=True),
    DISTURBED,
    Heading("API Name", "text", attrgetter("api")),
    Heading("Kernel Name", "text", attrgetter("kernel")),
)


def launch_rows(profile: Profile, pattern: str | None) -> list[LaunchRow]:
    launches: dict[tuple[int, str | None, str], list[LaunchTimes]] = {}
    matches = matcher_of(profile, pattern)
    for launch in launch_times(profile):
        if matches(launch.kernel_name, launch.operator):
            key = (launch.thread, launch.api_name, launch.kernel_name)
            launches.setdefault(key, []).append(launch)
    number = device_number(profile.facts.device) if profile.on_device else None
    rows = []
    for (thread, api, kernel), members in launches.items():
        owners: list[int | None] = [launch.operator for launch in members]
        known = [it.disturbed for it in members if it.disturbed is not None]
        count = sum(known) if known else None
        total = Group((kernel,), [launch.total_ns for launch in members], 0.0, owners, count)
        calls = Group((kernel,), [launch.api_ns for launch in members])
        queued = [launch.queue_ns for launch in members if launch.queue_ns is not None]
        queue = Group((kernel,), queued) if queued else None
        times_ns = [launch.kernel_ns for launch in members]
        runs = Group((kernel,), times_ns, is_estimate=profile.has_estimates)
        rows.append(LaunchRow(thread, number, api, kernel, total, calls, queue, runs))
    return rows


class ProjectionRow(NamedTuple):
    """The ranges of one name, each with the time from the first to the last of its operations on a
    device; the lists have a figure for each range."""

    name: str
    style: str
    group: Group
    ranges_ns: Sequence[int]
    operations: Sequence[int]
    levels: Sequence[int]
    children: Sequence[int]


PROJECTION_COLUMNS = (
    Heading("Range", "text", attrgetter("name")),
    Heading("Style", "text", attrgetter("style")),
    Heading("Total Proj Time", "time", attrgetter("group.total")),
    Heading("Total Range Time", "time", lambda row: sum(row.ranges_ns)),
    Heading("Range Instances", "number", attrgetter("group.count")),
    *spread_of("group", "Proj "),
    Heading("Total GPU Ops", "number", lambda row: sum(row.operations)),
    Heading("Avg GPU Ops", "decimal", lambda row: sum(row.operations) / row.group.count),
    Heading("Avg Range Lvl", "decimal", lambda row: sum(row.levels) / row.group.count),
    Heading("Avg Num Child", "decimal", lambda row: sum(row.children) / row.group.count),
)


def projection_rows(profile: Profile, pattern: str | None) -> list[ProjectionRow]:
    """Return the ranges by name; one that has launched nothing on a device has no row."""
    projected: dict[tuple[str, str], list[tuple[int, int, int, int, int]]] = {}
    matches = matcher_of(profile, pattern)
    for each in launches_in_ranges(profile) if profile.on_device else ():
        runs = [execution.computation for execution in each.executions]
        if runs and matches(each.span.name, None):
            length = max(end for _, end in runs) - min(start for start, _ in runs)
            figures = (length, each.span.duration_ns, len(runs), each.level, each.children)
            projected.setdefault((each.span.name, each.style), []).append(figures)
    rows = []
    for (name, style), members in projected.items():
        lengths, *figures_of = zip(*members, strict=True)
        rows.append(ProjectionRow(name, style, Group((name,), [*lengths]), *figures_of))
    return rows


class RangeKernelRow(NamedTuple):
    """The runs of a kernel in the ranges of one name."""

    name: str
    style: str
    thread: int
    ranges: int
    group: Group


RANGE_KERNEL_COLUMNS = (
    Heading("NVTX Range", "text", attrgetter("name")),
    Heading("Style", "text", attrgetter("style")),
    Heading("PID", "number", lambda row: None),
    Heading("TID", "number", attrgetter("thread")),
    Heading("NVTX Inst", "number", attrgetter("ranges")),
    Heading("Kern Inst", "number", attrgetter("group.count")),
    Heading("Total Time", "time", attrgetter("group.total")),
    *spread_of("group", of_operators=True),
    DISTURBED,
    Heading("Kernel Name", "text", attrgetter("group.name")),
)


def range_kernel_rows(profile: Profile, pattern: str | None) -> list[RangeKernelRow]:
    """Return kernels by the ranges that they were launched in, every one around them."""
    events: dict[tuple[str, str, int, str], list[Event]] = {}
    instances: dict[tuple[str, str, int, str], set[int]] = {}
    matches = matcher_of(profile, pattern)
    disturbed = disturbed_executions(profile) if is_recorded(profile) else None
    for number, each in enumerate(launches_in_ranges(profile)):
        for place, execution in zip(each.places, each.executions, strict=True):
            kernel = kernel_name_of(profile.operators[execution.operator])
            if matches(kernel, execution.operator):
                key = (each.span.name, each.style, each.span.thread, kernel)
                was_disturbed = None if disturbed is None else place in disturbed
                event = Event(
                    (kernel,),
                    execution.compute_ns,
                    execution.operator,
                    was_disturbed,
                    profile.has_estimates,
                )
                events.setdefault(key, []).append(event)
                instances.setdefault(key, set()).add(number)
    return [
        RangeKernelRow(*key[:3], len(instances[key]), *groups_of(own))
        for key, own in events.items()
    ]


class NamedReport(NamedTuple):
    """A report; `host_name` and `host_title` are those on a CPU, where they differ."""

    title: str
    columns: tuple[Heading, ...]
    source: Source
    host_name: str = ""
    host_title: str = ""


NVTX = "NV Tools Extension (NVTX) data"
REPORTS: Mapping[str, NamedReport] = {
    "cuda_api_sum": NamedReport(
        "CUDA API Summary",
        time_columns("Num Calls", "Name"),
        API_CALLS,
        "engine_api_sum",
        "Engine API Summary",
    ),
    "cuda_gpu_kern_sum": NamedReport(
        "CUDA GPU Kernel Summary",
        time_columns("Instances", "Name", of_operators=True),
        KERNELS,
        "algorithm_sum",
        "Operator Algorithm Summary",
    ),
    "cuda_gpu_kern_gb_sum": NamedReport(
        "CUDA GPU Kernel/Grid/Block Summary",
        time_columns("Instances", "GridXYZ", "BlockXYZ", "Name"),
        source_of_events(grid_events, "CUDA kernel data"),
    ),
    "cuda_kern_exec_sum": NamedReport(
        "CUDA Kernel Launch & Exec Time Summary",
        LAUNCH_COLUMNS,
        Source(launch_rows, "CUDA kernel data", "dispatches of operators"),
        "operator_exec_sum",
        "Operator Dispatch & Exec Time Summary",
    ),
    "cuda_gpu_mem_time_sum": NamedReport(
        "CUDA GPU MemOps Summary (by Time)",
        time_columns("Count", "Operation"),
        MEMORY_TIMES,
        "mem_time_sum",
        "MemOps Summary (by Time)",
    ),
    "cuda_gpu_mem_size_sum": NamedReport(
        "CUDA GPU MemOps Summary (by Size)",
        SIZE_COLUMNS,
        MEMORY_SIZES,
        "mem_size_sum",
        "MemOps Summary (by Size)",
    ),
    "osrt_sum": NamedReport("OS Runtime Summary", time_columns("Num Calls", "Name"), OS_CALLS),
    "osrt_rest_sum": NamedReport(
        "OS Runtime Summary outside the iterations",
        time_columns("Num Calls", "Name"),
        OS_CALLS_OF_REST,
    ),
    "osrt_profiler_sum": NamedReport(
        "OS Runtime Summary of the profiler",
        time_columns("Num Calls", "Name"),
        OS_CALLS_OF_PROFILER,
    ),
    "syscall_sum": NamedReport("Syscall Summary", time_columns("Num Calls", "Name"), SYSTEM_CALLS),
    "syscall_rest_sum": NamedReport(
        "Syscall Summary outside the iterations",
        time_columns("Num Calls", "Name"),
        SYSTEM_CALLS_OF_REST,
    ),
    "syscall_profiler_sum": NamedReport(
        "Syscall Summary of the profiler",
        time_columns("Num Calls", "Name"),
        SYSTEM_CALLS_OF_PROFILER,
    ),
    "nvtx_sum": NamedReport(
        "NVTX Range Summary",
        time_columns("Instances", "Style", "Range"),
        source_of_events(range_events, NVTX),
    ),
    "nvtx_pushpop_sum": NamedReport(
        "NVTX Push/Pop Range Summary",
        time_columns("Instances", "Range"),
        source_of_events(events_of_style(PUSH_POP), NVTX),
    ),
    "nvtx_startend_sum": NamedReport(
        "NVTX Start/End Range Summary",
        time_columns("Instances", "Range"),
        source_of_events(events_of_style(START_END), NVTX),
    ),
    "nvtx_kern_sum": NamedReport(
        "NVTX Range Kernel Summary",
        RANGE_KERNEL_COLUMNS,
        Source(range_kernel_rows, "kernels within NVTX ranges", "operators within ranges"),
        "nvtx_algorithm_sum",
        "NVTX Range Algorithm Summary",
    ),
    "nvtx_gpu_proj_sum": NamedReport(
        "NVTX GPU Projection Summary",
        PROJECTION_COLUMNS,
        Source(projection_rows, "operations of a GPU within NVTX ranges"),
    ),
}
# The reports of the parts of a run that stand apart, which come with the report of the first.
PARTS = {
    "osrt_sum": ("osrt_rest_sum", "osrt_profiler_sum"),
    "syscall_sum": ("syscall_rest_sum", "syscall_profiler_sum"),
}
BY_HOST_NAME = {report.host_name: name for name, report in REPORTS.items() if report.host_name}


def build_reports(
    profile: Profile,
    names: Sequence[str],
    sort: str | None,
    top: int | None,
    pattern: str | None,
    unit: str,
) -> tuple[list[str | AnyTable], list[AnyTable]]:
    """Return the text of the named reports, and the tables of those that have rows."""
    body: list[str | AnyTable] = []
    tables: list[AnyTable] = []
    asked = dict.fromkeys(BY_HOST_NAME.get(name, name) for name in names)
    for name in dict.fromkeys(each for it in asked for each in (it, *PARTS.get(it, ()))):
        report = REPORTS[name]
        if name not in asked and not report.source.rows(profile, pattern):
            continue
        body += [""] if body else []
        shown_name = name if profile.on_device else report.host_name or name
        title = report.title if profile.on_device else report.host_title or report.title
        rows = report.source.rows(profile, pattern)
        if rows:
            is_disturbed = any(group_of(row).disturbed for row in rows)
            table = Table[Any](
                name=shown_name,
                title=f"{title} ({shown_name})",
                columns=tuple(
                    column_of(each, unit, in_text=each is not DISTURBED or is_disturbed)
                    for each in report.columns
                    if not (each.is_added and profile.on_device)
                ),
                rows=tuple(sort_by_group(rows, sort or "typical", group_of)[:top]),
                notes=notes_of_os_events(profile) if report.source in OS_SOURCES else (),
                layout=LAYOUT,
            )
            body += [f" ** {table.title}:", "", table, *(f" {note}" for note in table.notes)]
            tables.append(table)
        else:
            body.append(report.source.skipped(profile, pattern, shown_name))
    return body, tables


def group_of(row: Group | LaunchRow | ProjectionRow | RangeKernelRow) -> Group:
    """Return the group that a row is sorted by."""
    return row if isinstance(row, Group) else row.group


def column_of(heading: Heading, unit: str, *, in_text: bool) -> Column[Any]:
    """Return a column; the values of records are rounded as they are printed."""
    title, kind, value_of, _ = heading
    if kind in ("time", "mean"):
        title += f" ({unit})"
    title += {"percent": " (%)", "size": " (MB)"}.get(kind, "")

    def value(row: Any) -> Cell:
        known = value_of(row)
        if known is None or isinstance(known, str) or kind == "number":
            return known
        text = format_value(known, kind, unit)
        return float(text) if "." in text else int(text)

    return Column(
        title,
        value,
        lambda row: format_value(value_of(row), kind, unit),
        align="left" if kind == "text" else "right",
        in_text=in_text,
        rank=rank_of(heading.title),
    )


def rank_of(title: str) -> int:
    """Return which columns are left out before one."""
    ends = (rank for end, rank in RANKS_OF_ENDS.items() if title.endswith(end))
    return RANKS.get(title, next(ends, 1))


def format_value(value: str | int | float | None, kind: Kind, unit: str) -> str:
    """Format a value; an unknown one is `-`."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value if len(value) <= NAME_LIMIT else value[: NAME_LIMIT - 1] + "…"
    if kind == "size":
        return f"{value / MEGABYTE:.3f}"
    if kind in ("percent", "decimal"):
        return f"{value:.1f}"
    if kind in ("time", "mean"):
        nanoseconds, decimals = UNITS[unit]
        if unit == "ns" and kind == "time":
            return f"{value:.0f}"
        return f"{value / nanoseconds:.{decimals}f}"
    return str(value)
