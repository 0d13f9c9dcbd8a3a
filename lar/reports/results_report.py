"""The report of results side by side: the facts that vary, times, ratios, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lar.errors import join_first
from lar.measurement.statistics import median_of_known
from lar.reports.model import Column, Table, milliseconds, number, value_at
from lar.reports.report import Report
from lar.reports.verdicts import describe_difference, format_interval
from lar.results.facts import describe_kind_of_options, describe_options, is_option
from lar.results.side_by_side import DISTURBED, Row, SideBySide, is_apart

TITLE = "Results side by side"
OF_ENGINE = ("engine", "version", "driver", "device")


def report_results(side_by_side: SideBySide) -> Report:
    """Return the report: what all rows have in common, the table, and warnings."""
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
    """Return what all rows have in common, in lines."""
    common = side_by_side.common
    lines = {name: value for name, value in common.items() if not is_option(name)}
    if "engine" in lines:  # the line has its version and other common facts too
        lines["engine"] = " ".join(lines.pop(name) for name in OF_ENGINE if lines.get(name))
    lines["options"] = describe_options(common)
    return tuple(f"{name}: {value}" for name, value in lines.items() if value)


def warnings_of(side_by_side: SideBySide) -> list[str]:
    """Return what the figures do not show, and why; columns have the rest."""
    rows = side_by_side.rows
    warnings = []
    compared = [row for row in rows if row.ratio and row.baseline != row.name]
    judged = [row for row in compared if row.difference and row.difference.verdict != "not judged"]
    if len(judged) < len(compared):
        warnings.append(
            "what is not judged needs several runs of each side, made in turns on a quiet machine "
            "and pooled with --by; or compare with `lar bench`"
        )
    by_name = {row.name: row for row in rows}
    apart = [row for row in judged if is_apart(row, by_name[row.baseline])]
    if apart:
        warnings.append(
            f"the runs of {join_first([row.name for row in apart])} and of the baseline were not "
            "made in turns: a change of the machine between the two would look like a difference"
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
    """Return whether each row's name has a fact in it, as names of a store's runs have options."""
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
    """Return the verdict on a ratio, None without a ratio."""
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
