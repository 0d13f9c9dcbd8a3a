"""The operator and kernel views of the TensorBoard plugin.

Total times contain what nested operators took, self times do not. A dispatch and an execution on
two threads are two rows, as in the plugin: what is both at a time counts in either. Where operators
run on a device, its time belongs to the operator that dispatched the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
from lar.profiles.disturbance import disturbed_executions, is_recorded
from lar.profiles.times import describe_time
from lar.profiles.totals import Totals, totals_of
from lar.records.profile import Profile
from lar.reports.model import Table
from lar.reports.sorting import sort_rows
from lar.reports.styles.tensorboard.views import (
    View,
    ViewColumn,
    describe_columns,
    microseconds,
    rows_of,
    text_column,
    whole_microseconds,
)

Row = TypeVar("Row")

# The median of the calls of each operator times their number, by which rows are ranked.
TYPICAL = "typical"
SORTS = (
    *(TYPICAL, "device_self_duration", "device_total_duration", "host_self_duration"),
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
# On a CPU, where the host's time is all there is.
HOST_TOOLTIPS = {"host_self_duration": describe_time("dispatch + compute")}


@dataclass
class OperatorTotals:
    """The sums of one row: of an operator's type or name and, if rows are made by them, its input
    shapes. The host's times are None if no dispatch is recorded.

    `calls_ns` has what single calls took themselves, of the device where operators run on one, and
    `owners` the operator of each; `disturbed` counts those that something else made longer.
    """

    name: str
    input_shape: str
    calls: int = 0
    host_total_ns: int | None = None
    host_self_ns: int | None = None
    device_total_ns: int = 0
    device_self_ns: int = 0
    calls_ns: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    disturbed: int | None = None

    @cached_property
    def times(self) -> Totals:
        """The figures of single calls."""
        return totals_of(self.calls_ns, self.owners)

    def add_call(self, operator: int, own_ns: int) -> None:
        self.calls_ns.append(own_ns)
        self.owners.append(operator)


OperatorColumn = ViewColumn[OperatorTotals]


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

    @cached_property
    def times(self) -> Totals:
        """The figures of single runs."""
        return totals_of(self.durations_ns)

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
    on_device, has_noise = profile.on_device, is_recorded(profile)
    executions = profile.timed_executions
    disturbed = {
        (executions[place].operator, executions[place].step)
        for place in disturbed_executions(profile)
    }
    for index, activity in enumerate(activities):
        if accepts(activity.operator):
            suffix = " dispatch" if activity.is_dispatch and not profile.on_device else ""
            own = row(activity.operator, suffix)
            own.calls += 1
            own.host_total_ns = (own.host_total_ns or 0) + activity.duration_ns
            own.host_self_ns = (own.host_self_ns or 0) + activity.self_ns - calls_ns[index]
            own.device_self_ns += device_self_ns[index]
            own.device_total_ns += device_total_ns[index]
            own.add_call(
                activity.operator,
                device_self_ns[index] if on_device else activity.self_ns - calls_ns[index],
            )
            if has_noise:
                was = not suffix and (activity.operator, activity.step) in disturbed
                own.disturbed = (own.disturbed or 0) + was
    for execution in profile.timed_executions if profile.on_device else ():
        if execution.dispatch_ns is None and accepts(execution.operator):
            row(execution.operator).calls += 1
    for operator, duration_ns in stray:
        if accepts(operator):
            own = row(operator)
            own.device_self_ns += duration_ns
            own.device_total_ns += duration_ns
            own.add_call(operator, duration_ns)
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
    """Return the four pies, each with the operators above 0, the largest first; an empty pie is
    None."""
    pies: dict[str, Any] = {}
    for key, title, time in PIES:
        slices = [(each.name, getattr(each, time) or 0) for each in totals]
        slices = sorted((each for each in slices if each[1] > 0), key=lambda each: -each[1])[:top]
        rows = [[name, microseconds(time_ns)] for name, time_ns in slices]
        pies[key] = {"title": title, "columns": PIE_COLUMNS, "rows": rows} if rows else None
    return pies


def operator_table_of(
    profile: Profile, totals: Iterable[OperatorTotals], sort: str | None, top: int | None
) -> View:
    """Return a row for each operator, sorted by one of SORTS, after a - for descending or a + for
    ascending.

    Raises:
        UsageError: the sort key is a time of a device, and the run had no device.
    """
    key = chosen_sort(profile, sort)
    if (sort or TYPICAL).lstrip("+-") == TYPICAL:
        rows = sort_rows(totals, sort or "", lambda row: row.times.ranking_ns)[:top]
    else:
        rows = sort_by_key(totals, key, sort, getattr)[:top]
    columns = operator_columns(profile, has_shapes=any(each.input_shape for each in rows))
    more = (*columns, *call_columns(profile))
    # Of a device the rows have the plugin's own fields alone.
    fields = columns if profile.on_device else more
    data = [{column.title: column.value(each) for column in fields} for each in rows]
    table = Table(
        name="operators",
        title="Operators",
        columns=more if rows else columns[:1],
        rows=tuple(rows),
    )
    tooltips = OPERATOR_TOOLTIPS | ({} if profile.on_device else HOST_TOOLTIPS)
    return View({"metadata": {"sort": key, "tooltips": tooltips}, "data": data}, (table,))


def operator_columns(
    profile: Profile, *, has_shapes: bool
) -> tuple[ViewColumn[OperatorTotals], ...]:
    """Return the columns, times in whole microseconds; without a device, the columns of one are
    left out.

    The use of tensor cores on a CUDA device is not known: those cells are None there. Call stacks
    are not recorded.
    """
    unknown = device_title(profile.facts.device) == "GPU"

    def duration(title: str, time_ns: Callable[[OperatorTotals], int | None]) -> OperatorColumn:
        return ViewColumn(title, lambda it: whole_microseconds(time_ns(it)), key=f"{title}_us")

    def ratio(title: str, time_ns: Callable[[OperatorTotals], int]) -> OperatorColumn:
        # A ratio of nothing is the whole number 0 there.
        return ViewColumn(title, lambda it: None if unknown else 0.0 if time_ns(it) else 0)

    shapes: OperatorColumn = ViewColumn("input_shape", lambda it: it.input_shape)
    on_device = (
        duration("device_self_duration", lambda it: it.device_self_ns),
        duration("device_total_duration", lambda it: it.device_total_ns),
    )
    return (
        ViewColumn("name", lambda it: it.name),
        *((shapes,) if has_shapes else ()),
        ViewColumn("calls", lambda it: it.calls),
        *(on_device if profile.on_device else ()),
        duration("host_self_duration", lambda it: it.host_self_ns),
        duration("host_total_duration", lambda it: it.host_total_ns),
        ViewColumn("tc_eligible", lambda it: None if unknown else "No"),
        ratio("tc_self_ratio", lambda it: it.device_self_ns),
        ratio("tc_total_ratio", lambda it: it.device_total_ns),
        ViewColumn("has_call_stack", lambda it: False, in_records=False),
    )


def call_columns(profile: Profile) -> tuple[OperatorColumn, ...]:
    """Return the columns that the plugin has not: the figures of single calls."""
    side = "device" if profile.on_device else "host"

    def column(name: str, figure: Callable[[Totals], float | None]) -> OperatorColumn:
        def microseconds_of(row: OperatorTotals) -> float | None:
            found = figure(row.times)
            # Of an estimate without what profiling cost, 0 says that nothing is left.
            return None if profile.has_estimates and not found else round_time(found)

        title = f"{side}_self_{name}"
        return ViewColumn(title, microseconds_of, key=f"{title}_us")

    return (
        column("median", lambda it: it.median_ns),
        column("p90", lambda it: it.p90_ns),
        column("mean", lambda it: it.average_ns),
        column("min", lambda it: it.min_ns),
        column("max", lambda it: it.max_ns),
        ViewColumn("disturbed", lambda it: it.disturbed),
    )


def chosen_sort(profile: Profile, sort: str | None) -> str:
    """Return what rows are sorted by.

    Raises:
        UsageError: the sort key is a time of a device, and the run had no device.
    """
    key = (sort or "").lstrip("+-")
    if key in ("", TYPICAL):  # the nearest that the plugin knows
        key = "device_self_duration" if profile.on_device else "host_self_duration"
    if key.startswith("device") and not profile.on_device:
        raise UsageError(
            "this profile is of a CPU, so it has no device times",
            f"sort by {', '.join(name for name in SORTS if not name.startswith('device'))}",
            flag=f"--sort {key}",
        )
    return key


def sort_by_key(
    rows: Iterable[Row], key: str, sort: str | None, value_of: Callable[[Row, str], Any]
) -> list[Row]:
    """Sort by a key of SORTS, `sort` without its sign; `value_of` takes a field of the totals."""
    field = key.replace("duration", "ns")
    names = key == "name"
    return sort_rows(rows, sort or "", lambda row: value_of(row, field), smallest_first=names)


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


def kernel_table_of(profile: Profile, kernels: Sequence[KernelTotals]) -> View:
    """Return a row for each kernel, times in whole microseconds; None without kernels."""
    if not kernels:
        return View(None)
    kind = device_title(profile.facts.device)
    tooltip = "Whether this kernel uses Tensor Cores."
    if kind != "GPU":
        tooltip += f" It's always NO On {kind} devices because {kind} does not have Tensor Cores."

    def duration(title: str, time_ns: Callable[[KernelTotals], float]) -> ViewColumn[KernelTotals]:
        return ViewColumn(f"{title} Duration (us)", lambda it: round(time_ns(it) / 1000))

    columns: tuple[ViewColumn[KernelTotals], ...] = (
        text_column("Name", lambda it: it.name),
        text_column(
            "Tensor Cores Used", lambda it: None if kind == "GPU" else "No", tooltip=tooltip
        ),
        ViewColumn("Calls", lambda it: len(it.durations_ns)),
        duration("Total", lambda it: it.total_ns),
        duration("Mean", lambda it: it.total_ns / len(it.durations_ns)),
        duration("Max", lambda it: max(it.durations_ns)),
        duration("Min", lambda it: min(it.durations_ns)),
    )
    answer = {
        "metadata": {"sort": "Total Duration (us)"},
        "data": {"columns": describe_columns(columns), "rows": rows_of(columns, kernels)},
    }
    # What the plugin has not stands in the table alone.
    more = (
        ViewColumn[KernelTotals]("Median Duration (us)", lambda it: round_time(it.times.median_ns)),
        ViewColumn[KernelTotals]("P90 Duration (us)", lambda it: round_time(it.times.p90_ns)),
    )
    table = Table(name="kernels", title="Kernels", columns=(*columns, *more), rows=tuple(kernels))
    return View(answer, (table,))


def round_time(time_ns: float | None) -> float | None:
    return None if time_ns is None else round(time_ns / 1000, 3)


def kernel_pie_of(kernels: Sequence[KernelTotals]) -> dict[str, Any] | None:
    rows = [[each.name, microseconds(each.total_ns)] for each in kernels if each.total_ns]
    return {"total": {"columns": PIE_COLUMNS, "rows": rows}} if rows else None
