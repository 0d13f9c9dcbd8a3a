"""`--in-process`: a run in this very process, for a debugger."""

from __future__ import annotations

import os
from dataclasses import replace

from lar.measurement.listener import Listener
from lar.measurement.rows import open_rows
from lar.records.events import Event, Failed, apply_event
from lar.records.run import RunContext, RunResult, RunSpec
from lar.running.isolation import INTERRUPTED, new_result, with_facts, with_model, with_samples
from lar.worker.execution import Execution
from lar.worker.main import failure_of


def run_here(spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in this very process, for a debugger; a crash of the engine ends it."""
    context = with_model(spec, context)
    result = with_facts(new_result(spec), context)
    os.environ.update(spec.environment)
    capacity = spec.sample_count
    tables = open_rows(-1, capacity, spec.runners)
    seen = [0] * len(tables)

    def show_rows() -> None:
        for number, rows in enumerate(tables):
            if rows.count > seen[number]:
                listener.on_rows(rows, seen[number], rows.count, result)
                seen[number] = rows.count

    def emit(event: Event) -> None:
        nonlocal result
        show_rows()
        result = apply_event(result, event)
        listener.on_event(event, result)

    try:
        emit(Execution(spec, context, emit, tables).run())
    except KeyboardInterrupt:
        show_rows()
        result = replace(result, status="interrupted", failure=INTERRUPTED)
    except Exception as error:
        emit(Failed(failure_of(error)))
    return with_samples(result, context, tables)
