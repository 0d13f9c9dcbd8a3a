"""Results side by side as a report: the facts that vary, times, ratios, and what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lar.measurement.summary import median_of_known
from lar.records.summary import Interval
from lar.reports.model import Cell, Column, Table
from lar.reports.pages import Section, format_facts, format_list, format_page
from lar.reports.pages.tables import page_table
from lar.reports.report import Report
from lar.reports.verdicts import describe_difference, format_interval, high_of, low_of
from lar.results.facts import describe_options, is_option
from lar.results.figures import Figure, Run
from lar.results.rows import Row
from lar.results.side_by_side import DISTURBED, SEVERAL, SideBySide, is_apart

TITLE = "Results side by side"
SCRIPT = """
drawSection("results", () => [makeTable(figures.table, "rows")]);
finishPage();
"""
NAMED = 3  # rows in a warning
OF_ENGINE = ("engine", "version", "driver", "device")


def build_report(side_by_side: SideBySide, *, with_page: bool = False) -> Report:
    """Return the report: what all rows have in common, the table, and warnings; and a page of them
    if that is wanted."""
    common = describe_common(side_by_side)
    warnings = [f"warning: {text}" for text in warnings_of(side_by_side)]
    table = Table(
        name="results",
        title=TITLE,
        columns=tuple(columns_of(side_by_side)),
        rows=side_by_side.rows,
        notes=(*common, *warnings),
    )
    return Report(
        style="results",
        title=TITLE,
        page=page_of(table, common, warnings) if with_page else "",
        body=(*common, *([""] if common else []), table, *([""] if warnings else []), *warnings),
        tables=(table,),
    )


def page_of(table: Table[Row], common: Sequence[str], warnings: Sequence[str]) -> str:
    """Return a page with the columns of the text, times in milliseconds."""
    columns = [page_column(column) for column in table.text_columns]
    facts = (text.partition(": ") for text in common)
    words = format_facts((name, value) for name, _, value in facts) + format_list(warnings)
    figures = page_table("results", columns, table.rows, order="result")._replace(missing=())
    return format_page(
        TITLE,
        TITLE,
        [Section("results", TITLE, words=words)],
        {"table": figures.figures()},
        [SCRIPT],
    )


def page_column(column: Column[Row]) -> Column[Row]:
    """Return a column of the text as a page has it: numbers that can be sorted."""
    if column.key.endswith("_seconds"):
        return Column(column.title, lambda row: in_ms(column.value(row)), digits=3)
    if column.parts or column.align == "left":
        return Column(column.title, column.cell)
    return Column(column.title, column.value, digits=0 if column.text is None else 3)


def in_ms(seconds: Cell) -> float | None:
    return 1e3 * seconds if isinstance(seconds, (int, float)) else None


def describe_common(side_by_side: SideBySide) -> tuple[str, ...]:
    """Return what all rows have in common, in lines."""
    common = side_by_side.common
    lines = {name: value for name, value in common.items() if not is_option(name)}
    if "engine" in lines:  # its version and what else is common stand in its line
        lines["engine"] = " ".join(lines.pop(name) for name in OF_ENGINE if lines.get(name))
    lines["options"] = describe_options(common)
    return tuple(f"{name}: {value}" for name, value in lines.items() if value)


def warnings_of(side_by_side: SideBySide) -> list[str]:
    """Return what the figures do not show, and why; columns show the rest."""
    rows = side_by_side.rows
    warnings = []
    timed = [row for row in rows if row.timed]
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
            f"the runs of {name_rows(apart)} and of the baseline were not made in turns: a change "
            "of the machine between the two would look like a difference"
        )
    unwatched = [row for row in timed if not any(it.is_watched for it in row.timed)]
    if unwatched:
        which = "" if len(unwatched) == len(timed) else f" in {name_rows(unwatched)}"
        warnings.append(f"nothing is known of disturbances{which}")
    pooled = sorted({name for row in rows for name, value in row.facts.items() if value == SEVERAL})
    if pooled and not side_by_side.has_names:
        warnings.append(f"rows pool runs that differ in {', '.join(pooled)}")
    return warnings + [f"{row.name}: {describe_failure(row)}" for row in rows if not row.timed]


def name_rows(rows: Sequence[Row]) -> str:
    """Return the names of the first rows, and how many there are more."""
    more = [f"{len(rows) - NAMED} more"] if len(rows) > NAMED else []
    return ", ".join([*(row.name for row in rows[:NAMED]), *more])


def describe_failure(row: Row) -> str:
    """Return why a row has no times."""
    result = row.results[0]
    if result.failure is not None:
        return f"{result.status} in phase {result.phase}: {result.failure.message}"
    return "no iteration was timed"


def columns_of(side_by_side: SideBySide) -> Iterator[Column[Row]]:
    """Yield the columns: those of the facts that vary, and of the figures that are there."""
    rows = side_by_side.rows
    if side_by_side.has_names:
        yield Column("result", lambda row: row.name, rank=0)
    for name in side_by_side.varying:
        yield Column(name, fact_named(name), rank=0 if is_option(name) else 3)
    if not side_by_side.has_names and not side_by_side.varying:
        yield Column("rows", lambda row: row.name, rank=0)
    if any(row.statuses != "ok" for row in rows):
        yield Column("status", lambda row: row.statuses, rank=1)
    several = any(len(row.runs) > 1 for row in rows)
    yield Column("runs", lambda row: len(row.runs), align="right", in_text=several, rank=6)
    yield Column("samples", lambda row: row.sample_count, align="right", rank=6)
    disturbed = any(row.disturbed_count for row in rows)
    yield Column(
        "disturbed", lambda row: row.disturbed_count, align="right", in_text=disturbed, rank=6
    )
    yield from time_columns(side_by_side.figure)
    cpu_median = middle_of(lambda run: median_of_known(run.result.samples.busiest_thread))
    rate = middle_of(lambda run: run.iterations_per_second)
    items = middle_of(lambda run: run.items_per_second)
    cpu = disturbed and side_by_side.figure == "latency" and any(map(cpu_median, rows))
    yield Column(
        "CPU time median ms",
        cpu_median,
        lambda row: format_ms(cpu_median(row)),
        key="cpu_median_seconds",
        align="right",
        in_text=cpu,
        rank=2,
    )
    runners = any(result.spec.runners > 1 for row in rows for result in row.results)
    yield Column(
        "iterations/s",
        rate,
        lambda row: format_figure(rate(row), 1),
        key="iterations_per_second",
        align="right",
        in_text=runners,
        rank=4,
    )
    batches = any(items(row) != rate(row) for row in rows)
    yield Column(
        "items/s",
        items,
        lambda row: format_figure(items(row), 1),
        key="items_per_second",
        align="right",
        in_text=batches and any(map(items, rows)),
        rank=4,
    )
    yield from ratio_columns()
    yield from other_columns()


def fact_named(name: str) -> Callable[[Row], str]:
    return lambda row: row.facts[name]


def time_columns(figure: Figure) -> Iterator[Column[Row]]:
    yield Column("figure", lambda row: figure, in_text=False)
    yield Column(
        f"{figure} median ms",
        lambda row: row.median,
        lambda row: format_ms(row.median),
        key="median_seconds",
        align="right",
        rank=0,
    )
    yield Column(
        "95 % interval",
        text=lambda row: format_interval(row.interval, 1e3) or "N/A",
        parts=(
            Column("low", lambda row: low_of(row.interval), key="median_low_seconds"),
            Column("high", lambda row: high_of(row.interval), key="median_high_seconds"),
        ),
        rank=4,
    )
    yield Column(
        f"{figure} min ms",
        lambda row: row.minimum,
        lambda row: format_ms(row.minimum),
        key="minimum_seconds",
        align="right",
        rank=7,
    )
    for rank in (90, 95, 99):
        yield Column(f"p{rank}", percentile_column(rank), key=f"p{rank}_seconds", in_text=False)


def percentile_column(rank: int) -> Callable[[Row], float | None]:
    return lambda row: row.percentile(rank)


def ratio_columns() -> Iterator[Column[Row]]:
    yield Column("baseline", lambda row: row.baseline or None, in_text=False)
    yield Column(
        "ratio",
        lambda row: row.ratio,
        lambda row: format_figure(row.ratio, 3),
        align="right",
        rank=0,
    )
    yield Column("ratio low", lambda row: low_of(interval_of(row)), key="ratio_low", in_text=False)
    yield Column(
        "ratio high", lambda row: high_of(interval_of(row)), key="ratio_high", in_text=False
    )
    yield Column(
        "verdict",
        verdict_of,
        describe_verdict,
        rank=1,
    )
    yield Column(
        "smallest detectable",
        lambda row: row.difference.smallest_detectable if row.difference else None,
        key="smallest_detectable",
        in_text=False,
    )


def other_columns() -> Iterator[Column[Row]]:
    load = middle_of(lambda run: run.result.load_seconds)
    prepare = middle_of(lambda run: run.result.prepare_seconds)
    memory = middle_of(lambda run: run.result.peak_memory_bytes)
    yield Column("load", load, key="load_seconds", in_text=False)
    yield Column("prepare", prepare, key="prepare_seconds", in_text=False)
    yield Column("memory", memory, key="peak_memory_bytes", in_text=False)


def middle_of(figure: Callable[[Run], float | None]) -> Callable[[Row], float | None]:
    return lambda row: row.middle(figure)


def interval_of(row: Row) -> Interval | None:
    return row.difference.interval if row.difference else None


def verdict_of(row: Row) -> str | None:
    """Return what a ratio shows, None where there is no ratio."""
    if row.ratio is None:
        return None
    if row.baseline == row.name:
        return "baseline"
    return row.difference.verdict if row.difference else "not judged"


def describe_verdict(row: Row) -> str:
    """Return what a ratio shows, with its interval or the change that could have been seen."""
    if row.baseline == row.name or row.ratio is None:
        return verdict_of(row) or "N/A"
    text = describe_difference(row.difference, DISTURBED)
    is_shown = row.difference and row.difference.is_shown
    return f"{text} ({format_interval(interval_of(row))})" if is_shown else text


def format_ms(seconds: float | None) -> str:
    """Return a time in milliseconds, N/A for one that is not known."""
    return format_figure(None if seconds is None else 1e3 * seconds, 3)


def format_figure(value: float | None, digits: int) -> str:
    return "N/A" if value is None else f"{value:.{digits}f}"
