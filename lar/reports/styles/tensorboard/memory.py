"""The memory view of the TensorBoard plugin: statistics by operator, the curve, the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from lar.profiles.devices import device_number, device_title
from lar.profiles.totals import group_by
from lar.records.profile import Allocation, Profile
from lar.reports.model import Table
from lar.reports.styles.tensorboard.views import (
    View,
    ViewColumn,
    describe_columns,
    rows_of,
    text_column,
)

Row = TypeVar("Row")


def kilobytes(size_bytes: int) -> float:
    return round(size_bytes / 1024, 2)


def milliseconds(time_ns: int) -> float:
    return round(time_ns / 1e6, 2)


class MemoryUse(NamedTuple):
    """A type of operator with its calls and the bytes that it allocates or, below 0, releases."""

    type: str
    calls: int
    sizes: Sequence[int]

    @property
    def taken(self) -> list[int]:
        return [size for size in self.sizes if size > 0]


def with_self(
    title: str, value: Callable[[MemoryUse], float]
) -> tuple[ViewColumn[MemoryUse], ViewColumn[MemoryUse]]:
    """Return two columns of one value: operators do not nest."""
    return ViewColumn(title, value, tooltip=""), ViewColumn(f"Self {title}", value, tooltip="")


STATISTICS_COLUMNS: tuple[ViewColumn[MemoryUse], ...] = (
    text_column("Operator Name", lambda it: it.type, tooltip=""),
    ViewColumn("Calls", lambda it: it.calls, tooltip="# of calls of the operator."),
    *with_self("Size Increase (KB)", lambda it: kilobytes(sum(it.sizes))),
    *with_self("Allocation Count", lambda it: len(it.taken)),
    *with_self("Allocation Size (KB)", lambda it: kilobytes(sum(it.taken))),
)


class CurvePoint(NamedTuple):
    """The bytes in use at a time, and the bytes reserved: the static plan, if it is known."""

    at_ns: int
    allocated: int
    reserved: int | None


CURVE_COLUMNS: tuple[ViewColumn[CurvePoint], ...] = (
    ViewColumn("Time (ms)", lambda it: milliseconds(it.at_ns), tooltip=""),
    ViewColumn(
        "Allocated (KB)", lambda it: kilobytes(it.allocated), tooltip="Total memory in use."
    ),
    ViewColumn(
        "Reserved (KB)",
        lambda it: None if it.reserved is None else kilobytes(it.reserved),
        tooltip="Total reserved memory by allocator, both used and unused.",
    ),
)


@dataclass
class MemoryEvent:
    """An allocation and its release, as far as each is known."""

    operator: str
    size_bytes: int
    since_ns: int | None = None
    until_ns: int | None = None

    @property
    def duration_ns(self) -> int | None:
        if self.since_ns is None or self.until_ns is None:
            return None
        return self.until_ns - self.since_ns


def time_column(
    title: str, time_ns: Callable[[MemoryEvent], int | None]
) -> ViewColumn[MemoryEvent]:
    def value(event: MemoryEvent) -> float | None:
        return None if (found := time_ns(event)) is None else milliseconds(found)

    return ViewColumn(title, value, tooltip="")


EVENTS_COLUMNS: tuple[ViewColumn[MemoryEvent], ...] = (
    text_column("Operator", lambda it: it.operator, tooltip=""),
    ViewColumn("Size (KB)", lambda it: kilobytes(it.size_bytes), tooltip=""),
    time_column("Allocation Time (ms)", lambda it: it.since_ns),
    time_column("Release Time (ms)", lambda it: it.until_ns),
    time_column("Duration (ms)", lambda it: it.duration_ns),
)


def memory_of(profile: Profile, accepts: Callable[[int], bool] = lambda _: True) -> View:
    """Return the three parts of the view, each by device; None if no allocation is recorded.

    `accepts` takes an operator's number; it leaves the curve as it is.
    """
    if not profile.allocations:
        return View(None)
    by_device = group_by(profile.allocations, lambda each: numbered_title(each.device))
    shown = {
        device: [each for each in own if each.operator is None or accepts(each.operator)]
        for device, own in by_device.items()
    }
    default = next((device for device in sorted(by_device) if device != "CPU"), "CPU")
    statistics = {device: uses_of(profile, own) for device, own in shown.items()}
    curves = {device: curve_of(profile, own) for device, own in by_device.items()}
    events = {device: events_of(profile, own) for device, own in shown.items()}
    peaks = {device: max(it.allocated for it in curve) for device, curve in curves.items()}
    answer = {
        "statistics": part_of(
            STATISTICS_COLUMNS,
            statistics,
            title="Memory View",
            default_device=default,
            search="Operator Name",
            sort="Self Size Increase (KB)",
        ),
        "curve": part_of(
            CURVE_COLUMNS,
            curves,
            default_device=default,
            devices=sorted(by_device),
            peaks={it: f"Peak Memory Usage: {size / 1024:.1f}KB" for it, size in peaks.items()},
            time_metric="ms",
            memory_metric="KB",
        ),
        "events": part_of(EVENTS_COLUMNS, events, title="Memory Events", default_device=default),
    }
    tables = (
        Table(
            name=f"memory {device}",
            title=f"Memory {device}",
            columns=STATISTICS_COLUMNS,
            rows=tuple(uses),
        )
        for device, uses in statistics.items()
    )
    return View(answer, tuple(tables))


def numbered_title(device: str) -> str:
    title = device_title(device)
    return title if title == "CPU" else f"{title}{device_number(device)}"


def part_of(
    columns: Sequence[ViewColumn[Row]], rows: Mapping[str, Sequence[Row]], **metadata: Any
) -> dict[str, Any]:
    """Return a part of the view, with its rows by device."""
    return {
        "metadata": metadata,
        "columns": describe_columns(columns, "name", "type", "tooltip"),
        "rows": {device: rows_of(columns, own) for device, own in rows.items()},
    }


def type_of(profile: Profile, allocation: Allocation) -> str:
    if allocation.operator is None:
        return "<unknown>"
    return profile.operators[allocation.operator].type


def uses_of(profile: Profile, allocations: Iterable[Allocation]) -> list[MemoryUse]:
    """Return the types of operators that allocate or release, by name; what happened in warm-up
    iterations is left out, as their calls are."""
    timed = set(map(id, profile.timed_allocations()))
    calls = Counter(profile.operators[it.operator].type for it in profile.timed_executions)
    sizes: dict[str, list[int]] = {}
    for each in allocations:
        if each.operator is not None and id(each) in timed:
            sizes.setdefault(type_of(profile, each), []).append(each.size_bytes)
    return [MemoryUse(type, calls[type], own) for type, own in sorted(sizes.items())]


def curve_of(profile: Profile, allocations: Sequence[Allocation]) -> list[CurvePoint]:
    """Return the curve as steps: before each change stands a point with what was until then."""
    points: list[CurvePoint] = []
    totals = accumulate(each.size_bytes for each in allocations)
    for each, total in zip(allocations, totals, strict=True):
        if points:
            points.append(points[-1]._replace(at_ns=each.at_ns))
        points.append(CurvePoint(each.at_ns, total, profile.memory_plan.static_bytes))
    return points


def events_of(profile: Profile, allocations: Iterable[Allocation]) -> list[MemoryEvent]:
    """Return the allocations, each with its release where the address shows it; then the releases
    of what was allocated before."""
    events: list[MemoryEvent] = []
    is_open: dict[int, MemoryEvent] = {}  # by address
    for each in allocations:
        own = MemoryEvent(type_of(profile, each), abs(each.size_bytes))
        if each.size_bytes > 0:
            own.since_ns = each.at_ns
            events.append(own)
            if each.address is not None:
                is_open[each.address] = own
        elif each.address in is_open:
            is_open.pop(each.address).until_ns = each.at_ns
        else:
            own.until_ns = each.at_ns
            events.append(own)
    return events
