"""The report of Paddle's timer on the iterations: the cost of reading and of all, and the rate."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

from lar.reports.model import AnyTable, Column, Layout, Table
from lar.reports.styles.paddle.layout import Section
from lar.reports.styles.paddle.run import Settings, TimedRun

TITLE = "Perf Summary"
BARS = Layout(start="| ", gap=" | ", end=" |")
# A line across the page.
HEADING = Table[None](
    name="heading",
    title=TITLE,
    columns=(Column("", width=100, is_fixed=True),),
    layout=Layout(fill="=", has_header=False),
)


class StepCost(NamedTuple):
    """The cost of one step in seconds; None if no step reports its reading time."""

    number: int
    reader_seconds: float | None
    batch_seconds: float


class Spread(NamedTuple):
    average: float | None
    largest: float | None
    smallest: float | None


Row = tuple[str, str, Spread]


def cost_column(title: str, place: int) -> Column[Row]:
    def text(row: Row) -> str:
        return "-" if (value := row[2][place]) is None else f"{value:.5f}"

    return Column(title, lambda row: row[2][place], text, align="centre", width=15, is_fixed=True)


PERF_COLUMNS: tuple[Column[Row], ...] = (
    Column("", itemgetter(0), key="Name", align="centre", width=15, is_fixed=True),
    Column("Unit", itemgetter(1), in_text=False),
    *(cost_column(title, place) for place, title in enumerate(("avg", "max", "min"))),
)


def costs_of(run: TimedRun) -> list[StepCost]:
    """Return what the timed steps have cost, with the reading of their input."""
    reading: dict[int, list[tuple[int, int]]] = {}
    for span in run.profile.spans_of("phase"):
        if span.name == "dataloader" and span.step is not None:
            reading.setdefault(span.step, []).append(span.interval)
    costs = []
    for step in run.steps:
        reads = reading.get(step.number, [])
        before = sum(b - a for a, b in reads if b <= step.start_ns)
        # A step that uses what was read before has read nothing: it counts in the average.
        reader = sum(b - a for a, b in reads) / 1e9 if reading else None
        costs.append(StepCost(step.number, reader, (step.duration_ns + before) / 1e9))
    return costs


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(fmean(values), max(values), min(values)) if values else Spread(None, None, None)


def perf_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the costs and the rate, which is of samples where the size of the batch is known.

    The average rate is the rate at the average cost, not the average of the rates. Copies that ran
    at once count together.
    """
    costs = costs_of(run)
    reader = spread_of([cost.reader_seconds for cost in costs if cost.reader_seconds is not None])
    batch = spread_of([cost.batch_seconds for cost in costs])
    samples = len(run.copies) * (run.profile.facts.batch or 1)
    rates = Spread(
        *(
            samples / each if each else None
            for each in (batch.average, batch.smallest, batch.largest)
        )
    )
    kind = "samples" if run.profile.facts.batch else "steps"
    body: list[str | AnyTable] = [HEADING]
    if reader.average is not None and batch.average:
        body.append(f"Reader Ratio: {100 * reader.average / batch.average:.3f}%")
    body.append(f"Time Unit: s, IPS Unit: {kind}/s")
    table = Table(
        name="perf",
        title=TITLE,
        columns=PERF_COLUMNS,
        rows=(
            ("reader_cost", "s", reader),
            ("batch_cost", "s", batch),
            ("ips", f"{kind}/s", rates),
        ),
        layout=BARS,
    )
    return [Section(table, (*body, table))]


def log_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return a line for each step, as Paddle's detection models log them."""
    costs = costs_of(run)
    batch, kind = run.profile.facts.batch or 1, "images" if run.profile.facts.batch else "steps"
    width = max(5, len(str(len(costs))))
    rows = []
    lines = []
    for index, cost in enumerate(costs[: settings.top]):
        ips = batch / cost.batch_seconds if cost.batch_seconds else None
        rows.append((cost, ips))
        read, rate = (
            "-" if value is None else f"{value:.4f}" for value in (cost.reader_seconds, ips)
        )
        lines.append(
            f"iter: [{index:>{width}}/{len(costs)}] batch_cost: {cost.batch_seconds:.4f} "
            f"data_cost: {read} ips: {rate} {kind}/s"
        )
    table = Table(
        name="log",
        title="Log",
        columns=(
            Column("Step", lambda row: row[0].number),
            Column("data_cost", lambda row: row[0].reader_seconds, unit="s"),
            Column("batch_cost", lambda row: row[0].batch_seconds, unit="s"),
            Column("ips", itemgetter(1), unit=f"{kind}/s"),
        ),
        rows=tuple(rows),
    )
    return [Section(table, tuple(lines))]
