"""The first of Paddle's tables: how busy the devices were, the kinds of events, the phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from lar.profiles.breakdown import WAITING, without_waiting
from lar.profiles.intervals import intersect_intervals, merge_intervals, total_of
from lar.profiles.times import waiting_calls
from lar.profiles.totals import UNITS_NS, group_by, totals_of
from lar.records.profile import Interval, Span, Step
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.layout import (
    CALLS,
    LAYOUT,
    SPACED,
    Section,
    TimeRow,
    Times,
    both_times,
    format_ratio,
    format_time,
    format_unit,
    name_column,
    times_of,
)
from lar.reports.styles.paddle.run import Settings, TimedRun, WorkSums

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
)
CUDA_CALL = re.compile(r"cu(da)?[A-Z]")
MODEL_NOTES = (
    "In this table, GPU time is the sum of all device(GPU) events called in the phase.",
    "Unlike overview summary, if two device(GPU) events execute on different streams with overlap "
    "time, we sum them directly here.",
)
PHASE_ORDER = ("Dataloader", "InputCopy", "Forward", "OutputCopy")
OTHERS = "Others"
# The phases in which the engine runs, and nearly all waiting lies.
ENGINE = ("Forward",)
WITHOUT_WAITING = (
    f"{WAITING} is no part of the phases (Dataloader, InputCopy, Forward, OutputCopy), which are "
    "without it. ProfileStep and the events of other types have it in them."
)
OF_COPIES = (
    "Copies of the model ran at once: times are summed up over them, and ratios are those to the "
    "sum of their steps."
)
NAME_WIDTH = 15


def phase_calls(run: TimedRun) -> tuple[dict[str, list[list[Span]]], dict[str, list[list[Span]]]]:
    """Return the phases within timed steps and those outside, by the name of their row: a list of
    calls, each a list of spans. Dispatch and wait of a step are one Forward."""
    steps = {step.number: step for step in run.steps}
    inside: dict[str, list[list[Span]]] = {}
    outside: dict[str, list[list[Span]]] = {}
    forward: dict[int, list[Span]] = {}
    for span in run.profile.spans_of("phase", timed=False):
        name = "Forward" if span.name == "wait" else camel_case(span.name)
        step = steps.get(span.step) if span.step is not None else None
        if span.step is None:
            outside.setdefault(name, []).append([span])
        elif step is None or span.warmup:
            continue
        elif not is_within(span, step):
            outside.setdefault(name, []).append([span])
        elif name != "Forward":
            inside.setdefault(name, []).append([span])
        elif step.number in forward:
            forward[step.number].append(span)
        else:
            forward[step.number] = [span]
            inside.setdefault(name, []).append(forward[step.number])
    return inside, outside


def is_within(span: Span, step: Step) -> bool:
    """Return whether a span has time in common with a step, or lasts no time within it."""
    start, end = max(span.start_ns, step.start_ns), min(span.end_ns, step.end_ns)
    return start < end or start == end == span.start_ns == span.end_ns


def camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def phase_rows(run: TimedRun) -> list[TimeRow]:
    """Return the phases of the timed steps: times on the host without waiting for a CPU, and of the
    kernels begun in them, as plain sums; the ratio on a device is that to all kernels."""
    inside, _ = phase_calls(run)
    times_ns = phase_times(run, inside)
    kernels = [each for each in run.activities if each.kind == "Kernel"]
    work = WorkSums((each.launch_ns, each.duration_ns) for each in kernels)
    whole_ns = sum(each.duration_ns for each in kernels)
    known = [name for name in PHASE_ORDER if name in inside]
    rows = []
    for name in [*known, *(name for name in inside if name not in known)]:
        calls = inside[name]
        cpu = totals_of(times_ns[name])
        gpu = totals_of(
            sum(work.total_between(*span.interval) for span in spans) for spans in calls
        )
        cells = times_of(cpu, run.step_ns), times_of(gpu, whole_ns)
        rows.append(TimeRow(name, len(calls), *cells, level=1))
    return rows


def phase_times(run: TimedRun, inside: Mapping[str, list[list[Span]]]) -> dict[str, list[int]]:
    """Return how long each call of the phases in steps took without waiting for a CPU, of which a
    step is known to have waited so long, not when."""
    times = {
        name: [sum(span.duration_ns for span in spans) for spans in calls]
        for name, calls in inside.items()
    }
    by_step: dict[int, list[tuple[str, int]]] = {}  # the calls of each by name and place
    for name, calls in inside.items():
        for place, spans in enumerate(calls):
            by_step.setdefault(spans[0].step or 0, []).append((name, place))
    for step in run.steps:
        own = by_step.get(step.number, [])
        whole: dict[str, int] = {OTHERS: step.duration_ns}
        for name, place in own:
            whole[name] = whole.get(name, 0) + times[name][place]
            whole[OTHERS] -= times[name][place]
        whole[OTHERS] = max(0, whole[OTHERS])
        left, _ = without_waiting(whole, run.waits_ns.get(step.number, 0), ENGINE)
        for name, place in own:
            if whole[name]:
                # Rounded down: what is left then is in the row of the others.
                times[name][place] = times[name][place] * left[name] // whole[name]
    return times


def waiting_row(run: TimedRun) -> list[TimeRow]:
    """Return what the steps waited for a CPU; no row if none is known to have."""
    waits = [ns for ns in run.waits_ns.values() if ns]
    cpu = times_of(totals_of(waits), run.step_ns)
    return [TimeRow(WAITING, len(waits), cpu, None, level=1)] if waits else []


def model_rows(run: TimedRun) -> list[TimeRow]:
    """Return the steps, their phases, what they waited for a CPU, the rest of the steps, and the
    phases outside, which have no ratio."""
    kernel_ns = {step.number: 0 for step in run.steps}
    for each in run.activities:
        if each.kind == "Kernel" and each.step in kernel_ns:
            kernel_ns[each.step] += each.duration_ns
    step, gpu = totals_of(each.duration_ns for each in run.steps), totals_of(kernel_ns.values())
    whole = TimeRow(
        "ProfileStep", step.calls, times_of(step, run.step_ns), times_of(gpu, gpu.total_ns)
    )
    phases = [*phase_rows(run), *waiting_row(run)]
    left_ns = step.total_ns - sum(row.cpu.total_ns or 0 for row in phases if row.cpu)
    gpu_left_ns = gpu.total_ns - sum(row.gpu.total_ns or 0 for row in phases if row.gpu)
    gpu_ratio = gpu_left_ns / gpu.total_ns if gpu.total_ns else 0.0
    others = TimeRow(
        OTHERS,
        None,
        Times(left_ns, ratio=left_ns / run.step_ns),
        Times(gpu_left_ns, ratio=gpu_ratio),
        level=1,
    )
    return [whole, *phases, others, *outside_rows(run)]


def outside_rows(run: TimedRun) -> list[TimeRow]:
    """Return the phases outside the timed steps, the warm-up iterations among them."""
    _, outside = phase_calls(run)
    durations = {name: [each[0].duration_ns for each in calls] for name, calls in outside.items()}
    if "Warmup" not in durations:
        warmup = [step.duration_ns for step in run.profile.steps if step.warmup]
        durations |= {"Warmup": warmup} if warmup else {}
    return [
        TimeRow(name, len(values), times_of(totals_of(values), 0)._replace(ratio=None), None)
        for name, values in durations.items()
    ]


def model_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the times of the iteration's phases, empty if the profile has no phases."""
    rows, unit = model_rows(run), settings.unit
    if not phase_calls(run)[0]:
        return []
    width = max(NAME_WIDTH, *(len(indent_name(row)) for row in rows))
    table = Table(
        name="model",
        title="Model Summary",
        columns=(
            name_column(width, indent_name),
            CALLS,
            *both_times(unit, on_device=run.profile.on_device),
        ),
        rows=tuple(rows),
        notes=(*MODEL_NOTES, *((OF_COPIES,) if run.has_copies else ())),
        layout=SPACED,
        above=(format_unit(unit),),
    )
    return [Section(table)]


def indent_name(row: TimeRow) -> str:
    return "  " * row.level + row.name


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
        percent = 100 * total_of(merge_intervals(intervals)) / run.elapsed_ns
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
                        rank=0,
                    ),
                ),
                rows=tuple(rows),
                notes=DEVICE_NOTES,
                layout=LAYOUT,
            )
        )
    ]


def overview_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the time of each kind of event; what overlaps in a copy of the model counts once.

    The phases of the iteration are plain sums, as in the table of phases, and so is waiting, which
    is no part of them.
    """
    unit = settings.unit
    waiting = waiting_row(run)
    host = events_of_copies(run, host_events)
    host += [
        (row.name, row.calls or 0, row.cpu.total_ns)
        for row in (*phase_rows(run), *waiting)
        if row.cpu is not None and row.cpu.total_ns is not None
    ]
    host.sort(key=lambda row: -row[2])

    rows = [EventKind("CPU", "  " if number else "", *row) for number, row in enumerate(host)]
    rows += [EventKind("GPU", "  ", *row) for row in events_of_copies(run, device_events)]
    notes = (
        *OVERVIEW_NOTES,
        *((WITHOUT_WAITING,) if waiting else ()),
        *((OF_COPIES,) if run.has_copies else ()),
    )
    table = Table(
        name="overview",
        title="Overview Summary",
        columns=kind_columns(unit, run.step_ns),
        rows=tuple(rows),
        notes=notes,
        layout=SPACED,
        above=(format_unit(unit),),
        breaks={len(host): ("", "Calls", "GPU Time", "Ratio (%)")},
    )
    return [Section(table)]


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
        Column("Calls", lambda row: row.calls, width=25, is_fixed=True, rank=0),
        Column(
            "CPU Time",
            lambda row: row.time_ns / UNITS_NS[unit],
            lambda row: format_time(row.time_ns, unit),
            key=f"Time ({unit})",
            width=25,
            is_fixed=True,
            rank=0,
        ),
        Column(
            "Ratio (%)",
            lambda row: 100 * row.time_ns / step_ns,
            lambda row: format_ratio(row.time_ns / step_ns),
            width=25,
            is_fixed=True,
            rank=1,
        ),
    )


Events = list[tuple[str, int, float]]  # name, calls, time


def events_of_copies(run: TimedRun, events_of: Callable[[TimedRun], Events]) -> Events:
    """Return the kinds of events of each copy of the model, summed up over these."""
    sums: dict[str, tuple[int, float]] = {}
    for copy in run.copies:
        for name, calls, time_ns in events_of(copy):
            before = sums.get(name, (0, 0.0))
            sums[name] = before[0] + calls, before[1] + time_ns
    return [(name, *sum_of_kind) for name, sum_of_kind in sums.items()]


def host_events(run: TimedRun) -> Events:
    """Return the kinds of events on the host without the phases: name, calls, merged time. Calls
    that only wait take no CPU time."""
    steps = merge_intervals(step.interval for step in run.steps)
    ranges = [span for span in run.user_ranges if run.host_ns_of(span) is not None]
    clipped = intersect_intervals(merge_intervals(intervals_of(ranges)), steps)
    calls = [span for span in run.profile.spans_of("runtime") if span.operator is None]
    cuda = [span for span in calls if CUDA_CALL.match(span.name)]
    others = [span for span in calls if not CUDA_CALL.match(span.name)]
    inner, waiting = inner_intervals(run), waiting_calls(run.profile)
    kinds = (
        ("ProfileStep", len(run.steps), steps),
        ("UserDefined", len(run.host_copies), intervals_of(run.host_copies)),
        ("Operator", len(run.executions), operator_intervals(run)),
        ("CudaRuntime", len(cuda), intervals_of(cuda)),
        ("Runtime", len(others), intervals_of(each for each in others if id(each) not in waiting)),
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
    dispatched = [times for each in run.executions if (times := each.dispatch) is not None]
    executed = () if run.profile.on_device else (each.work for each in run.executions)
    return [*dispatched, *executed]


def inner_intervals(run: TimedRun) -> list[Interval]:
    """Return the recorded parts of operators on the host without what they wait: dispatch,
    compute."""
    intervals = intervals_of(
        span for span in run.profile.spans_of("runtime") if span.operator is not None
    )
    on_device = run.profile.on_device
    for each in run.executions:
        dispatch, waits = each.dispatch, each.wait_ns is not None
        if dispatch is not None and (waits or not on_device):
            intervals.append(dispatch)
        if waits and not on_device:
            intervals.append(each.work)
    return intervals


def device_events(run: TimedRun) -> Events:
    """Return the kinds of events on the devices in the order they are first seen."""
    return [
        (kind, len(own), total_of(merge_intervals((each.start_ns, each.end_ns) for each in own)))
        for kind, own in group_by(run.activities, lambda each: each.kind).items()
    ]
