"""Reports in the style of the key-averages table of torch's profiler.

A row is an operator type, a call of the engine's API, a user's range or, where there is a device,
a kernel of it. Rows are ranked by the median times the count of what they take on the device, on a
CPU of its time; torch's own examples are sorted by the sum, which a few disturbed calls may make.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lar.errors import UsageError
from lar.profiles.devices import device_kind
from lar.records.profile import Profile
from lar.reports.report import Report
from lar.reports.sorting import sort_rows
from lar.reports.styles.torch.calls import calls_of
from lar.reports.styles.torch.table import (
    KeyAverage,
    body_of,
    key_averages_of,
    matching_calls,
    table_of,
    totals_of_rows,
)

ROW_LIMIT = 100
# The sort key which shows a column that torch has not: how much operators would save.
SAVING = "saving"
SAVES = "Could save: of one iteration, with the operators of a row at their roofs"

TYPICAL = "typical"
# What --sort may say, without the name of the device: torch's keys for cuda are those for device.
SORT_FIELDS: Mapping[str, str] = {
    TYPICAL: "typical_ns",
    "cpu_time_median": "median_cpu_ns",
    "device_time_median": "median_device_ns",
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
    SAVING: "saving_ns",
}


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
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
            raise UsageError(
                "nothing matches", "leave it out to see all", flag=f"--filter {pattern}"
            )
        rows = key_averages_of(profile, calls, group)
    rows = sort_averages(rows, options.get("sort"), profile.on_device)
    device = device_kind(profile.facts.device).upper() if profile.on_device else ""
    unit, top = options.get("time_unit"), options.get("top")
    with_savings = str(options.get("sort")).lstrip("+-") == SAVING
    table = table_of(rows, totals, device, unit, with_savings=with_savings)
    return Report(
        style="torch",
        body=(
            *body_of(table, totals, device, unit, top or ROW_LIMIT),
            *((SAVES,) if with_savings else ()),
        ),
        tables=(replace(table, rows=table.rows[:top]),),
    )


def sort_averages(rows: Sequence[KeyAverage], key: str | None, on_device: bool) -> list[KeyAverage]:
    """Sort by a key of SORT_FIELDS.

    Raises:
        UsageError: no row knows that.
    """
    if key is None:
        key = TYPICAL
        if any(row.typical_ns is None for row in rows):
            key = "self_device_time_total" if on_device else "self_cpu_time_total"
    name = key.lstrip("+-").replace("cuda", "device")
    value: Callable[[KeyAverage], Any] = operator.attrgetter(SORT_FIELDS[name])
    if "device" in name and not on_device:
        raise UsageError("the operators ran on the CPU", "sort by a cpu key", flag=f"--sort {key}")
    if rows and all(value(row) is None for row in rows):
        raise UsageError(
            "the profile does not know this", "sort by another key", flag=f"--sort {key}"
        )
    return sort_rows(rows, key, value)
