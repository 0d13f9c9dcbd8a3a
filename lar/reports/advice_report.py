"""The report of settings that were tried beside a run, and the command of the fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lar.engines.advice import Suggestion, best_of, describe_tried, options_of
from lar.errors import printable
from lar.options.command_line import format_command
from lar.records.bench import BenchResult
from lar.records.profile import TriedSetting
from lar.reports.bench_report import head_of
from lar.reports.model import Column, Table, number
from lar.reports.report import Report


def build_report(
    bench: BenchResult,
    tried: Sequence[TriedSetting],
    suggestions: Sequence[Suggestion],
    options: Mapping[str, Any],
) -> Report:
    """Return the report of a race; `options` are those of the run as it is, `suggestions` what was
    tried."""
    plain = bench.variants[0]
    row = TriedSetting(
        name=plain.name,
        flags=plain.name,
        median_seconds=plain.latency.median if plain.latency else None,
        verdict="baseline",
    )
    table = table_of((row, *tried))
    best, said = best_of(tried), describe_tried(tried)
    if best is not None and best.verdict != "faster" and bench.stopped == "budget":
        said = f"{said}; --budget {3 * bench.budget_seconds:g} may prove it"
    chosen = next((it.choice for it in suggestions if best and it.name == best.name), None)
    model = plain.spec.model if plain.spec else ""
    added = options_of(chosen, f"{Path(model).stem}.cache") if chosen else {}
    return Report(
        style="advise",
        title="lar advise",
        body=(
            *head_of(bench),
            "",
            table,
            "",
            printable(said),
            printable(f"command: {format_command(model, {**options, **added})}"),
        ),
        tables=(table,),
    )


def table_of(rows: tuple[TriedSetting, ...]) -> Table[TriedSetting]:
    columns: tuple[Column[TriedSetting], ...] = (
        Column[TriedSetting]("setting", lambda it: printable(it.flags), rank=0),
        number("median ms", lambda it: it.median_seconds, 3, scale=1e3, unknown="", rank=2),
        number("ratio", lambda it: it.ratio, 3, unknown="", rank=0),
        Column[TriedSetting]("95 % interval", interval_of, rank=3),
        Column[TriedSetting]("verdict", lambda it: printable(it.error or it.verdict), rank=0),
        Column[TriedSetting]("outputs", outputs_of, rank=4),
        Column[TriedSetting]("why", lambda it: it.why, rank=5),
    )
    return Table(name="tried", title="Tried", columns=columns, rows=rows, color=color_of)


def color_of(row: TriedSetting) -> str:
    return "red" if row.error else {"faster": "green", "slower": "red"}.get(row.verdict, "")


def interval_of(row: TriedSetting) -> str:
    if row.ratio_low is None or row.ratio_high is None:
        return ""
    return f"{row.ratio_low:.3f} to {row.ratio_high:.3f}"


def outputs_of(row: TriedSetting) -> str:
    return row.outputs if not row.output_error else f"{row.outputs} ({row.output_error:.1e})"
