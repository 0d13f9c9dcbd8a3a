"""Reports in the style of the key-averages table of torch's profiler.

A row is an operator type, a call of the engine's API, a user's range or, where there is a device,
a kernel of it. Rows are sorted by the device's time as in torch's examples, on a CPU by its.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.errors import UsageError
from lar.profiles.devices import device_kind
from lar.profiles.units import UNITS_NS
from lar.records.profile import Profile
from lar.reports.document import Cell, ProfileReport, ReportTable
from lar.reports.styles.torch.averages import KeyAverage, key_averages_of, matching_calls
from lar.reports.styles.torch.calls import calls_of
from lar.reports.styles.torch.table import TableTotals, format_table, totals_of_rows

ROW_LIMIT = 100

# What --sort may say, without the name of the device: torch's keys for cuda are those for device.
SORT_FIELDS: Mapping[str, str] = {
    "self_cpu_time_total": "self_cpu_ns",
    "cpu_time_total": "cpu_ns",
    "cpu_time": "average_cpu_ns",
    "cpu_time_avg": "average_cpu_ns",
    "self_device_time_total": "self_device_ns",
    "device_time_total": "device_ns",
    "device_time": "average_device_ns",
    "device_time_avg": "average_device_ns",
    "cpu_memory_usage": "cpu_memory_bytes",
    "self_cpu_memory_usage": "self_cpu_memory_bytes",
    "device_memory_usage": "device_memory_bytes",
    "self_device_memory_usage": "self_device_memory_bytes",
    "count": "count",
    "flops": "flops",
}


def build(profile: Profile, options: Mapping[str, Any]) -> ProfileReport:
    """Make the table.

    Raises:
        UsageError: nothing was timed or matches --filter, or the profile does not know what --sort
            says.
    """
    calls = calls_of(profile)
    if not calls and not profile.timed_steps():
        raise UsageError("the profile has no timed iterations", "make it with --iter 1 or more")
    group = options.get("group_by", "name")
    rows = key_averages_of(profile, calls, group)
    totals = totals_of_rows(rows)
    if pattern := options.get("filter"):
        calls = matching_calls(profile, calls, pattern)
        if not calls:
            raise UsageError(f"--filter {pattern}: nothing matches", "leave it out to see all")
        rows = key_averages_of(profile, calls, group)
    rows = sort_rows(rows, options.get("sort"), profile.on_device)
    device = device_kind(profile.facts.device).upper() if profile.on_device else ""
    unit, top = options.get("time_unit"), options.get("top")
    return ProfileReport(
        style="torch",
        text=format_table(rows, totals, device=device, unit=unit, limit=top or ROW_LIMIT),
        tables=(table_of(rows[:top], totals, device, unit or "us"),),
    )


def sort_rows(rows: Sequence[KeyAverage], key: str | None, on_device: bool) -> list[KeyAverage]:
    """Sort by a key of SORT_FIELDS, the greatest first; by +KEY the smallest. What is not known
    comes last.

    Raises:
        UsageError: no row knows that.
    """
    if key is None:
        key = "self_device_time_total" if on_device else "self_cpu_time_total"
    name = key.lstrip("+-").replace("cuda", "device")
    value: Callable[[KeyAverage], Any] = operator.attrgetter(SORT_FIELDS[name])
    known = [row for row in rows if value(row) is not None]
    if "device" in name and not on_device:
        raise UsageError(f"--sort {key}: the operators ran on the CPU", "sort by a cpu key")
    if rows and not known:
        raise UsageError(f"--sort {key}: the profile does not know this", "sort by another key")
    known.sort(key=value, reverse=not key.startswith("+"))
    return [*known, *(row for row in rows if value(row) is None)]


def table_of(
    rows: Sequence[KeyAverage], totals: TableTotals, device: str, unit: str
) -> ReportTable:
    """Return the rows as values, times in `unit`."""
    columns: dict[str, Callable[[KeyAverage], Cell]] = {
        "Name": lambda row: row.name,
        "Kind": lambda row: row.kind,
        "Self CPU %": lambda row: percent(row.self_cpu_ns, totals.self_cpu_ns),
        f"Self CPU ({unit})": lambda row: in_unit(row.self_cpu_ns, unit),
        "CPU total %": lambda row: percent(row.cpu_ns, totals.self_cpu_ns),
        f"CPU total ({unit})": lambda row: in_unit(row.cpu_ns, unit),
        f"CPU time avg ({unit})": lambda row: in_unit(row.average_cpu_ns, unit),
    }
    if device:
        columns |= {
            f"Self {device} ({unit})": lambda row: in_unit(row.self_device_ns, unit),
            f"Self {device} %": lambda row: percent(row.self_device_ns, totals.device_ns),
            f"{device} total ({unit})": lambda row: in_unit(row.device_ns, unit),
            f"{device} time avg ({unit})": lambda row: in_unit(row.average_device_ns, unit),
            f"{device} Mem (bytes)": lambda row: row.device_memory_bytes,
            f"Self {device} Mem (bytes)": lambda row: row.self_device_memory_bytes,
        }
    columns |= {
        "CPU Mem (bytes)": lambda row: row.cpu_memory_bytes,
        "Self CPU Mem (bytes)": lambda row: row.self_cpu_memory_bytes,
        "# of Calls": lambda row: row.count,
    }
    if any(row.shapes for row in rows):
        columns["Input Shapes"] = lambda row: row.shapes
    columns["Total FLOPs"] = lambda row: row.flops
    notes = [f"Self CPU time total: {in_unit(totals.self_cpu_ns, unit)} {unit}"]
    if device:
        notes.append(f"Self {device} time total: {in_unit(totals.device_ns, unit)} {unit}")
    return ReportTable(
        name="key_averages",
        title="Key averages",
        columns=tuple(columns),
        rows=tuple(tuple(value(row) for value in columns.values()) for row in rows),
        notes=tuple(notes),
    )


def in_unit(time_ns: float | None, unit: str) -> float | None:
    return None if time_ns is None else time_ns / UNITS_NS[unit]


def percent(part_ns: int | None, total_ns: int) -> float | None:
    return None if part_ns is None or not total_ns else 100 * part_ns / total_ns
