"""The style `paddle`: the summaries of Paddle's profiler.

The summaries show devices, kinds of events, phases of the iteration, operators with their parts,
kernels, copies, named ranges, and the rate of iterations as in the report of Paddle's timer. On a
CPU the columns of the GPU are 0.00, as in Paddle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeVar

from lar.errors import UsageError
from lar.profiles.activities import (
    DeviceActivity,
    device_activities_of,
    device_number,
    execution_of,
    is_of_device,
    launches_of,
    places_of,
    streams_of,
)
from lar.profiles.breakdown import (
    PROFILING,
    WAITING,
    breakdown_of,
    disturbed_executions,
    split_copies,
)
from lar.profiles.calls import Call, call_of_span, calls_of
from lar.profiles.rows import FIGURES, Figure, asked_for, figure_columns, rows_of, savings_of
from lar.profiles.times import (
    UNITS_NS,
    Totals,
    group_by,
    intersect_intervals,
    merge_intervals,
    only_moves,
    operators_matching,
    self_host_times_of,
    self_times_of,
    total_of,
    totals_of,
)
from lar.records.profile import Interval, Profile, Span
from lar.reports.model import AnyTable, Column, Layout, Rule, Table, sort_rows
from lar.reports.report import Report
from lar.reports.text import cut_end

# The timed iterations of a profile, and the common parts of Paddle's tables


R = TypeVar("R")
Side = Literal["CPU", "GPU"]
DASHES = Rule(right="  ")
LAYOUT = Layout(
    end="  ", over=DASHES, under=DASHES, closing=DASHES, fill="-", note="Note:", empty_lines=2
)
SPACED = replace(LAYOUT, note_lines=1)  # with an empty line after the notes
ADDED = ("saving", "median", "p90", "disturbed")  # columns that Paddle does not have
PARTS = {"Total": "total", "Avg": "mean", "Max": "max", "Min": "min"}


@dataclass(frozen=True)
class TimedRun:
    """A profile with the options of its report, and data that several tables need."""

    profile: Profile
    options: Mapping[str, Any]

    @property
    def side(self) -> Side:
        """The side on which operators compute, CPU or GPU."""
        return "GPU" if self.profile.on_device else "CPU"

    @property
    def unit(self) -> str:
        return str(self.options.get("time_unit", "ms"))

    @cached_property
    def buckets_ns(self) -> Mapping[int, Mapping[str, int]]:
        """The parts of each step's time; empty if neither waiting nor profiling was recorded."""
        if not self.profile.facts.noise and self.profile.correction is None:
            return {}
        return {step.number: step.buckets_ns for step in breakdown_of(self.profile)}

    def lost_ns(self, bucket: str) -> Mapping[int, int]:
        """Return one part of each step's time: waiting for a CPU, or the cost of profiling."""
        return {step: buckets.get(bucket, 0) for step, buckets in self.buckets_ns.items()}

    @cached_property
    def activities(self) -> Sequence[DeviceActivity]:
        return device_activities_of(self.profile)

    @cached_property
    def kernels(self) -> Sequence[Span]:
        return [it.span for it in self.activities if it.span.category == "kernel"]

    @cached_property
    def by_step(self) -> Mapping[int | None, Sequence[DeviceActivity]]:
        return group_by(self.activities, lambda each: each.span.step)

    def launched_in(self, span: Span, kinds: Sequence[str] = ("kernel", "memcpy", "memset")) -> int:
        """Return the device time of the work of the span's step that began during the span."""
        own = self.by_step.get(span.step, ())
        work = [it.span for it in own if span.start_ns <= it.starts[-1][1] < span.end_ns]
        return sum(it.duration_ns for it in work if it.category in kinds)


class TimeRow(NamedTuple):
    """A row with the times of calls on the host and on a device; unknown times are None.

    Ratios are percentages of `cpu_whole_ns` on the host, and of `gpu_whole_ns` on the device; if
    the whole time is None, the ratio is missing. `level` is the row's level of indentation,
    `thread` is the title above the row. `saving_ns` is the time that an iteration would save if the
    row reached its roof.
    """

    name: str
    calls: int | None
    cpu: Totals | None = None
    gpu: Totals | None = None
    cpu_whole_ns: float | None = None
    gpu_whole_ns: float | None = None
    level: int = 0
    flops: int | None = None
    thread: str = ""
    saving_ns: float | None = None

    def cell(self, side: Side) -> Cell:
        if side == "CPU":
            return Cell(self.cpu, self.cpu_whole_ns, self.saving_ns)
        return Cell(self.gpu, self.gpu_whole_ns, self.saving_ns)

    @property
    def indented(self) -> str:
        return "  " * self.level + self.name


class Cell(NamedTuple):
    """The times of a row on the CPU or on the GPU."""

    times: Totals | None
    whole_ns: float | None
    saving_ns: float | None

    @property
    def ratio(self) -> float | None:
        """The row's part of the whole in percent; 0 if the whole is 0, None if unknown."""
        if self.times is None or self.whole_ns is None:
            return None
        return 100 * self.times.total_ns / self.whole_ns if self.whole_ns else 0.0


def name_column(width: int = 0, text: Callable[[TimeRow], str] | None = None) -> Column[TimeRow]:
    """Return the column of names; by default it is as wide as the longest name."""
    fixed = width > 0
    return Column("Name", lambda row: row.name, text, width=width or 4, is_fixed=fixed, rank=0)


def number_column(
    title: str, value: Callable[[R], float | None], form: str = "{:.2f}", **fields: Any
) -> Column[R]:
    """Return a column of numbers; an unknown number is shown as a dash."""

    def text(row: R) -> str:
        return "-" if (number := value(row)) is None else form.format(number)

    return Column(title, value, text, **fields)


def time_column(
    title: str, unit: str, time_ns: Callable[[TimeRow], float | None], **fields: Any
) -> Column[TimeRow]:
    def in_unit(row: TimeRow) -> float | None:
        return None if (ns := time_ns(row)) is None else ns / UNITS_NS[unit]

    return number_column(title, in_unit, unit=unit, **fields)


CALLS: Column[TimeRow] = number_column("Calls", attrgetter("calls"), "{}", width=6, rank=0)
THREAD = Column[TimeRow]("Thread", lambda row: row.thread, in_text=False)


def times_column(run: TimedRun, side: Side) -> Column[TimeRow]:
    """Return the column of the times on one side (CPU or GPU); each cell has five parts.

    In CSV and JSON, each part of the cell has its own column. If the screen is too narrow for both
    sides, it shows the side on which operators compute.
    """

    def part(title: str, figure: Figure) -> Column[TimeRow]:
        return time_column(f"{side} {title}", run.unit, lambda row: figure.value(row.cell(side)))

    times = tuple(part(title, FIGURES[figure]) for title, figure in PARTS.items())
    percent: Column[TimeRow] = number_column(f"{side} Ratio (%)", lambda row: row.cell(side).ratio)
    parts = (*times, percent)
    return Column(
        f"{side} Total / Avg / Max / Min / Ratio(%)",
        text=lambda row: " / ".join(part.cell(row) for part in parts),
        parts=parts,
        width=40,
        rank=0 if side == run.side else 6,
    )


def added_columns(run: TimedRun) -> tuple[Column[TimeRow], ...]:
    """Return the columns that Paddle lacks; only the columns that --columns names are printed."""
    asked = asked_for(run.options)

    def added(name: str, figure: Figure) -> Column[TimeRow]:
        def value(row: TimeRow) -> float | None:
            return figure.value(row.cell(run.side))

        title, given = figure.title.title(), {"width": 10, "rank": 1, "in_text": name in asked}
        if figure.is_time:
            return time_column(title, run.unit, value, **given)
        return number_column(title, value, "{}", **given)

    return figure_columns(ADDED, added)


def time_table(
    run: TimedRun,
    name: str,
    title: str,
    rows: Sequence[TimeRow],
    columns: Sequence[Column[TimeRow]],
    *,
    breaks: Mapping[int, str | tuple[str, ...]] | None = None,
    layout: Layout = LAYOUT,
    notes: tuple[str, ...] = (),
) -> list[Table[TimeRow]]:
    """Return a list with the table of some rows; the list is empty if there are no rows."""
    table = Table(name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=notes)
    unit = (f"Time unit: {run.unit}",)
    return [replace(table, layout=layout, above=unit, breaks=breaks or {})] if rows else []


def under_threads(
    run: TimedRun, blocks: Mapping[int | None, Sequence[TimeRow]]
) -> tuple[list[TimeRow], dict[int, str]]:
    """Return the rows of all blocks, and the threads' titles by the number of a thread's first row.

    The key of a block is a thread, or None for all threads together.
    """
    rows: list[TimeRow] = []
    titles = {}
    for thread, own in blocks.items():
        name = run.profile.threads.get(thread or 0)
        title = (
            "All threads merged"
            if thread is None
            else f"{thread} ({name})"
            if name
            else f"{thread}"
        )
        titles.update({len(rows): f"Thread: {title}"} if own else {})
        rows += (row._replace(thread=title) for row in own)
    return rows, titles


SIDES: Mapping[str, Side] = {"cpu": "CPU", "gpu": "GPU"}
METRICS = {title.lower(): figure for title, figure in PARTS.items()}


def first_rows(run: TimedRun, blocks: Sequence[Sequence[TimeRow]]) -> list[TimeRow]:
    """Return the rows of the first blocks; --top limits the number of blocks.

    Blocks are sorted by their first rows. The sort key is a name such as `cpu_total`, or a name
    without a side, such as `total`, for the side where operators compute. The block with the
    largest value comes first; if the key is a minimum, the block with the smallest value comes
    first.
    """
    key = run.options.get("sort") or f"{run.side.lower()}_total"
    where, _, metric = key.lstrip("+-").rpartition("_")
    side, figure = SIDES.get(where, run.side), FIGURES[METRICS.get(metric, metric)]
    ordered = sort_rows(
        blocks, key, lambda it: figure.value(it[0].cell(side)), smallest_first=metric == "min"
    )
    return [row for rows in ordered[: run.options.get("top")] for row in rows]


# The first of Paddle's tables: how busy the devices were, the kinds of events, the phases


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

MODEL_NOTES = (
    "In this table, GPU time is the sum of all device(GPU) events called in the phase.",
    "Unlike overview summary, if two device(GPU) events execute on different streams with overlap "
    "time, we sum them directly here.",
)

OF_COPIES = (
    "Copies of the model ran at once: times are summed up over them, and ratios are those to the "
    "sum of their steps."
)

STEP, FORWARD = "ProfileStep", "Forward"
CUDA_CALL = re.compile(r"cu(da)?[A-Z]")

# A device, and its use in percent.
Use = tuple[str, float | None]


def device_section(run: TimedRun) -> list[Table[Use]]:
    """Return the table of how much CPUs and devices were used; only kernels use a device."""
    facts, cpu = run.profile.facts, run.profile.facts.cpu
    rows = [("CPU(Process)", cpu.process_percent), ("CPU(System)", cpu.system_percent)]
    elapsed_ns = total_of(merge_intervals(step.interval for step in run.profile.timed_steps()))
    numbered = group_by(run.kernels, lambda it: device_number(it.device or facts.device))
    for number, own in sorted(numbered.items()):
        busy_ns = total_of(merge_intervals(each.interval for each in own))
        rows.append((f"GPU{number}", 100 * busy_ns / elapsed_ns))
    columns: tuple[Column[Use], ...] = (
        Column("Device", itemgetter(0), width=30, is_fixed=True),
        number_column("Utilization (%)", itemgetter(1), width=20, is_fixed=True, rank=0),
    )
    table = Table(name="device", title="Device Summary", columns=columns, rows=tuple(rows))
    return [replace(table, notes=DEVICE_NOTES, layout=LAYOUT)]


def steps_ns(run: TimedRun) -> list[int]:
    """Return the duration of each timed step in nanoseconds, without the cost of profiling."""
    cost_ns = run.lost_ns(PROFILING)
    return [it.duration_ns - cost_ns.get(it.number, 0) for it in run.profile.timed_steps()]


def camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def phases_of(run: TimedRun) -> dict[str, list[list[Span]]]:
    """Return the calls of each phase in timed steps; the keys are the names of the phases' rows.

    A call is a list of spans. The dispatch and the wait of a step count as one call of the phase
    Forward.
    """
    steps = {step.number: step for step in run.profile.timed_steps()}
    calls: dict[str, dict[object, list[Span]]] = {}
    for span in run.profile.spans_of("phase"):
        if (step := steps.get(span.step or 0)) is None:
            continue
        common_ns = min(span.end_ns, step.end_ns) - max(span.start_ns, step.start_ns)
        if common_ns > 0 or common_ns == span.duration_ns:
            name = FORWARD if span.name == "wait" else camel_case(span.name)
            call = span.step if name == FORWARD else id(span)
            calls.setdefault(name, {}).setdefault(call, []).append(span)
    first = sorted(calls, key=lambda name: name != "Dataloader")
    return {name: [*calls[name].values()] for name in first}


def row_of(
    run: TimedRun,
    name: str,
    cpu_ns: Sequence[int],
    gpu_ns: Sequence[int] | None = None,
    level: int = 1,
) -> TimeRow:
    """Return a row with ratios to the time of all steps, and to the time of all kernels."""
    kernels_ns = sum(span.duration_ns for span in run.kernels)
    gpu = None if gpu_ns is None else totals_of(gpu_ns)
    return TimeRow(
        *(name, len(cpu_ns), totals_of(cpu_ns), gpu, sum(steps_ns(run)), kernels_ns, level)
    )


def phase_rows(run: TimedRun) -> list[TimeRow]:
    """Return a row for each phase of the timed steps, and a row for waiting for a CPU.

    The time on the host is the sum over the calls of the phase. The time on a device is the sum
    over the kernels that were started in the phase. The cost of profiling and the waiting are
    subtracted from the phase Forward, since nearly all of this time belongs to Forward.
    """
    profiling_ns, waiting_ns = run.lost_ns(PROFILING), run.lost_ns(WAITING)
    rows, waits_ns = [], list[int]()
    for name, calls in phases_of(run).items():
        times_ns = [sum(span.duration_ns for span in spans) for spans in calls]
        for place, spans in enumerate(calls if name == FORWARD else ()):
            step = spans[0].step or 0
            times_ns[place] -= min(times_ns[place], profiling_ns.get(step, 0))
            waits_ns.append(min(times_ns[place], waiting_ns.get(step, 0)))
            times_ns[place] -= waits_ns[-1]
        work = [sum(run.launched_in(span, ("kernel",)) for span in spans) for spans in calls]
        rows.append(row_of(run, name, times_ns, work))
    waits_ns = [ns for ns in waits_ns if ns]
    return [*rows, *([row_of(run, WAITING, waits_ns)] if waits_ns else [])]


def model_rows(run: TimedRun) -> list[TimeRow]:
    """Return rows for the steps, the phases, the remaining time, and the cost of profiling."""
    begun, steps = group_by(run.kernels, lambda span: span.step), run.profile.timed_steps()
    kernels = [sum(span.duration_ns for span in begun.get(step.number, ())) for step in steps]
    whole, phases = row_of(run, STEP, steps_ns(run), kernels, level=0), phase_rows(run)
    cpu_ns = sum(steps_ns(run)) - sum(row.cpu.total_ns for row in phases if row.cpu)
    gpu_ns = sum(kernels) - sum(row.gpu.total_ns for row in phases if row.gpu)
    cpu, gpu = (Totals(0, ns, None, None) for ns in (cpu_ns, gpu_ns))
    others = whole._replace(name="Others", calls=None, cpu=cpu, gpu=gpu, level=1)
    return [whole, *phases, others, *profiling_row(run)]


def profiling_row(run: TimedRun) -> list[TimeRow]:
    """Return the row of the cost of profiling, without a ratio, since steps exclude this cost."""
    costs_ns = [ns for ns in run.lost_ns(PROFILING).values() if ns]
    return [TimeRow(PROFILING, len(costs_ns), totals_of(costs_ns))] if costs_ns else []


def notes_of(run: TimedRun, notes: tuple[str, ...]) -> tuple[str, ...]:
    return (*notes, OF_COPIES) if len(split_copies(run.profile)) > 1 else notes


def model_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of the iteration's phases; empty if the profile has no phases."""
    rows = model_rows(run) if phases_of(run) else []
    width = max(15, *(len(row.indented) for row in rows)) if rows else 0
    name = name_column(width, lambda row: row.indented)
    columns = (name, CALLS, times_column(run, "CPU"), times_column(run, "GPU"))
    notes = notes_of(run, MODEL_NOTES)
    return time_table(run, "model", "Model Summary", rows, columns, layout=SPACED, notes=notes)


def overview_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of kinds of events, with their times.

    Times that overlap within one copy of the model are counted only once. The times of phases are
    plain sums, as in the table of phases.
    """
    copies, whole_ns = split_copies(run.profile), sum(steps_ns(run))
    host = phase_rows(run)
    for name, totals in merge_events(it for copy in copies for it in host_events(copy)):
        host.append(TimeRow(name, totals.calls, totals, None, whole_ns, level=1))
    host.sort(key=lambda row: row.cpu.total_ns if row.cpu else 0, reverse=True)
    host = [row_of(run, STEP, steps_ns(run), level=0), *host, *profiling_row(run)]
    device = [
        TimeRow(name, totals.calls, None, totals, None, whole_ns, level=1)
        for name, totals in merge_events(it for copy in copies for it in device_events(copy))
    ]

    def shown(row: TimeRow) -> Cell:
        return row.cell("CPU" if row.cpu is not None else "GPU")

    fixed: dict[str, Any] = {"width": 25, "is_fixed": True}
    total = FIGURES["total"].value
    time = time_column("CPU Time", run.unit, lambda it: total(shown(it)), rank=0, **fixed)
    columns: Sequence[Column[TimeRow]] = (
        Column("Where", lambda row: "CPU" if row.cpu else "GPU", in_text=False),
        Column("Event Type", lambda row: row.name, lambda row: row.indented, **fixed),
        replace(CALLS, **fixed),
        replace(time, key=f"Time ({run.unit})"),
        number_column("Ratio (%)", lambda row: shown(row).ratio, rank=1, **fixed),
    )
    return time_table(
        *(run, "overview", "Overview Summary", (*host, *device), columns),
        breaks={len(host): ("", "Calls", "GPU Time", "Ratio (%)")},
        layout=SPACED,
        notes=notes_of(run, OVERVIEW_NOTES),
    )


# A kind of event: its name, the number of calls, and their times.
Event = tuple[str, int, Iterable[Interval]]


def merge_events(events: Iterable[Event]) -> Iterator[tuple[str, Totals]]:
    """Yield the kinds of events with their calls and merged times, summed up over copies."""
    for name, own in group_by(events, lambda event: event[0]).items():
        calls = sum(event[1] for event in own)
        if calls:
            total_ns = sum(total_of(merge_intervals(event[2])) for event in own)
            yield name, Totals(calls, total_ns, None, None)


def host_events(profile: Profile) -> Iterator[Event]:
    """Yield the kinds of events on the host, without the phases.

    Calls that only wait are counted, but add no time. No kind includes the cost of profiling.
    """
    executions, on_device = profile.timed_executions, profile.on_device
    copies = [it for it in profile.spans_of("memcpy", "memset") if not is_of_device(profile, it)]
    yield "UserDefined", len(copies), [span.interval for span in copies]
    dispatched = [times for each in executions if (times := each.dispatch) is not None]
    executed = [] if on_device else [each.work for each in executions]
    yield "Operator", len(executions), [*dispatched, *executed]
    parts = [span for span in profile.spans_of("runtime", "relayout") if span.operator is not None]
    inner = [span.interval for span in parts]
    for each in executions:
        waits, dispatch = each.wait_ns is not None, each.dispatch
        inner += [dispatch] if dispatch is not None and (waits or not on_device) else []
        inner += [each.work] if waits and not on_device else []
    yield "OperatorInner", len(inner), inner
    calls = [call for call in calls_of(profile) if call.kind == "runtime" and call.operator is None]
    for is_cuda, called in group_by(calls, lambda it: bool(CUDA_CALL.match(it.name))).items():
        busy = [(call.start_ns, call.start_ns + (call.cpu_ns or 0)) for call in called]
        yield "CudaRuntime" if is_cuda else "Runtime", len(called), busy
    steps = merge_intervals(step.interval for step in profile.timed_steps())
    streams = streams_of(profile)
    spans = profile.spans_of("user_annotation", timed=False)
    ranges = [it for it in spans if not it.warmup and it.thread not in streams]
    clipped = intersect_intervals(merge_intervals(span.interval for span in ranges), steps)
    yield "PythonUserDefined", len(ranges) if clipped else 0, clipped


def device_events(profile: Profile) -> Iterator[Event]:
    """Yield the kinds of events on devices, in the order of their first events."""
    spans = [each.span for each in device_activities_of(profile)]
    for kind, own in group_by(spans, lambda span: span.category).items():
        yield kind.capitalize(), len(own), [span.interval for span in own]


# The report of Paddle's timer: the cost of reading, the cost of an iteration, and the rate


# The heading of the report: a line across the page.
HEADING = Table[None](
    name="heading",
    title="Perf Summary",
    columns=(Column("", width=100, is_fixed=True),),
    layout=Layout(fill="=", has_header=False),
)


class StepCost(NamedTuple):
    """The cost of a step in seconds, the cost of reading its input in seconds, and the rate.

    The cost of reading is None if no step has recorded it.
    """

    step: int
    data_cost: float | None
    batch_cost: float
    ips: float | None


def costs_of(run: TimedRun) -> list[StepCost]:
    """Return the cost of each timed step: its time with reading input, but without profiling."""
    spans = [span for span in run.profile.spans_of("phase") if span.name == "dataloader"]
    reading, batch = group_by(spans, lambda span: span.step), run.profile.facts.batch or 1
    costs = []
    for step, step_ns in zip(run.profile.timed_steps(), steps_ns(run), strict=True):
        own = reading.get(step.number, [])
        before = sum(span.duration_ns for span in own if span.end_ns <= step.start_ns)
        # A step whose data was read before has a cost of reading of 0, which counts in the average.
        read = sum(span.duration_ns for span in own) / 1e9 if reading else None
        cost = (step_ns + before) / 1e9
        costs.append(StepCost(step.number, read, cost, batch / cost if cost else None))
    return costs


# A cost or a rate: its name, its unit, and its average, maximum and minimum.
Row = tuple[str, str, Sequence[float | None]]


def spread_of(values: Sequence[float]) -> Sequence[float | None]:
    return (fmean(values), max(values), min(values)) if values else (None, None, None)


def cost_column(title: str, place: int) -> Column[Row]:
    def text(row: Row) -> str:
        return "-" if (value := row[2][place]) is None else f"{value:.5f}"

    return Column(title, lambda row: row[2][place], text, align="centre", width=15, is_fixed=True)


def perf_section(run: TimedRun) -> list[AnyTable | str]:
    """Return the table of costs and of the rate; the rate is in samples if the batch is known.

    The average rate is the rate at the average cost, not the average of the rates. The rate
    includes all copies of the model that ran at the same time.
    """
    costs = costs_of(run)
    reader = spread_of([each.data_cost for each in costs if each.data_cost is not None])
    average, largest, smallest = batch = spread_of([each.batch_cost for each in costs])
    samples = len(split_copies(run.profile)) * (run.profile.facts.batch or 1)
    rates = [samples / each if each else None for each in (average, smallest, largest)]
    unit = f"{'samples' if run.profile.facts.batch else 'steps'}/s"
    ratio = []
    if reader[0] is not None and average:
        ratio.append(f"Reader Ratio: {100 * reader[0] / average:.3f}%")
    table = Table[Row](
        name="perf",
        title=HEADING.title,
        columns=(
            Column("", itemgetter(0), key="Name", align="centre", width=15, is_fixed=True),
            Column("Unit", itemgetter(1), in_text=False),
            *(cost_column(title, place) for place, title in enumerate(("avg", "max", "min"))),
        ),
        rows=(("reader_cost", "s", reader), ("batch_cost", "s", batch), ("ips", unit, rates)),
        layout=Layout(start="| ", gap=" | ", end=" |"),
    )
    return [HEADING, *ratio, f"Time Unit: s, IPS Unit: {unit}", table]


def log_section(run: TimedRun) -> list[Table[StepCost]]:
    """Return a line for each step, in the form of the log of Paddle's detection models."""
    costs, unit = costs_of(run), f"{'images' if run.profile.facts.batch else 'steps'}/s"
    width = max(5, len(str(len(costs))))

    def line(row: StepCost) -> str:
        read, rate = ("-" if each is None else f"{each:.4f}" for each in (row.data_cost, row.ips))
        return (
            f"iter: [{row.step:>{width}}/{len(costs)}] batch_cost: {row.batch_cost:.4f} "
            f"data_cost: {read} ips: {rate} {unit}"
        )

    records: list[Column[Any]] = [
        Column(name, attrgetter(name), in_text=False) for name in StepCost._fields
    ]
    columns = (Column[StepCost]("", text=line), *records)
    rows, layout = costs[: run.options.get("top")], Layout(has_header=False, is_stripped=True)
    return [Table(name="log", title="Log", columns=columns, rows=tuple(rows), layout=layout)]


# Paddle's tables of operators, kernels, copies, and ranges of the user
#
# Below each operator are its parts, and below each part its algorithms or kernels:
#
#     <type>
#       <type> dispatch
#       <type> wait
#       <type> compute
#         <algorithm, or a kernel or copy on the device>
#
# Parts are shown if the engine reports them. Other calls of an operator, such as a conversion of
# layout, are parts too. If an operator has no parts, its kernels are directly below it. The ratio
# of an operator is relative to all operators, the ratio of another row to the row above it. The
# time of an operator does not include its waiting, nor the operators within it, such as the body of
# a loop. Waiting has no ratio.


NAME_WIDTH = 52
KERNEL_WIDTH = 90
COPY = re.compile("memcpy|memorycopy|memset", re.IGNORECASE)
STAND_IN = "The engine reports no kernels: algorithms, or types of operators, stand in their place."


@dataclass
class Group:
    """The calls of a row with their times on the host and on the device, and the rows below it.

    `operators` has the indices of the executed operators. With `waits`, the row's calls only wait,
    and are no work of the host.
    """

    cpu_ns: list[int] = field(default_factory=list)
    gpu_ns: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    disturbed: int = 0
    waits: bool = False
    below: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))

    def add(self, cpu_ns: int | None, gpu_ns: int | None, *, disturbed: bool = False) -> None:
        self.cpu_ns += [] if cpu_ns is None else [cpu_ns]
        self.gpu_ns += [] if gpu_ns is None else [gpu_ns]
        self.disturbed += disturbed

    def add_work(self, work: Iterable[DeviceActivity]) -> None:
        """Add the activities of a device as rows below this row."""
        for each in work:
            self.below[each.span.name].add(None, each.span.duration_ns)

    def rows(
        self, profile: Profile, name: str, whole: tuple[int, int], level: int = 0
    ) -> Iterator[TimeRow]:
        """Yield the row and the rows below it, in the order of their first calls.

        The row's ratios are relative to the `whole` times on the host and on the device.
        """
        cpu, gpu = (
            totals_of(each, None, self.disturbed, profile.facts.times) if each else None
            for each in (self.cpu_ns, self.gpu_ns)
        )
        flops = [profile.operators[place].flops for place in self.operators]
        known, savings = [each for each in flops if each is not None], savings_of(profile)
        saved = [savings[place] for place in {*self.operators} if place in savings]
        yield TimeRow(
            *(name, max(len(self.cpu_ns), len(self.gpu_ns)), cpu, gpu),
            *(None if self.waits else whole[0], whole[1], level),
            flops=sum(known) if known and len(known) == len(flops) else None,
            saving_ns=sum(saved) if saved else None,
        )
        for each, group in self.below.items():
            yield from group.rows(profile, each, (sum(self.cpu_ns), sum(self.gpu_ns)), level + 1)


def operator_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of operators; empty if the profile has no operators.

    The table has one block, or a block for each thread.

    Raises:
        UsageError: no operator matches the filter.
    """
    executions = run.profile.timed_executions
    by_thread = run.options.get("group_by") == "thread"
    threads = group_by(
        range(len(executions)), lambda it: executions[it].thread if by_thread else None
    )
    blocks = {thread: rows_of_block(run, own) for thread, own in threads.items()}
    rows, titles = under_threads(run, blocks)
    if executions and not rows:
        raise UsageError(
            "no operator's name or type matches",
            "--style paddle --group-by name lists all names",
            flag=f"--filter {run.options['filter']}",
        )
    return operator_table(run, rows, titles)


def operator_table(
    run: TimedRun, rows: Sequence[TimeRow], titles: Mapping[int, str]
) -> list[Table[TimeRow]]:
    """Return the table of operators; `titles` maps the number of a row to the title above it."""
    columns = (
        *(THREAD, Column[TimeRow]("Level", lambda row: row.level, in_text=False)),
        name_column(NAME_WIDTH, cut_name),
        *(CALLS, times_column(run, "CPU"), times_column(run, "GPU")),
        number_column("FLOPs", attrgetter("flops"), "{}", width=10),
        *added_columns(run),
    )
    return time_table(run, "operator", "Operator Summary", rows, columns, breaks=titles)


def cut_name(row: TimeRow) -> str:
    """Return the indented name of a row; below the first level, cut to the column's width."""
    is_cut = row.level and len(row.indented) > NAME_WIDTH
    return row.indented[: NAME_WIDTH - 3] + "..." if is_cut else row.indented


def rows_of_block(run: TimedRun, places: Sequence[int]) -> list[TimeRow]:
    """Return the sorted rows of the operators that match the filter, with the rows below them.

    `places` has the indices of the executions to count. Ratios are relative to the time of all
    operators, including those that the filter leaves out.
    """
    profile, by_name = run.profile, run.options.get("group_by") == "name"
    host_ns, disturbed = self_host_times_of(profile), disturbed_executions(profile)
    work = group_by(run.activities, lambda each: each.execution)
    shown = operators_matching(profile, run.options.get("filter") or "")
    groups, calls = defaultdict[str, Group](Group), calls_by_execution(profile)
    whole = [0, 0]
    for place in places:
        execution, own = profile.timed_executions[place], work.get(place, [])
        gpu_ns = sum(each.span.duration_ns for each in own)
        whole = [whole[0] + host_ns[place], whole[1] + gpu_ns]
        if execution.operator not in shown:
            continue
        operator = profile.operators[execution.operator]
        group = groups[operator.name if by_name else operator.type]
        group.add(host_ns[place], gpu_ns, disturbed=place in disturbed)
        group.operators.append(execution.operator)
        add_parts(group, profile, place, calls.get(place, ()), own)
    found = [[*it.rows(profile, name, (whole[0], whole[1]))] for name, it in groups.items()]
    return first_rows(run, found)


def host_copies(profile: Profile) -> list[Span]:
    """Return the copies, fills and conversions of layout within the host's memory."""
    spans = profile.spans_of("memcpy", "memset", "relayout")
    return [span for span in spans if not is_of_device(profile, span)]


def calls_by_execution(profile: Profile) -> dict[int | None, list[Span]]:
    """Return the host's calls of each execution, except its dispatch, waiting and computation."""
    spans = [*profile.spans_of("runtime"), *host_copies(profile)]
    own = sorted((it for it in spans if it.operator is not None), key=lambda it: it.start_ns)
    places = places_of(profile.timed_executions, on_device=False) if own else {}
    return group_by(own, lambda span: execution_of(span, places))


def add_parts(
    group: Group,
    profile: Profile,
    place: int,
    calls: Iterable[Span],
    work: Sequence[DeviceActivity],
) -> None:
    """Add the parts of an execution to the group of its operator.

    Device work that began during a call belongs to the call; other device work belongs to the
    operator's computation. On the host, the computation is added to the row of the algorithm. If
    operators compute on a device, waiting is left out, since neither the host nor the device is
    busy during the waiting.
    """
    execution, on_device = profile.timed_executions[place], profile.on_device
    operator, holder = profile.operators[execution.operator], group
    compute_ns = None if on_device else self_times_of(profile)[place]
    has_parts = execution.wait_ns is not None
    if (dispatch := execution.dispatch) and (has_parts or not on_device):
        group.below[f"{operator.type} dispatch"].add(dispatch[1] - dispatch[0], 0)
    if execution.wait_ns is not None and not on_device:
        wait = group.below[f"{operator.type} wait"]
        wait.waits = execution.dispatch is not None
        wait.add(execution.wait_ns, 0)
    for call in calls:
        begun = [each for each in work if call.start_ns <= each.span.start_ns < call.end_ns]
        work = [each for each in work if each not in begun]
        part = group.below[call.name]
        part.add(call.duration_ns, sum(each.span.duration_ns for each in begun))
        part.add_work(begun)
    if has_parts:
        holder = group.below[f"{operator.type} compute"]
        holder.add(compute_ns, sum(each.span.duration_ns for each in work))
    holder.add_work(work)
    if operator.algorithm and not on_device:
        holder.below[operator.algorithm].add(compute_ns, None)


def rows_by_name(run: TimedRun, calls: Iterable[Call]) -> list[TimeRow]:
    """Return a row for each name of calls, in the order of their first calls.

    Ratios are relative to all steps and to all work of the device.
    """
    whole = sum(steps_ns(run)), sum(each.span.duration_ns for each in run.activities)
    rows = []
    for name, own in group_by(calls, lambda each: each.name).items():
        disturbed = sum(each.disturbed for each in own)
        cpu = totals_of([each.cpu_ns or 0 for each in own], disturbed=disturbed)
        gpu = totals_of([each.device_ns for each in own], disturbed=disturbed)
        rows.append(TimeRow(name, len(own), cpu, gpu, *whole))
    return rows


def copies_of(run: TimedRun) -> Iterator[Call]:
    """Yield all calls that moved data.

    Calls that moved data are copies within the host, copies of inputs and outputs, operators that
    only move data, and ranges whose name says that they copy.
    """
    spans = host_copies(run.profile)
    copied = {span.operator for span in spans}
    for span in (*spans, *run.profile.spans_of("phase")):
        if span.category != "phase" or span.name in ("input_copy", "output_copy"):
            call = call_of_span(span, "range", on_device=False)
            call.device_ns = run.launched_in(span)
            call.name = camel_case(span.name) if span.category == "phase" else span.name
            yield call
    for call in calls_of(run.profile):
        if call.kind == "operator" and only_moves(call.name) and call.operator not in copied:
            yield call
        if call.kind == "range" and COPY.search(call.name):
            yield call


def columns_by_name(run: TimedRun) -> Sequence[Column[TimeRow]]:
    times = times_column(run, "CPU"), times_column(run, "GPU")
    return (name_column(), CALLS, *times, *added_columns(run))


def copy_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of copies, in the order of their first calls."""
    found = sorted(copies_of(run), key=lambda each: each.start_ns)
    rows = rows_by_name(run, found)[: run.options.get("top")]
    title = "Memory Manipulation Summary"
    return time_table(run, "memory_manipulation", title, rows, columns_by_name(run))


def range_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of the ranges that the user has named."""
    by_thread = run.options.get("group_by") == "thread"
    ranges = [it for it in calls_of(run.profile) if it.kind == "range" and not COPY.search(it.name)]
    threads = group_by(ranges, lambda each: each.thread if by_thread else None)
    found = {it: [[row] for row in rows_by_name(run, own)] for it, own in threads.items()}
    rows, titles = under_threads(run, {it: first_rows(run, own) for it, own in found.items()})
    return time_table(
        *(run, "userdefined", "UserDefined Summary", rows, (THREAD, *columns_by_name(run))),
        breaks=titles,
        layout=replace(LAYOUT, closing=None),
    )


def kernel_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of kernels; empty if nothing was executed.

    If the engine reported no kernels, a note says that algorithms or operator types are listed
    instead.
    """
    profile, pattern = run.profile, run.options.get("filter") or ""
    launches, search = launches_of(profile), re.compile(pattern).search
    whole_ns = sum(launch.piece.duration_ns for launch in launches)
    shown = operators_matching(profile, pattern)
    launches = [it for it in launches if it.place in shown or search(it.kernel)]
    found, rows = {row.name: row for row in rows_of(profile, "kernel", launches)}, []
    for it in map(found.__getitem__, dict.fromkeys(launch.kernel for launch in launches)):
        row = TimeRow(it.name, it.times.calls, it.times, it.times, whole_ns, whole_ns)
        rows.append([row._replace(saving_ns=it.saving_ns)])
    width = KERNEL_WIDTH
    name = name_column(width, lambda row: cut_end(without_arguments(row.name), width))
    return time_table(
        *(run, "kernel", "Kernel Summary", first_rows(run, rows)),
        (name, CALLS, times_column(run, run.side), *added_columns(run)),
        notes=() if any(launch.span for launch in launches) else (STAND_IN,),
    )


def without_arguments(kernel: str) -> str:
    """Return a kernel's name without its arguments."""
    templated = re.match(r"(.+?)(<.*>)(\(.*\))", kernel)
    return templated[1] + templated[2] if templated else kernel


# The report


# The functions that make the sections, in the order in which these are printed.
SECTIONS: Mapping[str, Callable[[TimedRun], Sequence[str | AnyTable]]] = {
    "device": device_section,
    "overview": overview_section,
    "model": model_section,
    "operator": operator_section,
    "kernel": kernel_section,
    "memory": copy_section,
    "userdefined": range_section,
    "log": log_section,
    "perf": perf_section,
}
# The log has a line for each iteration and would hide the other sections: it is printed on request.
ON_REQUEST = "log"


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the summaries of the timed iterations.

    Raises:
        UsageError: no iteration was timed, or the profile has no data for the views of --view.
    """
    if not any(step.duration_ns for step in profile.timed_steps()):
        raise UsageError(
            "--style paddle: the profile has no timed iteration", "run again with --iter 1 or more"
        )
    asked, run = options.get("view", ()), TimedRun(profile, options)
    body = [
        part
        for view, make in SECTIONS.items()
        if (view in asked if asked else view != ON_REQUEST)
        for part in make(run)
    ]
    if not body:
        views = ", ".join(f"--view {view}" for view in asked)
        raise UsageError("the profile has no data for this view", "leave --view out", flag=views)
    tables = (part for part in body if not isinstance(part, str) and part.rows)
    return Report(style="paddle", body=tuple(body), tables=tuple(tables))
