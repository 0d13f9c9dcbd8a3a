"""The style `ncu`: the share of the machine's peak that each operator, kernel and range reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lar.errors import UsageError
from lar.profiles.roofline import host_peak_of
from lar.records.profile import Peak, Profile
from lar.reports.model import Column, Table
from lar.reports.report import Report
from lar.reports.sorting import sort_rows
from lar.reports.styles.ncu.metrics import METRIC_COLUMNS, Metric, format_size, metrics_of
from lar.reports.styles.ncu.rows import Row, first_rows, rows_of, section_of
from lar.reports.styles.ncu.text import body_of, describe_figures


class Line(NamedTuple):
    """One metric of a row, as a line of ncu's table."""

    number: int
    row: Row
    metric: Metric


def metric_column(column: Column[Metric]) -> Column[Line]:
    """Return a column of a metric as one of a line."""
    return Column(column.title, lambda line: column.value(line.metric))


# What a process is, a profile does not record.
COLUMNS: tuple[Column[Line], ...] = (
    Column("ID", lambda line: line.number),
    Column("Process ID"),
    Column("Process Name"),
    Column("Host Name"),
    Column("Kernel Name", lambda line: line.row.name),
    Column("Context"),
    Column("Stream", lambda line: line.row.stream),
    Column("Block Size", lambda line: format_size(line.row.block)),
    Column("Grid Size", lambda line: format_size(line.row.grid)),
    Column("Device", lambda line: line.row.device),
    Column("CC"),
    Column("Section Name", lambda line: section_of(line.row)),
    *map(metric_column, METRIC_COLUMNS),
)


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Make the report.

    Raises:
        UsageError: nothing was timed, or nothing matches the filter.
    """
    pattern, group_by = options.get("filter", ""), options.get("group_by", "operator")
    rows = rows_of(profile, group_by, pattern)
    if not rows and pattern:
        raise UsageError(
            "no operator, kernel or range of that name ran", flag=f"--filter {pattern}"
        )
    if not rows:
        raise UsageError("the profile holds no timed operators", "run with --iter 1 or more")
    peak = host_peak_of(profile)
    rows = sort_launches(rows, options.get("sort", "typical"), peak)
    shown = first_rows(rows, options.get("top", len(rows)))
    unit = options.get("time_unit", "")
    metrics = [metrics_of(row, profile.on_device, peak, unit or "ns") for row in shown]
    document = document_of(peak, shown, metrics)
    return Report(
        style="ncu",
        body=body_of(profile, rows, peak, options),
        tables=(table_of(shown, metrics),),
        document=document,
    )


def sort_launches(rows: Sequence[Row], key: str, peak: Peak | None) -> list[Row]:
    """Sort by a figure, ranges before the others."""
    keys: dict[str, Callable[[Row], float | None]] = {
        **dict.fromkeys(("typical", "duration"), lambda row: row.work.typical_ns),
        "median": lambda row: row.times.median_ns,
        "p90": lambda row: row.times.p90_ns,
        "total": lambda row: row.times.total_ns,
        "average": lambda row: row.work.average_ns,
        "calls": lambda row: row.work.calls,
        "flops": lambda row: row.work.flops_per_second,
        "bytes": lambda row: row.work.bytes_per_second,
        "compute": lambda row: row.work.compute_percent(peak),
        "memory": lambda row: row.work.memory_percent(peak),
        "intensity": lambda row: row.work.intensity,
        "saving": lambda row: row.saving_ns(peak),
    }
    ordered = sort_rows(rows, key, keys[key.lstrip("+-")])
    return sorted(ordered, key=lambda row: row.kind != "range")


def table_of(rows: Sequence[Row], metrics: Sequence[Sequence[Metric]]) -> Table[Line]:
    """Return ncu's table: a line for each metric of each row."""
    lines = (
        Line(number, row, metric)
        for number, (row, own) in enumerate(zip(rows, metrics, strict=True))
        for metric in own
    )
    return Table(
        name="metrics",
        title="Metrics",
        columns=COLUMNS,
        rows=tuple(lines),
    )


def document_of(
    peak: Peak | None, rows: Sequence[Row], metrics: Sequence[Sequence[Metric]]
) -> dict[str, Any]:
    """Return what JSON shows: the peak, notes on the figures, and the rows with their metrics by
    name."""
    return {
        "style": "ncu",
        "peak": peak,
        "notes": describe_figures(rows, peak),
        "rows": [
            {
                "id": number,
                "kind": row.kind,
                "name": row.name,
                "of": row.detail or None,
                "time_share": row.share,
                "grid": row.grid,
                "block": row.block,
                "stream": row.stream,
                "device": row.device,
                "metrics": {
                    metric.name: {"unit": metric.unit, "value": metric.value}
                    for metric in metrics[number]
                },
            }
            for number, row in enumerate(rows)
        ],
    }
