"""The table of operators in MegEngine's style: as text, in Confluence markup, as plain values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lar.reports.document import Cell, ReportTable
from lar.reports.styles.megengine.grid import GridCell, format_confluence, format_fancy
from lar.reports.styles.megengine.records import Record, Shapes, TimedRecord

FANCY_COLUMNS = (
    *("cumulative", "operator info", "computation", "FLOPS", "memory", "bandwidth"),
    *("in_shapes", "out_shapes"),
)
PREFIXES = ("", "K", "M", "G", "T", "P")
BAR_LENGTH = 15


class Share(NamedTuple):
    """An operator's time and all up to it in seconds, and in percent of the total."""

    percent: float | None
    cumulative: float
    cumulative_percent: float | None


def shares_of(selected: Sequence[TimedRecord], total: float | None) -> Iterator[Share]:
    """Yield the shares, one after the other."""
    cumulative = 0.0
    for each in selected:
        cumulative += each.time
        if total:
            yield Share(each.time / total * 100, cumulative, cumulative / total * 100)
        else:
            yield Share(None, cumulative, None)


def format_operators(
    selected: Sequence[TimedRecord], place: str, total: float | None, options: Mapping[str, Any]
) -> str:
    """Return the operators as the options say; `place` is device or host."""
    if options.get("dump_only_opr"):
        return "\n".join(" ".join(each.record.info.values()) for each in selected)
    if options.get("confluence"):
        return format_confluence_operators(selected, total)
    rows = [
        (
            f"#{index}\n{each.time:.3}\n{format_percent(share.percent)}",
            f"{share.cumulative:.3}\n{format_percent(share.cumulative_percent)}",
            format_info(each.record),
            format_amount(each.record.computation, 1000, "FLO", "FLO"),
            format_amount(each.flops, 1000, "FLOPS", "FLOPS"),
            format_amount(each.record.memory, 1024, "byte", "iB"),
            format_amount(each.bandwidth, 1024, "byte/s", "iB/s"),
            format_inputs(each.record, "\n"),
            format_shapes(each.record, each.record.out_shapes, "\n"),
        )
        for index, (each, share) in enumerate(
            zip(selected, shares_of(selected, total), strict=True)
        )
    ]
    return format_fancy((f"{place} self time", *FANCY_COLUMNS), rows)


def format_percent(percent: float | None) -> str:
    return "N/A" if percent is None else f"{percent:.1f}%"


def format_info(record: Record) -> str:
    """Return name, type and id a line each, the lines wrapped."""
    return "\n".join("\n-  ".join(textwrap.wrap(text, 30)) for text in record.info.values())


def format_amount(amount: float | None, base: int, unit: str, prefixed_unit: str) -> str:
    """Return an amount and, on a line of its own, its unit with the prefix that fits."""
    if amount is None:
        return f"N/A\n{unit}"
    prefix = 0
    while math.isfinite(amount) and amount >= base and prefix + 1 < len(PREFIXES):
        amount /= base
        prefix += 1
    return f"{amount:.2f}\n{PREFIXES[prefix]}{prefixed_unit if prefix else unit}"


def format_inputs(record: Record, separator: str) -> str:
    """Return the shapes of the inputs, with their layouts where the engine tells them."""
    return format_shapes(record, record.in_shapes, separator, record.in_layouts or ())


def format_shapes(
    record: Record,
    shapes: Shapes | None,
    separator: str,
    layouts: Sequence[Sequence[int | str]] = (),
) -> str:
    """Return shapes, of which operators that are put together have none."""
    if shapes is None:
        return "N/A" if record.count is None else "None"
    texts = ["{" + ",".join(map(str, shape)) + "}" for shape in shapes]
    for index, layout in enumerate(layouts[: len(texts)]):
        if layout:
            texts[index] += "\n -[" + ",".join(map(str, layout)) + "]"
    return separator.join(texts)


def format_confluence_operators(selected: Sequence[TimedRecord], total: float | None) -> str:
    """Return the operators in Confluence markup, with bars."""
    keys = list(selected[0].record.info) if selected else ["name", "type", "id"]
    headers = (
        *("#", "time", "ratio", "time bar", "cum-time", "cum-time ratio"),
        *(f"opr {key}" for key in keys),
        *("computation (MFLO)", "MFLOPS", "MFLOPS-bar", "memory (MB)", "bandwidth (MiB/s)"),
        *("bandwidth bar", "in_shapes", "out_shapes"),
    )
    longest = greatest([each.time for each in selected])
    fastest = greatest([each.flops for each in selected])
    widest = greatest([each.bandwidth for each in selected])
    rows: list[tuple[GridCell, ...]] = []
    for index, (each, share) in enumerate(zip(selected, shares_of(selected, total), strict=True)):
        record = each.record
        rows.append(
            (
                index,
                f"{each.time:.3}",
                format_percent(share.percent),
                bar_of(each.time, longest),
                share.cumulative,
                share.cumulative / total if total else "N/A",
                *record.info.values(),
                format_scaled(record.computation, 1000**2),
                format_scaled(each.flops, 1000**2),
                bar_of(each.flops, fastest),
                format_scaled(record.memory, 1024**2),
                format_scaled(each.bandwidth, 1024**2),
                bar_of(each.bandwidth, widest),
                format_inputs(record, ", "),
                format_shapes(record, record.out_shapes, ", "),
            )
        )
    return format_confluence(headers, rows)


def format_scaled(amount: float | None, scale: int) -> str:
    return "N/A" if amount is None else f"{amount / scale:.1f}"


def greatest(values: Sequence[float | None]) -> float:
    """Return the greatest value that is known and finite, which has the longest bar."""
    return max((value for value in map(finite, values) if value is not None), default=0.0)


def finite(value: float | None) -> float | None:
    """Return a value that is known and finite; the speed of what took no time is not."""
    return value if value is not None and math.isfinite(value) else None


def bar_of(value: float | None, longest: float) -> str:
    value = finite(value)
    return "#" * int(value / longest * BAR_LENGTH) if value and longest else ""


def operators_table_of(
    selected: Sequence[TimedRecord], place: str, total: float | None, notes: tuple[str, ...]
) -> ReportTable:
    """Return the operators with plain values; computation in floating point operations."""
    keys = tuple(selected[0].record.info) if selected else ("name", "type", "id")
    rows: list[tuple[Cell, ...]] = []
    for each, share in zip(selected, shares_of(selected, total), strict=True):
        record = each.record
        info = record.info if record.count is None else {**record.info, "id": None}
        rows.append(
            (
                *(record.count if key == "count" else info[key] for key in keys),
                each.time,
                share.percent,
                share.cumulative,
                share.cumulative_percent,
                record.computation,
                finite(each.flops),
                record.memory,
                finite(each.bandwidth),
                None if record.in_shapes is None else format_inputs(record, ", "),
                None
                if record.out_shapes is None
                else format_shapes(record, record.out_shapes, ", "),
            )
        )
    return ReportTable(
        name=place,
        title=f"Operators: {place} time",
        columns=(
            *keys,
            *("time_seconds", "time_percent", "cumulative_seconds", "cumulative_percent"),
            *("computation_flo", "flo_per_second", "memory_bytes", "bytes_per_second"),
            *("in_shapes", "out_shapes"),
        ),
        rows=tuple(rows),
        notes=notes,
    )
