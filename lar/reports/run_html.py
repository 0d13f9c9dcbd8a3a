"""A run as an HTML page: its facts, its figures, a distribution, a time line of all iterations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from lar.measurement.summary import summarize
from lar.records.bench import Turn, VariantResult
from lar.records.run import RunResult
from lar.records.summary import Summary
from lar.reports.bench_html import distributions_of, plots_of_times, timeline_of
from lar.reports.model import Column
from lar.reports.pages import Section, format_facts, format_list, format_page, read_resource
from lar.reports.pages.tables import page_table
from lar.reports.run_text import format_accuracy, format_summary
from lar.results.facts import facts_of, fed_shapes

COLUMNS: tuple[Column[tuple[str, float | None]], ...] = (
    Column("time of an iteration", lambda row: row[0]),
    Column("ms", lambda row: None if row[1] is None else 1e3 * row[1], digits=3),
)


def format_html(result: RunResult) -> str:
    """Return the page of a run."""
    title = os.path.basename(result.spec.model)
    facts = {**facts_of(result), "inputs": fed_shapes(result)}
    lines = [*format_summary(result), *format_accuracy(result), *result.warnings]
    words = format_facts((name, value) for name, value in facts.items() if value)
    sections = [Section("result", title, words=words + format_list(lines))]
    summary = result.summary or summarize(result)
    rows = [*figures_of(summary)] if summary else []
    figures: dict[str, object] = {"table": page_table("figures", COLUMNS, rows).figures()}
    if copies := [*copies_of(result)]:
        sections += plots_of_times()
        figures["distributions"] = distributions_of(copies)
        figures["timeline"] = timeline_of(copies)
    script = read_resource("lar.reports.pages", "bench.js")
    return format_page(f"lar: {title}", "Run", sections, figures, [script])


def figures_of(summary: Summary) -> Iterator[tuple[str, float | None]]:
    """Yield the figures of the iterations, their names first."""
    yield "minimum", summary.minimum
    yield "median", summary.median
    if summary.disturbed_count:
        yield "median of the undisturbed", summary.undisturbed_median
    yield from ((f"p{rank:g}", value) for rank, value in summary.percentiles.items())
    yield "maximum", summary.maximum
    yield "mean", summary.mean
    yield "CPU time, median", summary.cpu_median


def copies_of(result: RunResult) -> Iterator[VariantResult]:
    """Yield each copy of the model that ran, as a bench has its variants."""
    runners = result.spec.runners
    for runner in range(runners):
        samples = result.samples.of_runner(runner)
        latency = summarize(replace(result, samples=samples))
        if latency is not None:
            name = f"runner {runner}" if runners > 1 else "iterations"
            turn = Turn(round=0, cycle=0, began=0.0, samples=samples)
            yield VariantResult(name=name, latency=latency, turns=(turn,))
