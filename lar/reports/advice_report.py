"""The report of settings that were tried beside a run, with the command of the fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lar.engines.advice import Suggestion, options_of
from lar.options.command_line import format_command
from lar.records.bench import BenchResult, VariantResult
from lar.records.profile import TriedSetting
from lar.reports.advice_text import best_of, describe_tried, is_proven
from lar.reports.bench_report import color_of, columns_of, head_of
from lar.reports.model import Column, Table
from lar.reports.report import Report


def build_report(
    bench: BenchResult,
    tried: Sequence[TriedSetting],
    suggestions: Sequence[Suggestion],
    options: Mapping[str, Any],
) -> Report:
    """Return the report of a race.

    `options` are those of the plain run, `suggestions` are what was tried.
    """
    whys = {each.flags: each.why for each in suggestions}
    # It is the first to go on a narrow screen.
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
