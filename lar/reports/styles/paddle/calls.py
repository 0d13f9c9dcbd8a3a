"""Paddle's tables of copies, of the ranges that the user has named, and of kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.launches import Launch, launches_of
from lar.profiles.operator_filter import only_moves, operators_matching
from lar.profiles.totals import group_by, totals_of
from lar.records.profile import Span
from lar.reports.cut_names import cut_end
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.layout import (
    CALLS,
    LAYOUT,
    OPEN,
    SAVING,
    THREAD,
    Section,
    TimeRow,
    both_times,
    disturbed_column,
    format_unit,
    name_column,
    sort_by_time,
    times_of,
    without_nothing,
)
from lar.reports.styles.paddle.operators import (
    MERGED,
    median_columns,
    thread_title,
    under_threads,
)
from lar.reports.styles.paddle.overview import camel_case
from lar.reports.styles.paddle.run import Settings, TimedRun

NAME_WIDTH = 90  # of kernels
COPY_NAMES = ("memcpy", "memorycopy", "memset")


class Call(NamedTuple):
    """A range; the host's time is None if the range is on a device. It is `disturbed` where it is
    part of an execution that something else on the machine made longer."""

    name: str
    cpu_ns: int | None
    gpu_ns: int
    disturbed: bool = False


def rows_of_calls(run: TimedRun, calls: Iterable[Call]) -> list[TimeRow]:
    """Return rows by name in the order first seen: ratios to the steps, and to all that the
    device did."""
    rows = []
    for name, group in group_by(calls, lambda call: call.name).items():
        host = [call.cpu_ns for call in group if call.cpu_ns is not None]
        cpu = times_of(totals_of(host), run.step_ns) if host else None
        gpu = times_of(totals_of(call.gpu_ns for call in group), run.device_ns)
        disturbed = sum(call.disturbed for call in group)
        rows.append(TimeRow(name, len(group), cpu, gpu, disturbed=disturbed))
    return rows


def call_of(run: TimedRun, span: Span) -> Call:
    return Call(span.name, run.host_ns_of(span), run.device_ns_of(span))


def copies_of(run: TimedRun) -> list[Call]:
    """Return everything that moved data, in the order of time: copies of the host, of input and
    output, ranges with such a name, and operators that only copy."""
    disturbed = disturbed_executions(run.profile)
    steps = {(run.executions[it].operator, run.executions[it].step) for it in disturbed}
    spans = [*run.host_copies, *(span for span in run.user_ranges if is_copy(span))]
    found = [
        (each.start_ns, call_of(run, each)._replace(disturbed=(each.operator, each.step) in steps))
        for each in spans
    ]
    for span in run.profile.spans_of("phase"):
        if span.name in ("input_copy", "output_copy"):
            call = call_of(run, span)
            found.append((span.start_ns, call._replace(name=camel_case(span.name))))
    copied = {span.operator for span in run.host_copies}
    for index, execution in enumerate(run.executions):
        kind = run.profile.operators[execution.operator].type
        if only_moves(kind) and execution.operator not in copied:
            work = sum(each.duration_ns for each in run.by_execution.get(index, ()))
            call = Call(kind, run.profile.host_times_ns[index], work, index in disturbed)
            found.append((execution.start_ns, call))
    return [call for _, call in sorted(found, key=lambda each: each[0])]


def is_copy(span: Span) -> bool:
    return any(name in span.name.lower() for name in COPY_NAMES)


def copy_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the table of copies, in the order first seen."""
    estimates = run.profile.has_estimates
    rows = without_nothing(rows_of_calls(run, copies_of(run)), are_estimates=estimates)
    rows = rows[: settings.top]
    return time_section(
        "memory_manipulation",
        "Memory Manipulation Summary",
        [("", rows)],
        settings,
        run.profile.on_device,
        more=(
            *median_columns(run.profile, settings.unit),
            disturbed_column(rows, is_recorded=is_recorded(run.profile)),
        ),
    )


def range_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the table of the ranges that the user has named; one around several steps has no
    ratio to them."""
    threads: dict[int | None, list[Span]] = {}
    for span in run.user_ranges:
        if not is_copy(span):
            thread = span.thread if settings.group_by == "thread" else None
            threads.setdefault(thread, []).append(span)
    blocks = []
    for thread, spans in threads.items():
        around = {span.name for span in spans if span.step is None}
        rows = [
            without_ratio(row) if row.name in around else row
            for row in rows_of_calls(run, (call_of(run, span) for span in spans))
        ]
        # What a range would save is not known, and those of one name may be of several kinds.
        key = settings.sort.replace("_typical", "_total")
        key = "cpu_total" if key.lstrip("+-") == SAVING else key
        rows = sort_by_time(rows, key, lambda row: row)[: settings.top]
        title = MERGED if thread is None else thread_title(run.profile, thread)
        blocks.append((title, rows))
    return time_section(
        *("userdefined", "UserDefined Summary", blocks, settings, run.profile.on_device),
        closed=False,
    )


def without_ratio(row: TimeRow) -> TimeRow:
    return row._replace(cpu=row.cpu and row.cpu._replace(ratio=None))


def time_section(
    name: str,
    title: str,
    blocks: Sequence[tuple[str, Sequence[TimeRow]]],
    settings: Settings,
    on_device: bool,
    *,
    closed: bool = True,
    more: Sequence[Column[TimeRow]] = (),
) -> list[Section]:
    """Return a table as wide as its longest name: blocks of rows, each under its title if any, with
    `more` columns at the end."""
    found, breaks = under_threads(blocks)
    if not found:
        return []
    table = Table(
        name=name,
        title=title,
        columns=(
            *((THREAD,) if blocks[0][0] else ()),
            name_column(0),
            CALLS,
            *both_times(settings.unit, on_device=on_device),
            *more,
        ),
        rows=found,
        layout=LAYOUT if closed else OPEN,
        above=(format_unit(settings.unit),),
        breaks=breaks,
    )
    return [Section(table)]


STAND_IN_NOTE = (
    "The engine reports no kernels: in their place stand the algorithms that it has chosen or "
    "their kinds, and the types of operators without one."
)
HOST_NOTE = "There is no device: the time is that of their computation on the host."


def kernel_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the table of kernels, empty if nothing was executed; a note says what stands in their
    place if none were reported."""
    on_device, unit = run.profile.on_device, settings.unit
    where = "gpu" if on_device else "cpu"
    key = settings.sort if settings.sort.lstrip("+-").startswith(where) else f"{where}_typical"
    rows = sort_by_time(kernel_rows(run, settings.filter or ""), key, lambda row: row)[
        : settings.top
    ]
    if not rows:
        return []
    rows = without_nothing(rows, are_estimates=run.profile.has_estimates)
    return [
        Section(
            Table(
                name="kernel",
                title="Kernel Summary",
                columns=(
                    name_column(
                        NAME_WIDTH,
                        lambda row: cut_end(without_arguments(row.name), NAME_WIDTH),
                    ),
                    CALLS,
                    both_times(unit, on_device=on_device)[on_device],
                    median_columns(run.profile, unit)[on_device],
                    disturbed_column(rows, is_recorded=is_recorded(run.profile)),
                ),
                rows=tuple(rows),
                notes=kernel_notes(run),
                layout=LAYOUT,
                above=(format_unit(unit),),
            )
        )
    ]


def kernel_rows(run: TimedRun, pattern: str) -> list[TimeRow]:
    """Return the kernels by name, those whose name or operator matches `pattern`; ratios are to the
    time of all kernels."""
    launches = launches_of(run.profile)
    shown = operators_matching(run.profile, pattern)
    disturbed = disturbed_executions(run.profile)
    kernels: dict[str, list[Launch]] = {}
    for launch in launches:
        if launch.place in shown or re.search(pattern, launch.kernel):
            kernels.setdefault(launch.kernel, []).append(launch)
    whole_ns = sum(launch.piece.duration_ns for launch in launches)
    rows = []
    for name, own in kernels.items():
        count = sum(launch.begun.execution in disturbed for launch in own)
        durations = [launch.piece.duration_ns for launch in own]
        cell = times_of(totals_of(durations, [launch.place for launch in own]), whole_ns)
        cpu, gpu = (None, cell) if run.profile.on_device else (cell, None)
        rows.append(TimeRow(name, len(own), cpu, gpu, disturbed=count))
    return rows


def kernel_notes(run: TimedRun) -> tuple[str, ...]:
    if run.reports_kernels:
        return ()
    return (STAND_IN_NOTE,) if run.profile.on_device else (STAND_IN_NOTE, HOST_NOTE)


def without_arguments(kernel: str) -> str:
    """Return a kernel's name without its arguments."""
    templated = re.match(r"(.+?)(<.*>)(\(.*\))", kernel)
    return templated[1] + templated[2] if templated else kernel
