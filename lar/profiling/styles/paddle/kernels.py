"""Paddle's table of kernels, and what stands in their place where an engine tells of none."""

from __future__ import annotations

import re

from lar.profiling.document import ReportTable
from lar.profiling.styles.paddle.device import algorithm_of
from lar.profiling.styles.paddle.layout import (
    CALLS_WIDTH,
    CPU_TIMES,
    GPU_TIMES,
    TIMES_WIDTH,
    Block,
    Section,
    TimeRow,
    format_count,
    format_table,
    format_times,
    format_unit,
    time_cells,
    time_columns,
    times_of,
    widths_of,
)
from lar.profiling.styles.paddle.run import Settings, TimedRun
from lar.profiling.styles.paddle.sorting import sort_rows
from lar.profiling.totals import totals_of

TITLE = "Kernel Summary"
NAME_WIDTH = 90
STAND_IN_NOTE = (
    "The engine tells of no kernels: in their place stand the algorithms that it has chosen, "
    "and the types of operators without one."
)
HOST_NOTE = "There is no device: the time is that of their computation on the host."


def kernel_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the table of kernels, none where nothing was executed; a note says what stands in
    their place."""
    on_device, unit = run.profile.on_device, settings.unit
    where, header = ("gpu", GPU_TIMES) if on_device else ("cpu", CPU_TIMES)
    key = settings.sort if settings.sort.lstrip("+-").startswith(where) else f"{where}_total"
    rows = sort_rows(kernel_rows(run), key, lambda row: row)[: settings.top]
    if not rows:
        return []
    times = [row.gpu if on_device else row.cpu for row in rows]
    lines = [
        (format_kernel(row.name), format_count(row.calls), format_times(cell, unit))
        for row, cell in zip(rows, times, strict=True)
    ]
    notes = kernel_notes(run)
    text = format_table(
        TITLE,
        (NAME_WIDTH, *widths_of([(1, CALLS_WIDTH), (2, TIMES_WIDTH)], lines)),
        [Block(("Name", "Calls", header), lines)],
        above=[format_unit(unit)],
        notes=notes,
    )
    table = ReportTable(
        name="kernel",
        title=TITLE,
        columns=("Name", "Calls", *time_columns(where.upper(), unit)),
        rows=tuple(
            (row.name, row.calls, *time_cells(cell, unit))
            for row, cell in zip(rows, times, strict=True)
        ),
        notes=notes,
    )
    return [Section(text, table)]


def kernel_rows(run: TimedRun) -> list[TimeRow]:
    """Return the kernels by name: the ratio is that to all of them."""
    times: dict[str, list[int]] = {}
    for activity in run.activities:
        if activity.kind == "Kernel":
            times.setdefault(activity.name, []).append(activity.duration_ns)
    if not run.profile.on_device:
        for execution in run.executions:
            name = algorithm_of(run.profile, execution)
            times.setdefault(name, []).append(execution.compute_ns)
    whole_ns = sum(map(sum, times.values()))
    rows = []
    for name, durations in times.items():
        cell = times_of(totals_of(durations), whole_ns)
        cpu, gpu = (None, cell) if run.profile.on_device else (cell, None)
        rows.append(TimeRow(name, len(durations), cpu, gpu))
    return rows


def kernel_notes(run: TimedRun) -> tuple[str, ...]:
    if run.tells_kernels:
        return ()
    return (STAND_IN_NOTE,) if run.profile.on_device else (STAND_IN_NOTE, HOST_NOTE)


def format_kernel(name: str) -> str:
    """Return a kernel's name without its arguments, cut to the width of its column."""
    templated = re.match(r"(.+?)(<.*>)(\(.*\))", name)
    if templated:
        name = templated[1] + templated[2]
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 3] + "..."
