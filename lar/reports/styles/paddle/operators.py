"""Paddle's table of operators: below each its parts, and below these algorithms or kernels.

    <type>
      <type> dispatch
      <type> wait
      <type> compute
        <algorithm, or a kernel or copy on the device>

Parts are shown where the engine reports them; what an engine's operator calls besides, such as a
conversion of layout, is a part too. Kernels of an operator without parts stand directly below it.
A ratio of an operator is that to all operators, any other that to the row above it; what an
operator waits is no part of its time and has no ratio.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from lar.errors import UsageError
from lar.profiles.activities import execution_of, places_of
from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.operator_filter import operators_matching
from lar.profiles.rows import savings_of
from lar.profiles.totals import UNITS_NS, totals_of
from lar.records.profile import Execution, Profile, Span
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.layout import (
    CALLS,
    LAYOUT,
    SAVING,
    THREAD,
    Section,
    TimeRow,
    Times,
    both_times,
    disturbed_column,
    format_count,
    format_time,
    format_unit,
    median_column,
    name_column,
    sort_by_time,
    times_of,
    truncate_name,
    without_nothing,
)
from lar.reports.styles.paddle.run import Activity, Settings, TimedRun

TITLE = "Operator Summary"
MERGED = "All threads merged"
NAME_WIDTH = 52
SAVES = "Could Save is of one iteration, with the operators of a row at their roofs."
FLOPS = Column[TimeRow](
    *("FLOPs", lambda row: row.flops, lambda row: format_count(row.flops)), width=10
)


@dataclass
class Tally:
    """The calls of a row: their times on the host and on the device, if they are known, and how
    much of an iteration its operators would save at their roofs, by their places. Those of a row
    that `waits` are no work of the host. `owners` has the operator of each call.
    """

    cpu_ns: list[int] = field(default_factory=list)
    gpu_ns: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    disturbed: int = 0
    parts: dict[str, Tally] = field(default_factory=dict)
    leaves: dict[str, Tally] = field(default_factory=dict)
    flops: int | None = 0
    waits: bool = False
    saved: dict[int, float] = field(default_factory=dict)

    def add(self, cpu_ns: int | None, gpu_ns: int | None) -> None:
        if cpu_ns is not None:
            self.cpu_ns.append(cpu_ns)
        if gpu_ns is not None:
            self.gpu_ns.append(gpu_ns)

    def part(self, name: str) -> Tally:
        return tally_in(self.parts, name)

    def leaf(self, name: str) -> Tally:
        return tally_in(self.leaves, name)

    def row(self, name: str, level: int, cpu_whole_ns: int, gpu_whole_ns: int) -> TimeRow:
        """Return the row; its ratios are those to the whole times."""
        cpu = self.times_of(self.cpu_ns, cpu_whole_ns)
        if cpu is not None and self.waits:
            cpu = cpu._replace(ratio=None)
        gpu = self.times_of(self.gpu_ns, gpu_whole_ns)
        calls = max(len(self.cpu_ns), len(self.gpu_ns))
        saving = sum(self.saved.values()) if self.saved else None
        flops = None if level else self.flops
        return TimeRow(
            *(name, calls, cpu, gpu, level, flops), saving_ns=saving, disturbed=self.disturbed
        )

    def times_of(self, durations_ns: list[int], whole_ns: int) -> Times | None:
        """Return the cell of the host's durations or of the device's, None without any."""
        owners = self.owners if len(self.owners) == len(durations_ns) else None
        return times_of(totals_of(durations_ns, owners), whole_ns) if durations_ns else None

    def rows(
        self, name: str, cpu_whole_ns: int, gpu_whole_ns: int, level: int = 0
    ) -> list[TimeRow]:
        """Return the row and those below it, in the order they were first seen."""
        own_ns = sum(self.cpu_ns), sum(self.gpu_ns)
        rows = [self.row(name, level, cpu_whole_ns, gpu_whole_ns)]
        for below, part in self.parts.items():
            rows += part.rows(below, *own_ns, level + 1)
        for below, leaf in self.leaves.items():
            rows.append(leaf.row(below, level + 1, *own_ns))
        return rows


def tally_in(tallies: dict[str, Tally], name: str) -> Tally:
    """Return the tally of that name, a new one for a new name."""
    found = tallies.get(name)
    if found is None:
        found = tallies[name] = Tally()
    return found


class OperatorBlock(NamedTuple):
    """The operators under one title, each with the rows below it."""

    thread: str
    operators: list[list[TimeRow]]


def operator_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the table of operators, empty if the profile has no operators.

    Raises:
        UsageError: no operator matches the filter.
    """
    blocks = operator_blocks(run, settings)
    if not blocks:
        return []
    unit, shows_savings = settings.unit, settings.sort.lstrip("+-") == SAVING
    estimates = run.profile.has_estimates
    rows, breaks = under_threads(
        (
            block.thread,
            without_nothing(
                (row for rows in block.operators for row in rows), are_estimates=estimates
            ),
        )
        for block in blocks
    )
    table = Table(
        name="operator",
        title=TITLE,
        columns=(
            THREAD,
            Column("Level", lambda row: row.level, in_text=False),
            name_column(
                NAME_WIDTH,
                lambda row: truncate_name(row.name, row.level, NAME_WIDTH),
            ),
            CALLS,
            *both_times(unit, on_device=run.profile.on_device),
            FLOPS,
            saving_column(unit, in_text=shows_savings),
            *median_columns(run.profile, unit),
            disturbed_column(rows, is_recorded=is_recorded(run.profile)),
        ),
        rows=rows,
        notes=(SAVES,) if shows_savings else (),
        layout=LAYOUT,
        above=(format_unit(unit),),
        breaks=breaks,
    )
    return [Section(table)]


def median_columns(profile: Profile, unit: str) -> tuple[Column[TimeRow], ...]:
    """Return the columns of medians; beside two columns of times text has no room for them."""
    on_device = profile.on_device
    host = median_column("CPU", unit, lambda row: row.cpu, in_text=not on_device)
    device = median_column("GPU", unit, lambda row: row.gpu, in_text=False)
    return (host, device) if on_device else (host,)


def saving_column(unit: str, *, in_text: bool) -> Column[TimeRow]:
    """Return the column of what an iteration would save."""
    return Column(
        "Could Save",
        lambda row: None if row.saving_ns is None else row.saving_ns / UNITS_NS[unit],
        lambda row: format_time(row.saving_ns, unit),
        unit,
        width=10,
        in_text=in_text,
        rank=1,
    )


def under_threads(
    blocks: Iterable[tuple[str, Iterable[TimeRow]]],
) -> tuple[tuple[TimeRow, ...], dict[int, str]]:
    """Return the rows of all blocks with their threads, and the titles by the row after them."""
    rows: list[TimeRow] = []
    titles = {}
    for thread, own in blocks:
        if thread:
            titles[len(rows)] = f"Thread: {thread}"
        rows += (row._replace(thread=thread) for row in own)
    return tuple(rows), titles


def operator_blocks(run: TimedRun, settings: Settings) -> list[OperatorBlock]:
    """Return the operators sorted: all in one block, or a block for each thread.

    Ratios are those to all operators of a block, also to those that the filter leaves out.

    Raises:
        UsageError: no operator matches the filter.
    """
    tallies = tally_operators(run, settings)
    if settings.filter is not None and run.executions and not any(each.keys for each in tallies):
        raise UsageError(
            "no operator has such a name or type",
            "--style paddle --group-by name lists them",
            flag=f"--filter {settings.filter}",
        )
    blocks = []
    for each in tallies:
        operators = [tally.rows(key, each.cpu_ns, each.gpu_ns) for key, tally in each.keys.items()]
        if operators:
            ordered = sort_by_time(operators, settings.sort, itemgetter(0))
            blocks.append(OperatorBlock(each.thread, ordered[: settings.top]))
    return blocks


@dataclass
class ThreadTally:
    """The operators of a thread, or of all: those that are shown, and the times of all."""

    thread: str
    cpu_ns: int = 0
    gpu_ns: int = 0
    keys: dict[str, Tally] = field(default_factory=dict)


def tally_operators(run: TimedRun, settings: Settings) -> list[ThreadTally]:
    """Count the executions of the operators that match the filter."""
    profile = run.profile
    by_thread, by_name = settings.group_by == "thread", settings.group_by == "name"
    keys = [each.name if by_name else each.type for each in profile.operators]
    shown = operators_matching(profile, settings.filter or "")
    calls, savings = calls_by_execution(run), savings_of(profile)
    disturbed = disturbed_executions(profile)
    threads: dict[int | None, ThreadTally] = {}
    for index, execution in enumerate(run.executions):
        thread = execution.thread if by_thread else None
        tallies = threads.get(thread)
        if tallies is None:
            title = MERGED if thread is None else thread_title(profile, thread)
            tallies = threads[thread] = ThreadTally(title)
        cpu_ns = profile.host_times_ns[index]
        work = run.by_execution.get(index, ())
        gpu_ns = sum(activity.duration_ns for activity in work)
        tallies.cpu_ns += cpu_ns
        tallies.gpu_ns += gpu_ns
        if execution.operator in shown:
            tally = tally_in(tallies.keys, keys[execution.operator])
            tally.add(cpu_ns, gpu_ns)
            tally.owners.append(execution.operator)
            tally.disturbed += index in disturbed
            if (saving := savings.get(execution.operator)) is not None:
                tally.saved[execution.operator] = saving
            flops = profile.operators[execution.operator].flops
            tally.flops = None if flops is None or tally.flops is None else tally.flops + flops
            if profile.on_device:
                add_device_parts(tally, run, execution, calls.get(index, ()), work)
            else:
                add_host_parts(tally, run, execution, calls.get(index, ()), index in disturbed)
    return list(threads.values())


def thread_title(profile: Profile, thread: int) -> str:
    name = profile.threads.get(thread)
    return f"{thread} ({name})" if name else str(thread)


def calls_by_execution(run: TimedRun) -> dict[int, list[Span]]:
    """Return the calls of operators on the host, besides dispatch, wait and compute."""
    runtime = run.profile.spans_of("runtime")
    spans = [span for span in (*runtime, *run.host_copies) if span.operator is not None]
    calls: dict[int, list[Span]] = {}
    if spans:
        places = places_of(run.executions, on_device=False)
        for span in sorted(spans, key=lambda span: span.start_ns):
            index = execution_of(span, places)
            if index is not None:
                calls.setdefault(index, []).append(span)
    return calls


def add_host_parts(
    tally: Tally,
    run: TimedRun,
    execution: Execution,
    calls: Iterable[Span],
    was_disturbed: bool,
) -> None:
    """Count the parts of an execution on the host, whose computation was done by an algorithm."""
    operator = run.profile.operators[execution.operator]
    if execution.dispatch_ns is not None:
        tally.part(f"{operator.type} dispatch").add(execution.dispatch_ns, 0)
    holder = tally
    if execution.wait_ns is not None:
        part = tally.part(f"{operator.type} wait")
        part.waits = execution.dispatch is not None
        part.add(execution.wait_ns, 0)
        holder = tally.part(f"{operator.type} compute")
        holder.add(execution.compute_ns, 0)
        holder.disturbed += was_disturbed
    for call in calls:
        tally.part(call.name).add(call.duration_ns, 0)
    if operator.algorithm:
        leaf = holder.leaf(operator.algorithm)
        leaf.add(execution.compute_ns, None)
        leaf.disturbed += was_disturbed


def add_device_parts(
    tally: Tally,
    run: TimedRun,
    execution: Execution,
    calls: Iterable[Span],
    work: Iterable[Activity],
) -> None:
    """Count the parts of an execution on a device.

    What began during a call is that call's, the rest that of the computation; the wait kept
    neither the host nor the device busy.
    """
    name = run.profile.operators[execution.operator].type
    has_parts = execution.wait_ns is not None
    if has_parts and execution.dispatch_ns is not None:
        tally.part(f"{name} dispatch").add(execution.dispatch_ns, 0)
    taken: dict[int, list[Activity]] = {}
    own: list[Activity] = []
    spans = list(calls)
    for activity in work:
        around = (
            i for i, each in enumerate(spans) if each.start_ns <= activity.start_ns < each.end_ns
        )
        place = next(around, None)
        (own if place is None else taken.setdefault(place, [])).append(activity)
    for place, call in enumerate(spans):
        begun = taken.get(place, [])
        part = tally.part(call.name)
        part.add(call.duration_ns, sum(each.duration_ns for each in begun))
        add_leaves(part, begun)
    holder = tally
    if has_parts:
        holder = tally.part(f"{name} compute")
        holder.add(None, sum(each.duration_ns for each in own))
    add_leaves(holder, own)


def add_leaves(holder: Tally, work: Iterable[Activity]) -> None:
    for each in work:
        holder.leaf(each.name).add(None, each.duration_ns)
