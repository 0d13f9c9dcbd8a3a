"""Stored results as reports: a list, how times changed over the runs, and what a check found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from lar.reports.model import Column, Plot, Table, milliseconds, number, value_at
from lar.reports.report import Report
from lar.reports.verdicts import describe_difference, format_interval
from lar.results.regressions import Check
from lar.results.store import Entry, Kind

SMALLEST = "difference.smallest_detectable"


def report_history(entries: Sequence[Entry], notes: Iterable[str] = ()) -> Report:
    """Return the list of results, with the columns that differ between them."""
    notes = tuple(notes)
    columns = tuple(columns_of(entries))
    table = Table(
        name="history", title="Stored results", columns=columns, rows=tuple(entries), notes=notes
    )
    return Report(style="history", title=table.title, body=(table, *notes), tables=(table,))


def columns_of(entries: Sequence[Entry]) -> Iterator[Column[Entry]]:
    """Yield the columns of a list."""

    def column(title: str, name: str = "", rank: int = 5, *, shown: bool = True) -> Column[Entry]:
        return Column(title, attrgetter(name or title), key=name, rank=rank, in_text=shown)

    driver, device, machine = (
        len({getattr(it, name) for it in entries}) > 1 for name in ("driver", "device", "machine")
    )
    yield number("id", "id", rank=0)
    yield Column(
        "saved", lambda it: it.saved_at, lambda it: it.saved_at[:16].replace("T", " "), rank=4
    )
    yield column("tag", rank=1, shown=any(it.tag for it in entries))
    yield column("model", rank=1)
    yield column("model sha256", "model_sha256", shown=False)
    yield column("engine", rank=3)
    yield column("version", "engine_version")
    yield column("driver", shown=driver)
    yield column("device", rank=3, shown=device)
    yield column("options", rank=2, shown=any(it.options for it in entries))
    yield column("inputs", shown=False)
    yield column("machine", rank=4, shown=machine)
    yield column("status", rank=2, shown=any(it.status != "ok" for it in entries))
    yield number("samples", "samples", rank=6)
    disturbed = any(it.disturbed for it in entries)
    yield number("disturbed", "disturbed", rank=6, in_text=disturbed)
    yield milliseconds("median ms", "median_seconds", "median_seconds", 0)
    trusted = any(it.trusted_seconds != it.median_seconds for it in entries)
    yield milliseconds("trusted ms", "trusted_seconds", "trusted_seconds", 1, in_text=trusted)
    yield column("trust", shown=False)
    yield milliseconds("CPU ms", "cpu_median_seconds", "cpu_median_seconds", in_text=False)
    yield column("started", "started_at", shown=False)


class Series(NamedTuple):
    """The runs of one kind, oldest first, and what distinguishes this kind from others."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def medians(self) -> list[float]:
        """The figure to trust of each run, or its median if it has none."""
        return [entry.trusted_seconds or entry.median_seconds or 0.0 for entry in self.entries]


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Return the runs that have times, by their kind."""
    groups: dict[Kind, list[Entry]] = {}
    for entry in entries:
        if entry.median_seconds and entry.status == "ok":
            groups.setdefault(entry.kind, []).append(entry)
    names = distinguish_kinds(
        {kind: f"{it.model or 'a model'} {it.options}".strip() for kind, (it, *_) in groups.items()}
    )
    return [Series(names[kind], tuple(group)) for kind, group in groups.items()]


def distinguish_kinds(kinds: Mapping[Kind, str]) -> dict[Kind, str]:
    """Return the names of kinds, each with the facts that tell it from the others."""
    names = dict(kinds)
    for field in ("engine", "driver", "device", "machine", "inputs", "model"):
        for name in {name for name in names.values() if [*names.values()].count(name) > 1}:
            alike = [kind for kind, its in names.items() if its == name]
            if len({getattr(kind, field) for kind in alike}) > 1:
                for kind in alike:
                    value = getattr(kind, field)
                    names[kind] = f"{name}, {value[:12] if field == 'model' else value}"
    return names


def report_course(entries: Sequence[Entry]) -> Report:
    """Return how the medians of each kind of run changed; the page has a curve for each."""
    series = series_of(entries)
    columns: tuple[Column[Series], ...] = (
        Column("runs of", lambda it: it.name, rank=0),
        number("count", lambda it: len(it.entries)),
        number("first ms", lambda it: it.medians[0], 3, scale=1e3),
        number("last ms", lambda it: it.medians[-1], 3, scale=1e3),
        number("last/first", lambda it: it.medians[-1] / it.medians[0], 3),
    )
    title = "Medians over the runs"
    table = Table(name="plot", title=title, columns=columns, rows=tuple(series))
    return Report(
        style="plot",
        title=f"lar history: {title}",
        body=(table, *map(curve_of, series)),
        page_of_text=True,
        tables=(table,),
    )


def curve_of(series: Series) -> Plot:
    """Return the curve of the runs of a kind; each point names its run."""
    points = [
        (run, 1e3 * median, f"{entry.id} {entry.tag}".strip())
        for run, (entry, median) in enumerate(
            zip(series.entries, series.medians, strict=True), start=1
        )
    ]
    axes = {"title": "Median of each run", "x": "run", "y": "ms", "folded": None}
    return Plot("curve", series.name, {**axes, "points": points})


def report_check(checks: Sequence[Check], baseline: str, notes: Sequence[str]) -> Report:
    """Return the report of checks for regressions."""
    interval = value_at("difference.interval")
    columns: tuple[Column[Check], ...] = (
        Column("runs of", lambda it: it.name, rank=0),
        number("runs", lambda it: len(it.new)),
        number("baseline", lambda it: len(it.baseline), key="baseline_runs"),
        Column("unit", lambda it: it.unit, rank=4),
        Column("figure", lambda it: it.figure, rank=4),
        number("ratio", "difference.ratio", 3, unknown="", rank=0),
        Column("95 % interval", text=lambda it: format_interval(interval(it)), rank=3),
        Column("smallest detectable", value_at(SMALLEST), key="smallest_detectable", in_text=False),
        Column("verdict", lambda it: it.verdict, describe_check, rank=0),
    )
    title = f"Against {baseline}"
    table = Table(
        name="check", title=title, columns=columns, rows=tuple(checks), notes=tuple(notes)
    )
    return Report(style="check", title=title, body=(table, *notes), tables=(table,))


def describe_check(check: Check) -> str:
    return describe_difference(check.difference, check.reason)
