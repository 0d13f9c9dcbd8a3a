"""The report of a bench: a row for each variant, with only the columns that vary."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lar.engines.advice import Suggestion, given_in, options_of, suggestions_of
from lar.errors import count_of, one_line
from lar.measurement.statistics import median_of_known
from lar.options.command_line import format_command, format_flags
from lar.options.table import PYTHON
from lar.records.bench import BenchResult, OutputDifference, VariantResult
from lar.records.profile import Profile, TriedSetting
from lar.reports.model import Cell, Column, Plot, Table, number, table_of_values
from lar.reports.profile_plots import plot_iterations
from lar.reports.report import Part, Report, color_of_verdict, describe_difference, format_interval
from lar.results import figure_of
from lar.results.reading import runs_of_variant

ENDS = {
    "clear": "every difference is clear",
    "precise": "a difference of {margin} would have been seen",
    "budget": "the budget of {budget:g} s is spent; --budget S gives more",
    "interrupted": "interrupted",
    "failed": "too few variants could be measured",
    "single": "all variants have inputs of different shapes, so that none are compared",
}


def report_bench(bench: BenchResult) -> Report:
    """Return the report of a bench: a headline, the table of variants, a plot, and notes."""
    table = Table(
        name="variants",
        title="Variants",
        columns=tuple(columns_of(bench)),
        rows=bench.variants,
        color=color_of,
    )
    body: list[Part] = [*head_of(bench), "", table, *plots_of(bench), "", *notes_of(bench)]
    rows = bench.rows()
    keys = list(dict.fromkeys(key for row in rows for key in row))
    values = [[row.get(key) for key in keys] for row in rows]
    return Report(
        style="bench",
        title="lar bench",
        body=tuple(body),
        page_of_text=True,
        tables=(table_of_values("variants", "Variants", keys, values),),
        document=bench,
    )


def plots_of(bench: BenchResult) -> Iterator[Plot]:
    """Yield the plot of the iterations of the measured variants."""
    measured = {it.name: it.turns for it in bench.variants if it.latency}
    began: dict[int, list[float]] = {}
    for turn in (turn for turns in measured.values() for turn in turns):
        began.setdefault(turn.round, []).append(turn.began)
    if measured:
        lanes = {name: [(it.began, it.samples) for it in turns] for name, turns in measured.items()}
        yield plot_iterations(lanes, [(min(it), max(it)) for _, it in sorted(began.items())])


def head_of(bench: BenchResult) -> Iterator[str]:
    """Yield the headline: common model and engine, numbers of variants and rounds, and duration."""
    models = {variant.spec.model for variant in bench.variants if variant.spec}
    engines = engines_of(bench)
    what = models.pop() if len(models) == 1 else f"{len(models)} models"
    engine = f" on {engines.pop()}" if len(engines) == 1 else ""
    variants, rounds = count_of(len(bench.variants), "variant"), count_of(bench.rounds, "round")
    yield f"{what}{engine}: {variants}, {rounds} of fresh processes, {bench.wall_seconds:.1f} s"


def engine_of(variant: VariantResult) -> str:
    """Return the engine that ran a variant, with its version; empty if no engine was started."""
    it = variant.engine
    return f"{it.name} {it.version} {it.driver}" if it else ""


def engines_of(bench: BenchResult) -> set[str]:
    return {*map(engine_of, bench.variants)} - {""}


def color_of(measured: VariantResult) -> str:
    """Return the color for a failure or a difference."""
    return "red" if measured.status != "ok" else color_of_verdict(measured.difference)


def columns_of(bench: BenchResult) -> Iterator[Column[VariantResult]]:
    """Yield the columns in which at least one variant has a value."""
    variants = bench.variants
    keys = list(dict.fromkeys(key for variant in variants for key in variant.values))
    shapes = {variant.shape for variant in variants if variant.shape}
    if len({tuple(variant.values.items()) for variant in variants}) < len(variants):
        yield Column("variant", lambda it: it.name, rank=0)
    else:
        for key in keys:
            yield Column(key.replace("_", "-"), value_of(key), rank=0)
    if len(engines_of(bench)) > 1 or PYTHON.key in keys:
        yield Column("engine", engine_of, rank=1)
    if len(shapes) > 1:
        yield Column("shape", lambda it: it.shape, rank=3)
    yield number("median ms", "latency.median", 3, scale=1e3, unknown=describe_end, rank=0)
    if any(variant.latency and variant.latency.disturbed_count for variant in variants):
        yield number("undisturbed", "latency.undisturbed_median", 3, scale=1e3, unknown="")
    if len(shapes) > 1:
        rate = partial(items_per_second, bench)
        yield number("items/s", rate, 1, key="items_per_second", unknown="", rank=1)
    if any(variant.baseline for variant in variants):
        yield number(
            "ratio", lambda it: getattr(it.difference, "ratio", None), 3, unknown="", rank=1
        )
        yield Column("95 % interval", interval_of, rank=2)
        yield Column("verdict", lambda it: format_verdict(it, bench) or None, rank=0)
    elif any(variant.failure for variant in variants):
        yield Column("error", lambda it: describe_failure(it) or None, rank=0)
    if any(variant.output_difference for variant in variants):
        yield Column("outputs", lambda it: describe_outputs(it.output_difference), rank=3)


def items_per_second(bench: BenchResult, variant: VariantResult) -> float | None:
    """Return the items per second of a variant, from the same times that `lar results` compares.

    In CSV, the items per second, like the mean, are computed from all iterations.
    """
    _, runs = figure_of(runs_of_variant(bench, variant))
    found = median_of_known(run.items_per_second for run in runs if run.times)
    return found or (variant.latency.items_per_second if variant.latency else None)


def describe_end(variant: VariantResult) -> str:
    """Return the text for a variant without times: how its run ended."""
    return "N/A" if variant.status == "ok" else variant.status


def value_of(key: str) -> Callable[[VariantResult], Cell]:
    return lambda it: it.values.get(key, "")


def interval_of(variant: VariantResult) -> str | None:
    return format_interval(variant.difference.interval) or None if variant.difference else None


def format_verdict(variant: VariantResult, bench: BenchResult) -> str:
    """Return a variant's verdict, or "baseline", "not compared", or how the variant failed."""
    if variant.failure:
        return describe_failure(variant)
    if variant.baseline:
        return describe_difference(variant.difference, "no time was left for it")
    is_base = any(each.baseline == variant.name for each in bench.variants)
    return "baseline" if is_base else "not compared"


def describe_failure(variant: VariantResult) -> str:
    """Return how a variant failed; empty if the variant ended well."""
    if variant.failure is None:
        return "" if variant.status == "ok" else variant.status
    return one_line(f"{variant.status}: {variant.failure.message}")


def describe_outputs(outputs: OutputDifference | None) -> str:
    """Return how outputs compare, in a few words; empty if they were not compared."""
    if outputs is None:
        return ""
    if outputs.agreement == "equal":
        return "equal bit by bit"
    error = "NaN or infinities" if outputs.max_error is None else f"{outputs.max_error:.1e}"
    return one_line(f"{outputs.agreement} ({outputs.output}: {outputs.reason or error})")


def notes_of(bench: BenchResult) -> Iterator[str]:
    """Yield the reason why the bench ended, and the warnings of variants."""
    end = ENDS[bench.stopped].format(margin=f"{bench.margin:.1%}", budget=bench.budget_seconds)
    yield f"ended: {end}"
    for variant in bench.variants:
        for text in variant.warnings:
            yield one_line(f"warning: {variant.name}: {text}")


# The advice of a profile in words, and the report of a race of suggested settings


# The smallest gain that may be reported as likely.
LEAST_LIKELY = 0.01


def describe_advice(profile: Profile) -> str:
    """Return which setting to try for a profiled model or, after a trial, the result."""
    facts = profile.facts
    if facts.tried:
        return f"{describe_tried(facts.tried)} (tried)"
    model = shlex.quote(facts.model.path or "MODEL")
    if found := suggestions_of(profile):
        words = " ".join(filter(None, ("lar advise", model, format_flags(given_in(profile)))))
        return f"{found[0].flags}, as {found[0].why} (not tried; {words} tries it)"
    return f"no setting stands out; lar tune {model} tries all"


def describe_tried(tried: Sequence[TriedSetting]) -> str:
    """Return a sentence on the fastest of the tried settings whose outputs are right."""
    best = best_of(tried)
    if best is None or best.difference is None:
        return f"no setting is shown to be faster among {', '.join(each.flags for each in tried)}"
    times, interval = f"{1 / ratio_of(best):.2f} times as fast", best.difference.interval
    if not is_proven(best) or interval is None or not 0 < interval.low <= interval.high:
        return f"{best.flags} is likely faster: {times} so far, not proven"
    between = f"{1 / interval.high:.2f} to {1 / interval.low:.2f}"
    return f"{best.flags} is {times} ({between}), outputs {best.outputs}"


def best_of(tried: Sequence[TriedSetting]) -> TriedSetting | None:
    """Return the fastest setting that is proven better; else the fastest that is likely better.

    Return None if no setting with right outputs seems faster than the plain run.
    """
    likely = [each for each in tried if 0 < ratio_of(each) < 1 - LEAST_LIKELY]
    return min([*filter(is_proven, likely)] or likely, key=ratio_of, default=None)


def ratio_of(tried: TriedSetting) -> float:
    """Return the ratio of a setting's time to the time of the plain run.

    Return 0 if the setting was not measured, or if its outputs differ from the outputs of the plain
    run.
    """
    is_right = not tried.error and tried.outputs not in ("", "different")
    return tried.difference.ratio if tried.difference and is_right else 0.0


def is_proven(tried: TriedSetting) -> bool:
    """Return whether a setting is shown to be faster than the plain run."""
    return tried.difference is not None and tried.difference.verdict == "faster"


def build_report(
    bench: BenchResult,
    tried: Sequence[TriedSetting],
    suggestions: Sequence[Suggestion],
    options: Mapping[str, Any],
) -> Report:
    """Return the report of the tried settings, with the command of the fastest one.

    `options` are the options of the plain run, `suggestions` are the settings that were tried.
    """
    whys = {each.flags: each.why for each in suggestions}
    # A narrow screen drops this column first.
    why = Column[VariantResult]("why", lambda it: whys.get(it.name), rank=9)
    table = Table(
        name="tried",
        title="Tried",
        columns=(*columns_of(bench), why),
        rows=bench.variants,
        color=color_of,
    )
    best, said = best_of(tried), describe_tried(tried)
    if best is not None and not is_proven(best) and bench.stopped == "budget":
        said = f"{said}; --budget {3 * bench.budget_seconds:g} may prove it"
    chosen = next((it.choice for it in suggestions if best and it.flags == best.flags), None)
    plain = bench.variants[0]
    model = plain.spec.model if plain.spec else ""
    added = options_of(chosen, f"{Path(model).stem}.cache") if chosen else {}
    command = f"command: {format_command(model, {**options, **added})}"
    return Report(
        style="advise",
        title="lar advise",
        body=(*head_of(bench), "", table, "", f"best: {said}", command),
        tables=(table,),
    )
