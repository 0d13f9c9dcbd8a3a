"""The columns of the key averages, and their table as torch's profiler prints it.

Columns are 12 wide and the name at most 55, all right-aligned and each followed by two spaces. A
header of 13 characters shifts those after it. Sums and percentages are over all operators, also
over those that are not shown: calls of the engine and ranges, which are around operators, have
none. Without any operator they are over all rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lar.profiles.disturbance import is_recorded
from lar.profiles.operator_filter import operators_matching
from lar.profiles.rows import savings_of
from lar.profiles.times import CLOCK_STEP_NS
from lar.profiles.totals import UNITS_NS, Totals, ranking_of, totals_of
from lar.records.profile import Profile
from lar.reports.model import AnyTable, Column, Layout, Rule, Table
from lar.reports.styles.torch.calls import Call, Kind, Memory


@dataclass(frozen=True, kw_only=True)
class KeyAverage:
    """All calls of one name: nanoseconds and bytes in sum, None if they are not known.

    `shapes` are those of the inputs where rows are distinguished by them, `saving_ns` is how much
    of an iteration its operators would save at their roofs. `cpu` and `device` have the figures of
    single calls, None where they are not known, and `typical_ns` is what rows are ranked by: the
    median of what the calls of an operator take themselves, times their number. `disturbed` counts
    the calls that something else on the machine made longer. With `is_emptied` nothing is left of a
    call without what profiling cost.
    """

    name: str
    kind: Kind
    count: int
    shapes: str = ""
    self_cpu_ns: int | None = 0
    cpu_ns: int | None = 0
    self_device_ns: int = 0
    device_ns: int = 0
    cpu_memory_bytes: int | None = None
    self_cpu_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    self_device_memory_bytes: int | None = None
    flops: int | None = None
    saving_ns: float | None = None
    cpu: Totals | None = None
    device: Totals | None = None
    typical_ns: float | None = None
    disturbed: int | None = None
    is_emptied: bool = False

    @property
    def average_cpu_ns(self) -> float | None:
        return None if self.cpu_ns is None else self.cpu_ns / self.count

    @property
    def median_cpu_ns(self) -> float | None:
        return self.cpu.median_ns if self.cpu else None

    @property
    def median_device_ns(self) -> float | None:
        return self.device.median_ns if self.device else None

    @property
    def average_device_ns(self) -> float:
        return self.device_ns / self.count


def key_averages_of(profile: Profile, calls: Iterable[Call], group: str) -> list[KeyAverage]:
    """Put calls together by name, in the order of the first: `group` is name (for operators the
    type), shape (the shapes of the inputs too) or instance (each operator of the graph)."""
    operators = profile.operators
    shapes = ["[]"] * len(operators)
    if group == "shape":
        shapes = [str([list(fact.shape) for fact in each.inputs]) for each in operators]
    groups: dict[tuple[Kind, str, str], list[Call]] = {}
    for call in calls:
        name, shape = call.name, "[]"
        if call.kind == "operator" and call.operator is not None:
            shape = shapes[call.operator]
            if group == "instance":
                name = operators[call.operator].name
        groups.setdefault((call.kind, name, shape), []).append(call)
    savings = savings_of(profile)
    return [
        key_average_of(profile, kind, name, shape if group == "shape" else "", members, savings)
        for (kind, name, shape), members in groups.items()
    ]


def key_average_of(
    profile: Profile,
    kind: Kind,
    name: str,
    shapes: str,
    calls: list[Call],
    savings: Mapping[int, float],
) -> KeyAverage:
    """Sum up the calls of one row."""
    on_device = profile.on_device
    memory = sum_memory(calls, lambda call: call.memory)
    own = sum_memory(calls, lambda call: call.self_memory)
    places = {call.operator for call in calls if kind == "operator"}
    saved = [savings[place] for place in places if place is not None and place in savings]
    cpu_ns = [call.cpu_ns for call in calls if call.cpu_ns is not None]
    own_ns = [call.self_device_ns if on_device else call.self_cpu_ns for call in calls]
    known_ns = [each for each in own_ns if each is not None]
    cpu = totals_of(cpu_ns) if len(cpu_ns) == len(calls) else None
    is_estimate = kind == "operator" and profile.has_estimates
    return KeyAverage(
        name=name,
        kind=kind,
        count=len(calls),
        shapes=shapes,
        self_cpu_ns=sum_known(call.self_cpu_ns for call in calls),
        cpu_ns=sum_known(call.cpu_ns for call in calls),
        self_device_ns=sum(call.self_device_ns for call in calls),
        device_ns=sum(call.device_ns for call in calls),
        cpu_memory_bytes=memory and memory.cpu_bytes,
        self_cpu_memory_bytes=own and own.cpu_bytes,
        device_memory_bytes=memory and memory.device_bytes,
        self_device_memory_bytes=own and own.device_bytes,
        flops=sum_known(flops_of(profile, call) for call in calls),
        saving_ns=sum(saved) if saved else None,
        cpu=cpu,
        device=totals_of(call.device_ns for call in calls) if on_device else None,
        disturbed=sum(call.disturbed for call in calls) if is_recorded(profile) else None,
        typical_ns=ranking_of(known_ns, [call.operator for call in calls])
        if len(known_ns) == len(calls)
        else None,
        is_emptied=is_estimate and cpu is not None and not cpu.median_ns,
    )


def flops_of(profile: Profile, call: Call) -> int | None:
    if call.kind != "operator" or call.operator is None:
        return None
    return profile.operators[call.operator].flops


def sum_known(values: Iterable[int | None]) -> int | None:
    """Return the sum, None if one of the values is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_memory(calls: Iterable[Call], memory: Callable[[Call], Memory | None]) -> Memory | None:
    """Return the sum of the memory, None if that of an operator or of all is not known."""
    total = None
    for call in calls:
        if (own := memory(call)) is not None:
            total = own.plus(total)
        elif call.kind == "operator":
            return None
    return total


def matching_calls(profile: Profile, calls: Iterable[Call], pattern: str) -> list[Call]:
    """Return the calls whose name, operator or operator's type matches `pattern`."""
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return [call for call in calls if call.operator in operators or search(call.name)]


WIDTH = 12
NAME_WIDTH = 55
SHAPES_WIDTH = 80
UNKNOWN = "--"
FLOP_PREFIXES = ("", "K", "M", "G", "T", "P")
RULE = Rule(right="  ")
LAYOUT = Layout(end="  ", over=RULE, under=RULE, closing=RULE)

KeyColumn = Column[KeyAverage]


@dataclass(frozen=True, kw_only=True)
class TableTotals:
    """The totals below the table, which percentages are based on, in nanoseconds.

    `self_cpu_ns` is the time of operators alone, if `of_operators`. `device_ns` is the time of
    device rows alone, since those of operators have it again.
    """

    self_cpu_ns: int
    device_ns: int
    of_operators: bool = False


def totals_of_rows(rows: Sequence[KeyAverage]) -> TableTotals:
    """Sum up the operators, or all rows if there are none; a row whose time is not known adds
    nothing."""
    operators_ns = [row.self_cpu_ns or 0 for row in rows if row.kind == "operator"]
    return TableTotals(
        self_cpu_ns=sum(operators_ns or (row.self_cpu_ns or 0 for row in rows)),
        of_operators=bool(operators_ns),
        device_ns=sum(row.self_device_ns for row in rows if row.kind == "kernel"),
    )


def counted(row: KeyAverage, time_ns: int | None, totals: TableTotals) -> int | None:
    """Return a row's time if it is a part of the totals, None for what is around operators."""
    is_around = totals.of_operators and row.kind in ("runtime", "range")
    return None if is_around else time_ns


def table_of(
    rows: Sequence[KeyAverage],
    totals: TableTotals,
    device: str = "",
    unit: str | None = None,
    *,
    with_savings: bool = False,
) -> Table[KeyAverage]:
    """Return the table. Without the name of a `device`, such as CUDA, it has no columns for the
    device's times and memory; the text leaves out columns that no row has a value for.

    `unit` fixes the unit of times, one of UNITS_NS; without it records are in microseconds.
    """
    name = name_column(rows)
    kind = KeyColumn("Kind", lambda row: row.kind)
    cpu = [
        share_column(
            "Self CPU %", lambda row: counted(row, row.self_cpu_ns, totals), totals.self_cpu_ns
        ),
        time_column("Self CPU", lambda row: row.self_cpu_ns, unit, 2 if device else 0),
        share_column(
            "CPU total %", lambda row: counted(row, row.cpu_ns, totals), totals.self_cpu_ns
        ),
        time_column("CPU total", lambda row: row.cpu_ns, unit),
        time_column("CPU time avg", lambda row: row.average_cpu_ns, unit),
    ]
    times = [
        time_column(f"Self {device}", lambda row: row.self_device_ns, unit, 0),
        share_column(f"Self {device} %", lambda row: row.self_device_ns, totals.device_ns),
        time_column(f"{device} total", lambda row: row.device_ns, unit),
        time_column(f"{device} time avg", lambda row: row.average_device_ns, unit),
    ]
    memory = [
        memory_column("CPU Mem", lambda row: row.cpu_memory_bytes),
        memory_column("Self CPU Mem", lambda row: row.self_cpu_memory_bytes),
    ]
    device_memory = [
        memory_column(f"{device} Mem", lambda row: row.device_memory_bytes),
        memory_column(f"Self {device} Mem", lambda row: row.self_device_memory_bytes),
    ]
    calls = plain_column("# of Calls", lambda row: row.count, rank=0)
    shapes = shapes_columns(rows)
    flops = flops_column(rows)
    saving = time_column("Could save", lambda row: row.saving_ns, unit, 1)
    # torch has no such columns; where it has those of a device the table is wide enough.
    spread = spread_columns("CPU time", lambda row: row.cpu, unit)
    device_spread = spread_columns(f"{device} time", lambda row: row.device, unit)
    disturbed = plain_column(
        "Disturbed", lambda row: row.disturbed, lambda row: str(row.disturbed or ""), rank=2
    )
    # That a device's rows take no memory says nothing.
    known = [row for row in rows if row.kind != "kernel"]
    has_memory = any(row.cpu_memory_bytes is not None for row in known)
    has_device_memory = has_memory and any(row.device_memory_bytes for row in known)
    return Table(
        name="key_averages",
        title="Key averages",
        columns=(
            *(name, kind, *cpu, *((*times, *device_memory) if device else ())),
            *(*memory, calls, *shapes, flops, saving),
            *(*spread, *(device_spread if device else ()), disturbed),
        ),
        shown=(
            *(name, *cpu, *(times if device else ())),
            *(memory if has_memory else ()),
            *(device_memory if device and has_device_memory else ()),
            *(calls, *shapes, *((flops,) if any(row.flops for row in rows) else ())),
            *((saving,) if with_savings else ()),
            *(spread if not device and any(row.cpu for row in rows) else ()),
            *((disturbed,) if any(row.disturbed for row in rows) else ()),
        ),
        rows=tuple(rows),
        notes=notes_of(totals, device, unit or "us"),
        layout=LAYOUT,
    )


def notes_of(totals: TableTotals, device: str, unit: str) -> tuple[str, ...]:
    times = [("CPU", totals.self_cpu_ns), *([(device, totals.device_ns)] if device else [])]
    return tuple(f"Self {where} time total: {in_unit(ns, unit)} {unit}" for where, ns in times)


def body_of(
    table: Table[KeyAverage], totals: TableTotals, device: str, unit: str | None, limit: int
) -> tuple[str | AnyTable, ...]:
    """Return the text: the first rows, and the totals below them."""
    times = [("CPU", totals.self_cpu_ns), *([(device, totals.device_ns)] if device else [])]
    return (
        replace(table, rows=table.rows[:limit]),
        *(f"Self {where} time total: {format_time(ns, unit)}" for where, ns in times),
    )


def plain_column(
    title: str,
    value: Callable[[KeyAverage], str | int | float | None],
    text: Callable[[KeyAverage], str] | None = None,
    key: str = "",
    width: int = WIDTH,
    rank: int = 5,
) -> KeyColumn:
    """Return a column of torch's width."""
    return KeyColumn(
        *(title, value, text),
        key=key,
        align="right",
        width=width,
        is_fixed=True,
        rank=rank,
    )


def name_column(rows: Sequence[KeyAverage]) -> KeyColumn:
    def cell(row: KeyAverage) -> str:
        cut = len(row.name) >= NAME_WIDTH - 3
        return row.name[: NAME_WIDTH - 3] + "..." if cut else row.name

    longest = max((len(row.name) for row in rows), default=0)
    width = min(longest + 4, NAME_WIDTH)
    return plain_column("Name", lambda row: row.name, cell, width=width, rank=0)


def time_column(
    title: str, time_ns: Callable[[KeyAverage], float | None], unit: str | None, rank: int = 4
) -> KeyColumn:
    return plain_column(
        title,
        lambda row: in_unit(time_ns(row), unit or "us"),
        lambda row: format_time(time_ns(row), unit),
        f"{title} ({unit or 'us'})",
        rank=rank,
    )


def spread_columns(
    title: str, times: Callable[[KeyAverage], Totals | None], unit: str | None
) -> tuple[KeyColumn, ...]:
    """Return the columns of what single calls took, beside their average."""

    def column(name: str, figure: Callable[[Totals], float | None], rank: int) -> KeyColumn:
        def time_ns(row: KeyAverage) -> float | None:
            own = times(row)
            return None if own is None else figure(own)

        return time_column(f"{title} {name}", time_ns, unit, rank)

    usual = column("med", lambda own: own.median_ns, 0)
    nothing = f"<{format_time(CLOCK_STEP_NS, unit)}"
    return (
        replace(
            usual,
            value=lambda row: None if row.is_emptied else usual.value(row),
            text=lambda row: nothing if row.is_emptied else usual.cell(row),
        ),
        column("p90", lambda own: own.p90_ns, 2),
        column("min", lambda own: own.min_ns, 5),
        column("max", lambda own: own.max_ns, 5),
    )


def share_column(title: str, part: Callable[[KeyAverage], int | None], whole: int) -> KeyColumn:
    return plain_column(
        title,
        lambda row: percent(part(row), whole),
        lambda row: format_share(part(row), whole),
        rank=3 if title.startswith("Self") else 6,
    )


def memory_column(title: str, size: Callable[[KeyAverage], int | None]) -> KeyColumn:
    return plain_column(title, size, lambda row: format_memory(size(row)), f"{title} (bytes)")


def shapes_columns(rows: Sequence[KeyAverage]) -> list[KeyColumn]:
    longest = max((len(row.shapes) for row in rows), default=0)
    width = min(longest + 4, SHAPES_WIDTH)
    # Rows differ by nothing else where they have shapes.
    shapes = plain_column(
        *("Input Shapes", lambda row: row.shapes, lambda row: row.shapes[:width]),
        width=width,
        rank=0,
    )
    return [shapes] if longest else []


def flops_column(rows: Sequence[KeyAverage]) -> KeyColumn:
    """Return the column of FLOPs in the unit in which the smallest count is readable."""
    counts = [row.flops for row in rows if row.flops]
    power = min(int(math.log10(min(counts, default=1)) / 3), len(FLOP_PREFIXES) - 1)
    return plain_column(
        f"Total {FLOP_PREFIXES[power]}FLOPs",
        lambda row: row.flops,
        lambda row: f"{row.flops / 1000**power:8.3f}" if row.flops else UNKNOWN,
        "Total FLOPs",
    )


def in_unit(time_ns: float | None, unit: str) -> float | None:
    return None if time_ns is None else time_ns / UNITS_NS[unit]


def percent(part_ns: int | None, total_ns: int) -> float | None:
    return None if part_ns is None or not total_ns else 100 * part_ns / total_ns


def format_time(time_ns: float | None, unit: str | None = None) -> str:
    """Format a time in `unit`, by default in that which fits."""
    if time_ns is None:
        return UNKNOWN
    if unit is None:
        unit = "s" if time_ns >= UNITS_NS["s"] else "ms" if time_ns >= UNITS_NS["ms"] else "us"
    return f"{time_ns / UNITS_NS[unit]:.3f}{unit}"


def format_share(part_ns: int | None, total_ns: int) -> str:
    """Format a part in percent, NaN of nothing."""
    if part_ns is None:
        return UNKNOWN
    return f"{part_ns * 100 / total_ns:.2f}%" if total_ns else "NaN"


def format_memory(size_bytes: int | None) -> str:
    """Format a size in the largest binary unit below it."""
    if size_bytes is None:
        return UNKNOWN
    for power, unit in ((3, "Gb"), (2, "Mb"), (1, "Kb")):
        if abs(size_bytes) >= 1024**power:
            return f"{size_bytes / 1024**power:.2f} {unit}"
    return f"{size_bytes} b"
