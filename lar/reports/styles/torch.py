"""The style `torch`: the key-averages table of torch's profiler.

The rows of the table are operators by type, the engine's calls, the user's ranges, the cost of
profiling and, on a device, the kernels. Columns are 12 characters wide, and the column of names at
most 55. All columns are right-aligned, and two spaces follow each column. A header of 13 characters
shifts the headers after it. Sums and percentages are over all operators, including operators that
are not shown. Rows that are not operators have no percentages. If no row is an operator, sums and
percentages are over all rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lar.errors import UsageError
from lar.profiles.activities import device_kind
from lar.profiles.calls import Call, Kind, Memory, calls_of
from lar.profiles.rows import FIGURES, Figure, asked_for, figure_columns, savings_of
from lar.profiles.times import UNITS_NS, Totals, group_by, operators_matching, totals_of
from lar.records.profile import Profile
from lar.reports.model import Column, Layout, Rule, Table, sort_rows
from lar.reports.report import Report

ROW_LIMIT = 100
WIDTH, NAME_WIDTH, SHAPES_WIDTH = 12, 55, 80
UNKNOWN = "--"
ADDED = ("saving", "median", "p90", "min", "max", "disturbed")  # columns that torch does not have
FLOP_PREFIXES = ("", "K", "M", "G", "T", "P")
RULE = Rule(right="  ")
LAYOUT = Layout(end="  ", over=RULE, under=RULE, closing=RULE)


@dataclass(frozen=True, kw_only=True)
class KeyAverage:
    """The sums over all calls of one name, in nanoseconds and bytes, or None if unknown.

    `shapes` are the shapes of the inputs, if rows are grouped by shapes. `saving_ns` is the time
    that an iteration would save if the operators of this row reached their roofs. `times` has the
    figures of single calls, on the device or, without a device, on the host.
    """

    name: str
    kind: Kind
    count: int
    shapes: str = ""
    self_cpu_ns: int | None = 0
    cpu_ns: int | None = 0
    self_device_ns: int = 0
    device_ns: int = 0
    memory: Memory | None = None
    self_memory: Memory | None = None
    flops: int | None = None
    saving_ns: float | None = None
    times: Totals | None = None


Value = Callable[[KeyAverage], float | None]
# The values of --sort: torch's keys, with `device` in place of `cuda`.
SORTS: Mapping[str, Value] = {
    "self_cpu_time_total": lambda row: row.self_cpu_ns,
    "cpu_time_total": lambda row: row.cpu_ns,
    "cpu_time": lambda row: None if row.cpu_ns is None else row.cpu_ns / row.count,
    "self_device_time_total": lambda row: row.self_device_ns,
    "device_time_total": lambda row: row.device_ns,
    "device_time": lambda row: row.device_ns / row.count,
    "cpu_memory_usage": lambda row: row.memory and row.memory.cpu_bytes,
    "self_cpu_memory_usage": lambda row: row.self_memory and row.self_memory.cpu_bytes,
    "device_memory_usage": lambda row: row.memory and row.memory.device_bytes,
    "self_device_memory_usage": lambda row: row.self_memory and row.self_memory.device_bytes,
    "count": lambda row: row.count,
    "flops": lambda row: row.flops,
    **{name: FIGURES[name].value for name in ("median", "p90", "saving")},
}


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the report with the table of key averages.

    Raises:
        UsageError: nothing was timed, nothing matches --filter, or the profile lacks the figure of
            --sort.
    """
    calls = calls_of(profile)
    if not calls and not profile.timed_steps():
        raise UsageError("the profile has no timed iterations", "run again with --iter 1 or more")
    group = options.get("group_by", "name")
    rows = key_averages_of(profile, calls, group)
    totals = totals_of_rows(rows)
    if pattern := options.get("filter"):
        search, matching = re.compile(pattern).search, operators_matching(profile, pattern)
        calls = [call for call in calls if call.operator in matching or search(call.name)]
        if not calls:
            raise UsageError(
                "nothing matches", "leave --filter out to see all rows", flag=f"--filter {pattern}"
            )
        rows = key_averages_of(profile, calls, group)
    device = device_kind(profile.facts.device).upper() if profile.on_device else ""
    table = table_of(
        sort_averages(rows, options.get("sort"), profile.on_device),
        *(totals, device, options.get("time_unit"), asked_for(options)),
    )
    top = options.get("top")
    return Report(
        style="torch",
        body=(replace(table, rows=table.rows[: top or ROW_LIMIT]), *table.notes),
        tables=(replace(table, rows=table.rows[:top]),),
    )


def key_averages_of(profile: Profile, calls: Iterable[Call], group: str) -> list[KeyAverage]:
    """Return calls grouped by name; rows keep the order of their first calls.

    `group` is `name` (the type of an operator, or the name of another call), `shape` (the name and
    the input shapes) or `instance` (each operator of the graph).
    """

    def key(call: Call) -> tuple[Kind, str, str]:
        name, shapes = call.name, "[]" if group == "shape" else ""
        if call.kind == "operator" and call.operator is not None:
            operator = profile.operators[call.operator]
            name = operator.name if group == "instance" else name
            shapes = shapes and str([list(fact.shape) for fact in operator.inputs])
        return call.kind, name, shapes

    return [key_average_of(profile, *it, own) for it, own in group_by(calls, key).items()]


def key_average_of(
    profile: Profile, kind: Kind, name: str, shapes: str, calls: Sequence[Call]
) -> KeyAverage:
    """Return the row with the sums of some calls."""
    places = [call.operator for call in calls if kind == "operator" and call.operator is not None]
    savings = savings_of(profile)
    saved = [savings[place] for place in dict.fromkeys(places) if place in savings]
    single = [call.device_ns if profile.on_device else call.cpu_ns for call in calls]
    known = [ns for ns in single if ns is not None]
    disturbed = sum(call.disturbed for call in calls)
    means = profile.facts.times if kind == "operator" else "each"
    return KeyAverage(
        name=name,
        kind=kind,
        count=len(calls),
        shapes=shapes,
        self_cpu_ns=sum_known([call.self_cpu_ns for call in calls]),
        cpu_ns=sum_known([call.cpu_ns for call in calls]),
        self_device_ns=sum(call.self_device_ns for call in calls),
        device_ns=sum(call.device_ns for call in calls),
        memory=sum_memory(kind, [call.memory for call in calls]),
        self_memory=sum_memory(kind, [call.self_memory for call in calls]),
        flops=sum_known([profile.operators[place].flops for place in places]) if places else None,
        saving_ns=sum(saved) if saved else None,
        times=totals_of(known, None, disturbed, means) if len(known) == len(calls) else None,
    )


def sum_known(values: Sequence[int | None]) -> int | None:
    """Return the sum of values, or None if any value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def sum_memory(kind: Kind, memory: Sequence[Memory | None]) -> Memory | None:
    """Return the sum of the memory, or None if an operator's memory or all memory is unknown."""
    total = None
    for own in memory:
        if own is not None:
            total = own.plus(total)
        elif kind == "operator":
            return None
    return total


def sort_averages(rows: Sequence[KeyAverage], key: str | None, on_device: bool) -> list[KeyAverage]:
    """Return rows sorted by a key of SORTS; the default key is the time without inner calls.

    Raises:
        UsageError: no row has this figure.
    """
    key = key or ("self_device_time_total" if on_device else "self_cpu_time_total")
    name = key.lstrip("+-").replace("cuda", "device").removesuffix("_avg")
    if "device" in name and not on_device:
        raise UsageError("the profile has no device times", "use a cpu key", flag=f"--sort {key}")
    if rows and all(SORTS[name](row) is None for row in rows):
        raise UsageError(
            "the profile has no values for this key", "sort by another key", flag=f"--sort {key}"
        )
    return sort_rows(rows, key, SORTS[name])


@dataclass(frozen=True, kw_only=True)
class TableTotals:
    """The totals below the table, in nanoseconds; the percentages are relative to these totals.

    With `of_operators`, `self_cpu_ns` is the time of operators only. `device_ns` is the time of
    kernels only, since the rows of operators include the same time.
    """

    self_cpu_ns: int
    device_ns: int
    of_operators: bool = False


def totals_of_rows(rows: Sequence[KeyAverage]) -> TableTotals:
    """Return the totals of operators, or of all rows if no row is an operator.

    Unknown times count as 0.
    """
    operators = [row for row in rows if row.kind == "operator"]
    return TableTotals(
        self_cpu_ns=sum(row.self_cpu_ns or 0 for row in operators or rows),
        of_operators=bool(operators),
        device_ns=sum(row.self_device_ns for row in rows if row.kind == "kernel"),
    )


def table_of(
    rows: Sequence[KeyAverage],
    totals: TableTotals,
    device: str = "",
    unit: str | None = None,
    asked: Collection[str] = (),
) -> Table[KeyAverage]:
    """Return the table; `device` is the name of a device, such as CUDA.

    If `device` is empty, the table has no columns for times and memory of a device. The printed
    table has only the columns that have a value. `unit` fixes the unit of times, one of UNITS_NS.
    By default CSV and JSON are in microseconds.
    """

    def added(name: str, figure: Figure) -> Column[KeyAverage]:
        title = figure.title.capitalize()
        given: dict[str, Any] = {"rank": 2, "in_text": name in asked}
        if figure.is_time:
            return time_column(title, figure.value, unit, **given)
        return column(title, figure.value, **given)

    def has_any(key: str) -> bool:
        """Return whether any row has a figure; kernels do not count, since they use no memory."""
        return any(SORTS[key](row) for row in rows if row.kind != "kernel")

    name, flops = name_column(rows), flops_column(rows)
    cpu = side_columns("CPU", "cpu", totals.self_cpu_ns, totals, unit, is_main=not device)
    times = side_columns(device, "device", totals.device_ns, totals, unit, is_main=True)
    # In torch's table, a device's share comes after its time, the host's share before its time.
    times = (times[1], times[0], *times[3:])
    memory, device_memory = memory_columns("CPU", "cpu"), memory_columns(device, "device")
    has_memory = any(row.memory is not None for row in rows if row.kind != "kernel")
    calls = (column("# of Calls", SORTS["count"], rank=0), *shapes_columns(rows))
    extra = figure_columns(ADDED, added)
    kind = Column[KeyAverage]("Kind", lambda row: row.kind)
    sums = [("CPU", totals.self_cpu_ns), *([(device, totals.device_ns)] if device else [])]
    return Table(
        name="key_averages",
        title="Key averages",
        columns=(
            *(name, kind, *cpu, *((*times, *device_memory) if device else ())),
            *(*memory, *calls, flops, *extra),
        ),
        shown=(
            *(name, *cpu, *(times if device else ()), *(memory if has_memory else ())),
            *(device_memory if device and has_any("device_memory_usage") else ()),
            *(*calls, *((flops,) if has_any("flops") else ())),
            *(each for each in extra if each.in_text),
        ),
        rows=tuple(rows),
        notes=tuple(f"Self {where} time total: {format_time(ns, unit)}" for where, ns in sums),
        layout=LAYOUT,
    )


def column(
    title: str,
    value: Callable[[KeyAverage], str | float | None],
    text: Callable[[KeyAverage], str] | None = None,
    **fields: Any,
) -> Column[KeyAverage]:
    """Return a column that is as wide as the columns in torch's table."""
    given = {"align": "right", "width": WIDTH, "is_fixed": True, **fields}
    return Column(title, value, text, **given)


def side_columns(
    side: str, key: str, whole_ns: int, totals: TableTotals, unit: str | None, *, is_main: bool
) -> tuple[Column[KeyAverage], ...]:
    """Return the columns of times on the host or the device, and of their percentages."""
    own, total = SORTS[f"self_{key}_time_total"], SORTS[f"{key}_time_total"]

    def share(title: str, value: Value, rank: int) -> Column[KeyAverage]:
        def percent(row: KeyAverage) -> float | None:
            is_part = (
                key == "device" or not totals.of_operators or row.kind in ("operator", "kernel")
            )
            ns = value(row) if is_part else None
            return None if ns is None or not whole_ns else 100 * ns / whole_ns

        def text(row: KeyAverage) -> str:
            if (part := percent(row)) is not None:
                return f"{part:.2f}%"
            return UNKNOWN if whole_ns or value(row) is None else "NaN"

        return column(title, percent, text, rank=rank)

    return (
        share(f"Self {side} %", own, 3),
        time_column(f"Self {side}", own, unit, rank=0 if is_main else 2),
        share(f"{side} total %", total, 6),
        time_column(f"{side} total", total, unit),
        time_column(f"{side} time avg", SORTS[f"{key}_time"], unit),
    )


def time_column(
    title: str, value: Value, unit: str | None, rank: int = 4, **fields: Any
) -> Column[KeyAverage]:
    def in_unit(row: KeyAverage) -> float | None:
        return None if (ns := value(row)) is None else ns / UNITS_NS[unit or "us"]

    def text(row: KeyAverage) -> str:
        return format_time(value(row), unit)

    return column(title, in_unit, text, key=f"{title} ({unit or 'us'})", rank=rank, **fields)


def memory_columns(side: str, key: str) -> tuple[Column[KeyAverage], ...]:
    def memory(title: str, size: Value) -> Column[KeyAverage]:
        return column(title, size, lambda row: format_memory(size(row)), key=f"{title} (bytes)")

    return (
        memory(f"{side} Mem", SORTS[f"{key}_memory_usage"]),
        memory(f"Self {side} Mem", SORTS[f"self_{key}_memory_usage"]),
    )


def name_column(rows: Sequence[KeyAverage]) -> Column[KeyAverage]:
    def cell(row: KeyAverage) -> str:
        return row.name[: NAME_WIDTH - 3] + "..." if len(row.name) >= NAME_WIDTH - 3 else row.name

    width = min(max((len(row.name) for row in rows), default=0) + 4, NAME_WIDTH)
    return column("Name", lambda row: row.name, cell, width=width, rank=0)


def shapes_columns(rows: Sequence[KeyAverage]) -> list[Column[KeyAverage]]:
    longest = max((len(row.shapes) for row in rows), default=0)
    width = min(longest + 4, SHAPES_WIDTH)
    # Rows with shapes may differ in nothing else, so that this column must stay.
    shapes = column(
        *("Input Shapes", lambda row: row.shapes, lambda row: row.shapes[:width]),
        width=width,
        rank=0,
    )
    return [shapes] if longest else []


def flops_column(rows: Sequence[KeyAverage]) -> Column[KeyAverage]:
    """Return the column of FLOPs, in a unit that fits the smallest count."""
    counts = [row.flops for row in rows if row.flops]
    power = min(int(math.log10(min(counts, default=1)) / 3), len(FLOP_PREFIXES) - 1)
    return column(
        f"Total {FLOP_PREFIXES[power]}FLOPs",
        lambda row: row.flops,
        lambda row: f"{row.flops / 1000**power:8.3f}" if row.flops else UNKNOWN,
        key="Total FLOPs",
    )


def format_time(time_ns: float | None, unit: str | None = None) -> str:
    """Format a time in `unit`; by default the unit fits the time."""
    if time_ns is None:
        return UNKNOWN
    if unit is None:
        unit = "s" if time_ns >= UNITS_NS["s"] else "ms" if time_ns >= UNITS_NS["ms"] else "us"
    return f"{time_ns / UNITS_NS[unit]:.3f}{unit}"


def format_memory(size_bytes: float | None) -> str:
    """Format a size in the largest binary unit that is not larger than the size."""
    if size_bytes is None:
        return UNKNOWN
    for power, unit in ((3, "Gb"), (2, "Mb"), (1, "Kb")):
        if abs(size_bytes) >= 1024**power:
            return f"{size_bytes / 1024**power:.2f} {unit}"
    return f"{size_bytes} b"
