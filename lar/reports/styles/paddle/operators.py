"""Paddle's tables of operators, kernels, copies, and the ranges that the user has named.

Below each operator stand its parts, and below these algorithms or kernels:

    <type>
      <type> dispatch
      <type> wait
      <type> compute
        <algorithm, or a kernel or copy on the device>

Parts are shown if the engine reports them. What an engine's operator calls besides, such as a
conversion of layout, is a part too. Kernels of an operator without parts stand directly below it.
The ratio of an operator is to all operators, any other ratio is to the row above. The time of an
operator includes neither its waiting, which has no ratio, nor the operators within it, such as the
body of a loop.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from lar.errors import UsageError
from lar.profiles.activities import (
    DeviceActivity,
    execution_of,
    is_of_device,
    launches_of,
    places_of,
)
from lar.profiles.breakdown import disturbed_executions
from lar.profiles.calls import Call, call_of_span, calls_of
from lar.profiles.rows import rows_of, savings_of
from lar.profiles.times import (
    group_by,
    only_moves,
    operators_matching,
    self_host_times_of,
    self_times_of,
    totals_of,
)
from lar.records.profile import Profile, Span
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.overview import (
    CALLS,
    LAYOUT,
    THREAD,
    TimedRun,
    TimeRow,
    added_columns,
    camel_case,
    first_rows,
    name_column,
    number_column,
    steps_ns,
    time_table,
    times_column,
    under_threads,
)
from lar.reports.text import cut_end

NAME_WIDTH = 52
KERNEL_WIDTH = 90
COPY = re.compile("memcpy|memorycopy|memset", re.IGNORECASE)
STAND_IN = "The engine reports no kernels: algorithms, or types of operators, stand in their place."


@dataclass
class Group:
    """The calls of a row and the rows below it, with known times on the host and on the device.

    `operators` are those that were executed. Calls of a row that `waits` are no work of the host.
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
        """Add the work of a device as rows below."""
        for each in work:
            self.below[each.span.name].add(None, each.span.duration_ns)

    def rows(
        self, profile: Profile, name: str, whole: tuple[int, int], level: int = 0
    ) -> Iterator[TimeRow]:
        """Yield the row and those below it, in the order first seen.

        The row's ratios are to the `whole` times on the host and on the device.
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
    """Return the table of operators, empty if the profile has no operators.

    It has one block, or a block for each thread.

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
            "no operator has such a name or type",
            "--style paddle --group-by name lists them",
            flag=f"--filter {run.options['filter']}",
        )
    return operator_table(run, rows, titles)


def operator_table(
    run: TimedRun, rows: Sequence[TimeRow], titles: Mapping[int, str]
) -> list[Table[TimeRow]]:
    """Return the table of these rows, with the titles of threads before some of them."""
    columns = (
        *(THREAD, Column[TimeRow]("Level", lambda row: row.level, in_text=False)),
        name_column(NAME_WIDTH, cut_name),
        *(CALLS, times_column(run, "CPU"), times_column(run, "GPU")),
        number_column("FLOPs", attrgetter("flops"), "{}", width=10),
        *added_columns(run),
    )
    return time_table(run, "operator", "Operator Summary", rows, columns, breaks=titles)


def cut_name(row: TimeRow) -> str:
    """Return an indented name; below the first level it is cut to the column's width."""
    is_cut = row.level and len(row.indented) > NAME_WIDTH
    return row.indented[: NAME_WIDTH - 3] + "..." if is_cut else row.indented


def rows_of_block(run: TimedRun, places: Sequence[int]) -> list[TimeRow]:
    """Return the operators of these executions that match the filter, sorted, with the rows below.

    Ratios are to all operators, including those that are left out.
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
    """Return operators' calls on the host besides dispatch, wait and compute, by execution."""
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
    """Count the parts of an execution.

    What a device began during a call belongs to the call, the rest to the computation. On the host
    an algorithm did the computation. On a device the wait keeps neither side busy.
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
    """Return rows by name in the order first seen, with ratios to the steps and all device work."""
    whole = sum(steps_ns(run)), sum(each.span.duration_ns for each in run.activities)
    rows = []
    for name, own in group_by(calls, lambda each: each.name).items():
        disturbed = sum(each.disturbed for each in own)
        cpu = totals_of([each.cpu_ns or 0 for each in own], disturbed=disturbed)
        gpu = totals_of([each.device_ns for each in own], disturbed=disturbed)
        rows.append(TimeRow(name, len(own), cpu, gpu, *whole))
    return rows


def copies_of(run: TimedRun) -> Iterator[Call]:
    """Yield everything that moved data.

    These are copies of the host, of input and output, ranges with such a name, and operators that
    only copy.
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
    """Return the table of copies, in the order first seen."""
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
    """Return the table of kernels, empty if nothing was executed.

    If the engine reported no kernels, a note says what replaces them.
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
