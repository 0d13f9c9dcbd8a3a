"""A run on the console: its lines while it goes on, its reports, its errors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from lar.api import error_of, read_info, run_spec
from lar.engines import load_name
from lar.errors import EXIT_CODES
from lar.events import Event, Listener
from lar.measurement.rows import SampleRows
from lar.plan import Plan, spec_of
from lar.records import RunResult, RunSpec, record_to_json
from lar.reports.info_text import format_info
from lar.reports.output import OutputFile, check_places
from lar.reports.run_csv import format_csv
from lar.reports.run_text import (
    format_event,
    format_finish,
    format_last_words,
    format_note,
    format_row,
    format_summary,
)
from lar.worker_process import WorkerProcess

FORMATS = {
    "json": lambda result: record_to_json(result).decode() + "\n",
    "csv": format_csv,
}


def run_on_console(plan: Plan, started: WorkerProcess | None) -> int:
    """Run, print and write; return the exit code.

    `started` is the worker for it; without one the run is made in this process.
    """
    values, spec, path = plan.values, spec_of(plan), plan.driver.path
    with contextlib.ExitStack() as stack:
        outputs = {
            key: stack.enter_context(OutputFile(values[key], f"--{key}"))
            for key in FORMATS
            if values[key] is not None
        }
        check_places(
            list(outputs.values()),
            [
                spec.model,
                *files_of(spec.inputs),
                str(spec.settings.get("fast_run_algo_policy", "")),
            ],
        )
        # A report on standard output stands there alone.
        lines = sys.stderr if any(file.to_stdout for file in outputs.values()) else sys.stdout
        printer = LinePrinter(spec, lines)
        if values["model_info"]:
            print_lines(lines, format_info(read_info(spec.model, engine=spec.engine)))
        result = run_spec(spec, path, printer, started=started, in_process=started is None)
        printer.finish(result)
        if result.status == "ok" and plan.engine.hints:
            hints = load_name(plan.engine.hints)(spec.settings, {**os.environ, **spec.environment})
            print_lines(sys.stderr, [f"hint: {hint}" for hint in hints])
        for key, file in outputs.items():
            file.write(FORMATS[key](result))
    if result.failure is not None:
        raise error_of(result)
    return EXIT_CODES[result.status]


def files_of(items: Sequence[str]) -> list[str]:
    """Return what may be files in `--input` texts."""
    words = [word for item in items for word in item.split(";")]
    return [*words, *(word.partition(":")[2] for word in words)]


def print_lines(file: TextIO, lines: list[str]) -> None:
    """Print lines at once, so that those of a fast run cost one system call."""
    if lines:
        file.write("\n".join(lines) + "\n")
        file.flush()


class LinePrinter(Listener):
    """Prints the lines of a run while it goes on."""

    def __init__(self, spec: RunSpec, lines: TextIO) -> None:
        self.spec = spec
        self.lines = lines
        self.show_log = bool(spec.settings.get("verbose"))

    def on_event(self, event: Event, result: RunResult) -> None:
        line = format_event(event, self.spec)
        print_lines(self.lines, [line] if line else [])
        print_lines(sys.stderr, format_note(event, self.spec))

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        print_lines(
            self.lines,
            [
                format_row(index, rows.row(index), self.spec, rows.runner)
                for index in range(first, last)
            ],
        )

    def on_log(self, text: bytes) -> None:
        if self.show_log:
            sys.stderr.write(text.decode(errors="replace"))
            sys.stderr.flush()

    def finish(self, result: RunResult) -> None:
        """Print what follows the last iteration."""
        print_lines(self.lines, format_finish(result))
        print_lines(self.lines, format_summary(result))
        print_lines(sys.stderr, format_last_words(result))
