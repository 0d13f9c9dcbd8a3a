"""The tables of the page: operators, types, kernels and ranges, as columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lar.profiles.launches import Launch, launch_of, launches_of, ranges_of
from lar.profiles.roofline import Work, host_peak_of, saving_ns, work_of
from lar.profiles.totals import Totals, group_by, group_by_operator, totals_of
from lar.records.profile import (
    Execution,
    HardwareCounts,
    Peak,
    Profile,
    ProfiledOperator,
    TensorFact,
)
from lar.reports.model import Column
from lar.reports.pages.tables import PageTable, page_table

Row = TypeVar("Row")


NO_COUNTS = HardwareCounts(type="")  # the counters of the processor were not asked for


class Times(NamedTuple):
    """The durations of one row; `share` is in percent, None if the whole is not known."""

    totals: Totals
    share: float | None


class OperatorRow(NamedTuple):
    """An operator that was executed."""

    operator: ProfiledOperator
    executions: Sequence[Execution]
    times: Times
    work: Work


class GroupRow(NamedTuple):
    """Launches that have a type, a kernel or a range in common; `operators` counts theirs."""

    name: str
    operators: int
    times: Times
    work: Work | None = None
    counts: HardwareCounts = NO_COUNTS


def number_column(
    title: str, unit: str, digits: int, value: Callable[[Row], float | None], rank: int = 5
) -> Column[Row]:
    return Column(title, value, unit=unit, digits=digits, rank=rank)


def times_columns(times: Callable[[Row], Times]) -> tuple[Column[Row], ...]:
    """Return the columns of durations."""
    return (
        number_column("calls", "", 0, lambda row: times(row).totals.calls, rank=4),
        number_column("total", "ms", 3, lambda row: times(row).totals.total_ns / 1e6, rank=3),
        number_column("share", "%", 2, lambda row: times(row).share, rank=1),
        number_column("mean", "µs", 2, lambda row: scaled(times(row).totals.average_ns, 1e3)),
        number_column("min", "µs", 2, lambda row: scaled(times(row).totals.min_ns, 1e3), rank=8),
        number_column("max", "µs", 2, lambda row: scaled(times(row).totals.max_ns, 1e3), rank=7),
    )


def roof_columns(
    peak: Peak | None, iterations: int, work: Callable[[Row], Work | None]
) -> tuple[Column[Row], ...]:
    """Return the columns of what work would save at its roof, and of what binds it."""

    def saving_us(row: Row) -> float | None:
        own = work(row)
        nanoseconds = None if own is None else saving_ns(own, peak)
        return None if nanoseconds is None or not iterations else nanoseconds / iterations / 1e3

    def bound(row: Row) -> str | None:
        own = work(row)
        return None if own is None else own.bound(peak)

    return (
        number_column("could save", "µs/iteration", 2, saving_us, rank=2),
        Column("bound by", bound, rank=4),
    )


def rates_columns(peak: Peak | None, work: Callable[[Row], Work | None]) -> tuple[Column[Row], ...]:
    """Return the columns of speed; they are None if some of the work is not known."""

    def of_flops(row: Row, value: Callable[[Work], float | None]) -> float | None:
        own = work(row)
        return value(own) if own is not None and own.flops_share == 1 else None

    def of_bytes(row: Row, value: Callable[[Work], float | None]) -> float | None:
        own = work(row)
        return value(own) if own is not None and own.bytes_share == 1 else None

    return (
        number_column(
            "rate",
            *("GFLOP/s", 2),
            lambda row: of_flops(row, lambda own: scaled(own.flops_per_second, 1e9)),
        ),
        number_column(
            "rate",
            *("GB/s", 2),
            lambda row: of_bytes(row, lambda own: scaled(own.bytes_per_second, 1e9)),
            rank=6,
        ),
        number_column(
            "of peak compute",
            *("%", 1),
            lambda row: of_flops(row, lambda own: own.compute_percent(peak)),
        ),
        number_column(
            "of peak memory",
            *("%", 1),
            lambda row: of_bytes(row, lambda own: own.memory_percent(peak)),
            rank=6,
        ),
    )


def operator_columns(peak: Peak | None, iterations: int) -> tuple[Column[OperatorRow], ...]:
    times: tuple[Column[OperatorRow], ...] = times_columns(lambda row: row.times)
    roofs: tuple[Column[OperatorRow], ...] = roof_columns(peak, iterations, lambda row: row.work)
    rates: tuple[Column[OperatorRow], ...] = rates_columns(peak, lambda row: row.work)
    return (
        Column("name", lambda row: row.operator.name, rank=0),
        Column("type", lambda row: row.operator.type, rank=3),
        *times,
        *roofs,
        number_column("wait, mean", "µs", 2, lambda row: mean_wait_us(row.executions), 7),
        number_column("dispatch, mean", "µs", 2, lambda row: mean_dispatch_us(row.executions), 7),
        number_column("work", "MFLOP", 3, lambda row: scaled(row.operator.flops, 1e6), 7),
        number_column("data", "KiB", 1, lambda row: scaled(row.operator.size_bytes, 1024), 7),
        *rates,
        number_column("intensity", "FLOP/byte", 2, lambda row: row.work.intensity, 8),
        Column("algorithm", lambda row: row.operator.algorithm, rank=4),
        number_column("threads waited", "%", 1, lambda row: waiting_percent(row.operator), 7),
        number_column(
            "workspace", "KiB", 1, lambda row: scaled(row.operator.workspace_bytes, 1024), 9
        ),
        Column("inputs", lambda row: describe_tensors(row.operator.inputs), rank=9),
        Column("outputs", lambda row: describe_tensors(row.operator.outputs), rank=9),
        Column("provider", lambda row: row.operator.provider or None, rank=9),
        Column("module", lambda row: row.operator.module or None, rank=9),
    )


def waiting_percent(operator: ProfiledOperator) -> float | None:
    """Return how much of its time an operator's thread waited for the others."""
    share = operator.threads.waiting_share if operator.threads else None
    return None if share is None else 100 * share


GROUP_TIMES: tuple[Column[GroupRow], ...] = times_columns(lambda row: row.times)
RANGE_COLUMNS: tuple[Column[GroupRow], ...] = (
    Column("name", lambda row: row.name, rank=0),
    *GROUP_TIMES,
)


def group_columns(name: str, peak: Peak | None, iterations: int) -> tuple[Column[GroupRow], ...]:
    roofs: tuple[Column[GroupRow], ...] = roof_columns(peak, iterations, lambda row: row.work)
    rates: tuple[Column[GroupRow], ...] = rates_columns(peak, lambda row: row.work)
    return (
        Column(name, lambda row: row.name, rank=0),
        number_column("operators", "", 0, lambda row: row.operators, rank=6),
        *GROUP_TIMES,
        *roofs,
        *rates,
    )


COUNTER_COLUMNS: tuple[Column[GroupRow], ...] = (
    number_column("instructions", "per cycle", 2, lambda row: row.counts.instructions_per_cycle, 6),
    number_column(
        "cache misses",
        *("per 1,000 instructions", 2),
        lambda row: row.counts.misses_per_thousand,
        rank=7,
    ),
    number_column("frequency", "GHz", 2, lambda row: scaled(row.counts.hertz, 1e9), rank=8),
)


def operator_table(profile: Profile, top: int) -> PageTable:
    """Return a row for each operator that was executed."""
    groups = group_by_operator(profile)
    launches = {
        place: [launch_of(profile, execution) for execution in executions]
        for place, executions in groups.items()
    }
    whole_ns = total_ns_of(launch for group in launches.values() for launch in group)
    rows = [
        OperatorRow(
            profile.operators[place],
            executions,
            times_of(launches[place], whole_ns),
            work_of(launch.piece for launch in launches[place]),
        )
        for place, executions in groups.items()
    ]
    rows.sort(key=lambda row: -row.times.totals.total_ns)
    columns = operator_columns(host_peak_of(profile), len(profile.timed_steps()))
    return page_table("operators", columns, rows, top)


def type_table(profile: Profile, top: int) -> PageTable:
    """Return a row for each type of operator."""
    launches = [launch_of(profile, execution) for execution in profile.timed_executions()]
    hardware = profile.facts.hardware
    counts = {} if hardware is None else {each.type: each for each in hardware.counts}
    return grouped_table(
        profile, "types", "type", launches, lambda launch: launch.type, top, counts
    )


def kernel_table(profile: Profile, top: int) -> PageTable:
    """Return a row for each kernel or, where the engine reports none, each algorithm."""
    launches = launches_of(profile)
    return grouped_table(profile, "kernels", "name", launches, lambda launch: launch.kernel, top)


def range_table(profile: Profile, top: int) -> PageTable:
    """Return a row for each range that the user has named; its share is of the iterations."""
    steps_ns = sum(step.duration_ns for step in profile.timed_steps())
    rows = []
    for name, spans in ranges_of(profile).items():
        totals = totals_of(span.duration_ns for span in spans)
        in_steps = all(span.step is not None for span in spans)
        share = 100 * totals.total_ns / steps_ns if in_steps and steps_ns else None
        rows.append(GroupRow(name, 0, Times(totals, share)))
    rows.sort(key=lambda row: -row.times.totals.total_ns)
    return page_table("ranges", RANGE_COLUMNS, rows, top)


def grouped_table(
    profile: Profile,
    name: str,
    heading: str,
    launches: Sequence[Launch],
    key: Callable[[Launch], str],
    top: int,
    counts: Mapping[str, HardwareCounts] = MappingProxyType({}),
) -> PageTable:
    """Return a row for all launches that have the key in common."""
    whole_ns = total_ns_of(launches)
    rows = []
    for title, group in group_by(launches, key).items():
        work = work_of(launch.piece for launch in group)
        operators = len({launch.place for launch in group if launch.place is not None})
        rows.append(
            GroupRow(
                title, operators, times_of(group, whole_ns), work, counts.get(title, NO_COUNTS)
            )
        )
    rows.sort(key=lambda row: -row.times.totals.total_ns)
    columns = group_columns(heading, host_peak_of(profile), len(profile.timed_steps()))
    if counts:
        columns += COUNTER_COLUMNS
    return page_table(name, columns, rows, top)


def total_ns_of(launches: Iterable[Launch]) -> int:
    return sum(launch.piece.duration_ns for launch in launches)


def times_of(launches: Sequence[Launch], whole_ns: int) -> Times:
    """Return the durations of launches, and their share of the whole."""
    totals = totals_of(launch.piece.duration_ns for launch in launches)
    return Times(totals, 100 * totals.total_ns / whole_ns if whole_ns else None)


def describe_tensors(tensors: Iterable[TensorFact]) -> str | None:
    """Return shapes, types and layouts of tensors; None without tensors."""
    return (
        ", ".join(
            " ".join(filter(None, (f"{{{','.join(map(str, it.shape))}}}", it.dtype, it.layout)))
            for it in tensors
        )
        or None
    )


def mean_wait_us(executions: Iterable[Execution]) -> float | None:
    return mean_us([each.wait_ns for each in executions if each.wait_ns is not None])


def mean_dispatch_us(executions: Iterable[Execution]) -> float | None:
    return mean_us([ns for each in executions if (ns := each.dispatch_ns) is not None])


def mean_us(values_ns: Sequence[int]) -> float | None:
    return sum(values_ns) / len(values_ns) / 1e3 if values_ns else None


def scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
