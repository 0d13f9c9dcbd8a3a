"""The memory view of the TensorBoard plugin: statistics by operator, the curve, the events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lar.profiles.devices import device_number, device_title
from lar.records.profile import Allocation, Profile

STATISTICS_COLUMNS = (
    ("Operator Name", "string", ""),
    ("Calls", "number", "# of calls of the operator."),
    ("Size Increase (KB)", "number", ""),
    ("Self Size Increase (KB)", "number", ""),
    ("Allocation Count", "number", ""),
    ("Self Allocation Count", "number", ""),
    ("Allocation Size (KB)", "number", ""),
    ("Self Allocation Size (KB)", "number", ""),
)
CURVE_COLUMNS = (
    ("Time (ms)", "number", ""),
    ("Allocated (KB)", "number", "Total memory in use."),
    ("Reserved (KB)", "number", "Total reserved memory by allocator, both used and unused."),
)
EVENTS_COLUMNS = (
    ("Operator", "string", ""),
    ("Size (KB)", "number", ""),
    ("Allocation Time (ms)", "number", ""),
    ("Release Time (ms)", "number", ""),
    ("Duration (ms)", "number", ""),
)


def memory_of(
    profile: Profile, accepts: Callable[[int], bool] = lambda _: True
) -> dict[str, Any] | None:
    """Return the three parts of the view, each by device; None if no allocation is recorded.

    `accepts` takes an operator's number; it leaves the curve as it is. Operators do not nest, so
    that what one has and what it has itself are the same. What is reserved is the static plan.
    """
    if not profile.allocations:
        return None
    by_device: dict[str, list[Allocation]] = {}
    for each in profile.allocations:
        device = device_title(each.device)
        if device != "CPU":
            device += str(device_number(each.device))
        by_device.setdefault(device, []).append(each)
    shown = {
        device: [each for each in own if each.operator is None or accepts(each.operator)]
        for device, own in by_device.items()
    }
    default = next((device for device in sorted(by_device) if device != "CPU"), "CPU")
    peaks = {device: max(in_use(own)) / 1024 for device, own in by_device.items()}
    return {
        "statistics": {
            "metadata": {
                "title": "Memory View",
                "default_device": default,
                "search": "Operator Name",
                "sort": "Self Size Increase (KB)",
            },
            "columns": columns_of(STATISTICS_COLUMNS),
            "rows": {device: statistics_rows(profile, own) for device, own in shown.items()},
        },
        "curve": {
            "metadata": {
                "default_device": default,
                "devices": sorted(by_device),
                "peaks": {
                    device: f"Peak Memory Usage: {peak:.1f}KB" for device, peak in peaks.items()
                },
                "time_metric": "ms",
                "memory_metric": "KB",
            },
            "columns": columns_of(CURVE_COLUMNS),
            "rows": {device: curve_rows(profile, own) for device, own in by_device.items()},
        },
        "events": {
            "metadata": {"title": "Memory Events", "default_device": default},
            "columns": columns_of(EVENTS_COLUMNS),
            "rows": {device: event_rows(profile, own) for device, own in shown.items()},
        },
    }


def columns_of(columns: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "type": type, "tooltip": tooltip} for name, type, tooltip in columns]


def kilobytes(size_bytes: int) -> float:
    return round(size_bytes / 1024, 2)


def milliseconds(time_ns: int) -> float:
    return round(time_ns / 1e6, 2)


def type_of(profile: Profile, allocation: Allocation) -> str:
    if allocation.operator is None:
        return "<unknown>"
    return profile.operators[allocation.operator].type


def in_use(allocations: Iterable[Allocation]) -> list[int]:
    """Return the bytes in use after each allocation or release."""
    totals, total = [], 0
    for each in allocations:
        total += each.size_bytes
        totals.append(total)
    return totals


def statistics_rows(profile: Profile, allocations: Iterable[Allocation]) -> list[list[Any]]:
    """Return a row for each type of operator that allocates or releases, by name; what happened in
    warm-up iterations is left out, as their calls are."""
    timed = set(map(id, profile.timed_allocations()))
    calls: dict[str, int] = {}
    for execution in profile.timed_executions():
        type = profile.operators[execution.operator].type
        calls[type] = calls.get(type, 0) + 1
    sizes: dict[str, list[int]] = {}
    for each in allocations:
        if each.operator is not None and id(each) in timed:
            sizes.setdefault(type_of(profile, each), []).append(each.size_bytes)
    rows: list[list[Any]] = []
    for type, own in sorted(sizes.items()):
        taken = [size for size in own if size > 0]
        increase, size = kilobytes(sum(own)), kilobytes(sum(taken))
        rows.append(
            [type, calls.get(type, 0), increase, increase, len(taken), len(taken), size, size]
        )
    return rows


def curve_rows(profile: Profile, allocations: list[Allocation]) -> list[list[float | None]]:
    """Return the curve as steps: before each change stands a point with what was until then."""
    plan = profile.memory_plan.static_bytes
    reserved = None if plan is None else kilobytes(plan)
    rows: list[list[float | None]] = []
    for each, total in zip(allocations, in_use(allocations), strict=True):
        at = milliseconds(each.at_ns)
        if rows:
            rows.append([at, *rows[-1][1:]])
        rows.append([at, kilobytes(total), reserved])
    return rows


def event_rows(profile: Profile, allocations: Iterable[Allocation]) -> list[list[Any]]:
    """Return a row for each allocation, with its release where the address shows it; then the
    releases of what was allocated before."""
    rows: list[list[Any]] = []
    is_open: dict[int, tuple[int, list[Any]]] = {}  # by address: since when, and the row
    for each in allocations:
        at, size = milliseconds(each.at_ns), kilobytes(abs(each.size_bytes))
        if each.size_bytes > 0:
            row: list[Any] = [type_of(profile, each), size, at, None, None]
            rows.append(row)
            if each.address is not None:
                is_open[each.address] = (each.at_ns, row)
        elif each.address in is_open:
            since_ns, row = is_open.pop(each.address)
            row[3:] = [at, milliseconds(each.at_ns - since_ns)]
        else:
            rows.append([type_of(profile, each), size, None, at, None])
    return rows
