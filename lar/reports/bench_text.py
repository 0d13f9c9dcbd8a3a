"""A bench as text and as CSV: a row for each variant, with only the columns that vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lar.errors import count_of, printable
from lar.options.table import PYTHON
from lar.records.bench import BenchResult, OutputDifference, VariantResult
from lar.records.summary import Summary
from lar.reports.csv import format_table as format_csv_table
from lar.reports.model import Cell, Column, Table
from lar.reports.text import PAPER, Screen, format_table
from lar.reports.verdicts import (
    color_of_verdict,
    describe_difference,
    format_interval,
    format_ratio,
)

Figure = Callable[[VariantResult], Cell]

ENDS = {
    "clear": "every difference is clear",
    "precise": "a difference of {margin} would have been seen",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": "interrupted",
    "failed": "too few variants could be measured",
    "single": "each variant has data of another shape, so that none are compared",
}


def format_bench(bench: BenchResult, screen: Screen = PAPER) -> list[str]:
    """Return the lines of a bench: what was measured, the table, what else to know."""
    lines = [line for text in head_of(bench) for line in screen.wrap(text)]
    lines += ["", *format_table(table_of(bench), screen), ""]
    return lines + [line for text in notes_of(bench) for line in screen.wrap(text, "  ")]


def format_csv(bench: BenchResult) -> str:
    """Return the table as CSV; times are seconds, unknown cells are empty."""
    rows = bench.rows()
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = tuple(Column[dict[str, Cell]](key, cell_of(key)) for key in keys)
    return format_csv_table(
        Table(name="variants", title="Variants", columns=columns, rows=tuple(rows))
    )


def cell_of(key: str) -> Callable[[dict[str, Cell]], Cell]:
    return lambda row: row.get(key)


def head_of(bench: BenchResult) -> Iterator[str]:
    """Yield what was measured, as far as it is the same in all variants."""
    models = {variant.spec.model for variant in bench.variants if variant.spec}
    engines = engines_of(bench)
    what = printable(models.pop()) if len(models) == 1 else f"{len(models)} models"
    engine = f" on {engines.pop()}" if len(engines) == 1 else ""
    variants, rounds = count_of(len(bench.variants), "variant"), count_of(bench.rounds, "round")
    yield f"{what}{engine}: {variants}, {rounds} of fresh processes, {bench.wall_seconds:.1f} s"


def engine_of(variant: VariantResult) -> str:
    """Return the engine that ran a variant with its version, empty where it was not started."""
    it = variant.engine
    return f"{it.name} {it.version} {it.driver}" if it else ""


def engines_of(bench: BenchResult) -> set[str]:
    return {*map(engine_of, bench.variants)} - {""}


def table_of(bench: BenchResult) -> Table[VariantResult]:
    """Return the table of the variants; what is the same in all of them has no column."""
    return Table(
        name="variants",
        title="Variants",
        columns=tuple(columns_of(bench)),
        rows=bench.variants,
        color=color_of,
    )


def color_of(measured: VariantResult) -> str:
    """Return the color of what was measured: that of its failure, or of its difference."""
    return "red" if measured.status != "ok" else color_of_verdict(measured.difference)


def columns_of(bench: BenchResult) -> Iterator[Column[VariantResult]]:
    """Yield the columns that say something."""
    variants = bench.variants
    keys = list(dict.fromkeys(key for variant in variants for key in variant.values))
    if len({tuple(variant.values.items()) for variant in variants}) < len(variants):
        yield Column("variant", lambda it: it.name, rank=0)
    else:
        for key in keys:
            yield Column(key.replace("_", "-"), value_of(key), rank=0)
    if len(engines_of(bench)) > 1 or PYTHON.key in keys:
        yield Column("engine", engine_of, rank=1)
    if len({variant.shape for variant in variants if variant.shape}) > 1:
        yield Column("shape", lambda it: it.shape, rank=3)
    yield Column(
        "median ms",
        of_latency(lambda it: 1e3 * it.median),
        lambda it: f"{1e3 * it.latency.median:.3f}" if it.latency else it.status,
        align="right",
        rank=0,
    )
    if any(variant.latency and variant.latency.disturbed_count for variant in variants):
        yield Column(
            "undisturbed",
            of_latency(lambda it: it.undisturbed_median and 1e3 * it.undisturbed_median),
            lambda it: format_undisturbed(it.latency),
            align="right",
            rank=4,
        )
    if len({variant.shape for variant in variants if variant.shape}) > 1:
        yield Column(
            "items/s",
            of_latency(lambda it: it.items_per_second),
            lambda it: format_rate(it.latency),
            align="right",
            rank=1,
        )
    if any(variant.baseline for variant in variants):
        yield Column(
            "ratio",
            lambda it: it.difference.ratio if it.difference else None,
            lambda it: format_ratio(it.difference),
            align="right",
            rank=1,
        )
        yield Column(
            "95 % interval",
            lambda it: interval_of(it) or None,
            interval_of,
            rank=2,
        )
        yield Column("verdict", lambda it: format_verdict(it, bench) or None, rank=0)
    elif any(variant.failure for variant in variants):
        yield Column("error", lambda it: describe_failure(it) or None, rank=0)
    if any(variant.output_difference for variant in variants):
        yield Column(
            "outputs",
            lambda it: describe_outputs(it.output_difference) if it.output_difference else None,
            lambda it: describe_outputs(it.output_difference) if it.output_difference else "",
            rank=3,
        )


def value_of(key: str) -> Figure:
    return lambda it: printable(it.values.get(key, ""))


def of_latency(value: Callable[[Summary], float | None]) -> Figure:
    return lambda it: value(it.latency) if it.latency else None


def format_undisturbed(latency: Summary | None) -> str:
    if latency is None or latency.undisturbed_median is None:
        return ""
    return f"{1e3 * latency.undisturbed_median:.3f}"


def format_rate(latency: Summary | None) -> str:
    if latency is None or latency.items_per_second is None:
        return ""
    return f"{latency.items_per_second:.1f}"


def interval_of(variant: VariantResult) -> str:
    return format_interval(variant.difference.interval if variant.difference else None)


def format_verdict(variant: VariantResult, bench: BenchResult) -> str:
    """Return what was found of a variant: its verdict, or that others are compared with it, or
    how it ended."""
    if variant.status != "ok" and variant.failure:
        return describe_failure(variant)
    if variant.baseline:
        return describe_difference(variant.difference, "no time was left for it")
    is_base = any(each.baseline == variant.name for each in bench.variants)
    return "baseline" if is_base else "compared with none: no other has data of this shape"


def describe_failure(variant: VariantResult) -> str:
    """Return how a variant ended, empty where it ended well."""
    if variant.failure is None:
        return "" if variant.status == "ok" else variant.status
    return printable(f"{variant.status}: {variant.failure.message}")


def describe_outputs(outputs: OutputDifference) -> str:
    """Return how outputs compare, in a few words."""
    if outputs.agreement == "equal":
        return "equal bit by bit"
    if outputs.reason:
        return printable(f"{outputs.agreement}: {outputs.output} {outputs.reason}")
    if outputs.max_error is None:
        return printable(f"{outputs.agreement}: {outputs.output} has NaN or infinities")
    return printable(f"{outputs.agreement} ({outputs.output}: {outputs.max_error:.1e})")


def notes_of(bench: BenchResult) -> Iterator[str]:
    """Yield what else the user should know."""
    end = ENDS[bench.stopped].format(margin=f"{bench.margin:.1%}", budget=bench.budget_seconds)
    yield f"ended: {end}"
    intervals = [each.interval for each in bench.differences.values() if each.interval]
    confidences = [each.confidence for each in intervals]
    if confidences:
        yield (
            "ratio: time over the baseline's; intervals pay for all comparisons and looks: "
            f"{len(confidences)} comparison{'s' * (len(confidences) > 1)}, each looked at with "
            f"{min(confidences):.2%}"
        )
    for variant in bench.variants:
        for text in variant.warnings:
            yield printable(f"warning: {variant.name}: {text}")
