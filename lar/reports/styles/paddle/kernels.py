"""Paddle's table of kernels, and what stands in their place where an engine reports none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lar.profiles.devices import kernel_name_of
from lar.profiles.operator_filter import operators_matching
from lar.profiles.totals import totals_of
from lar.reports.model import Table
from lar.reports.styles.paddle.layout import (
    CALLS,
    LAYOUT,
    Section,
    TimeRow,
    both_times,
    format_unit,
    name_column,
    times_of,
)
from lar.reports.styles.paddle.run import Settings, TimedRun
from lar.reports.styles.paddle.sorting import sort_rows

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
    where = "gpu" if on_device else "cpu"
    key = settings.sort if settings.sort.lstrip("+-").startswith(where) else f"{where}_total"
    rows = sort_rows(kernel_rows(run, settings.filter or ""), key, lambda row: row)[: settings.top]
    if not rows:
        return []
    return [
        Section(
            Table(
                name="kernel",
                title=TITLE,
                columns=(
                    name_column(NAME_WIDTH, lambda row: format_kernel(row.name)),
                    CALLS,
                    both_times(unit)[on_device],
                ),
                rows=tuple(rows),
                notes=kernel_notes(run),
                layout=LAYOUT,
                above=(format_unit(unit),),
            )
        )
    ]


def kernel_rows(run: TimedRun, pattern: str) -> list[TimeRow]:
    """Return the kernels by name, those whose name or operator matches a pattern: the ratio is
    that to all of them."""
    kernels = list(kernels_of(run))
    shown = operators_matching(run.profile, pattern)
    times: dict[str, list[int]] = {}
    for name, operator, duration_ns in kernels:
        if operator in shown or re.search(pattern, name):
            times.setdefault(name, []).append(duration_ns)
    whole_ns = sum(duration_ns for _, _, duration_ns in kernels)
    rows = []
    for name, durations in times.items():
        cell = times_of(totals_of(durations), whole_ns)
        cpu, gpu = (None, cell) if run.profile.on_device else (cell, None)
        rows.append(TimeRow(name, len(durations), cpu, gpu))
    return rows


def kernels_of(run: TimedRun) -> Iterator[tuple[str, int | None, int]]:
    """Yield name, operator and nanoseconds of each kernel, or of what stands in its place."""
    for activity in run.activities:
        if activity.kind == "Kernel":
            place = activity.execution
            operator = None if place is None else run.executions[place].operator
            yield activity.name, operator, activity.duration_ns
    if not run.profile.on_device:
        names = [kernel_name_of(operator) for operator in run.profile.operators]
        for execution in run.executions:
            yield names[execution.operator], execution.operator, execution.compute_ns


def kernel_notes(run: TimedRun) -> tuple[str, ...]:
    if run.reports_kernels:
        return ()
    return (STAND_IN_NOTE,) if run.profile.on_device else (STAND_IN_NOTE, HOST_NOTE)


def format_kernel(name: str) -> str:
    """Return a kernel's name without its arguments, cut to the width of its column."""
    templated = re.match(r"(.+?)(<.*>)(\(.*\))", name)
    if templated:
        name = templated[1] + templated[2]
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 3] + "..."
