"""The metrics of the style `ncu`.

Nsight Compute reads hardware counters. Here the throughput is the work of the operators, as their
shapes have it, in the time that they took, and its percentage is that of the measured peak of this
machine: metrics made so have names of their own. What an operator would save at its roof is of one
iteration. Those of Nsight Compute are there where there is a device, with the figures that the
device reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from lar.profiles.totals import UNITS_NS
from lar.records.profile import Peak
from lar.reports.model import Cell, Column
from lar.reports.styles.ncu.rows import Row

DEVICE_METRICS = (
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
)
LAUNCH_METRICS = (
    ("launch__registers_per_thread", "register/thread"),
    ("launch__shared_mem_per_block_static", "byte/block"),
    ("launch__shared_mem_per_block_dynamic", "byte/block"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
)


class Metric(NamedTuple):
    name: str
    unit: str
    value: Cell


METRIC_COLUMNS = (
    Column[Metric]("Metric Name", lambda it: it.name, rank=0),
    Column[Metric]("Metric Unit", lambda it: it.unit, align="right", rank=1),
    Column[Metric](
        "Metric Value", lambda it: it.value, lambda it: format_value(it), align="right", rank=0
    ),
)


def metrics_of(row: Row, on_device: bool, peak: Peak | None, unit: str) -> list[Metric]:
    """Return the metrics of a row; times are in `unit` or, if it is empty, in a unit that suits
    each."""
    work, side = row.work, "gpu" if on_device else "cpu"
    duration, unit = scale_time(work.average_ns, unit)
    metrics = [Metric(f"{side}__time_duration.sum", unit, duration)]
    if on_device:
        metrics += [Metric(name, unit, None) for name, unit in DEVICE_METRICS]
        if row.kind == "kernel":
            metrics.append(Metric("launch__grid_size", "", row.grid and prod(row.grid)))
            metrics.append(Metric("launch__block_size", "", row.block and prod(row.block)))
            metrics += [Metric(name, unit, None) for name, unit in LAUNCH_METRICS]
    else:
        compute, memory = work.compute_percent(peak), work.memory_percent(peak)
        metrics.append(Metric("cpu__compute_throughput.pct_of_measured_peak", "%", compute))
        metrics.append(Metric("cpu__memory_throughput.pct_of_measured_peak", "%", memory))
    saving = row.saving_ns(peak)
    flops, size = giga(work.flops_per_second), giga(work.bytes_per_second)
    if row.kind != "range":
        typical = in_unit(work.typical_call_ns, unit)
        metrics.append(Metric(f"{side}__time_duration.median", unit, typical))
        metrics += [
            Metric(f"{side}__time_duration.{name}", unit, in_unit(time, unit))
            for name, time in (
                ("p90", row.times.p90_ns),
                ("min", row.times.min_ns),
                ("max", row.times.max_ns),
                ("total", row.times.total_ns),
            )
        ]
    metrics += [
        Metric(f"{side}__flops.sum.per_second", "Gflop/s", flops),
        Metric(f"{side}__bytes.sum.per_second", "Gbyte/s", size),
        Metric(f"{side}__arithmetic_intensity", "flop/byte", work.intensity),
        Metric(f"{side}__roofline_bound", "", work.bound(peak)),
        Metric(f"{side}__roofline_saving.per_iteration", unit, in_unit(saving, unit)),
        Metric(f"{side}__launch_count", "", work.calls),
    ]
    if row.disturbed is not None:
        metrics.append(Metric(f"{side}__launch_count.disturbed", "", row.disturbed))
    metrics += thread_metrics(row)
    for what, share in (("flops", work.flops_share), ("bytes", work.bytes_share)):
        if 0 < share < 1:
            metrics.append(Metric(f"{side}__{what}_known.pct_of_duration", "%", 100 * share))
    return metrics


def thread_metrics(row: Row) -> Iterator[Metric]:
    """Yield how the engine's threads shared the work, where it says so."""
    use = row.threads
    if use is None:
        return
    waiting = None if use.waiting_share is None else 100 * use.waiting_share
    shares = sum(use.tasks) / use.executions if use.executions else None
    yield Metric("cpu__thread_waiting.pct_of_calling_thread", "%", waiting)
    yield Metric("cpu__thread_shares.avg.per_call", "", shares)


def in_unit(nanoseconds: float | None, unit: str) -> float | None:
    return None if nanoseconds is None else nanoseconds / UNITS_NS[unit]


def giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def scale_time(nanoseconds: float, unit: str) -> tuple[float, str]:
    """Return a time in a unit or, if that is empty, in the largest unit in which it is at least
    1."""
    fitting = [each for each, size in UNITS_NS.items() if nanoseconds >= size]
    unit = unit or (fitting or ["ns"])[-1]
    return nanoseconds / UNITS_NS[unit], unit


def format_value(metric: Metric) -> str:
    """Return the text of a metric's value."""
    if isinstance(metric.value, str):
        return metric.value
    return "(!) n/a" if metric.value is None else format_number(metric.value)


def format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def format_size(size: tuple[int, int, int] | None) -> str | None:
    return None if size is None else f"({size[0]}, {size[1]}, {size[2]})"
