"""The timed iterations of a profile, and the common parts of Paddle's tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

from lar.profiles.activities import DeviceActivity, device_activities_of
from lar.profiles.breakdown import breakdown_of
from lar.profiles.totals import UNITS_NS, Totals, group_by
from lar.records.profile import Profile, Span
from lar.reports.model import Column, Layout, Rule, Table, sort_rows
from lar.reports.styles.figures import FIGURES, Figure, asked_for, figure_columns

R = TypeVar("R")
Side = Literal["CPU", "GPU"]
DASHES = Rule(right="  ")
LAYOUT = Layout(
    end="  ", over=DASHES, under=DASHES, closing=DASHES, fill="-", note="Note:", empty_lines=2
)
SPACED = replace(LAYOUT, note_lines=1)  # with an empty line after the notes
ADDED = ("saving", "median", "p90", "disturbed")  # columns that Paddle does not have
PARTS = {"Total": "total", "Avg": "mean", "Max": "max", "Min": "min"}


@dataclass(frozen=True)
class TimedRun:
    """A profile, the options of its report, and what several tables need."""

    profile: Profile
    options: Mapping[str, Any]

    @property
    def side(self) -> Side:
        """The side on which operators compute."""
        return "GPU" if self.profile.on_device else "CPU"

    @property
    def unit(self) -> str:
        return str(self.options.get("time_unit", "ms"))

    @cached_property
    def buckets_ns(self) -> Mapping[int, Mapping[str, int]]:
        """The buckets of each step by its number, empty if they show no more than the step."""
        if not self.profile.facts.noise and self.profile.correction is None:
            return {}
        return {step.number: step.buckets_ns for step in breakdown_of(self.profile)}

    def lost_ns(self, bucket: str) -> Mapping[int, int]:
        """Return the time of a bucket in each step: waiting for a CPU, or the cost of profiling."""
        return {step: buckets.get(bucket, 0) for step, buckets in self.buckets_ns.items()}

    @cached_property
    def activities(self) -> Sequence[DeviceActivity]:
        return device_activities_of(self.profile)

    @cached_property
    def kernels(self) -> Sequence[Span]:
        return [it.span for it in self.activities if it.span.category == "kernel"]

    @cached_property
    def by_step(self) -> Mapping[int | None, Sequence[DeviceActivity]]:
        return group_by(self.activities, lambda each: each.span.step)

    def launched_in(self, span: Span, kinds: Sequence[str] = ("kernel", "memcpy", "memset")) -> int:
        """Return how long a device worked on what its step began during a span."""
        own = self.by_step.get(span.step, ())
        work = [it.span for it in own if span.start_ns <= it.starts[-1][1] < span.end_ns]
        return sum(it.duration_ns for it in work if it.category in kinds)


class TimeRow(NamedTuple):
    """A row with the times of calls on the host and on a device, None if unknown.

    Ratios are to `cpu_whole_ns` and `gpu_whole_ns`; if these are None there is no ratio. `level` is
    how deep the row is indented, `thread` is the title above it. `saving_ns` is how much of an
    iteration it would save at its roof.
    """

    name: str
    calls: int | None
    cpu: Totals | None = None
    gpu: Totals | None = None
    cpu_whole_ns: float | None = None
    gpu_whole_ns: float | None = None
    level: int = 0
    flops: int | None = None
    thread: str = ""
    saving_ns: float | None = None

    def cell(self, side: Side) -> Cell:
        if side == "CPU":
            return Cell(self.cpu, self.cpu_whole_ns, self.saving_ns)
        return Cell(self.gpu, self.gpu_whole_ns, self.saving_ns)

    @property
    def indented(self) -> str:
        return "  " * self.level + self.name


class Cell(NamedTuple):
    """The times of a row on one side."""

    times: Totals | None
    whole_ns: float | None
    saving_ns: float | None

    @property
    def ratio(self) -> float | None:
        """The part of the whole in percent, 0 if the whole is 0, None if unknown."""
        if self.times is None or self.whole_ns is None:
            return None
        return 100 * self.times.total_ns / self.whole_ns if self.whole_ns else 0.0


def name_column(width: int = 0, text: Callable[[TimeRow], str] | None = None) -> Column[TimeRow]:
    """Return the column of names; without a width it is as wide as the longest name."""
    fixed = width > 0
    return Column("Name", lambda row: row.name, text, width=width or 4, is_fixed=fixed, rank=0)


def number_column(
    title: str, value: Callable[[R], float | None], form: str = "{:.2f}", **fields: Any
) -> Column[R]:
    """Return a column of numbers; an unknown one is a dash."""

    def text(row: R) -> str:
        return "-" if (number := value(row)) is None else form.format(number)

    return Column(title, value, text, **fields)


def time_column(
    title: str, unit: str, time_ns: Callable[[TimeRow], float | None], **fields: Any
) -> Column[TimeRow]:
    def in_unit(row: TimeRow) -> float | None:
        return None if (ns := time_ns(row)) is None else ns / UNITS_NS[unit]

    return number_column(title, in_unit, unit=unit, **fields)


CALLS: Column[TimeRow] = number_column("Calls", attrgetter("calls"), "{}", width=6, rank=0)
THREAD = Column[TimeRow]("Thread", lambda row: row.thread, in_text=False)


def times_column(run: TimedRun, side: Side) -> Column[TimeRow]:
    """Return the column of times: one cell of five parts, which are columns of records.

    On a narrow screen, the side on which operators compute stays.
    """

    def part(title: str, figure: Figure) -> Column[TimeRow]:
        return time_column(f"{side} {title}", run.unit, lambda row: figure.value(row.cell(side)))

    times = tuple(part(title, FIGURES[figure]) for title, figure in PARTS.items())
    percent: Column[TimeRow] = number_column(f"{side} Ratio (%)", lambda row: row.cell(side).ratio)
    parts = (*times, percent)
    return Column(
        f"{side} Total / Avg / Max / Min / Ratio(%)",
        text=lambda row: " / ".join(part.cell(row) for part in parts),
        parts=parts,
        width=40,
        rank=0 if side == run.side else 6,
    )


def added_columns(run: TimedRun) -> tuple[Column[TimeRow], ...]:
    """Return the columns that Paddle does not have; text has those asked for."""
    asked = asked_for(run.options)

    def added(name: str, figure: Figure) -> Column[TimeRow]:
        def value(row: TimeRow) -> float | None:
            return figure.value(row.cell(run.side))

        title, given = figure.title.title(), {"width": 10, "rank": 1, "in_text": name in asked}
        if figure.is_time:
            return time_column(title, run.unit, value, **given)
        return number_column(title, value, "{}", **given)

    return figure_columns(ADDED, added)


def time_table(
    run: TimedRun,
    name: str,
    title: str,
    rows: Sequence[TimeRow],
    columns: Sequence[Column[TimeRow]],
    *,
    breaks: Mapping[int, str | tuple[str, ...]] | None = None,
    layout: Layout = LAYOUT,
    notes: tuple[str, ...] = (),
) -> list[Table[TimeRow]]:
    """Return the table of some rows, an empty list without rows."""
    table = Table(name=name, title=title, columns=tuple(columns), rows=tuple(rows), notes=notes)
    unit = (f"Time unit: {run.unit}",)
    return [replace(table, layout=layout, above=unit, breaks=breaks or {})] if rows else []


def under_threads(
    run: TimedRun, blocks: Mapping[int | None, Sequence[TimeRow]]
) -> tuple[list[TimeRow], dict[int, str]]:
    """Return the rows of threads, or of all together, and titles by the row that follows."""
    rows: list[TimeRow] = []
    titles = {}
    for thread, own in blocks.items():
        name = run.profile.threads.get(thread or 0)
        title = (
            "All threads merged"
            if thread is None
            else f"{thread} ({name})"
            if name
            else f"{thread}"
        )
        titles.update({len(rows): f"Thread: {title}"} if own else {})
        rows += (row._replace(thread=title) for row in own)
    return rows, titles


SIDES: Mapping[str, Side] = {"cpu": "CPU", "gpu": "GPU"}
METRICS = {title.lower(): figure for title, figure in PARTS.items()}


def first_rows(run: TimedRun, blocks: Sequence[Sequence[TimeRow]]) -> list[TimeRow]:
    """Return the rows of the blocks that --top asks for, sorted by each block's first row.

    The key is one such as `cpu_total`, or a figure of the side where operators compute. The largest
    comes first; for a minimum the smallest does.
    """
    key = run.options.get("sort") or f"{run.side.lower()}_total"
    where, _, metric = key.lstrip("+-").rpartition("_")
    side, figure = SIDES.get(where, run.side), FIGURES[METRICS.get(metric, metric)]
    ordered = sort_rows(
        blocks, key, lambda it: figure.value(it[0].cell(side)), smallest_first=metric == "min"
    )
    return [row for rows in ordered[: run.options.get("top")] for row in rows]
