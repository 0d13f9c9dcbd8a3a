"""The reports of stored results: side by side, a list, changes over time, and checks.

The table of results side by side has columns for times, ratios and verdicts, and for those facts
that vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from lar.errors import join_first
from lar.measurement.statistics import median_of_known
from lar.reports.model import Column, Plot, Table, milliseconds, number, value_at
from lar.reports.report import Report, describe_difference, format_interval
from lar.results import describe_kind_of_options, describe_options, is_option
from lar.results.side_by_side import DISTURBED, Check, Row, SideBySide, is_apart
from lar.results.store import Entry, Kind

TITLE = "Results side by side"
OF_ENGINE = ("engine", "version", "driver", "device")


def report_results(side_by_side: SideBySide) -> Report:
    """Return the report of results side by side: common facts, the table, and warnings."""
    common = describe_common(side_by_side)
    warnings = [f"warning: {text}" for text in warnings_of(side_by_side)]
    table = Table(
        name="results",
        title=TITLE,
        columns=tuple(columns_of(side_by_side)),
        rows=side_by_side.rows,
    )
    return Report(
        style="results",
        title=TITLE,
        body=(*common, *([""] if common else []), table, *([""] if warnings else []), *warnings),
        page_of_text=True,
        tables=(replace(table, notes=(*common, *warnings)),),
    )


def describe_common(side_by_side: SideBySide) -> tuple[str, ...]:
    """Return lines with the facts that all rows have in common."""
    common = side_by_side.common
    lines = {name: value for name, value in common.items() if not is_option(name)}
    if "engine" in lines:  # the line has its version and other common facts too
        lines["engine"] = " ".join(lines.pop(name) for name in OF_ENGINE if lines.get(name))
    lines["options"] = describe_options(common)
    return tuple(f"{name}: {value}" for name, value in lines.items() if value)


def warnings_of(side_by_side: SideBySide) -> list[str]:
    """Return warnings about missing verdicts, missing times, and runs not made in turns."""
    rows = side_by_side.rows
    warnings = []
    compared = [row for row in rows if row.ratio and row.baseline != row.name]
    judged = [row for row in compared if row.difference and row.difference.verdict != "not judged"]
    if len(judged) < len(compared):
        warnings.append(
            "a verdict needs several runs of each side, made in turns on a quiet machine and "
            "pooled with --by; or compare with `lar bench`"
        )
    by_name = {row.name: row for row in rows}
    apart = [row for row in judged if is_apart(row, by_name[row.baseline])]
    if apart:
        warnings.append(
            f"the runs of {join_first([row.name for row in apart])} and of the baseline were not "
            "made in turns: a change of the machine between the two would look like a difference"
        )
    if len({result.spec.runners > 1 for row in rows for result in row.results}) > 1:
        warnings.append(
            "iterations/s of several runners includes the pauses between iterations, that of one "
            "runner does not"
        )
    return warnings + [f"{row.name}: {describe_failure(row)}" for row in rows if not row.timed]


def describe_failure(row: Row) -> str:
    """Return why a row has no times."""
    result = row.results[0]
    if result.failure is not None:
        return f"{result.status} in phase {result.phase}: {result.failure.message}"
    return "no iteration was timed"


def columns_of(side_by_side: SideBySide) -> Iterator[Column[Row]]:
    """Yield the columns of the facts that vary, and of the figures that are known."""
    rows, figure = side_by_side.rows, side_by_side.figure
    if side_by_side.has_names:
        yield Column("result", lambda row: row.name, rank=0)
    for name in side_by_side.varying:
        is_name = is_option(name) and not side_by_side.has_names
        shown = not (side_by_side.has_names and stands_in_names(name, rows))
        yield Column(name, fact_named(name), in_text=shown, rank=0 if is_name else 3)
    if not side_by_side.has_names and not side_by_side.varying:
        yield Column("rows", lambda row: row.name, rank=0)
    if any(row.statuses != "ok" for row in rows):
        yield Column("status", lambda row: row.statuses, rank=1)
    several = any(len(row.runs) > 1 for row in rows)
    disturbed = any(row.disturbed_count for row in rows)
    cpu = disturbed and figure == "latency" and any(map(cpu_median_of, rows))
    runners = any(result.spec.runners > 1 for row in rows for result in row.results)
    rate, items = middle_of("iterations_per_second"), middle_of("items_per_second")
    batches = any(items(row) not in (None, rate(row)) for row in rows)
    yield number("runs", lambda row: len(row.runs), in_text=several, rank=6)
    yield number("samples", "sample_count", rank=6)
    yield number("disturbed", "disturbed_count", in_text=disturbed, rank=6)
    yield Column("figure", lambda row: figure, in_text=False)
    yield milliseconds(f"{figure} median ms", "median", "median_seconds", 0)
    yield Column(
        "95 % interval",
        text=lambda row: format_interval(row.interval, 1e3) or "N/A",
        parts=(
            milliseconds("low ms", "interval.low", "median_low_seconds"),
            milliseconds("high ms", "interval.high", "median_high_seconds"),
        ),
        rank=4,
    )
    yield milliseconds(f"{figure} min ms", "minimum", "minimum_seconds", 7)
    for rank in (90, 95, 99):
        yield milliseconds(f"p{rank} ms", percentile(rank), f"p{rank}_seconds", in_text=False)
    yield milliseconds("CPU time median ms", cpu_median_of, "cpu_median_seconds", 2, in_text=cpu)
    yield number("iterations/s", rate, 1, key="iterations_per_second", in_text=runners, rank=4)
    yield number("items/s", items, 1, key="items_per_second", in_text=batches, rank=4)
    yield Column("baseline", lambda row: row.baseline or None, in_text=False)
    yield number("ratio", "ratio", 3, rank=0)
    for end in ("low", "high"):
        path = f"difference.interval.{end}"
        yield number(f"ratio {end}", path, 3, key=f"ratio_{end}", in_text=False)
    yield Column("verdict", verdict_of, describe_verdict, rank=0)
    smallest = value_at("difference.smallest_detectable")
    yield Column("smallest detectable", smallest, key="smallest_detectable", in_text=False)
    for key in ("load_seconds", "prepare_seconds", "peak_memory_bytes"):
        yield Column(key, middle_of(f"result.{key}"), in_text=False)


def fact_named(name: str) -> Callable[[Row], str]:
    return lambda row: row.facts[name]


def stands_in_names(fact: str, rows: Sequence[Row]) -> bool:
    """Return whether the name of each row already contains a fact, such as the options."""
    if is_option(fact):
        return all(describe_kind_of_options(row.facts) in row.name for row in rows)
    return all(row.facts[fact] and row.facts[fact] in row.name for row in rows)


def percentile(rank: int) -> Callable[[Row], float | None]:
    return lambda row: row.percentile(rank)


def middle_of(path: str) -> Callable[[Row], float | None]:
    value = value_at(path)
    return lambda row: row.middle(value)


def cpu_median_of(row: Row) -> float | None:
    return row.middle(lambda run: median_of_known(run.result.samples.busiest_thread))


def verdict_of(row: Row) -> str | None:
    """Return the verdict on the ratio of a row, or None if the row has no ratio."""
    if row.ratio is None:
        return None
    if row.baseline == row.name:
        return "baseline"
    return row.difference.verdict if row.difference else "not judged"


def describe_verdict(row: Row) -> str:
    """Return the verdict on a ratio, with its interval or the smallest detectable change."""
    if row.baseline == row.name or row.ratio is None:
        return verdict_of(row) or "N/A"
    text = describe_difference(row.difference, DISTURBED)
    is_shown = row.difference and row.difference.is_shown
    interval = row.difference.interval if row.difference else None
    return f"{text} ({format_interval(interval)})" if is_shown else text


# Reports of stored results: a list, changes of times over the runs, and checks


SMALLEST = "difference.smallest_detectable"


def report_history(entries: Sequence[Entry], notes: Iterable[str] = ()) -> Report:
    """Return the report that lists stored results, with the columns in which they differ."""
    notes = tuple(notes)
    columns = tuple(columns_of_history(entries))
    table = Table(
        name="history", title="Stored results", columns=columns, rows=tuple(entries), notes=notes
    )
    return Report(style="history", title=table.title, body=(table, *notes), tables=(table,))


def columns_of_history(entries: Sequence[Entry]) -> Iterator[Column[Entry]]:
    """Yield the columns of a list of stored results."""

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
    yield number("disturbed", "disturbed", rank=6, in_text=any(it.disturbed for it in entries))
    yield milliseconds("median ms", "median_seconds", "median_seconds", 0)
    trusted = any(it.trusted_seconds != it.median_seconds for it in entries)
    yield milliseconds("trusted ms", "trusted_seconds", "trusted_seconds", 1, in_text=trusted)
    yield column("trust", shown=False)
    yield milliseconds("CPU ms", "cpu_median_seconds", "cpu_median_seconds", in_text=False)
    yield column("started", "started_at", shown=False)


class Series(NamedTuple):
    """The runs of one kind, from oldest to newest, and the `name` of the kind."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def medians(self) -> list[float]:
        """The trusted time of each run or, if a run has no trusted time, its median."""
        return [entry.trusted_seconds or entry.median_seconds or 0.0 for entry in self.entries]


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """Return the runs that have times, grouped by their kind."""
    groups: dict[Kind, list[Entry]] = {}
    for entry in entries:
        if entry.median_seconds and entry.status == "ok":
            groups.setdefault(entry.kind, []).append(entry)
    names = distinguish_kinds(
        {kind: f"{it.model or 'a model'} {it.options}".strip() for kind, (it, *_) in groups.items()}
    )
    return [Series(names[kind], tuple(group)) for kind, group in groups.items()]


def distinguish_kinds(kinds: Mapping[Kind, str]) -> dict[Kind, str]:
    """Return the names of kinds; equal names are extended by the facts that differ."""
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
    """Return a report on how the medians of each kind of run changed, with a curve per kind."""
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
    """Return the curve of the medians of a kind of run; each point names its run."""
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
