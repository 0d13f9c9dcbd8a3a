"""The style `ncu`: the part of the machine's peak that operators, kernels and ranges reached.

Nsight Compute reads hardware counters. The style `ncu` reads no counters: it computes the work of
operators from their shapes, and divides this work by the operators' time. The throughput is in
percent of this machine's measured peak. The names of this style's metrics are not the names that
Nsight Compute uses. The names of Nsight Compute's counters are accepted, but have no values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lar.errors import UsageError, count_of
from lar.profiles.activities import Launch, launches_of, put_in_ranges
from lar.profiles.roofline import NEAR_PERCENT, describe_measurement, host_peak_of, ridge_of
from lar.profiles.rows import Row, rows_of
from lar.profiles.times import UNITS_NS, group_by, use_of
from lar.records.profile import THREAD_PARTS, Peak, Profile, ThreadPart, ThreadUse
from lar.reports.model import Align, AnyTable, Cell, Column, Layout, Rule, Table, sort_rows
from lar.reports.report import Report
from lar.reports.text import cut_end, shorten_all

# How many rows are printed by default; CSV and JSON have all rows.
PRINTED_ROWS = 10
LONGEST_NAME = 48
ROOFLINE = Layout(under=Rule(), is_stripped=True)
BLOCK = Layout(
    start="    ",
    gap=" ",
    header_align="left",
    over=Rule(left="    ", middle=" "),
    closing=Rule(left="    ", middle=" "),
)
# Counters that Nsight Compute reads from a device; no engine reports them.
COUNTERS = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__shared_mem_per_block_dynamic": "byte/block",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
}


class Shown(NamedTuple):
    """A row with its number, its operators' use of threads, and the launches of its kernel."""

    row: Row
    peak: Peak | None
    threads: ThreadUse | None
    launches: Sequence[Launch]
    number: int = 0

    def common(self, fact: str) -> Any:
        """Return a fact that is equal for all launches, or None if the launches differ."""
        found = {getattr(launch.span, fact, None) for launch in self.launches}
        return found.pop() if len(found) == 1 else None


class Figure(NamedTuple):
    """A figure of a row: a metric and, if it has a `title`, a column of the roofline.

    If the operators compute on a device, the name of the metric begins with `gpu`. Times are in
    nanoseconds. `is_part` returns whether a row has only a part of the work, so that the figure is
    a lower bound. A metric without a `key` is shown only on request.
    """

    key: str
    metric: str
    unit: str
    value: Callable[[Shown], Any]
    title: str = ""
    rank: int = 5
    is_part: Callable[[Row], bool] = lambda row: False


def has_part_of_flops(row: Row) -> bool:
    return 0 < row.work.flops_share < 1


def has_part_of_bytes(row: Row) -> bool:
    return 0 < row.work.bytes_share < 1


def size_of(extent: tuple[int, int, int] | None) -> int | None:
    return extent and prod(extent)


def thread_share(part: ThreadPart) -> Callable[[Shown], Any]:
    """Return a function that returns the share of `part` in the calling thread's time, if known."""
    return lambda it: it.threads and it.threads.share_of(part)


def scaled(figure: Figure, by: float, unit: str) -> Figure:
    """Return a figure with the unit `unit`, whose values are those of `figure` divided by `by`."""

    def value(it: Shown) -> float | None:
        known: float | None = figure.value(it)
        return None if known is None else known / by

    return figure._replace(value=value, unit=unit)


# fmt: off
FIGURES = (
    Figure("time", "cpu__time_duration.per_iteration", "ns", lambda it: it.row.iteration_ns),
    Figure("calls", "cpu__launch_count", "", lambda it: it.row.times.calls, "Calls", 0),
    Figure("disturbed", "cpu__launch_count.disturbed", "", lambda it: it.row.times.disturbed,
           "Disturbed", 3),
    Figure("median", "cpu__time_duration.median", "ns", lambda it: it.row.times.median_ns,
           "Duration", 0),
    Figure("p90", "cpu__time_duration.p90", "ns", lambda it: it.row.times.p90_ns, "p90", 2),
    Figure("mean", "cpu__time_duration.avg", "ns", lambda it: it.row.times.average_ns),
    Figure("min", "cpu__time_duration.min", "ns", lambda it: it.row.times.min_ns),
    Figure("max", "cpu__time_duration.max", "ns", lambda it: it.row.times.max_ns),
    Figure("total", "cpu__time_duration.sum", "ns", lambda it: it.row.times.total_ns, "Total", 4),
    Figure("share", "cpu__time_duration.pct_of_all", "%", lambda it: 100 * it.row.share, "Time%",
           2),
    scaled(Figure("flops", "cpu__flops.sum.per_second", "", lambda it: it.row.work.flops_per_second,
                  "GFLOP/s", 7, has_part_of_flops), 1e9, "Gflop/s"),
    Figure("compute", "cpu__compute_throughput.pct_of_measured_peak", "%",
           lambda it: it.row.work.compute_percent(it.peak), "Compute%", 3, has_part_of_flops),
    scaled(Figure("bytes", "cpu__bytes.sum.per_second", "", lambda it: it.row.work.bytes_per_second,
                  "GB/s", 7, has_part_of_bytes), 1e9, "Gbyte/s"),
    Figure("memory", "cpu__memory_throughput.pct_of_measured_peak", "%",
           lambda it: it.row.work.memory_percent(it.peak), "Memory%", 3, has_part_of_bytes),
    Figure("intensity", "cpu__arithmetic_intensity", "flop/byte", lambda it: it.row.work.intensity,
           "FLOP/byte", 8, has_part_of_flops),
    Figure("bound", "cpu__roofline_bound", "", lambda it: it.row.describe_bounds() or None,
           "Bound", 3),
    Figure("saving", "cpu__roofline_saving.per_iteration", "ns", lambda it: it.row.saving_ns,
           "Could save", 1),
    *(scaled(Figure(part, f"cpu__thread_{part}.pct_of_calling_thread", "", thread_share(part)),
             0.01, "%") for part in THREAD_PARTS),
    Figure("tasks", "cpu__thread_tasks.of_other_threads", "",
           lambda it: it.threads and " ".join(map(str, it.threads.tasks))),
    Figure("", "launch__grid_size", "", lambda it: size_of(it.common("grid"))),
    Figure("", "launch__block_size", "", lambda it: size_of(it.common("block"))),
    *(Figure("", name, unit, lambda it: None) for name, unit in COUNTERS.items()),
)
# fmt: on


class Line(NamedTuple):
    """One metric of a row, as a line of ncu's table."""

    shown: Shown
    figure: Figure

    @property
    def value(self) -> Cell:
        value: Cell = self.figure.value(self.shown)
        return value


METRIC_COLUMNS: tuple[Column[Line], ...] = (
    Column("Metric Name", lambda it: it.figure.metric, rank=0),
    Column("Metric Unit", lambda it: it.figure.unit, align="right", rank=1),
    Column(
        *("Metric Value", lambda it: it.value, lambda it: format_value(it.value)),
        align="right",
        rank=0,
    ),
)
# The columns about processes are empty, since a profile does not record them.
COLUMNS: tuple[Column[Line], ...] = (
    Column("ID", lambda it: it.shown.number),
    Column("Process ID"),
    Column("Process Name"),
    Column("Host Name"),
    Column("Kernel Name", lambda it: it.shown.row.name),
    Column("Context"),
    Column("Stream", lambda it: it.shown.common("stream")),
    Column("Block Size", lambda it: format_size(it.shown.common("block"))),
    Column("Grid Size", lambda it: format_size(it.shown.common("grid"))),
    Column("Device", lambda it: it.shown.common("device")),
    Column("CC"),
    Column("Section Name", lambda it: "Command line profiler metrics"),
    *METRIC_COLUMNS,
)


def build(profile: Profile, options: Mapping[str, Any]) -> Report:
    """Return the report with the roofline's table or, for --metrics, with blocks of metrics.

    Raises:
        UsageError: nothing was timed, nothing matches the filter, or a metric is unknown.
    """
    unit, side = options.get("time_unit", "us"), "gpu" if profile.on_device else "cpu"
    named = [it._replace(metric=it.metric.replace("cpu", side)) for it in FIGURES]
    figures = [scaled(it, UNITS_NS[unit], unit) if it.unit == "ns" else it for it in named]
    key = options.get("sort", "time")
    value_of = next(it.value for it in figures if it.key == key.lstrip("+-"))
    rows = sort_rows(shown_rows(profile, chosen_rows(profile, options)), key, value_of)
    rows = [it._replace(number=n) for n, it in enumerate(rows[: options.get("top")])]
    printed = rows[: options.get("top", PRINTED_ROWS)]
    views = options.get("view", ["metrics" if "metrics" in options else "roofline"])
    body: list[str | AnyTable] = [describe_peak(profile)]
    tables: list[AnyTable] = []
    if "roofline" in views:
        body += ["", roofline_of(printed, figures), *describe_figures(printed)]
        tables.append(roofline_of(rows, figures))
    if "metrics" in views:
        metrics = chosen_metrics(figures, options.get("metrics", ()))
        for it in printed:
            body += ["", *describe_launch(it), metrics_of([it], metrics, METRIC_COLUMNS)]
        tables.append(metrics_of(rows, metrics, COLUMNS))
    if len(printed) < len(rows):
        body += ["", f"{len(printed)} of {len(rows)} rows; --top 0 shows all"]
    return Report(style="ncu", body=tuple(body), tables=tuple(tables))


def chosen_rows(profile: Profile, options: Mapping[str, Any]) -> list[Row]:
    """Return the rows that --group-by and --filter choose.

    --filter keeps a launch if the pattern matches the operator's name or type, the kernel or a
    range. Ranges are matched as by ncu's --nvtx-include.

    Raises:
        UsageError: no launch matches the pattern, or the profile has no launches.
    """
    pattern, key = options.get("filter", ""), options.get("group_by", "operator")
    matches = re.compile(pattern).search
    whole = put_in_ranges(profile, launches_of(profile))
    launches = [
        it
        for it in whole
        if any(map(matches, (it.operator.name, it.operator.type, it.kernel, *it.ranges)))
    ]
    if not launches and pattern:
        problem = "no operator, kernel or range of that name ran"
        raise UsageError(problem, flag=f"--filter {pattern}")
    if not launches:
        raise UsageError("the profile holds no timed operators", "run with --iter 1 or more")
    by_kernel = "group_by" not in options and launches[0].span
    return rows_of(profile, "kernel" if by_kernel else key, launches if pattern else None, whole)


def shown_rows(profile: Profile, rows: Iterable[Row]) -> Iterator[Shown]:
    """Yield the rows with the data for their metrics."""
    launches = launches_of(profile) if profile.on_device else ()
    kernels, peak = group_by(launches, lambda launch: launch.kernel), host_peak_of(profile)
    for row in rows:
        threads = use_of(profile.operators[place] for place in row.operators)
        yield Shown(row, peak, threads, kernels.get(row.name, ()) if row.kernel == row.name else ())


def chosen_metrics(figures: Sequence[Figure], names: Sequence[str]) -> list[Figure]:
    """Return the metrics with these `names`, in this order; by default, all metrics with a `key`.

    Raises:
        UsageError: no metric has one of the names.
    """
    known = {figure.metric: figure for figure in figures}
    for name in names:
        if name not in known:
            from lar.options.suggestions import nearest_spelling

            near = nearest_spelling(name, [*known])
            hint = f"{near and f'did you mean {near}? '}--view metrics prints all"
            raise UsageError(f"there is no metric {name}", hint, flag="--metrics")
    return [known[name] for name in names] or [figure for figure in figures if figure.key]


def describe_peak(profile: Profile) -> str:
    """Return the line about the measured peak, on which percentages are based."""
    peak = host_peak_of(profile)
    if peak is None:
        where = profile.facts.device if profile.on_device else "this machine"
        return f"Peak of {where}: not measured, so that there are no percentages of it"
    measured = describe_measurement(peak)
    return (
        f"Peak measured with {count_of(peak.threads, 'thread')}: "
        f"{peak.flops_per_second / 1e9:.1f} GFLOP/s, {peak.bytes_per_second / 1e9:.1f} GB/s; "
        f"memory binds below {ridge_of(peak):.2f} FLOP/byte"
        f"{measured and f' ({measured})'}"
    )


def describe_figures(rows: Sequence[Shown]) -> Iterator[str]:
    """Yield notes on how to read the figures."""
    if any(has_part_of_flops(it.row) or has_part_of_bytes(it.row) for it in rows):
        yield ">= leaves out operators whose FLOPs or bytes are not known."
    if any(it.row.saving_ns for it in rows):
        yield "Could save: how much shorter an iteration would be with this at its roof."
    if any(it.row.bound for it in rows):
        yield f"Bound: the roof of which {NEAR_PERCENT:.0f}% is reached, or far from both."


def roofline_of(rows: Sequence[Shown], figures: Iterable[Figure]) -> Table[Shown]:
    """Return the table of the roofline.

    A column without any known value is left out when the table is printed as text.
    """

    def column(it: Figure) -> Column[Shown]:
        def text(shown: Shown) -> str:
            value: Cell = it.value(shown)
            mark = ">=" if value is not None and it.is_part(shown.row) else ""
            return "n/a" if value is None else mark + format_value(value)

        title = f"{it.title} ({it.unit})" if it.unit in UNITS_NS else it.title
        align: Align = "left" if it.key == "bound" else "right"
        is_known = any(map(it.value, rows))
        return Column(title, it.value, text, align=align, rank=it.rank, in_text=is_known)

    names = shorten_all((it.row.name for it in rows), LONGEST_NAME, cut_end)
    return Table(
        name="roofline",
        title="Roofline",
        layout=ROOFLINE,
        columns=(
            Column("ID", lambda it: it.number, align="right", rank=0),
            Column(
                *("Name", lambda it: it.row.name, lambda it: names[it.number]),
                rank=0,
            ),
            Column("Of", lambda it: it.row.type),
            *(column(it) for it in figures if it.title),
        ),
        rows=tuple(rows),
    )


def describe_launch(it: Shown) -> list[str]:
    """Return the lines above a row's block of metrics: the launch, and the section."""
    grid, block = it.common("grid"), it.common("block")
    launch = f" {format_size(grid)}x{format_size(block)}" if grid and block else ""
    stream, device = it.common("stream"), it.common("device")
    places = (("Stream", stream), ("Device", device))
    about = [it.row.name + launch, *(f"{what} {it}" for what, it in places if it is not None)]
    return [f"  {', '.join(about)}", "    Section: Command line profiler metrics"]


def metrics_of(
    rows: Iterable[Shown], metrics: Sequence[Figure], columns: tuple[Column[Line], ...]
) -> Table[Line]:
    """Return a table with a line for each metric of each row, in the layout of ncu."""
    lines = tuple(Line(it, metric) for it in rows for metric in metrics)
    return Table(name="metrics", title="Metrics", columns=columns, rows=lines, layout=BLOCK)


def format_value(value: Cell) -> str:
    """Return the text of a metric's value."""
    if isinstance(value, str):
        return value
    return "(!) n/a" if value is None else format_number(value)


def format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def format_size(size: tuple[int, int, int] | None) -> str | None:
    return None if size is None else f"({size[0]}, {size[1]}, {size[2]})"
