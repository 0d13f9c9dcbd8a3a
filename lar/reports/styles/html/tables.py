"""The tables of the page: operators, types, kernels and ranges, as columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from lar.profiles.disturbance import disturbed_executions
from lar.profiles.launches import Launch, launches_of, ranges_of
from lar.profiles.roofline import Work, host_peak_of, work_of
from lar.profiles.totals import Totals, group_by, totals_of
from lar.records.profile import (
    Execution,
    Peak,
    Profile,
    ProfiledOperator,
    TensorFact,
)
from lar.reports.model import Column
from lar.reports.pages.tables import PageTable, page_table

Row = TypeVar("Row")


class Times(NamedTuple):
    """The durations of one row; `share` is in percent, None if the whole is not known. With
    `is_emptied` nothing is left of a call without what profiling cost."""

    totals: Totals
    share: float | None
    is_emptied: bool = False

    @property
    def median_ns(self) -> float | None:
        """The median; None where the clock cannot say it."""
        return None if self.is_emptied else self.totals.median_ns


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


def number_column(
    title: str, unit: str, digits: int, value: Callable[[Row], float | None], rank: int = 5
) -> Column[Row]:
    return Column(title, value, unit=unit, digits=digits, rank=rank)


def times_columns(times: Callable[[Row], Times]) -> tuple[Column[Row], ...]:
    """Return the columns of durations."""
    return (
        number_column("calls", "", 0, lambda row: times(row).totals.calls, rank=2),
        number_column("median", "µs", 2, lambda row: scaled(times(row).median_ns, 1e3), 2),
        number_column("p90", "µs", 2, lambda row: scaled(times(row).totals.p90_ns, 1e3), 6),
        number_column("mean", "µs", 2, lambda row: scaled(times(row).totals.average_ns, 1e3), 6),
        number_column("min", "µs", 2, lambda row: scaled(times(row).totals.min_ns, 1e3), 8),
        number_column("max", "µs", 2, lambda row: scaled(times(row).totals.max_ns, 1e3), 7),
        number_column("total", "ms", 3, lambda row: times(row).totals.total_ns / 1e6, 3),
        number_column("share", "%", 2, lambda row: times(row).share, 1),
    )


def disturbed_columns(profile: Profile, times: Callable[[Row], Times]) -> tuple[Column[Row], ...]:
    """Return the column of disturbed executions, where it was recorded what disturbed them."""
    if not profile.facts.noise:
        return ()
    return (number_column("disturbed", "calls", 0, lambda row: times(row).totals.disturbed, 6),)


def roof_columns(
    peak: Peak | None, iterations: int, work: Callable[[Row], Work | None]
) -> tuple[Column[Row], ...]:
    """Return the columns of what work would save at its roof, and of what binds it."""

    def saving_us(row: Row) -> float | None:
        own = work(row)
        nanoseconds = None if own is None else own.saving_ns(peak)
        return None if nanoseconds is None or not iterations else nanoseconds / iterations / 1e3

    def bound(row: Row) -> str | None:
        own = work(row)
        return None if own is None else next(iter(own.bounds(peak)))

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


def operator_columns(profile: Profile) -> tuple[Column[OperatorRow], ...]:
    peak, iterations = host_peak_of(profile), len(profile.timed_steps())
    disturbed: tuple[Column[OperatorRow], ...] = disturbed_columns(profile, lambda row: row.times)
    times: tuple[Column[OperatorRow], ...] = times_columns(lambda row: row.times)
    roofs: tuple[Column[OperatorRow], ...] = roof_columns(peak, iterations, lambda row: row.work)
    rates: tuple[Column[OperatorRow], ...] = rates_columns(peak, lambda row: row.work)
    return (
        Column("name", lambda row: row.operator.name, rank=0),
        Column("type", lambda row: row.operator.type, rank=3),
        *times,
        *disturbed,
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


def group_columns(name: str, profile: Profile) -> tuple[Column[GroupRow], ...]:
    peak, iterations = host_peak_of(profile), len(profile.timed_steps())
    disturbed: tuple[Column[GroupRow], ...] = disturbed_columns(profile, lambda row: row.times)
    roofs: tuple[Column[GroupRow], ...] = roof_columns(peak, iterations, lambda row: row.work)
    rates: tuple[Column[GroupRow], ...] = rates_columns(peak, lambda row: row.work)
    return (
        Column(name, lambda row: row.name, rank=0),
        number_column("operators", "", 0, lambda row: row.operators, rank=6),
        *GROUP_TIMES,
        *disturbed,
        *roofs,
        *rates,
    )


def tables_of(profile: Profile, top: int) -> dict[str, PageTable]:
    """Return the tables of operators, types, kernels and ranges."""
    ran = kernels = Ran(profile, launches_of(profile), disturbed_executions(profile))
    return {
        "operators": operator_table(ran, top),
        "types": grouped_table(ran, "types", "type", lambda it: it.type, top),
        "kernels": grouped_table(kernels, "kernels", "name", lambda it: it.kernel, top),
        "ranges": range_table(profile, top),
    }


class Ran(NamedTuple):
    """What ran in the timed iterations; `disturbed` are the places of the executions that something
    made longer."""

    profile: Profile
    launches: Sequence[Launch]
    disturbed: frozenset[int]

    @property
    def whole_ns(self) -> int:
        return sum(launch.piece.duration_ns for launch in self.launches)

    def times_of(self, launches: Sequence[Launch], whole_ns: int) -> Times:
        """Return the durations of launches, and their share of the whole."""
        totals = totals_of(
            [launch.piece.duration_ns for launch in launches],
            [launch.place for launch in launches],
            sum(launch.begun.execution in self.disturbed for launch in launches),
        )
        is_emptied = self.profile.has_estimates and not totals.median_ns
        return Times(totals, 100 * totals.total_ns / whole_ns if whole_ns else None, is_emptied)


def operator_table(ran: Ran, top: int) -> PageTable:
    """Return a row for each operator that was executed."""
    profile, whole_ns = ran.profile, ran.whole_ns
    executions = profile.executions_by_operator
    rows = [
        OperatorRow(
            profile.operators[place],
            executions[place],
            ran.times_of(launches, whole_ns),
            work_of(launch.piece for launch in launches),
        )
        for place, launches in group_by(ran.launches, lambda launch: launch.place).items()
        if place is not None
    ]
    rows.sort(key=lambda row: -row.times.totals.ranking_ns)
    return marked(
        page_table("operators", operator_columns(profile), rows, top), [row.times for row in rows]
    )


def grouped_table(
    ran: Ran, name: str, heading: str, key: Callable[[Launch], str], top: int
) -> PageTable:
    """Return a row for all launches that have the key in common."""
    profile, whole_ns = ran.profile, ran.whole_ns
    rows = []
    for title, group in group_by(ran.launches, key).items():
        work = work_of(launch.piece for launch in group)
        operators = len({launch.place for launch in group if launch.place is not None})
        rows.append(GroupRow(title, operators, ran.times_of(group, whole_ns), work))
    rows.sort(key=lambda row: -row.times.totals.ranking_ns)
    columns = group_columns(heading, profile)
    return marked(page_table(name, columns, rows, top), [row.times for row in rows])


def marked(table: PageTable, times: Sequence[Times]) -> PageTable:
    """Return a table whose rows with disturbed executions stand out."""
    marks = ("disturbed" if each.totals.disturbed else "" for each in times)
    return table._replace(marks=tuple(marks)[: len(table.table.rows)])


def range_table(profile: Profile, top: int) -> PageTable:
    """Return a row for each range that the user has named; its share is of the iterations."""
    steps_ns = sum(step.duration_ns for step in profile.timed_steps())
    rows = []
    for name, spans in ranges_of(profile).items():
        totals = totals_of(span.duration_ns for span in spans)
        in_steps = all(span.step is not None for span in spans)
        share = 100 * totals.total_ns / steps_ns if in_steps and steps_ns else None
        rows.append(GroupRow(name, 0, Times(totals, share)))
    rows.sort(key=lambda row: -row.times.totals.ranking_ns)
    return page_table("ranges", RANGE_COLUMNS, rows, top)


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
