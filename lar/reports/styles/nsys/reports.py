"""The reports of `nsys stats`, by their names, in the layout of its versions since 2022.

NVIDIA's post-collection analysis guide describes their columns. Each column is as wide as its
widest cell; headers are centred, numbers right-aligned without separators of thousands, and names
longer than 100 characters cut. On a CPU the reports of CUDA have their counterparts under names of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lar.records.profile import Profile
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table
from lar.reports.styles.nsys.groups import (
    api_events,
    kernel_events,
    memory_time_events,
    os_events,
    push_pop_events,
    range_events,
    sort_groups,
    sources_of_os_events,
    start_end_events,
    system_call_events,
)
from lar.reports.styles.nsys.rows import (
    LAUNCH_COLUMNS,
    PROJECTION_COLUMNS,
    RANGE_KERNEL_COLUMNS,
    SIZE_COLUMNS,
    Heading,
    MakeRows,
    Row,
    Value,
    grid_events,
    launch_rows,
    projection_rows,
    range_kernel_rows,
    size_rows,
    time_columns,
    time_rows,
)

NAME_LIMIT = 100
MEGABYTE = 1_000_000
# Of each unit the nanoseconds, and the decimals of times in it. Those of seconds are ours: what
# nsys prints of them was not seen.
UNITS = {"ns": (1, 1), "us": (1_000, 3), "ms": (1_000_000, 4), "s": (1_000_000_000, 5)}
LAYOUT = Layout(start=" ", under=Rule(left=" "), header_align="middle")
# The columns that are left out first on a narrow terminal; of the others, the last goes first.
RANKS = {
    **{"StdDev": 6, "Med": 5, "Min": 4, "Max": 4, "PID": 8, "DevId": 7, "QCount": 6},
    **{"Name": 0, "Range": 0, "Operation": 0, "Kernel Name": 0, "NVTX Range": 0},
}


class NamedReport(NamedTuple):
    """A report; `missing` is what a profile without rows lacks.

    `host_name`, `host_title` and `host_missing` are those on a CPU, where they differ.
    """

    title: str
    missing: str
    columns: tuple[Heading, ...]
    rows: MakeRows
    host_name: str = ""
    host_title: str = ""
    host_missing: str = ""


REPORTS: Mapping[str, NamedReport] = {
    "cuda_api_sum": NamedReport(
        "CUDA API Summary",
        "CUDA trace data",
        time_columns("Num Calls", "Name"),
        time_rows(api_events),
        "engine_api_sum",
        "Engine API Summary",
        "calls of the engine's API",
    ),
    "cuda_gpu_kern_sum": NamedReport(
        "CUDA GPU Kernel Summary",
        "CUDA kernel data",
        time_columns("Instances", "Name"),
        time_rows(kernel_events),
        "algorithm_sum",
        "Operator Algorithm Summary",
        "executions of operators",
    ),
    "cuda_gpu_kern_gb_sum": NamedReport(
        "CUDA GPU Kernel/Grid/Block Summary",
        "CUDA kernel data",
        time_columns("Instances", "GridXYZ", "BlockXYZ", "Name"),
        time_rows(grid_events),
    ),
    "cuda_kern_exec_sum": NamedReport(
        "CUDA Kernel Launch & Exec Time Summary",
        "CUDA kernel data",
        LAUNCH_COLUMNS,
        launch_rows,
        "operator_exec_sum",
        "Operator Dispatch & Exec Time Summary",
        "dispatches of operators",
    ),
    "cuda_gpu_mem_time_sum": NamedReport(
        "CUDA GPU MemOps Summary (by Time)",
        "GPU memory data",
        time_columns("Count", "Operation"),
        time_rows(memory_time_events),
        "mem_time_sum",
        "MemOps Summary (by Time)",
        "memory operations",
    ),
    "cuda_gpu_mem_size_sum": NamedReport(
        "CUDA GPU MemOps Summary (by Size)",
        "GPU memory data",
        SIZE_COLUMNS,
        size_rows,
        "mem_size_sum",
        "MemOps Summary (by Size)",
        "sizes of memory operations",
    ),
    "osrt_sum": NamedReport(
        "OS Runtime Summary",
        "OS Runtime trace data",
        time_columns("Num Calls", "Name"),
        time_rows(os_events),
    ),
    "syscall_sum": NamedReport(
        "Syscall Summary",
        "syscall data",
        time_columns("Num Calls", "Name"),
        time_rows(system_call_events),
    ),
    "nvtx_sum": NamedReport(
        "NVTX Range Summary",
        "NV Tools Extension (NVTX) data",
        time_columns("Instances", "Style", "Range"),
        time_rows(range_events),
    ),
    "nvtx_pushpop_sum": NamedReport(
        "NVTX Push/Pop Range Summary",
        "NV Tools Extension (NVTX) data",
        time_columns("Instances", "Range"),
        time_rows(push_pop_events),
    ),
    "nvtx_startend_sum": NamedReport(
        "NVTX Start/End Range Summary",
        "NV Tools Extension (NVTX) data",
        time_columns("Instances", "Range"),
        time_rows(start_end_events),
    ),
    "nvtx_kern_sum": NamedReport(
        "NVTX Range Kernel Summary",
        "kernels within NVTX ranges",
        RANGE_KERNEL_COLUMNS,
        range_kernel_rows,
        "nvtx_algorithm_sum",
        "NVTX Range Algorithm Summary",
        "operators within ranges",
    ),
    "nvtx_gpu_proj_sum": NamedReport(
        "NVTX GPU Projection Summary",
        "operations of a GPU within NVTX ranges",
        PROJECTION_COLUMNS,
        projection_rows,
    ),
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
    for name in dict.fromkeys(BY_HOST_NAME.get(name, name) for name in names):
        report = REPORTS[name]
        body += [""] if body else []
        shown_name = name if profile.on_device else report.host_name or name
        title = report.title if profile.on_device else report.host_title or report.title
        rows = sort_rows(report.rows(profile, pattern), sort or "total")[:top]
        if rows:
            title = f"{title} ({shown_name})"
            table = table_of(shown_name, title, report, rows, unit, notes_of(profile, name))
            body += [f" ** {title}:", "", table, *(f" {note}" for note in table.notes)]
            tables.append(table)
        elif pattern is not None and report.rows(profile, None):
            body.append(f"SKIPPED: nothing in {shown_name} matches --filter.")
        else:
            missing = report.missing if profile.on_device else report.host_missing
            body.append(f"SKIPPED: the profile does not contain {missing or report.missing}.")
    return body, tables


def sort_rows(rows: Sequence[Row], key: str) -> list[Row]:
    by_group = {id(row.group): row for row in rows}
    return [by_group[id(group)] for group in sort_groups((row.group for row in rows), key)]


def notes_of(profile: Profile, name: str) -> tuple[str, ...]:
    if name != "osrt_sum":
        return ()
    return tuple(f"Source: {source}" for source in sources_of_os_events(profile))


def table_of(
    name: str,
    title: str,
    report: NamedReport,
    rows: Sequence[Row],
    unit: str,
    notes: tuple[str, ...],
) -> Table[Row]:
    """Return the table; the values of records are rounded as they are printed."""
    return Table(
        name=name,
        title=title,
        columns=tuple(
            column_of(heading, place, unit) for place, heading in enumerate(report.columns)
        ),
        rows=tuple(rows),
        notes=notes,
        layout=LAYOUT,
    )


def column_of(heading: Heading, place: int, unit: str) -> Column[Row]:
    """Return the column of the values at a place of the rows."""
    title, kind = heading
    if kind in ("time", "mean"):
        title += f" ({unit})"
    title += {"percent": " (%)", "size": " (MB)"}.get(kind, "")

    def value(row: Row) -> Cell:
        known = row.values[place]
        if known is None or isinstance(known, str) or kind == "number":
            return known
        text = format_value(known, kind, unit)
        return float(text) if "." in text else int(text)

    return Column(
        title,
        value,
        lambda row: format_value(row.values[place], kind, unit),
        align="left" if kind == "text" else "right",
        rank=RANKS.get(heading.title, 1),
    )


def format_value(value: Value, kind: str, unit: str) -> str:
    """Format a value; what is not known as -."""
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
