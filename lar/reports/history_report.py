"""Stored results as reports: a list, how times went over the runs, and what a check found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lar.reports.model import Cell, Column, Table, table_of_values
from lar.reports.pages import Section, format_page
from lar.reports.pages.tables import page_table
from lar.reports.report import Report
from lar.reports.results_report import format_figure, format_ms
from lar.reports.verdicts import describe_difference, format_interval, format_ratio
from lar.results.regressions import Check
from lar.results.store import Entry, Kind

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-=+*#@"  # where the output cannot hold those
MOST_BARS = 40

PLOT_SCRIPT = """
for (const { section, curve, table } of figures.series)
  drawSection(section, () => [drawCurve(curve), makeTable(table, "runs")]);
finishPage();
"""


def list_report(entries: Sequence[Entry], notes: Iterable[str] = ()) -> Report:
    """Return the list of results, with the columns in which they are not all alike."""
    notes = tuple(notes)
    columns = tuple(columns_of(entries))
    table = Table(
        name="history", title="Stored results", columns=columns, rows=tuple(entries), notes=notes
    )
    return Report(style="history", title=table.title, body=(table, *notes), tables=(table,))


def columns_of(entries: Sequence[Entry]) -> list[Column[Entry]]:
    """Return the columns of a list."""

    def differ(name: str) -> bool:
        return len({getattr(entry, name) for entry in entries}) > 1

    return [
        Column("id", lambda it: it.id, align="right", rank=0),
        Column("saved", lambda it: it.saved_at, lambda it: day_of(it.saved_at), rank=4),
        Column("tag", lambda it: it.tag, in_text=any(it.tag for it in entries), rank=1),
        Column("model", lambda it: it.model, rank=1),
        Column("model sha256", lambda it: it.model_sha256, key="model_sha256", in_text=False),
        Column("engine", lambda it: it.engine, rank=3),
        Column("version", lambda it: it.engine_version, key="engine_version", rank=5),
        Column("driver", lambda it: it.driver, in_text=differ("driver")),
        Column("device", lambda it: it.device, in_text=differ("device"), rank=3),
        Column("options", lambda it: it.options, in_text=any(it.options for it in entries), rank=2),
        Column("inputs", lambda it: it.inputs, in_text=False),
        Column("machine", lambda it: it.machine, in_text=differ("machine"), rank=4),
        Column(
            "status", lambda it: it.status, in_text=any(it.status != "ok" for it in entries), rank=2
        ),
        Column("samples", lambda it: it.samples, align="right", rank=6),
        Column(
            "disturbed",
            lambda it: it.disturbed,
            align="right",
            in_text=any(it.disturbed for it in entries),
            rank=6,
        ),
        Column(
            "median ms",
            lambda it: it.median_seconds,
            lambda it: format_ms(it.median_seconds),
            key="median_seconds",
            align="right",
            rank=0,
        ),
        Column(
            "trusted ms",
            lambda it: it.trusted_seconds,
            lambda it: format_ms(it.trusted_seconds),
            key="trusted_seconds",
            align="right",
            in_text=any(it.trusted_seconds != it.median_seconds for it in entries),
            rank=1,
        ),
        Column("trust", lambda it: it.trust, in_text=False),
        Column("CPU", lambda it: it.cpu_median_seconds, key="cpu_median_seconds", in_text=False),
        Column("started", lambda it: it.started_at, key="started_at", in_text=False),
    ]


def day_of(time: str) -> str:
    """Return a time in UTC to the minute."""
    return time[:16].replace("T", " ")


class Series(NamedTuple):
    """The runs of one kind, oldest first, and what distinguishes it from the others."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def medians(self) -> list[float]:
        """The figure to trust of each run, or its median where there is none."""
        return [entry.trusted_seconds or entry.median_seconds or 0.0 for entry in self.entries]


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Return the runs that have times, by their kind."""
    groups: dict[Kind, list[Entry]] = {}
    for entry in entries:
        if entry.median_seconds and entry.status == "ok":
            groups.setdefault(entry.kind, []).append(entry)
    kinds = {kind: name_of_kind(group[0]) for kind, group in groups.items()}
    names = distinguish_kinds(kinds)
    return [Series(names[kind], tuple(group)) for kind, group in groups.items()]


def name_of_kind(entry: Entry) -> str:
    """Return the model and the options of runs."""
    return f"{entry.model or 'a model'} {entry.options}".strip()


def distinguish_kinds(kinds: Mapping[Kind, str]) -> dict[Kind, str]:
    """Return the names of kinds with as much of the rest as tells them apart."""
    names = dict(kinds)
    for field in ("engine", "driver", "device", "machine", "inputs", "model"):
        for name in {name for name in names.values() if [*names.values()].count(name) > 1}:
            alike = [kind for kind, its in names.items() if its == name]
            if len({getattr(kind, field) for kind in alike}) > 1:
                for kind in alike:
                    value = getattr(kind, field)
                    names[kind] = f"{name}, {value[:12] if field == 'model' else value}"
    return names


def plot_report(entries: Sequence[Entry], *, has_bars: bool = True) -> Report:
    """Return how the medians of each kind of run went, as small bars and as a page of curves."""
    series = series_of(entries)
    bars = BARS if has_bars else PLAIN_BARS
    table = Table(
        name="plot",
        title="Medians over the runs",
        columns=(
            Column[Series]("runs of", lambda it: it.name, rank=0),
            Column("count", lambda it: len(it.entries), align="right"),
            Column(
                "medians", text=lambda it: draw_bars(it.medians, bars), in_records=False, rank=1
            ),
            Column(
                "least ms",
                lambda it: min(it.medians),
                lambda it: format_ms(min(it.medians)),
                align="right",
            ),
            Column(
                "first ms",
                lambda it: it.medians[0],
                lambda it: format_ms(it.medians[0]),
                align="right",
            ),
            Column(
                "last ms",
                lambda it: it.medians[-1],
                lambda it: format_ms(it.medians[-1]),
                align="right",
            ),
            Column(
                "last/first", ratio_of, lambda it: format_figure(ratio_of(it), 3), align="right"
            ),
        ),
        rows=tuple(series),
    )
    return Report(
        style="plot", title=table.title, body=(table,), tables=(table,), page=page_of(series)
    )


def ratio_of(series: Series) -> float:
    return series.medians[-1] / series.medians[0]


def draw_bars(values: Sequence[float], bars: str = BARS) -> str:
    """Return a bar for each of the last values, the lowest for the least of them."""
    values = values[-MOST_BARS:]
    least, most = min(values), max(values)
    step = (most - least) / (len(bars) - 1) or 1.0
    return "".join(bars[round((value - least) / step)] for value in values)


RUN_HEADINGS = (
    "run",
    "id",
    "saved",
    "tag",
    "version",
    "samples",
    "median (ms)",
    "disturbed",
    "trust",
)


def page_of(series: Sequence[Series]) -> str:
    """Return a page with a curve and a table for each kind of run."""
    sections = [Section(f"series{number}", each.name) for number, each in enumerate(series)]
    figures = [
        {
            "section": section.name,
            "curve": {
                "title": "Median of each run",
                "x": "run",
                "y": "ms",
                "points": [(n, 1e3 * value) for n, value in enumerate(each.medians, start=1)],
            },
            "table": runs_table(each),
        }
        for section, each in zip(sections, series, strict=True)
    ]
    title = "History of runs"
    return format_page(f"lar history: {title}", title, sections, {"series": figures}, [PLOT_SCRIPT])


def runs_table(series: Series) -> dict[str, object]:
    """Return the runs of a series as the page's script reads a table."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(number, entry.id, day_of(entry.saved_at), entry.tag, entry.engine_version),
            *(entry.samples, 1e3 * median, entry.disturbed, entry.trust),
        )
        for number, (entry, median) in enumerate(
            zip(series.entries, series.medians, strict=True), start=1
        )
    ]
    table = table_of_values("runs", "Runs", RUN_HEADINGS, rows)
    texts = {"saved", "tag", "version", "trust"}
    columns = [
        Column[Sequence[Cell]](
            column.title,
            column.value,
            digits=None if column.title in texts else 3 if "ms" in column.title else 0,
        )
        for column in table.columns
    ]
    return page_table("runs", columns, rows, is_rounded=False, order="run").figures()


def check_report(checks: Sequence[Check], baseline: str, notes: Sequence[str]) -> Report:
    """Return what checks for regressions have found."""
    table = Table(
        name="check",
        title=f"Against {baseline}",
        columns=(
            Column[Check]("runs of", lambda it: it.name, rank=0),
            Column("runs", lambda it: len(it.new), align="right", key="runs"),
            Column("baseline", lambda it: len(it.baseline), align="right", key="baseline_runs"),
            Column("unit", lambda it: it.unit, rank=4),
            Column("figure", lambda it: it.figure, rank=4),
            Column(
                "ratio",
                lambda it: it.difference.ratio if it.difference else None,
                lambda it: format_ratio(it.difference),
                rank=0,
            ),
            Column("95 % interval", text=interval_of_check, in_records=False, rank=3),
            Column(
                "smallest detectable",
                lambda it: it.difference.smallest_detectable if it.difference else None,
                key="smallest_detectable",
                in_text=False,
            ),
            Column("verdict", lambda it: it.verdict, describe_check, rank=0),
        ),
        rows=tuple(checks),
        notes=tuple(notes),
    )
    return Report(style="check", title=table.title, body=(table, *notes), tables=(table,))


def interval_of_check(check: Check) -> str:
    return format_interval(check.difference.interval if check.difference else None)


def describe_check(check: Check) -> str:
    return describe_difference(check.difference, check.reason)
