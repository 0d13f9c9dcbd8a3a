"""The first of Paddle's tables: how busy the devices were, the kinds of events, the phases.

The report of Paddle's timer on the iterations: the cost of reading and of all, and the rate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeVar

from lar.profiles.activities import (
    DeviceActivity,
    device_activities_of,
    device_number,
    is_of_device,
    streams_of,
)
from lar.profiles.breakdown import PROFILING, WAITING, breakdown_of, split_copies
from lar.profiles.calls import calls_of
from lar.profiles.times import (
    UNITS_NS,
    Totals,
    group_by,
    intersect_intervals,
    merge_intervals,
    total_of,
    totals_of,
)
from lar.records.profile import Interval, Profile, Span
from lar.reports.model import AnyTable, Column, Layout, Rule, Table, sort_rows
from lar.reports.styles.figures import FIGURES, Figure, asked_for, figure_columns

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
    """A profile, the options of its report, and what several tables need."""

    profile: Profile
    options: Mapping[str, Any]

    @property
    def side(self) -> Side:
        """The side on which operators compute."""
        return "GPU" if self.profile.on_device else "CPU"

    @property
    def unit(self) -> str:
        return str(self.options.get("time_unit", "ms"))

    @cached_property
    def buckets_ns(self) -> Mapping[int, Mapping[str, int]]:
        """The buckets of each step by its number, empty if they show no more than the step."""
        if not self.profile.facts.noise and self.profile.correction is None:
            return {}
        return {step.number: step.buckets_ns for step in breakdown_of(self.profile)}

    def lost_ns(self, bucket: str) -> Mapping[int, int]:
        """Return the time of a bucket in each step: waiting for a CPU, or the cost of profiling."""
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
        """Return how long a device worked on what its step began during a span."""
        own = self.by_step.get(span.step, ())
        work = [it.span for it in own if span.start_ns <= it.starts[-1][1] < span.end_ns]
        return sum(it.duration_ns for it in work if it.category in kinds)


class TimeRow(NamedTuple):
    """A row with the times of calls on the host and on a device, None if unknown.

    Ratios are to `cpu_whole_ns` and `gpu_whole_ns`; if these are None there is no ratio. `level` is
    how deep the row is indented, `thread` is the title above it. `saving_ns` is how much of an
    iteration it would save at its roof.
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
    """The times of a row on one side."""

    times: Totals | None
    whole_ns: float | None
    saving_ns: float | None

    @property
    def ratio(self) -> float | None:
        """The part of the whole in percent, 0 if the whole is 0, None if unknown."""
        if self.times is None or self.whole_ns is None:
            return None
        return 100 * self.times.total_ns / self.whole_ns if self.whole_ns else 0.0


def name_column(width: int = 0, text: Callable[[TimeRow], str] | None = None) -> Column[TimeRow]:
    """Return the column of names; without a width it is as wide as the longest name."""
    fixed = width > 0
    return Column("Name", lambda row: row.name, text, width=width or 4, is_fixed=fixed, rank=0)


def number_column(
    title: str, value: Callable[[R], float | None], form: str = "{:.2f}", **fields: Any
) -> Column[R]:
    """Return a column of numbers; an unknown one is a dash."""

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
    """Return the column of times: one cell of five parts, which are columns of records.

    On a narrow screen, the side on which operators compute stays.
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
    """Return the columns that Paddle does not have; text has those asked for."""
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
    """Return the table of some rows, an empty list without rows."""
    table = Table(name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=notes)
    unit = (f"Time unit: {run.unit}",)
    return [replace(table, layout=layout, above=unit, breaks=breaks or {})] if rows else []


def under_threads(
    run: TimedRun, blocks: Mapping[int | None, Sequence[TimeRow]]
) -> tuple[list[TimeRow], dict[int, str]]:
    """Return the rows of threads, or of all together, and titles by the row that follows."""
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
    """Return the rows of the blocks that --top asks for, sorted by each block's first row.

    The key is one such as `cpu_total`, or a figure of the side where operators compute. The largest
    comes first; for a minimum the smallest does.
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
    """Return how busy the CPUs and devices were, in percent; on a device only kernels count."""
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
    """Return how long each timed step took in nanoseconds, without the cost of profiling."""
    cost_ns = run.lost_ns(PROFILING)
    return [it.duration_ns - cost_ns.get(it.number, 0) for it in run.profile.timed_steps()]


def camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def phases_of(run: TimedRun) -> dict[str, list[list[Span]]]:
    """Return the phases within timed steps by the names of their rows.

    Each has a list of calls, and a call is a list of spans. Dispatch and wait of a step are one
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
    """Return a row with ratios to the steps and to all kernels in them."""
    kernels_ns = sum(span.duration_ns for span in run.kernels)
    gpu = None if gpu_ns is None else totals_of(gpu_ns)
    return TimeRow(
        *(name, len(cpu_ns), totals_of(cpu_ns), gpu, sum(steps_ns(run)), kernels_ns, level)
    )


def phase_rows(run: TimedRun) -> list[TimeRow]:
    """Return the phases of the timed steps, and how long these waited for a CPU, as plain sums.

    Times are those on the host, and those of kernels begun in the phase. The cost of profiling and
    waiting lie nearly all in Forward, and are taken out of it.
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
    """Return the steps, their phases, the rest of the steps, and the cost of profiling."""
    begun, steps = group_by(run.kernels, lambda span: span.step), run.profile.timed_steps()
    kernels = [sum(span.duration_ns for span in begun.get(step.number, ())) for step in steps]
    whole, phases = row_of(run, STEP, steps_ns(run), kernels, level=0), phase_rows(run)
    cpu_ns = sum(steps_ns(run)) - sum(row.cpu.total_ns for row in phases if row.cpu)
    gpu_ns = sum(kernels) - sum(row.gpu.total_ns for row in phases if row.gpu)
    cpu, gpu = (Totals(0, ns, None, None) for ns in (cpu_ns, gpu_ns))
    others = whole._replace(name="Others", calls=None, cpu=cpu, gpu=gpu, level=1)
    return [whole, *phases, others, *profiling_row(run)]


def profiling_row(run: TimedRun) -> list[TimeRow]:
    """Return the cost of profiling, which is no part of the steps and has no ratio to them."""
    costs_ns = [ns for ns in run.lost_ns(PROFILING).values() if ns]
    return [TimeRow(PROFILING, len(costs_ns), totals_of(costs_ns))] if costs_ns else []


def notes_of(run: TimedRun, notes: tuple[str, ...]) -> tuple[str, ...]:
    return (*notes, OF_COPIES) if len(split_copies(run.profile)) > 1 else notes


def model_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the table of the iteration's phases, empty if the profile has no phases."""
    rows = model_rows(run) if phases_of(run) else []
    width = max(15, *(len(row.indented) for row in rows)) if rows else 0
    name = name_column(width, lambda row: row.indented)
    columns = (name, CALLS, times_column(run, "CPU"), times_column(run, "GPU"))
    notes = notes_of(run, MODEL_NOTES)
    return time_table(run, "model", "Model Summary", rows, columns, layout=SPACED, notes=notes)


def overview_section(run: TimedRun) -> list[Table[TimeRow]]:
    """Return the time of each kind of event; what overlaps in a copy of the model counts once.

    The phases of the iteration are plain sums, as in the table of phases.
    """
    copies, whole_ns = split_copies(run.profile), sum(steps_ns(run))
    host = [row_of(run, STEP, steps_ns(run)), *phase_rows(run)]
    for name, totals in merge_events(it for copy in copies for it in host_events(copy)):
        host.append(TimeRow(name, totals.calls, totals, None, whole_ns, level=1))
    host.sort(key=lambda row: row.cpu.total_ns if row.cpu else 0, reverse=True)
    host = [host[0]._replace(level=0), *host[1:], *profiling_row(run)]
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


# A name, the number of calls, and the times.
Event = tuple[str, int, Iterable[Interval]]


def merge_events(events: Iterable[Event]) -> Iterator[tuple[str, Totals]]:
    """Yield the kinds of events with their calls and merged times, summed up over copies."""
    for name, own in group_by(events, lambda event: event[0]).items():
        calls = sum(event[1] for event in own)
        if calls:
            total_ns = sum(total_of(merge_intervals(event[2])) for event in own)
            yield name, Totals(calls, total_ns, None, None)


def host_events(profile: Profile) -> Iterator[Event]:
    """Yield the kinds of events on the host without the phases.

    Calls that only wait take no CPU time, and no kind includes the cost of profiling.
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
    """Yield the kinds of events on the devices in the order they are first seen."""
    spans = [each.span for each in device_activities_of(profile)]
    for kind, own in group_by(spans, lambda span: span.category).items():
        yield kind.capitalize(), len(own), [span.interval for span in own]


# A line across the page.
HEADING = Table[None](
    name="heading",
    title="Perf Summary",
    columns=(Column("", width=100, is_fixed=True),),
    layout=Layout(fill="=", has_header=False),
)


class StepCost(NamedTuple):
    """The cost of one step in seconds, that of its reading, and its rate.

    The cost of reading is None if no step reports it.
    """

    step: int
    data_cost: float | None
    batch_cost: float
    ips: float | None


def costs_of(run: TimedRun) -> list[StepCost]:
    """Return the costs of the timed steps, with the reading of input, without profiling."""
    spans = [span for span in run.profile.spans_of("phase") if span.name == "dataloader"]
    reading, batch = group_by(spans, lambda span: span.step), run.profile.facts.batch or 1
    costs = []
    for step, step_ns in zip(run.profile.timed_steps(), steps_ns(run), strict=True):
        own = reading.get(step.number, [])
        before = sum(span.duration_ns for span in own if span.end_ns <= step.start_ns)
        # A step that uses data that was read before has read nothing, which counts in the average.
        read = sum(span.duration_ns for span in own) / 1e9 if reading else None
        cost = (step_ns + before) / 1e9
        costs.append(StepCost(step.number, read, cost, batch / cost if cost else None))
    return costs


# A name, its unit, and its average, maximum and minimum.
Row = tuple[str, str, Sequence[float | None]]


def spread_of(values: Sequence[float]) -> Sequence[float | None]:
    return (fmean(values), max(values), min(values)) if values else (None, None, None)


def cost_column(title: str, place: int) -> Column[Row]:
    def text(row: Row) -> str:
        return "-" if (value := row[2][place]) is None else f"{value:.5f}"

    return Column(title, lambda row: row[2][place], text, align="centre", width=15, is_fixed=True)


def perf_section(run: TimedRun) -> list[AnyTable | str]:
    """Return the costs and the rate, in samples if the size of the batch is known.

    The average rate is the rate at the average cost, not the average of the rates. Copies that ran
    at once count together.
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
    """Return a line for each step, as Paddle's detection models log them."""
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
