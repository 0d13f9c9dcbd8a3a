"""The tables of the page: operators, types, kernels and ranges, as columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from lar.profiles.launches import Launch, launch_of, launches_of, ranges_of
from lar.profiles.roofline import Work, host_peak_of, work_of
from lar.profiles.totals import totals_of
from lar.records.profile import Execution, Profile, TensorFact


class Column(NamedTuple):
    """A column; one with `digits` holds numbers, printed with so many after the point."""

    name: str
    unit: str = ""
    digits: int | None = None


class Table(NamedTuple):
    """Rows of plain values, the longest time first; None is what is not known.

    `share` and `label` are the places of the columns that a pie shows; `missing` are the names of
    the columns of which nothing is known: those are left out. `total` counts the rows that there
    are, of which `rows` are the first by `order`.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int
    missing: tuple[str, ...]
    order: str = "time"


TIMES = (
    Column("calls", "", 0),
    Column("total", "ms", 3),
    Column("share", "%", 2),
    Column("mean", "µs", 2),
    Column("min", "µs", 2),
    Column("max", "µs", 2),
)
RATES = (
    Column("rate", "GFLOP/s", 2),
    Column("rate", "GB/s", 2),
    Column("of peak compute", "%", 1),
    Column("of peak memory", "%", 1),
)
OPERATOR_COLUMNS = (
    *(Column("name"), Column("type"), *TIMES),
    *(Column("wait, mean", "µs", 2), Column("dispatch, mean", "µs", 2)),
    *(Column("work", "MFLOP", 3), Column("data", "KiB", 1), *RATES),
    *(Column("intensity", "FLOP/byte", 2), Column("algorithm"), Column("workspace", "KiB", 1)),
    *(Column("inputs"), Column("outputs"), Column("provider"), Column("module")),
)
TYPE_COLUMNS = (Column("type"), Column("operators", "", 0), *TIMES, *RATES)
KERNEL_COLUMNS = (Column("name"), Column("operators", "", 0), *TIMES, *RATES)
RANGE_COLUMNS = (Column("name"), *TIMES)


def operator_table(profile: Profile, top: int) -> Table:
    """Return a row for each operator that was executed."""
    groups: dict[int, list[Execution]] = {}
    for execution in profile.timed_executions():
        groups.setdefault(execution.operator, []).append(execution)
    launches = {
        place: [launch_of(profile, execution) for execution in executions]
        for place, executions in groups.items()
    }
    whole_ns = total_ns_of(launch for group in launches.values() for launch in group)
    rows = []
    for place, executions in groups.items():
        operator = profile.operators[place]
        work = work_of(launch.piece for launch in launches[place])
        waits = [each.wait_ns for each in executions if each.wait_ns is not None]
        dispatches = [ns for each in executions if (ns := each.dispatch_ns) is not None]
        rows.append(
            (
                *(operator.name, operator.type, *times_of(launches[place], whole_ns)),
                *(mean_us(waits), mean_us(dispatches)),
                *(scaled(operator.flops, 1e6), scaled(operator.size_bytes, 1024)),
                *rates_of(profile, work),
                *(work.intensity, operator.algorithm, scaled(operator.workspace_bytes, 1024)),
                *(describe_tensors(operator.inputs), describe_tensors(operator.outputs)),
                *(operator.provider or None, operator.module or None),
            )
        )
    return table_of(OPERATOR_COLUMNS, rows, top)


def type_table(profile: Profile, top: int) -> Table:
    """Return a row for each type of operator."""
    launches = [launch_of(profile, execution) for execution in profile.timed_executions()]
    return grouped_table(profile, TYPE_COLUMNS, launches, lambda launch: launch.type, top)


def kernel_table(profile: Profile, top: int) -> Table:
    """Return a row for each kernel or, where the engine tells of none, each algorithm."""
    launches = launches_of(profile)
    return grouped_table(profile, KERNEL_COLUMNS, launches, lambda launch: launch.kernel, top)


def range_table(profile: Profile, top: int) -> Table:
    """Return a row for each range that the user has named; its share is of the iterations."""
    steps_ns = sum(step.duration_ns for step in profile.timed_steps())
    rows = []
    for name, spans in ranges_of(profile).items():
        totals = totals_of(span.duration_ns for span in spans)
        in_steps = all(span.step is not None for span in spans)
        share = 100 * totals.total_ns / steps_ns if in_steps and steps_ns else None
        rows.append(
            (
                *(name, totals.calls, totals.total_ns / 1e6, share),
                *(scaled(totals.average_ns, 1e3), scaled(totals.min_ns, 1e3)),
                scaled(totals.max_ns, 1e3),
            )
        )
    return table_of(RANGE_COLUMNS, rows, top)


def grouped_table(
    profile: Profile,
    columns: tuple[Column, ...],
    launches: Sequence[Launch],
    key: Callable[[Launch], Hashable],
    top: int,
) -> Table:
    """Return a row for all launches that have the key in common."""
    groups: dict[Hashable, list[Launch]] = {}
    for launch in launches:
        groups.setdefault(key(launch), []).append(launch)
    whole_ns = total_ns_of(launches)
    rows = []
    for name, group in groups.items():
        work = work_of(launch.piece for launch in group)
        operators = len({launch.place for launch in group if launch.place is not None})
        rows.append((name, operators, *times_of(group, whole_ns), *rates_of(profile, work)))
    return table_of(columns, rows, top)


def table_of(columns: tuple[Column, ...], rows: Sequence[tuple[Any, ...]], top: int) -> Table:
    """Return the first rows by time, without the columns of which nothing is known."""
    total = next(place for place, column in enumerate(columns) if column.name == "total")
    return known_table(columns, sorted(rows, key=lambda row: -row[total])[:top], len(rows))


def known_table(
    columns: tuple[Column, ...], rows: Sequence[tuple[Any, ...]], total: int, order: str = "time"
) -> Table:
    """Return the rows as they come, without the columns of which nothing is known."""
    known = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    return Table(
        columns=tuple(columns[place] for place in known),
        rows=tuple(tuple(rounded(row[place]) for place in known) for row in rows),
        total=total,
        missing=tuple(
            " ".join(filter(None, (column.name, column.unit and f"({column.unit})")))
            for place, column in enumerate(columns)
            if rows and place not in known
        ),
        order=order,
    )


def total_ns_of(launches: Iterable[Launch]) -> int:
    return sum(launch.piece.duration_ns for launch in launches)


def times_of(launches: Sequence[Launch], whole_ns: int) -> tuple[Any, ...]:
    """Return the values of the columns TIMES."""
    totals = totals_of(launch.piece.duration_ns for launch in launches)
    return (
        totals.calls,
        totals.total_ns / 1e6,
        100 * totals.total_ns / whole_ns if whole_ns else None,
        scaled(totals.average_ns, 1e3),
        scaled(totals.min_ns, 1e3),
        scaled(totals.max_ns, 1e3),
    )


def rates_of(profile: Profile, work: Work) -> tuple[float | None, ...]:
    """Return the values of the columns RATES; None where some of the work is not known."""
    peak = host_peak_of(profile)
    flops_known, bytes_known = work.flops_share == 1, work.bytes_share == 1
    return (
        scaled(work.flops_per_second, 1e9) if flops_known else None,
        scaled(work.bytes_per_second, 1e9) if bytes_known else None,
        work.compute_percent(peak) if flops_known else None,
        work.memory_percent(peak) if bytes_known else None,
    )


def describe_tensors(tensors: Iterable[TensorFact]) -> str | None:
    """Return shapes, types and layouts of tensors; None where there are none."""
    return (
        ", ".join(
            " ".join(filter(None, (f"{{{','.join(map(str, it.shape))}}}", it.dtype, it.layout)))
            for it in tensors
        )
        or None
    )


def mean_us(values_ns: Sequence[int]) -> float | None:
    return sum(values_ns) / len(values_ns) / 1e3 if values_ns else None


def scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def rounded(value: Any) -> Any:
    """Return a number with the digits that anybody reads, to keep the page small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
