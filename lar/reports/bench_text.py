"""A bench as text and as CSV: a row for each variant, with only the columns that vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lar.errors import count_of, printable
from lar.records.bench import BenchResult, OutputDifference, VariantResult
from lar.records.summary import Difference, Interval, Summary
from lar.reports.csv import format_table as format_csv_table
from lar.reports.model import Cell, Column, Table
from lar.reports.text import PAPER, Screen, format_table

Figure = Callable[[VariantResult], Cell]

# From here on a change is a number of times: 12 times says more than 1100.0%.
LARGEST_SHARE = 2.0

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
    engines = {
        f"{it.engine.name} {it.engine.version} {it.engine.driver}"
        for it in bench.variants
        if it.engine
    }
    what = printable(models.pop()) if len(models) == 1 else f"{len(models)} models"
    engine = f" on {engines.pop()}" if len(engines) == 1 else ""
    variants, rounds = count_of(len(bench.variants), "variant"), count_of(bench.rounds, "round")
    yield f"{what}{engine}: {variants}, {rounds} of fresh processes, {bench.wall_seconds:.1f} s"


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
    if measured.status != "ok":
        return "red"
    verdict = measured.difference.verdict if measured.difference else ""
    return {"faster": "green", "slower": "red"}.get(verdict, "")


def columns_of(bench: BenchResult) -> Iterator[Column[VariantResult]]:
    """Yield the columns that say something."""
    variants = bench.variants
    keys = list(dict.fromkeys(key for variant in variants for key in variant.values))
    if len({tuple(variant.values.items()) for variant in variants}) < len(variants):
        yield Column("variant", lambda it: it.name, rank=0)
    else:
        for key in keys:
            yield Column(key.replace("_", "-"), value_of(key), rank=0)
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
            lambda it: f"{it.difference.ratio:.3f}" if it.difference else "",
            align="right",
            rank=1,
        )
        yield Column(
            "95 % interval",
            lambda it: format_interval(it.difference.interval) if it.difference else None,
            lambda it: format_interval(it.difference.interval) if it.difference else "",
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


def format_interval(interval: Interval | None) -> str:
    """Return an interval, empty for one that has no end."""
    if interval is None:
        return ""
    return f"{interval.low:.3f} .. {interval.high:.3f}"


def format_verdict(variant: VariantResult, bench: BenchResult) -> str:
    """Return what was found of a variant: its verdict, or that others are compared with it, or
    how it ended."""
    if variant.status != "ok" and variant.failure:
        return describe_failure(variant)
    if variant.difference:
        return describe_difference(variant.difference)
    if variant.baseline:
        return "not measured often enough"
    is_base = any(each.baseline == variant.name for each in bench.variants)
    return "baseline" if is_base else "compared with none: no other has data of this shape"


def describe_difference(difference: Difference) -> str:
    """Return a verdict in words."""
    if difference.verdict != "no difference shown":
        return difference.verdict
    if difference.smallest_detectable is None:
        return "no difference shown (none could have been)"
    smallest = difference.smallest_detectable
    text = f"{smallest:.1%}" if smallest < LARGEST_SHARE else f"{1 + smallest:.0f} times"
    return f"no difference shown (smallest detectable: {text})"


def describe_failure(variant: VariantResult) -> str:
    if variant.failure is None:
        return ""
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
