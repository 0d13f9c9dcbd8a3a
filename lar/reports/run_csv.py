"""A run as CSV: a row an iteration, the facts of the run repeated in each."""

from __future__ import annotations

from collections.abc import Sequence

from lar.records.run import RunResult, Samples
from lar.reports.csv import format_row
from lar.reports.model import Column, Table

# The columns of a sample, each with that of `Samples` which it holds.
SAMPLE_COLUMNS = {
    "end_to_end_seconds": "end_to_end",
    "host_seconds": "host",
    "device_seconds": "device",
    "queue_delay_seconds": "queue_delay",
    "began_seconds": "began",
    "cpu_seconds": "cpu",
    "busiest_thread_seconds": "busiest_thread",
    "steal_seconds": "steal",
    "throttled_seconds": "throttled",
    "frequency_hz": "frequency",
    "queueing_seconds": "queueing",
    "probe_seconds": "probe",
}
FACT_COLUMNS: tuple[Column[RunResult], ...] = (
    Column("model", lambda it: it.spec.model),
    Column("sha256", lambda it: it.model.sha256 if it.model else None),
    Column("engine", lambda it: it.spec.engine),
    Column("engine_version", lambda it: it.engine.version if it.engine else None),
    Column("driver", lambda it: it.spec.driver),
    Column("device", lambda it: it.spec.device),
    Column(
        "settings", lambda it: " ".join(f"{key}={value}" for key, value in it.spec.settings.items())
    ),
    Column(
        "environment",
        lambda it: " ".join(f"{key}={value}" for key, value in it.spec.environment.items()),
    ),
    Column("inputs", lambda it: ";".join(fed.source for fed in it.fed)),
    Column(
        "outputs", lambda it: ";".join(f"{output.name}:{output.sha256}" for output in it.outputs)
    ),
    Column("warnings", lambda it: ";".join(it.warnings)),
    Column("status", lambda it: it.status),
    Column("phase_reached", lambda it: it.phase),
    Column("error", lambda it: it.failure.message if it.failure else None),
    Column("started_at", lambda it: it.started_at),
    Column("wall_seconds", lambda it: it.wall_seconds),
    Column("system", lambda it: it.machine.system if it.machine else None),
    Column("processor", lambda it: it.machine.processor if it.machine else None),
    Column("cores", lambda it: it.machine.cores if it.machine else None),
    Column("device_source", lambda it: it.sources.device),
    Column("load_seconds", lambda it: it.load_seconds),
    Column("prepare_seconds", lambda it: it.prepare_seconds),
    Column("iterations_seconds", lambda it: it.iterations_seconds),
    Column("peak_memory_bytes", lambda it: it.peak_memory_bytes),
    Column("lar_version", lambda it: it.lar_version),
)


def format_csv(result: RunResult) -> str:
    """Return the CSV text; a run without iterations has one row of facts.

    Empty cells are unknown. Times are seconds and sizes bytes.
    """
    facts = Table(name="facts", title="Facts", columns=FACT_COLUMNS, rows=(result,))
    header = ["phase", "index", "runner", *SAMPLE_COLUMNS, "case", *facts.headings]
    # The facts are the same in each of what may be millions of rows, so they are formatted once.
    tail = format_row(facts.records[0])
    rows = [*rows_of("warmup", result.warmup, tail), *rows_of("iterations", result.samples, tail)]
    nothing = "," * (len(header) - len(facts.headings))
    return format_row(header) + ("".join(rows) or f"{result.phase}{nothing}{tail}")


def rows_of(phase: str, samples: Samples, tail: str) -> list[str]:
    """Return a line for each sample, which ends with `tail`; the iterations of each runner,
    testcase or item count from 0."""
    rows: list[str] = []
    for runner in sorted({*samples.runner}) or [0]:
        own = samples.of_runner(runner)
        count = len(own.end_to_end)
        columns = [
            [cell_of(value) for value in getattr(own, name)] or [""] * count
            for name in SAMPLE_COLUMNS.values()
        ]
        cases: Sequence[int | str] = own.case or [""] * count
        counts: dict[int | str, int] = {}
        for case, *cells in zip(cases, *columns, strict=True):
            index = counts.get(case, 0)
            counts[case] = index + 1
            rows.append(f"{phase},{index},{runner},{','.join(cells)},{case},{tail}")
    return rows


def cell_of(value: float | None) -> str:
    """Return a number as a cell, empty if it is not known."""
    return "" if value is None else repr(value)
