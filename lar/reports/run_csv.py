"""A run as CSV: a row an iteration, the facts of the run repeated in each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from lar.records.run import RunResult, Samples

SAMPLE_COLUMNS = ("end_to_end_seconds", "host_seconds", "device_seconds", "queue_delay_seconds")


def facts_of(result: RunResult) -> dict[str, object]:
    """Return the facts of a run as columns, in order."""
    spec, engine, machine = result.spec, result.engine, result.machine
    return {
        "model": spec.model,
        "sha256": result.model.sha256 if result.model else None,
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
        "load_seconds": result.load_seconds,
        "prepare_seconds": result.prepare_seconds,
        "iterations_seconds": result.iterations_seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "lar_version": result.lar_version,
    }


def format_csv(result: RunResult) -> str:
    """Return the CSV text; a run without iterations has one row of facts.

    Empty cells are unknown. Times are seconds and sizes bytes.
    """
    facts = facts_of(result)
    header = ["phase", "index", "runner", *SAMPLE_COLUMNS, "case", *facts]
    # The facts are the same in each of what may be millions of rows.
    tail = format_row(facts.values())
    rows = [*rows_of("warmup", result.warmup, tail), *rows_of("iterations", result.samples, tail)]
    return format_row(header) + ("".join(rows) or f"{result.phase},,,,,,,,{tail}")


def format_row(cells: Iterable[object]) -> str:
    """Return a line of cells, quoted where they need it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def rows_of(phase: str, samples: Samples, tail: str) -> list[str]:
    """Return a line for each sample, which ends with `tail`; the iterations of each runner,
    testcase or item count from 0."""
    rows: list[str] = []
    for runner in sorted({*samples.runner}) or [0]:
        own = samples.of_runner(runner)
        device, delay = (
            [cell_of(value) for value in each] for each in (own.device, own.queue_delay)
        )
        cases: Sequence[int | str] = own.case or [""] * len(own.end_to_end)
        counts: dict[int | str, int] = {}
        columns = zip(cases, own.end_to_end, own.host, device, delay, strict=True)
        for case, end_to_end, host, on_device, waited in columns:
            index = counts.get(case, 0)
            counts[case] = index + 1
            rows.append(
                f"{phase},{index},{runner},{end_to_end},{host},{on_device},{waited},{case},{tail}"
            )
    return rows


def cell_of(value: float | None) -> str:
    """Return a number as a cell, which is empty where it is not known."""
    return "" if value is None else repr(value)
