"""The report of a run: its page, its JSON, and CSV with a row for each iteration.

The printed lines come from `run_text`, since they are printed while the run goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lar.records.run import MEASURED, RunResult, Samples
from lar.reports.model import Cell, Column, Table
from lar.reports.profile_plots import plot_iterations
from lar.reports.report import Part, Report
from lar.reports.run_text import format_accuracy, format_summary
from lar.results import facts_of, fed_shapes

# The columns of an iteration's figures, each with the field of `Samples` that it shows.
SAMPLE_COLUMNS = {
    "frequency_hz" if name == "frequency" else f"{name}_seconds": name for name in MEASURED
}
NO_SAMPLES = Samples()


class Iteration(NamedTuple):
    """An iteration: the number in its phase and testcase, the runner, and the index in samples."""

    phase: str
    number: int | None
    runner: int | None
    samples: Samples
    place: int


def report_run(result: RunResult) -> Report:
    """Return the report of a run."""
    facts = {**facts_of(result), "inputs": fed_shapes(result)}
    body: list[Part] = [f"{name}: {value}" for name, value in facts.items() if value]
    body += [*format_summary(result), *format_accuracy(result), *result.warnings]
    names = {it: f"runner {it}" for it in range(result.spec.runners)}
    samples = {name: result.samples.of_runner(runner) for runner, name in names.items()}
    if lanes := {name: [(0.0, each)] for name, each in samples.items() if each.end_to_end}:
        body.append(plot_iterations(lanes if len(names) > 1 else {"iterations": lanes["runner 0"]}))
    return Report(
        style="run",
        title=f"lar: {os.path.basename(result.spec.model)}",
        body=tuple(body),
        page_of_text=True,
        tables=(table_of_iterations(result),),
        document=result,
    )


def table_of_iterations(result: RunResult) -> Table[Iteration]:
    """Return the table of iterations, with the warm-up first; each row has the run's facts.

    A run without iterations has one row of facts. Times are in seconds, sizes in bytes.
    """
    rows = (*rows_of("warmup", result.warmup), *rows_of("iterations", result.samples))
    return Table(
        name="iterations",
        title="Iterations",
        columns=(
            Column("phase", lambda it: it.phase),
            Column("index", lambda it: it.number),
            Column("runner", lambda it: it.runner),
            *(sample_column(name, field) for name, field in SAMPLE_COLUMNS.items()),
            sample_column("case", "case"),
            *(fact_column(name, fact) for name, fact in described(result).items()),
        ),
        rows=rows or (Iteration(result.phase or "", None, None, NO_SAMPLES, 0),),
    )


def rows_of(phase: str, samples: Samples) -> Iterator[Iteration]:
    """Yield the iterations of each runner, numbered from 0 in each testcase or item."""
    for runner in sorted({*samples.runner}) or [0]:
        own = samples.of_runner(runner)
        counts: dict[int, int] = {}
        for place in range(len(own.end_to_end)):
            case = own.case[place] if own.case else 0
            counts[case] = counts.get(case, -1) + 1
            yield Iteration(phase, counts[case], runner, own, place)


def sample_column(title: str, field: str) -> Column[Iteration]:
    def value(row: Iteration) -> float | None:
        column: tuple[float | None, ...] = getattr(row.samples, field)
        return column[row.place] if column else None

    return Column(title, value)


def fact_column(title: str, fact: Cell) -> Column[Iteration]:
    return Column(title, lambda row: fact)


def described(result: RunResult) -> Mapping[str, Cell]:
    """Return the facts of a run, by the names of their columns."""
    spec, engine, model, machine = result.spec, result.engine, result.model, result.machine
    return {
        "model": spec.model,
        "sha256": model.sha256 if model else None,
        "engine": spec.engine,
        "engine_version": engine.version if engine else None,
        "driver": spec.driver,
        "device": spec.device,
        "settings": " ".join(f"{key}={value}" for key, value in spec.settings.items()),
        "environment": " ".join(f"{key}={value}" for key, value in spec.environment.items()),
        "inputs": ";".join(fed.source for fed in result.fed),
        "outputs": ";".join(f"{output.name}:{output.sha256}" for output in result.outputs),
        "warnings": ";".join(result.warnings),
        "status": result.status,
        "phase_reached": result.phase,
        "error": result.failure.message if result.failure else None,
        "started_at": result.started_at,
        "wall_seconds": result.wall_seconds,
        "system": machine.system if machine else None,
        "processor": machine.processor if machine else None,
        "cores": machine.cores if machine else None,
        "device_source": result.sources.device,
        **{
            name: getattr(result, name)
            for name in ("load_seconds", "prepare_seconds", "iterations_seconds")
        },
        "peak_memory_bytes": result.peak_memory_bytes,
        "lar_version": result.lar_version,
    }
