"""The report of Paddle's timer on the iterations: the cost of reading and of all, and the rate."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from lar.profiles.copies import split_copies
from lar.profiles.totals import group_by
from lar.reports.model import AnyTable, Column, Layout, Table
from lar.reports.styles.paddle.layout import TimedRun
from lar.reports.styles.paddle.overview import steps_ns

# A line across the page.
HEADING = Table[None](
    name="heading",
    title="Perf Summary",
    columns=(Column("", width=100, is_fixed=True),),
    layout=Layout(fill="=", has_header=False),
)


class StepCost(NamedTuple):
    """The cost of one step in seconds, that of its reading, and its rate.

    The cost of reading is None if no step reports it.
    """

    step: int
    data_cost: float | None
    batch_cost: float
    ips: float | None


def costs_of(run: TimedRun) -> list[StepCost]:
    """Return the costs of the timed steps, with the reading of input, without profiling."""
    spans = [span for span in run.profile.spans_of("phase") if span.name == "dataloader"]
    reading, batch = group_by(spans, lambda span: span.step), run.profile.facts.batch or 1
    costs = []
    for step, step_ns in zip(run.profile.timed_steps(), steps_ns(run), strict=True):
        own = reading.get(step.number, [])
        before = sum(span.duration_ns for span in own if span.end_ns <= step.start_ns)
        # A step that uses data that was read before has read nothing, which counts in the average.
        read = sum(span.duration_ns for span in own) / 1e9 if reading else None
        cost = (step_ns + before) / 1e9
        costs.append(StepCost(step.number, read, cost, batch / cost if cost else None))
    return costs


# A name, its unit, and its average, maximum and minimum.
Row = tuple[str, str, Sequence[float | None]]


def spread_of(values: Sequence[float]) -> Sequence[float | None]:
    return (fmean(values), max(values), min(values)) if values else (None, None, None)


def cost_column(title: str, place: int) -> Column[Row]:
    def text(row: Row) -> str:
        return "-" if (value := row[2][place]) is None else f"{value:.5f}"

    return Column(title, lambda row: row[2][place], text, align="centre", width=15, is_fixed=True)


def perf_section(run: TimedRun) -> list[AnyTable | str]:
    """Return the costs and the rate, in samples if the size of the batch is known.

    The average rate is the rate at the average cost, not the average of the rates. Copies that ran
    at once count together.
    """
    costs = costs_of(run)
    reader = spread_of([each.data_cost for each in costs if each.data_cost is not None])
    average, largest, smallest = batch = spread_of([each.batch_cost for each in costs])
    samples = len(split_copies(run.profile)) * (run.profile.facts.batch or 1)
    rates = [samples / each if each else None for each in (average, smallest, largest)]
    unit = f"{'samples' if run.profile.facts.batch else 'steps'}/s"
    ratio = []
    if reader[0] is not None and average:
        ratio.append(f"Reader Ratio: {100 * reader[0] / average:.3f}%")
    table = Table[Row](
        name="perf",
        title=HEADING.title,
        columns=(
            Column("", itemgetter(0), key="Name", align="centre", width=15, is_fixed=True),
            Column("Unit", itemgetter(1), in_text=False),
            *(cost_column(title, place) for place, title in enumerate(("avg", "max", "min"))),
        ),
        rows=(("reader_cost", "s", reader), ("batch_cost", "s", batch), ("ips", unit, rates)),
        layout=Layout(start="| ", gap=" | ", end=" |"),
    )
    return [HEADING, *ratio, f"Time Unit: s, IPS Unit: {unit}", table]


def log_section(run: TimedRun) -> list[Table[StepCost]]:
    """Return a line for each step, as Paddle's detection models log them."""
    costs, unit = costs_of(run), f"{'images' if run.profile.facts.batch else 'steps'}/s"
    width = max(5, len(str(len(costs))))

    def line(row: StepCost) -> str:
        read, rate = ("-" if each is None else f"{each:.4f}" for each in (row.data_cost, row.ips))
        return (
            f"iter: [{row.step:>{width}}/{len(costs)}] batch_cost: {row.batch_cost:.4f} "
            f"data_cost: {read} ips: {rate} {unit}"
        )

    records: list[Column[Any]] = [
        Column(name, attrgetter(name), in_text=False) for name in StepCost._fields
    ]
    columns = (Column[StepCost]("", text=line), *records)
    rows, layout = costs[: run.options.get("top")], Layout(has_header=False, is_stripped=True)
    return [Table(name="log", title="Log", columns=columns, rows=tuple(rows), layout=layout)]
