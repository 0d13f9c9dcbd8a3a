"""The style `ncu`: how near to the machine's peak each operator, kernel and range came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lar.errors import UsageError
from lar.profiles.roofline import host_peak_of
from lar.records.profile import Peak, Profile
from lar.reports.document import ProfileReport, ReportTable
from lar.reports.styles.ncu.metrics import Metric, metrics_of
from lar.reports.styles.ncu.rows import Row, first_rows, rows_of, section_of
from lar.reports.styles.ncu.text import format_size, lines_of

COLUMNS = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
    *("Block Size", "Grid Size", "Device", "CC", "Section Name"),
    *("Metric Name", "Metric Unit", "Metric Value"),
)


def build(profile: Profile, options: Mapping[str, Any]) -> ProfileReport:
    """Make the report.

    Raises:
        UsageError: nothing was timed, or nothing matches the filter.
    """
    pattern, group_by = options.get("filter", ""), options.get("group_by", "operator")
    rows = rows_of(profile, group_by, pattern)
    if not rows and pattern:
        raise UsageError(f"--filter {pattern}: no operator, kernel or range of that name ran")
    if not rows:
        raise UsageError("the profile holds no timed operators", "run with --iter 1 or more")
    peak = host_peak_of(profile)
    rows = sort_rows(rows, options.get("sort", "duration"), peak)
    shown = first_rows(rows, options.get("top", len(rows)))
    unit = options.get("time_unit", "")
    metrics = [metrics_of(row, profile.on_device, peak, unit or "ns") for row in shown]
    return ProfileReport(
        style="ncu",
        text="\n".join(lines_of(profile, rows, peak, options)) + "\n",
        tables=(table_of(shown, metrics),),
        document=document_of(peak, shown, metrics),
    )


def sort_rows(rows: Sequence[Row], key: str, peak: Peak | None) -> list[Row]:
    """Return ranges first, then the greatest first, or the least with a + before the key; what is
    not known comes last."""
    keys: dict[str, Callable[[Row], float | None]] = {
        "duration": lambda row: row.work.total_ns,
        "average": lambda row: row.work.average_ns,
        "calls": lambda row: row.work.calls,
        "flops": lambda row: row.work.flops_per_second,
        "bytes": lambda row: row.work.bytes_per_second,
        "compute": lambda row: row.work.compute_percent(peak),
        "memory": lambda row: row.work.memory_percent(peak),
        "intensity": lambda row: row.work.intensity,
    }
    value = keys[key.lstrip("+-")]
    sign = 1 if key.startswith("+") else -1

    def place(row: Row) -> tuple[bool, bool, float]:
        found = value(row)
        return row.kind != "range", found is None, sign * (found or 0)

    return sorted(rows, key=place)


def table_of(rows: Sequence[Row], metrics: Sequence[Sequence[Metric]]) -> ReportTable:
    """Return ncu's table: a line for each metric of each row; the process is not told."""
    lines = []
    for number, row in enumerate(rows):
        about = (
            *(number, None, None, None, row.name, None, row.stream),
            *(format_size(row.block), format_size(row.grid), row.device, None, section_of(row)),
        )
        lines += [(*about, *metric) for metric in metrics[number]]
    return ReportTable(name="metrics", title="Metrics", columns=COLUMNS, rows=tuple(lines))


def document_of(
    peak: Peak | None, rows: Sequence[Row], metrics: Sequence[Sequence[Metric]]
) -> dict[str, Any]:
    """Return what JSON shows: the peak, and the rows with their metrics by name."""
    return {
        "style": "ncu",
        "peak": peak,
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
