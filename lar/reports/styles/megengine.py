"""The style `megengine`: reports in the form of MegEngine's tool `profile_analyze`.

For MegEngine's own file, the text equals the tool's output byte for byte, unless the tool fails.
MegEngine's tool fails if --copy-time is given but nothing was copied. MegEngine's tool also fails
if the figures to sort or aggregate are unknown. An operator that took no time has infinite speed in
a report of MegEngine's own file, and unknown speed in a report of a lar profile. In these reports,
"device" means the processor on which the engine computes, which may be a CPU. The host dispatches
operators to the device.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec

from lar.errors import UsageError
from lar.profiles.breakdown import steps_of
from lar.profiles.megengine_file import (
    RawFootprint,
    RawOperator,
    RawProfile,
    RawTimes,
    decode_raw,
    is_raw_profile,
)
from lar.profiles.times import group_by, self_times_of
from lar.records.profile import Execution, Profile, ProfiledOperator
from lar.reports.model import AnyTable, Cell, Column, Layout, Rule, Table, sort_rows
from lar.reports.report import Report

# The types of a copy from one device to another, of MegEngine and of ONNX Runtime.
COPY_TYPES = frozenset({"Copy", "MemcpyFromHost", "MemcpyToHost"})
LINES = Layout(over=Rule(), closing=Rule(), has_header=False, is_stripped=True)
ON_CPU = "the device is where the engine computes: here the CPU"
ON_HOST = (
    "the engine reports no times of the device: these are times of the host, which starts the work"
)


class SummaryRow(NamedTuple):
    """A line of the summary, with times in seconds; only lines on copies have an average."""

    name: str
    total: float | None
    average: float | None = None


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the report with the summary and the tables of the slowest operators.

    Raises:
        UsageError: the options cannot be combined, or the engine's own profile is damaged.
    """
    records = records_of(profile)
    chosen = filter_records(records, options)
    iterations = len(steps_of(profile))
    means = f"times, computation and memory are the mean of {iterations} iterations"
    lines = [means] if iterations > 1 else []
    if profile.facts.dispatch_only:
        lines.append(ON_HOST)
    notes = (*lines, *((ON_CPU,) if profile.facts.device.startswith("cpu") else ()))
    has_names = bool(options.get("dump_only_opr"))
    parts: list[list[str | AnyTable]] = [[*lines]] if lines and not has_names else []
    tables: list[AnyTable] = []
    only = options.get("print_only")
    layout = CONFLUENCE if options.get("confluence") else LINES
    if only in (None, "summary"):
        summary = summary_of(profile, summary_rows_of(records, chosen, options), notes, layout)
        parts.append([summary])
        tables.append(summary)
    places: tuple[Place, ...] = ("device", "host") if options.get("show_host") else ("device",)
    for place in places if only is None else (only,) if only != "summary" else ():
        key: TimeKey = place, options.get("top_end_key", "end")
        selected = select_records(chosen, key, options)
        total = total_seconds(records, (place, "end"))
        table = operators_table_of(
            selected, place, total, notes, in_confluence=layout is CONFLUENCE
        )
        names = [" ".join(each.info.values()) for each in selected] or [""]
        parts.append([*names] if has_names else [table])
        tables.append(table)
    return Report(
        style="megengine",
        body=tuple(it for n, part in enumerate(parts) for it in ([""] if n else []) + part),
        tables=tuple(tables),
        is_for_programs=has_names,
    )


def total_seconds(records: Sequence[Record], key: TimeKey) -> float | None:
    """Return the sum of one kind of time over all operators in seconds, or None if unknown."""
    return aggregate([record.times[key] for record in records if key in record.times], "sum")


def summary_rows_of(
    records: Sequence[Record], chosen: Sequence[Record], options: Mapping[str, Any]
) -> list[SummaryRow]:
    """Return the totals of all operators and, with --copy-time, of the chosen copies."""
    rows = [
        SummaryRow("total device time", total_seconds(records, ("device", "end"))),
        SummaryRow("total host time", total_seconds(records, ("host", "end"))),
    ]
    if options.get("copy_time"):
        copies = [record for record in chosen if record.info["type"] in COPY_TYPES]
        for name, key in (("copy time", "end"), ("copy wait time", "kern")):
            times = [each.times["device", key] for each in copies if ("device", key) in each.times]
            rows.append(SummaryRow(name, aggregate(times, "sum"), aggregate(times, "mean")))
    return rows


def summary_of(
    profile: Profile, rows: Sequence[SummaryRow], notes: tuple[str, ...], layout: Layout
) -> Table[SummaryRow]:
    """Return the table of totals; in text, a cell about copies also has an average.

    For the engine's own file, totals have all digits, as MegEngine's tool prints them.
    """

    def text(row: SummaryRow) -> str:
        if row.total is None:
            return "N/A"
        if row.average is not None:
            return f"tot={row.total:.4f} avg={row.average:.4f}"
        return f"{row.total:g}" if profile.facts.lar_version else str(row.total)

    return Table(
        name="summary",
        title="Summary",
        columns=(
            Column("name", lambda row: row.name, align="point"),
            Column("value", lambda row: row.total, text, key="total_seconds", align="point"),
            Column("average_seconds", lambda row: row.average, in_text=False),
        ),
        rows=tuple(rows),
        notes=notes,
        layout=layout,
    )


# The operators with the figures of MegEngine's tool


Place = Literal["device", "host"]
Shapes = Sequence[Sequence[int]]
TimeKey = tuple[Place, str]
Amount = tuple[int, int, "int | None"]  # a step, a thread, and an amount


@dataclass(frozen=True, kw_only=True)
class Record:
    """An operator, or the aggregate of several operators.

    `info` has the name, type and id of the operator.

    `times` has seconds by place (device or host) and kind. The kind `end` is the whole time, and
    `kern` is only the waiting time. Unknown times are left out. `time` is the time that the table
    shows. `computation` is the number of floating point operations, and `memory` the number of
    bytes. If an operator took no time, its speed is unknown or, if `is_infinite`, infinite as in
    MegEngine's tool.
    """

    info: Mapping[str, str]
    times: Mapping[TimeKey, float] = field(default_factory=dict)
    time: float = 0.0
    computation: float | None = None
    memory: float | None = None
    in_shapes: Shapes | None = None
    in_layouts: Sequence[Sequence[int | str] | None] | None = None
    out_shapes: Shapes | None = None
    input_dtypes: frozenset[str] = frozenset()
    count: int | None = None
    is_infinite: bool = False

    @property
    def flops(self) -> float | None:
        """Floating point operations per second."""
        return self._divide(self.computation)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self._divide(self.memory)

    def _divide(self, amount: float | None) -> float | None:
        if amount is None or (not self.time and not self.is_infinite):
            return None
        return amount / self.time if self.time else math.inf if amount else math.nan


def records_of(profile: Profile) -> list[Record]:
    """Return the records of a profile's operators, with means over several iterations.

    The records of a single iteration come from MegEngine's own file if the profile has it, unless
    times are scaled to an iteration without profiling. MegEngine's own file has more data: the
    waiting of the host, and times with all digits.
    """
    is_scaled = profile.correction is not None and profile.correction.scale < 1
    if is_single(profile) and not is_scaled and is_raw_profile(profile.engine_raw):
        try:
            raw = decode_raw(profile.engine_raw)
        except (msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"MegEngine's part of the profile is damaged: {error}") from None
        return [
            replace(record_of_raw(raw, key, operator), is_infinite=not profile.facts.lar_version)
            for key, operator in raw.graph_exec.operator.items()
        ]
    ran: dict[int, list[tuple[Execution, int]]] = {}
    for execution, ns in zip(profile.timed_executions, self_times_of(profile), strict=True):
        ran.setdefault(execution.operator, []).append((execution, ns))
    steps = len(steps_of(profile))
    return [
        record_of(operator, ran.get(place, []), steps)
        for place, operator in enumerate(profile.operators)
    ]


def is_single(profile: Profile) -> bool:
    """Return whether a profile has a single timed iteration, which the engine's file describes."""
    return len(profile.timed_steps()) == 1 or not profile.steps


def record_of_raw(raw: RawProfile, key: str, operator: RawOperator) -> Record:
    footprint = raw.profiler.opr_footprint.get(key)
    known = footprint or RawFootprint()
    times: dict[TimeKey, float] = {}
    entries: tuple[tuple[Place, Mapping[str, RawTimes]], ...] = (
        ("device", raw.profiler.device.get(key, {})),
        ("host", raw.profiler.host.get(key, {})),
    )
    for place, found in entries:
        if found:
            times[place, "end"] = max(each.end - each.start for each in found.values())
            times[place, "kern"] = max(each.kern - each.start for each in found.values())
    layouts = known.in_layouts
    plans = (raw.graph_exec.var[number].mem_plan for number in operator.input)
    return Record(
        info={"name": operator.name, "type": operator.type, "id": operator.id},
        times=times,
        computation=known.computation or None,
        memory=known.memory,
        in_shapes=known.in_shapes if footprint else None,
        in_layouts=layouts and [each or () for each in layouts],
        out_shapes=known.out_shapes if footprint else None,
        input_dtypes=frozenset(plan.layout.dtype.lower() for plan in plans if plan),
    )


def record_of(
    operator: ProfiledOperator, ran: Sequence[tuple[Execution, int]], steps: int
) -> Record:
    """Return an operator's record from its executions in `steps` iterations.

    `ran` has each execution with its own computing time in nanoseconds.
    """
    executions = [execution for execution, _ in ran]
    # Executions on several threads may share one dispatch.
    dispatches = {
        (it.step, it.dispatch_thread or 0, it.dispatch_start_ns): dispatch
        and dispatch[1] - dispatch[0]
        for it, dispatch in ((it, it.dispatch) for it in executions)
    }
    measured: dict[TimeKey, list[Amount]] = {
        ("device", "end"): [(it.step, it.thread, ns + (it.wait_ns or 0)) for it, ns in ran],
        ("device", "kern"): [(it.step, it.thread, it.wait_ns) for it in executions],
        ("host", "end"): [(step, thread, ns) for (step, thread, _), ns in dispatches.items()],
    }
    times = {
        key: busiest(own) / steps / 1e9
        for key, own in measured.items()
        if own and all(ns is not None for *_, ns in own)
    }
    runs = busiest((it.step, it.thread, 1) for it in executions)
    share: float = runs // steps if steps and not runs % steps else runs / (steps or 1)
    layouts = [fact.layout.split(",") if fact.layout else [] for fact in operator.inputs]
    return Record(
        info={"name": operator.name, "type": operator.type, "id": operator.id},
        times=times,
        computation=(operator.flops or 0) * share or None,
        memory=None if operator.size_bytes is None else operator.size_bytes * share,
        in_shapes=[fact.shape for fact in operator.inputs],
        in_layouts=layouts if any(layouts) else None,
        out_shapes=[fact.shape for fact in operator.outputs],
        input_dtypes=frozenset(fact.dtype.lower() for fact in operator.inputs),
    )


def busiest(amounts: Iterable[Amount]) -> int:
    """Add up amounts over the steps; from each step, take only the amount of the busiest thread.

    Threads other than the busiest one are left out, since all threads of a step work at the same
    time.
    """
    by_thread: Counter[tuple[int, int]] = Counter()
    for step, thread, amount in amounts:
        by_thread[step, thread] += amount or 0
    by_step = group_by(by_thread, lambda key: key[0])
    return sum(max(by_thread[key] for key in keys) for keys in by_step.values())


def filter_records(records: Iterable[Record], options: Mapping[str, Any]) -> list[Record]:
    """Return the records that match the options for name, type and input type."""
    types, dtype = options.get("type"), options.get("input_dtype")
    name = re.compile(options.get("opr_name") or "")
    either = re.compile(options.get("filter") or "")
    return [
        record
        for record in records
        if (not types or record.info["type"] in types)
        and (not dtype or dtype.lower() in record.input_dtypes)
        and name.match(record.info["name"])
        and (either.search(record.info["name"]) or either.search(record.info["type"]))
    ]


def select_records(
    records: Iterable[Record], key: TimeKey, options: Mapping[str, Any]
) -> list[Record]:
    """Return the records with one kind of time, aggregated, sorted and cut as options say.

    Raises:
        UsageError: --aggregate-by is given without --aggregate.
    """
    least, most = options.get("min_time", -math.inf), options.get("max_time", math.inf)
    timed = [
        replace(record, time=record.times[key])
        for record in records
        if key in record.times and least <= record.times[key] <= most
    ]
    how, by = options.get("aggregate"), options.get("aggregate_by")
    if by and not how:
        raise UsageError(
            "needs a function", "add --aggregate sum, mean, max or min", flag=f"--aggregate-by {by}"
        )
    if how:
        groups = group_by(timed, lambda each: each.info["type"] if by else "all")
        timed = [aggregate_records(name, group, how) for name, group in groups.items()]
    order = options.get("sort", "time")
    return sort_rows(timed, order, lambda it: value_of(it, order.lstrip("+-")))[
        : options.get("top", 3)
    ]


def aggregate_records(name: str, group: Sequence[Record], how: str) -> Record:
    """Return one record that aggregates several operators under a name."""
    return Record(
        info={"type": name, "count": str(len(group)), "id": "N/A"},
        time=aggregate([each.time for each in group], how) or 0.0,
        computation=aggregate([each.computation for each in group], how) or None,
        memory=aggregate([each.memory for each in group], how),
        count=len(group),
        is_infinite=group[0].is_infinite,
    )


def aggregate(values: Sequence[float | None], how: str) -> float | None:
    """Return the maximum, minimum, sum or mean of the known values, or None if no value is known.

    The mean is the sum of the known values, divided by the number of all values, as in MegEngine's
    tool.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if how in ("max", "min"):
        return max(known) if how == "max" else min(known)
    total = sum_pairwise(known)
    return total / len(values) if how == "mean" else total


def sum_pairwise(values: Sequence[float]) -> float:
    """Return the sum of values, added in NumPy's order to get the last digit of MegEngine's tool.

    Up to 128 values are distributed to eight sums, which are then added. If there are more than 128
    values, they are split into halves, and the sums of the halves are added.
    """
    count = len(values)
    if count < 8:
        return sum(values)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return sum_pairwise(values[:half]) + sum_pairwise(values[half:])
    whole = count - count % 8
    a, b, c, d, e, f, g, h = (sum(values[column:whole:8]) for column in range(8))
    return sum(values[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


def value_of(record: Record, column: str) -> Any:
    """Return the value of a record by which records are sorted."""
    if column == "opr_id":
        number = record.info["id"]
        return int(number) if number.isdecimal() else None
    return getattr(record, column)


# The table of operators: as text, in Confluence markup, and as plain values


# Two layouts of the package `tabulate`, with which MegEngine's tool makes its tables.
FANCY = Layout(
    start="│ ",
    gap=" │ ",
    end=" │",
    over=Rule("═", "╤", "╒", "╕", added=2),
    under=Rule("═", "╪", "╞", "╡", added=2),
    between=Rule("─", "┼", "├", "┤", added=2),
    closing=Rule("═", "╧", "╘", "╛", added=2),
    header_room=2,
    has_lines=True,
)
CONFLUENCE = Layout(
    start="| ",
    gap=" | ",
    end=" |",
    under=Rule("-", "|", "|", "|", added=2),
    header_room=2,
    has_lines=True,
)
PREFIXES = ("", "K", "M", "G", "T", "P")
BAR_LENGTH = 15


class Unit(NamedTuple):
    """The unit of an amount, without and with a prefix such as K.

    `base` is the factor from one prefix to the next: 1000 or 1024.
    """

    base: int
    name: str
    prefixed: str


FLO, FLOPS = Unit(1000, "FLO", "FLO"), Unit(1000, "FLOPS", "FLOPS")
BYTES, BANDWIDTH = Unit(1024, "byte", "iB"), Unit(1024, "byte/s", "iB/s")


class Row(NamedTuple):
    """A record with its place in the table.

    `cumulative` is the time in seconds of this and all earlier records. Percentages are relative to
    the total.
    """

    place: int
    record: Record
    percent: float | None
    cumulative: float
    cumulative_percent: float | None


def rows_of(selected: Sequence[Record], total: float | None) -> Iterator[Row]:
    """Yield a row for each record in order, with its share of the total."""
    cumulative = 0.0
    for place, each in enumerate(selected):
        cumulative += each.time
        shares = (each.time / total * 100, cumulative / total * 100) if total else (None, None)
        yield Row(place, each, shares[0], cumulative, shares[1])


def operators_table_of(
    selected: Sequence[Record],
    place: str,
    total: float | None,
    notes: tuple[str, ...],
    *,
    in_confluence: bool,
) -> Table[Row]:
    """Return the table of operators, with their times on the device or the host, as `place` says.

    The text has cells of several lines, or is Confluence markup with bars. A narrow terminal
    shortens names first.
    """
    time = column_of(
        f"{place} self time",
        Column("", text=lambda row: f"#{row.place}"),
        Column("time_seconds", lambda row: row.record.time, lambda it: f"{it.record.time:.3}"),
        Column("time_percent", lambda row: row.percent, lambda it: format_percent(it.percent)),
    )
    cumulative = column_of(
        "cumulative",
        Column("cumulative_seconds", lambda it: it.cumulative, lambda it: f"{it.cumulative:.3}"),
        Column(
            "cumulative_percent",
            lambda it: it.cumulative_percent,
            lambda it: format_percent(it.cumulative_percent),
        ),
        rank=6,
    )
    keys = tuple(selected[0].info) if selected else ("name", "type", "id")
    info = column_of("operator info", *map(info_column, keys))
    others = (
        amount_column("computation", "computation_flo", lambda it: it.computation, FLO, rank=4),
        amount_column("FLOPS", "flo_per_second", lambda it: it.flops, FLOPS, rank=2),
        amount_column("memory", "memory_bytes", lambda it: it.memory, BYTES, rank=4),
        amount_column("bandwidth", "bytes_per_second", lambda it: it.bandwidth, BANDWIDTH, rank=2),
        shapes_column("in_shapes", format_inputs, lambda record: record.in_shapes),
        shapes_column("out_shapes", format_outputs, lambda record: record.out_shapes),
    )
    return Table(
        name=place,
        title=f"Operators: {place} time",
        columns=(info, time, cumulative, *others),
        shown=(
            confluence_columns(selected, total, keys)
            if in_confluence
            else (time, cumulative, info, *others)
        ),
        rows=tuple(rows_of(selected, total)),
        notes=notes,
        layout=CONFLUENCE if in_confluence else FANCY,
    )


def column_of(title: str, *parts: Column[Row], rank: int = 0) -> Column[Row]:
    """Return a column whose cells have several lines."""
    return Column(title, parts=parts, align="point", rank=rank)


def info_column(key: str) -> Column[Row]:
    """Return a column with one value of each record. Aggregated operators have no id."""

    def value(row: Row) -> Cell:
        record = row.record
        if key == "count":
            return record.count
        return None if key == "id" and record.count is not None else record.info[key]

    return Column(key, value, lambda row: "\n-  ".join(textwrap.wrap(row.record.info[key], 30)))


def amount_column(
    title: str, key: str, amount: Callable[[Record], float | None], unit: Unit, rank: int
) -> Column[Row]:
    return Column(
        title,
        lambda row: finite(amount(row.record)),
        lambda row: format_amount(amount(row.record), unit),
        key=key,
        align="point",
        rank=rank,
    )


def shapes_column(
    title: str, text: Callable[[Record, str], str], shapes: Callable[[Record], Shapes | None]
) -> Column[Row]:
    return Column(
        title,
        lambda row: None if shapes(row.record) is None else text(row.record, ", "),
        lambda row: text(row.record, "\n").replace("\n ", "\n"),
        align="point",
    )


def format_percent(percent: float | None) -> str:
    return "N/A" if percent is None else f"{percent:.1f}%"


def format_amount(amount: float | None, unit: Unit) -> str:
    """Return an amount and, on a second line, its unit with the prefix that fits."""
    if amount is None:
        return f"N/A\n{unit.name}"
    prefix = 0
    while math.isfinite(amount) and amount >= unit.base and prefix + 1 < len(PREFIXES):
        amount /= unit.base
        prefix += 1
    return f"{amount:.2f}\n{PREFIXES[prefix]}{unit.prefixed if prefix else unit.name}"


def format_inputs(record: Record, separator: str) -> str:
    """Return the shapes of the inputs, with their layouts if the engine reports them."""
    return format_shapes(record, record.in_shapes, separator, record.in_layouts or ())


def format_outputs(record: Record, separator: str) -> str:
    return format_shapes(record, record.out_shapes, separator)


def format_shapes(
    record: Record,
    shapes: Shapes | None,
    separator: str,
    layouts: Sequence[Sequence[int | str] | None] = (),
) -> str:
    """Return shapes with their layouts as text; `None` for aggregated operators."""
    if shapes is None:
        return "N/A" if record.count is None else "None"
    texts = ["{" + ",".join(map(str, shape)) + "}" for shape in shapes]
    for index, layout in enumerate(layouts[: len(texts)]):
        if layout:
            texts[index] += "\n -[" + ",".join(map(str, layout)) + "]"
    return separator.join(texts)


def confluence_columns(
    selected: Sequence[Record], total: float | None, keys: Sequence[str]
) -> tuple[Column[Row], ...]:
    """Return the columns of the text in Confluence markup."""

    def column(title: str, text: Callable[[Row], str]) -> Column[Row]:
        return Column(title, text=lambda row: text(row).strip(), align="point")

    def info(key: str) -> Column[Row]:
        return column(f"opr {key}", lambda row: row.record.info[key])

    def amount(title: str, value: Callable[[Record], float | None], scale: int) -> Column[Row]:
        def text(row: Row) -> str:
            known = value(row.record)
            return "N/A" if known is None else f"{known / scale:.1f}"

        return column(title, text)

    def bar(title: str, value: Callable[[Record], float | None]) -> Column[Row]:
        known = [each for each in map(finite, map(value, selected)) if each is not None]
        longest = max(known, default=0.0)

        def text(row: Row) -> str:
            own = finite(value(row.record))
            return "#" * int(own / longest * BAR_LENGTH) if own and longest else ""

        return column(title, text)

    return (
        column("#", lambda row: str(row.place)),
        column("time", lambda row: f"{row.record.time:.3}"),
        column("ratio", lambda row: format_percent(row.percent)),
        bar("time bar", lambda it: it.time),
        column("cum-time", lambda row: str(row.cumulative)),
        column("cum-time ratio", lambda row: str(row.cumulative / total) if total else "N/A"),
        *map(info, keys),
        amount("computation (MFLO)", lambda it: it.computation, 10**6),
        amount("MFLOPS", lambda it: it.flops, 10**6),
        bar("MFLOPS-bar", lambda it: it.flops),
        amount("memory (MB)", lambda it: it.memory, 2**20),
        amount("bandwidth (MiB/s)", lambda it: it.bandwidth, 2**20),
        bar("bandwidth bar", lambda it: it.bandwidth),
        column("in_shapes", lambda row: format_inputs(row.record, ", ")),
        column("out_shapes", lambda row: format_outputs(row.record, ", ")),
    )


def finite(value: float | None) -> float | None:
    """Return a number, or None if it is unknown or not finite, such as a speed without a time."""
    return value if value is not None and math.isfinite(value) else None
