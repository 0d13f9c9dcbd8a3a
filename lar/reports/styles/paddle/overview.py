"""The first of Paddle's tables: how busy the devices were, and the kinds of events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from lar.profiles.intervals import intersect_intervals, merge_intervals, total_of
from lar.profiles.totals import UNITS_NS
from lar.records.profile import Interval, Span
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.layout import (
    LAYOUT,
    Section,
    format_ratio,
    format_time,
    format_unit,
)
from lar.reports.styles.paddle.model import phase_rows
from lar.reports.styles.paddle.run import Settings, TimedRun

DEVICE_NOTES = (
    "CPU(Process) Utilization = Current process CPU time over all cpu cores / elapsed time, "
    "so max utilization can be reached 100% * number of cpu cores.",
    "CPU(System) Utilization = All processes CPU time over all cpu cores(busy time) / "
    "(busy time + idle time).",
    "GPU Utilization = Current process GPU time / elapsed time.",
)
OVERVIEW_NOTES = (
    "In this table, We sum up all collected events in terms of event type.",
    "The time of events collected on host are presented as CPU Time, and as GPU Time if on device.",
    "Events with different types may overlap or inclusion, e.g. Operator includes OperatorInner, "
    "so the sum of ratios is not 100%.",
    "The time of events in the same type with overlap will not calculate twice, and all time is "
    "summed after merged.",
    "Example:",
    "Thread 1:",
    "  Operator: |___________|     |__________|",
    "Thread 2:",
    "  Operator:   |____________|     |___|",
    "After merged:",
    "  Result:   |______________|  |__________|",
    "",
)
CUDA_CALL = re.compile(r"cu(da)?[A-Z]")


def device_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return how busy the CPUs and devices were, in percent; kernels alone count for a device."""
    cpu = run.profile.facts.cpu
    rows: list[tuple[str, float | None]] = [
        ("CPU(Process)", cpu.process_percent),
        ("CPU(System)", cpu.system_percent),
    ]
    kernels: dict[int, list[Interval]] = {}
    for each in run.activities:
        if each.kind == "Kernel":
            kernels.setdefault(each.device, []).append((each.start_ns, each.end_ns))
    for number, intervals in sorted(kernels.items()):
        percent = 100 * total_of(merge_intervals(intervals)) / run.step_ns
        rows.append((f"GPU{number}", percent))
    return [
        Section(
            Table(
                name="device",
                title="Device Summary",
                columns=(
                    Column("Device", itemgetter(0), width=30, is_fixed=True),
                    Column(
                        "Utilization (%)",
                        itemgetter(1),
                        lambda row: "-" if row[1] is None else f"{row[1]:.2f}",
                        width=20,
                        is_fixed=True,
                    ),
                ),
                rows=tuple(rows),
                notes=DEVICE_NOTES,
                layout=LAYOUT,
            )
        )
    ]


def overview_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the time of each kind of event, what overlaps counted once.

    The phases of the iteration are plain sums, as in the table of phases.
    """
    unit = settings.unit
    host = host_events(run)
    for row in phase_rows(run):
        if row.cpu is not None and row.cpu.total_ns is not None:
            host.append((row.name, row.calls or 0, row.cpu.total_ns))
    host.sort(key=lambda row: -row[2])
    device = device_events(run)

    rows = [EventKind("CPU", "  " if number else "", *row) for number, row in enumerate(host)]
    rows += [EventKind("GPU", "  ", *row) for row in device]
    table = Table(
        name="overview",
        title="Overview Summary",
        columns=kind_columns(unit, run.step_ns),
        rows=tuple(rows),
        notes=OVERVIEW_NOTES[:-1],
        layout=LAYOUT,
        above=(format_unit(unit),),
        breaks={len(host): ("", "Calls", "GPU Time", "Ratio (%)")},
    )
    return [Section(table, (replace(table, notes=OVERVIEW_NOTES),))]


class EventKind(NamedTuple):
    """A kind of events, which stands `indent` from the left."""

    where: str
    indent: str
    name: str
    calls: int
    time_ns: float


def kind_columns(unit: str, step_ns: int) -> tuple[Column[EventKind], ...]:
    """Return the columns of the overview; the ratio is that to the steps."""
    return (
        Column("Where", lambda row: row.where, in_text=False),
        Column(
            "Event Type",
            lambda row: row.name,
            lambda row: row.indent + row.name,
            width=25,
            is_fixed=True,
        ),
        Column("Calls", lambda row: row.calls, width=25, is_fixed=True),
        Column(
            "CPU Time",
            lambda row: row.time_ns / UNITS_NS[unit],
            lambda row: format_time(row.time_ns, unit),
            key=f"Time ({unit})",
            width=25,
            is_fixed=True,
        ),
        Column(
            "Ratio (%)",
            lambda row: 100 * row.time_ns / step_ns,
            lambda row: format_ratio(row.time_ns / step_ns),
            width=25,
            is_fixed=True,
        ),
    )


def host_events(run: TimedRun) -> list[tuple[str, int, float]]:
    """Return the kinds of events on the host but for phases: name, calls, merged time."""
    steps = merge_intervals(step.interval for step in run.steps)
    ranges = [span for span in run.user_ranges if run.host_ns_of(span) is not None]
    clipped = intersect_intervals(merge_intervals(intervals_of(ranges)), steps)
    calls = [span for span in run.profile.spans_of("runtime") if span.operator is None]
    cuda = [span for span in calls if CUDA_CALL.match(span.name)]
    others = [span for span in calls if not CUDA_CALL.match(span.name)]
    inner = inner_intervals(run)
    kinds = (
        ("ProfileStep", len(run.steps), steps),
        ("UserDefined", len(run.host_copies), intervals_of(run.host_copies)),
        ("Operator", len(run.executions), operator_intervals(run)),
        ("CudaRuntime", len(cuda), intervals_of(cuda)),
        ("Runtime", len(others), intervals_of(others)),
        ("OperatorInner", len(inner), inner),
        ("PythonUserDefined", len(ranges) if clipped else 0, clipped),
    )
    return [
        (name, count, total_of(merge_intervals(intervals)))
        for name, count, intervals in kinds
        if count
    ]


def intervals_of(spans: Iterable[Span]) -> list[Interval]:
    return [span.interval for span in spans]


def operator_intervals(run: TimedRun) -> list[Interval]:
    """Return when operators kept the host busy: being dispatched, on a CPU executed too."""
    intervals = []
    for each in run.executions:
        if not run.profile.on_device:
            intervals.append(each.interval)
        if (dispatch := each.dispatch) is not None:
            intervals.append(dispatch)
    return intervals


def inner_intervals(run: TimedRun) -> list[Interval]:
    """Return the recorded parts of operators on the host: dispatch, wait, compute."""
    intervals = intervals_of(
        span for span in run.profile.spans_of("runtime") if span.operator is not None
    )
    on_device = run.profile.on_device
    for each in run.executions:
        dispatch, waits = each.dispatch, each.wait_ns is not None
        if dispatch is not None and (waits or not on_device):
            intervals.append(dispatch)
        if waits and not on_device:
            intervals += [(each.start_ns, each.computation[0]), each.computation]
    return intervals


def device_events(run: TimedRun) -> list[tuple[str, int, float]]:
    """Return the kinds of events on the devices in the order they are first seen."""
    groups: dict[str, list[Interval]] = {}
    for each in run.activities:
        groups.setdefault(each.kind, []).append((each.start_ns, each.end_ns))
    return [
        (kind, len(intervals), total_of(merge_intervals(intervals)))
        for kind, intervals in groups.items()
    ]
