"""The rows of the style `ncu`: what was launched, alone, by type, by kernel or by range."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lar.profiles.devices import Extent
from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.launches import Launch, launches_of, ranges_of
from lar.profiles.range_members import members_of_ranges
from lar.profiles.roofline import Work, saving_ns, work_of
from lar.profiles.thread_balance import use_of
from lar.profiles.totals import Totals, totals_of
from lar.records.profile import Peak, Profile, Span, ThreadUse

OUTSIDE = "outside the ranges"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the report; `share` is its part of the time of all launches, or for a range of
    all steps.

    `detail` is its operator or its type, where that is one; its work is that of all timed
    `iterations`. `times` has the figures of single launches, or of a range from begin to end, and
    `disturbed` counts those that something else on the machine made longer.
    """

    kind: Literal["range", "operator", "kernel", "group"]
    name: str
    detail: str = ""
    work: Work
    share: float | None = None
    grid: Extent | None = None
    block: Extent | None = None
    stream: int | None = None
    device: str | None = None
    times: Totals
    disturbed: int | None = None
    iterations: int = 1
    threads: ThreadUse | None = None

    def saving_ns(self, peak: Peak | None) -> float | None:
        """Return how much of an iteration it would save at its roof."""
        saving = saving_ns(self.work, peak)
        return None if saving is None else saving / self.iterations


def section_of(row: Row) -> str:
    """Return ncu's name for the part that a row's metrics belong to."""
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
    launches = put_in_ranges(profile, launches_of(profile))
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
    disturbed = disturbed_executions(profile) if is_recorded(profile) else None
    rows += [
        replace(
            row_of_group(group, group_by, total_ns),
            threads=use_of(profile.operators[place] for place in places_in(group)),
            disturbed=None
            if disturbed is None
            else sum(it.begun.execution in disturbed for it in group),
        )
        for group in groups.values()
    ]
    iterations = len(profile.timed_steps()) or 1
    return [replace(row, iterations=iterations) for row in rows]


def places_in(group: Sequence[Launch]) -> set[int]:
    """Return the places of the operators that a group of launches is of."""
    return {launch.place for launch in group if launch.place is not None}


def put_in_ranges(profile: Profile, launches: Sequence[Launch]) -> list[Launch]:
    """Return the launches with the ranges that each belongs to, in one order for all."""
    members: dict[str, set[int]] = {}
    for span, places in members_of_ranges(profile, [launch.begun for launch in launches]):
        members.setdefault(span.name, set()).update(places)
    if not members:
        return [*launches]
    return [
        launch._replace(ranges=tuple(name for name in members if place in members[name]))
        for place, launch in enumerate(launches)
    ]


def row_of_range(profile: Profile, spans: Sequence[Span], launches: Sequence[Launch]) -> Row:
    """Return the row of a range: its own time, and the work of the launches within it."""
    total_ns = sum(span.duration_ns for span in spans)
    steps_ns = sum(step.duration_ns for step in profile.timed_steps())
    in_steps = all(span.step is not None for span in spans)
    return Row(
        kind="range",
        name=spans[0].name,
        work=work_of((it.piece for it in launches), calls=len(spans), total_ns=total_ns),
        share=total_ns / steps_ns if in_steps and steps_ns else None,
        times=totals_of(span.duration_ns for span in spans),
    )


def row_of_group(group: Sequence[Launch], group_by: str, total_ns: int) -> Row:
    """Return the row of launches that have in common what `group_by` says."""
    first, work = group[0], work_of(launch.piece for launch in group)
    share = work.total_ns / total_ns if total_ns else None
    times = totals_of(
        [launch.piece.duration_ns for launch in group], [launch.place for launch in group]
    )
    types = {launch.type for launch in group}
    detail = first.type if len(types) == 1 else ""
    if group_by == "operator":
        return Row(
            kind="kernel" if first.is_kernel else "operator",
            name=first.kernel if first.is_kernel else first.operator,
            detail=first.operator if first.is_kernel else first.type,
            work=work,
            times=times,
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
    return Row(kind="group", name=name, detail=detail, work=work, times=times, share=share)
