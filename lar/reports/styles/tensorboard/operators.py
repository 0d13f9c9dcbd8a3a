"""The operator and kernel views of the TensorBoard plugin.

Total times contain what nested operators took, self times do not. A dispatch and an execution on
two threads are two rows, as in the plugin: what is both at a time counts in either. Where operators
run on a device, its time belongs to the operator that dispatched the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from lar.errors import UsageError
from lar.profiles.activities import (
    DeviceActivity,
    HostActivity,
    device_activities_of,
    host_activities_of,
    position_of_call,
    positions_of_dispatches,
)
from lar.profiles.breakdown import leaf_calls
from lar.profiles.devices import device_title
from lar.records.profile import Profile
from lar.reports.styles.tensorboard.overview import microseconds

Row = TypeVar("Row")

SORTS = (
    *("device_self_duration", "device_total_duration", "host_self_duration"),
    *("host_total_duration", "calls", "name"),
)
GROUPS = ("type", "name", "input_shape")
PIES = (
    ("device_total_time", "Device Total Time (us)", "device_total_ns"),
    ("device_self_time", "Device Self Time (us)", "device_self_ns"),
    ("host_total_time", "Host Total Time (us)", "host_total_ns"),
    ("host_self_time", "Host Self Time (us)", "host_self_ns"),
)
PIE_COLUMNS = [{"type": "string", "name": "name"}, {"type": "number", "name": "value"}]
OPERATOR_TOOLTIPS = {
    "tc_eligible": "Whether this operator is eligible to use Tensor Cores.",
    "tc_self_ratio": "Time of self-kernels with Tensor Cores / Time of self-kernels.",
    "tc_total_ratio": "Time of kernels with Tensor Cores / Time of kernels.",
}


@dataclass
class OperatorTotals:
    """The sums of one row, of an operator's type or name and, where rows are made by them, its
    input shapes; those of the host are None if no dispatch is recorded."""

    name: str
    input_shape: str
    calls: int = 0
    host_total_ns: int | None = None
    host_self_ns: int | None = None
    device_total_ns: int = 0
    device_self_ns: int = 0


class HostWork(NamedTuple):
    """The work of the host: for each activity its calls of the runtime, the device's time for
    itself and with all nested in it, in nanoseconds. `stray` has, by operator, device time without
    a known dispatch."""

    activities: Sequence[HostActivity]
    calls_ns: Sequence[int]
    device_self_ns: Sequence[int]
    device_total_ns: Sequence[int]
    stray: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class KernelTotals:
    name: str
    durations_ns: tuple[int, ...]

    @property
    def total_ns(self) -> int:
        return sum(self.durations_ns)


def operator_totals_of(
    profile: Profile, work: HostWork, group_by: str, accepts: Callable[[int], bool]
) -> list[OperatorTotals]:
    """Sum up the timed operators by type, by name, or by type and input shapes, in the order of
    their first; `accepts` takes an operator's number."""
    totals: dict[tuple[str, str], OperatorTotals] = {}
    names = [
        operator.name if group_by == "name" else operator.type for operator in profile.operators
    ]
    shapes = [""] * len(names)
    if group_by == "input_shape":
        shapes = [str([list(fact.shape) for fact in each.inputs]) for each in profile.operators]

    def row(operator: int, suffix: str = "") -> OperatorTotals:
        key = (names[operator] + suffix, shapes[operator])
        if key not in totals:
            totals[key] = OperatorTotals(*key)
        return totals[key]

    activities, calls_ns, device_self_ns, device_total_ns, stray = work
    for index, activity in enumerate(activities):
        if accepts(activity.operator):
            suffix = " dispatch" if activity.is_dispatch and not profile.on_device else ""
            own = row(activity.operator, suffix)
            own.calls += 1
            own.host_total_ns = (own.host_total_ns or 0) + activity.duration_ns
            own.host_self_ns = (own.host_self_ns or 0) + activity.self_ns - calls_ns[index]
            own.device_self_ns += device_self_ns[index]
            own.device_total_ns += device_total_ns[index]
    for execution in profile.timed_executions() if profile.on_device else ():
        if execution.dispatch_ns is None and accepts(execution.operator):
            row(execution.operator).calls += 1
    for operator, duration_ns in stray:
        if accepts(operator):
            own = row(operator)
            own.device_self_ns += duration_ns
            own.device_total_ns += duration_ns
    return list(totals.values())


def host_work_of(profile: Profile) -> HostWork:
    """Return the activities of the host with the device's times for them."""
    activities = host_activities_of(profile)
    count = len(activities)
    calls_ns, self_ns, total_ns = [0] * count, [0] * count, [0] * count
    stray: list[tuple[int, int]] = []
    if not profile.on_device:
        return HostWork(activities, calls_ns, self_ns, total_ns, stray)
    dispatches = positions_of_dispatches(activities)
    for span in leaf_calls(profile):
        index = position_of_call(span, dispatches)
        if index >= 0:
            calls_ns[index] += span.duration_ns
    for each in device_activities_of(profile):
        if each.operator is None:
            continue
        index = dispatches.get((each.operator, each.step), -1)
        if index < 0:
            stray.append((each.operator, each.duration_ns))
            continue
        self_ns[index] += each.duration_ns
        while index >= 0:
            total_ns[index] += each.duration_ns
            index = activities[index].parent
    return HostWork(activities, calls_ns, self_ns, total_ns, stray)


def pies_of(totals: Iterable[OperatorTotals], top: int | None) -> dict[str, Any]:
    """Return the four pies, each its operators above 0, the largest first; None where empty."""
    pies: dict[str, Any] = {}
    for key, title, field in PIES:
        slices = [(each.name, getattr(each, field) or 0) for each in totals]
        slices = sorted((each for each in slices if each[1] > 0), key=lambda each: -each[1])[:top]
        rows = [[name, microseconds(time_ns)] for name, time_ns in slices]
        pies[key] = {"title": title, "columns": PIE_COLUMNS, "rows": rows} if rows else None
    return pies


def operator_table_of(
    profile: Profile, totals: Iterable[OperatorTotals], sort: str | None, top: int | None
) -> dict[str, Any]:
    """Return a row for each operator; without a device, the columns of one are left out.

    `sort` is one of SORTS, after a - for descending or a + for ascending.

    Raises:
        UsageError: the sort key is a time of a device, and the run had no device.
    """
    key, descending = chosen_sort(profile, sort)
    field = key.replace("duration", "ns")
    ordered = ordered_by(totals, lambda each: getattr(each, field), descending)
    rows = [operator_row_of(profile, each) for each in ordered[:top]]
    return {"metadata": {"sort": key, "tooltips": OPERATOR_TOOLTIPS}, "data": rows}


def chosen_sort(profile: Profile, sort: str | None) -> tuple[str, bool]:
    """Return what rows are sorted by, and whether the largest comes first.

    Raises:
        UsageError: the sort key is a time of a device, and the run had no device.
    """
    key = (sort or "").lstrip("+-") or (SORTS[0] if profile.on_device else "host_self_duration")
    if key.startswith("device") and not profile.on_device:
        raise UsageError(
            f"--sort {key}: this profile is of a CPU, so it has no device times",
            f"sort by {', '.join(name for name in SORTS if not name.startswith('device'))}",
        )
    return key, sort.startswith("-") if sort and sort[0] in "+-" else key != "name"


def ordered_by(rows: Iterable[Row], value_of: Callable[[Row], Any], descending: bool) -> list[Row]:
    """Sort rows; those whose value is None come last, whichever way."""
    rows = list(rows)
    known = [row for row in rows if value_of(row) is not None]
    unknown = [row for row in rows if value_of(row) is None]
    return sorted(known, key=value_of, reverse=descending) + unknown


def operator_row_of(profile: Profile, totals: OperatorTotals) -> dict[str, Any]:
    """Return a row of the operator table, times in whole microseconds.

    The use of tensor cores on a CUDA device is not known: those cells are None there. Call stacks
    are not recorded.
    """
    row: dict[str, Any] = {"name": totals.name}
    if totals.input_shape:
        row["input_shape"] = totals.input_shape
    row["calls"] = totals.calls
    if profile.on_device:
        row["device_self_duration"] = round(totals.device_self_ns / 1000)
        row["device_total_duration"] = round(totals.device_total_ns / 1000)
    row["host_self_duration"] = whole_microseconds(totals.host_self_ns)
    row["host_total_duration"] = whole_microseconds(totals.host_total_ns)
    unknown = device_title(profile.facts.device) == "GPU"
    row["tc_eligible"] = None if unknown else "No"
    # A ratio of nothing is the whole number 0 there.
    row["tc_self_ratio"] = None if unknown else 0.0 if totals.device_self_ns else 0
    row["tc_total_ratio"] = None if unknown else 0.0 if totals.device_total_ns else 0
    row["has_call_stack"] = False
    return row


def whole_microseconds(duration_ns: int | None) -> int | None:
    return None if duration_ns is None else round(duration_ns / 1000)


def kernel_totals_of(
    profile: Profile, accepts: Callable[[DeviceActivity], bool] = lambda _: True
) -> list[KernelTotals]:
    """Sum up the kernels of a device by name, the longest first."""
    durations: dict[str, list[int]] = {}
    for each in device_activities_of(profile):
        if each.kind == "kernel" and accepts(each):
            durations.setdefault(each.name, []).append(each.duration_ns)
    totals = [KernelTotals(name, tuple(values)) for name, values in durations.items()]
    return sorted(totals, key=lambda each: -each.total_ns)


def kernel_table_of(profile: Profile, kernels: Sequence[KernelTotals]) -> dict[str, Any] | None:
    """Return a row for each kernel, times in whole microseconds; None without kernels."""
    if not kernels:
        return None
    kind = device_title(profile.facts.device)
    tooltip = "Whether this kernel uses Tensor Cores."
    if kind != "GPU":
        tooltip += f" It's always NO On {kind} devices because {kind} does not have Tensor Cores."
    durations = [f"{name} Duration (us)" for name in ("Total", "Mean", "Max", "Min")]
    columns = [
        {"type": "string", "name": "Name"},
        {"type": "string", "name": "Tensor Cores Used", "tooltip": tooltip},
        *({"type": "number", "name": name} for name in ("Calls", *durations)),
    ]
    rows = [
        [
            each.name,
            None if kind == "GPU" else "No",
            len(each.durations_ns),
            round(each.total_ns / 1000),
            round(each.total_ns / len(each.durations_ns) / 1000),
            round(max(each.durations_ns) / 1000),
            round(min(each.durations_ns) / 1000),
        ]
        for each in kernels
    ]
    return {
        "metadata": {"sort": "Total Duration (us)"},
        "data": {"columns": columns, "rows": rows},
    }


def kernel_pie_of(kernels: Sequence[KernelTotals]) -> dict[str, Any] | None:
    rows = [[each.name, microseconds(each.total_ns)] for each in kernels if each.total_ns]
    return {"total": {"columns": PIE_COLUMNS, "rows": rows}} if rows else None
