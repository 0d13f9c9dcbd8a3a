"""The rows of the style `ncu`: what was launched, alone, by type, by kernel or by range."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lar.profiling.profile import Execution, Profile, Span
from lar.profiling.roofline import Piece, Work, work_of
from lar.profiling.styles.kernels import kernel_name_of

Size3 = tuple[int, int, int]
OUTSIDE = "outside the ranges"


class Launch(NamedTuple):
    """One execution of an operator or, on a device that tells them, of a kernel.

    `place` counts in `Profile.operators`, which may bear one name several times, or none.
    `kernel` is the algorithm, or the provider and the type, where no kernel is told. `starts` is
    when it began on which threads, the one where it ran first; `ranges` are the user's ranges
    around it.
    """

    place: int | None
    operator: str
    type: str
    kernel: str
    is_kernel: bool
    piece: Piece
    starts: tuple[tuple[int, int], ...]
    grid: Size3 | None = None
    block: Size3 | None = None
    stream: int | None = None
    device: str | None = None
    ranges: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the report; `share` is its part of all launches, a range's of all steps.

    `detail` is its operator or its type, where that is one.
    """

    kind: Literal["range", "operator", "kernel", "group"]
    name: str
    detail: str = ""
    work: Work
    share: float | None = None
    grid: Size3 | None = None
    block: Size3 | None = None
    stream: int | None = None
    device: str | None = None


def section_of(row: Row) -> str:
    """Return what ncu calls the part that a row's metrics belong to."""
    return "User range" if row.kind == "range" else "Command line profiler metrics"


def first_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """Return the first of the ranges, and as many of the others."""
    ranges = [row for row in rows if row.kind == "range"]
    return ranges[:count] + [row for row in rows if row.kind != "range"][:count]


# What launches must have in common to be in one row, by what --group-by says.
GROUPS: dict[str, Callable[[Launch], Hashable]] = {
    "operator": lambda it: (it.place, it.kernel, it.grid, it.block, it.stream, it.device),
    "type": lambda it: it.type,
    "kernel": lambda it: it.kernel,
    "range": lambda it: (it.ranges, it.type),
}


def rows_of(profile: Profile, group_by: str, pattern: str) -> list[Row]:
    """Return the rows: the user's ranges, then the launches put together by `group_by`.

    A pattern keeps what is launched by operators whose name or type matches, or by a kernel whose
    name does, and all within a range whose name does, as ncu's --nvtx-include.
    """
    matches = re.compile(pattern).search
    ranges = ranges_of(profile)
    launches = put_in_ranges(launches_of(profile), ranges)
    total_ns = sum(launch.piece.duration_ns for launch in launches)
    rows = [
        row_of_range(profile, spans, [launch for launch in launches if name in launch.ranges])
        for name, spans in ranges.items()
        if matches(name)
    ]
    groups: dict[Hashable, list[Launch]] = {}
    for launch in launches:
        names = (launch.operator, launch.type, launch.kernel, *launch.ranges)
        if any(matches(name) for name in names):
            groups.setdefault(GROUPS[group_by](launch), []).append(launch)
    return rows + [row_of_group(group, group_by, total_ns) for group in groups.values()]


def launches_of(profile: Profile) -> list[Launch]:
    """Return the kernels of the timed iterations, or the executions where no kernels are told."""
    kernels = profile.spans_of("kernel") if profile.on_device else ()
    if not kernels:
        return [launch_of(profile, execution) for execution in profile.timed_executions()]
    counts = Counter((kernel.operator, kernel.step) for kernel in kernels)
    return [
        launch_of_kernel(profile, kernel, counts[kernel.operator, kernel.step] == 1)
        for kernel in kernels
    ]


def launch_of(profile: Profile, execution: Execution) -> Launch:
    operator = profile.operators[execution.operator]
    starts = [(execution.thread, execution.start_ns)]
    if execution.dispatch_start_ns is not None and execution.dispatch_thread is not None:
        starts.append((execution.dispatch_thread, execution.dispatch_start_ns))
    return Launch(
        place=execution.operator,
        operator=operator.name,
        type=operator.type,
        kernel=kernel_name_of(operator),
        is_kernel=False,
        piece=Piece(execution.compute_ns, operator.flops, operator.size_bytes),
        starts=tuple(starts),
    )


def launch_of_kernel(profile: Profile, kernel: Span, alone: bool) -> Launch:
    """Return the launch of a kernel; which of an operator's kernels computes how much is known
    only if it is `alone`."""
    operator = None if kernel.operator is None else profile.operators[kernel.operator]
    flops, size_bytes = (
        (operator.flops, operator.size_bytes) if operator and alone else (None, None)
    )
    return Launch(
        place=kernel.operator,
        operator=operator.name if operator else "",
        type=operator.type if operator else "",
        kernel=kernel.name,
        is_kernel=True,
        piece=Piece(kernel.duration_ns, flops, size_bytes),
        starts=((kernel.thread, kernel.start_ns),),
        grid=kernel.grid,
        block=kernel.block,
        stream=kernel.stream,
        device=kernel.device,
    )


def ranges_of(profile: Profile) -> dict[str, list[Span]]:
    """Return the user's ranges by name, without those of the warm-up."""
    ranges: dict[str, list[Span]] = {}
    for span in profile.spans:
        if span.category == "user_annotation" and not span.warmup:
            ranges.setdefault(span.name, []).append(span)
    return ranges


def put_in_ranges(launches: Sequence[Launch], ranges: dict[str, list[Span]]) -> list[Launch]:
    """Return the launches with the ranges around each.

    One belongs to a range on the thread where it ran, or was dispatched from, if it began there
    within the range; a range on another thread holds all that began to run meanwhile.
    """
    starts = starts_by_thread(launches)
    around: list[list[str]] = [[] for _ in launches]
    for name, spans in ranges.items():
        inside: set[int] = set()
        for span in spans:
            known = starts.get(span.thread, starts[None])
            first = bisect_left(known, (span.start_ns, -1))
            last = bisect_left(known, (span.end_ns, -1))
            inside.update(number for _, number in known[first:last])
        for number in inside:
            around[number].append(name)
    return [
        launch._replace(ranges=tuple(names)) if names else launch
        for launch, names in zip(launches, around, strict=True)
    ]


def starts_by_thread(launches: Sequence[Launch]) -> dict[int | None, list[tuple[int, int]]]:
    """Return when which launches began, sorted: by the thread where they ran, else by that where
    they were dispatched; under None where they ran, whichever thread that was."""
    ran: dict[int | None, list[tuple[int, int]]] = {None: []}
    dispatched: dict[int | None, list[tuple[int, int]]] = {}
    for number, launch in enumerate(launches):
        (thread, start_ns), *earlier = launch.starts
        ran.setdefault(thread, []).append((start_ns, number))
        ran[None].append((start_ns, number))
        for thread, start_ns in earlier:
            dispatched.setdefault(thread, []).append((start_ns, number))
    return {thread: sorted(starts) for thread, starts in (dispatched | ran).items()}


def row_of_range(profile: Profile, spans: Sequence[Span], launches: Sequence[Launch]) -> Row:
    """Return the row of a range: its own time, and the work of what was launched within."""
    total_ns = sum(span.duration_ns for span in spans)
    steps_ns = sum(step.duration_ns for step in profile.timed_steps())
    in_steps = all(span.step is not None for span in spans)
    return Row(
        kind="range",
        name=spans[0].name,
        work=work_of((it.piece for it in launches), calls=len(spans), total_ns=total_ns),
        share=total_ns / steps_ns if in_steps and steps_ns else None,
    )


def row_of_group(group: Sequence[Launch], group_by: str, total_ns: int) -> Row:
    """Return the row of launches that have in common what `group_by` says."""
    first, work = group[0], work_of(launch.piece for launch in group)
    share = work.total_ns / total_ns if total_ns else None
    types = {launch.type for launch in group}
    detail = first.type if len(types) == 1 else ""
    if group_by == "operator":
        return Row(
            kind="kernel" if first.is_kernel else "operator",
            name=first.kernel if first.is_kernel else first.operator,
            detail=first.operator if first.is_kernel else first.type,
            work=work,
            share=share,
            grid=first.grid,
            block=first.block,
            stream=first.stream,
            device=first.device,
        )
    name = {
        "type": first.type,
        "kernel": first.kernel,
        "range": " / ".join(first.ranges) or OUTSIDE,
    }[group_by]
    return Row(kind="group", name=name, detail=detail, work=work, share=share)
