"""A run on the console: its lines while it goes on, its reports, its errors."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import NoReturn, TextIO

from lar.api import read_info, run_spec
from lar.errors import EXIT_CODES, LarError
from lar.events import Event, Listener
from lar.measurement.rows import SampleRows
from lar.records import RunResult, RunSpec, record_to_json
from lar.reports.info_text import format_info
from lar.reports.output import OutputFile
from lar.reports.run_csv import format_csv
from lar.reports.run_text import (
    format_event,
    format_finish,
    format_note,
    format_row,
    format_summary,
)

FORMATS = {
    "json": lambda result: record_to_json(result).decode() + "\n",
    "csv": format_csv,
}


def run_on_console(spec: RunSpec, path: str, arguments: argparse.Namespace) -> int:
    """Run, print and write; return the exit code."""
    values = vars(arguments)
    with contextlib.ExitStack() as stack:
        outputs = {
            key: stack.enter_context(OutputFile(values[key], f"--{key}"))
            for key in FORMATS
            if values[key] is not None
        }
        # A report on standard output stands there alone.
        lines = sys.stderr if any(file.to_stdout for file in outputs.values()) else sys.stdout
        printer = LinePrinter(spec, lines)
        if arguments.model_info:
            print_lines(lines, format_info(read_info(spec.model, engine=spec.engine)))
        if arguments.in_process:
            from lar.worker import run_here

            result = run_here(spec, path, printer)
        else:
            result = run_spec(spec, path, printer)
        printer.finish(result)
        for key, file in outputs.items():
            file.write(FORMATS[key](result))
    if result.failure is not None:
        raise_failure(result, debug=arguments.debug)
    return EXIT_CODES[result.status]


def raise_failure(result: RunResult, *, debug: bool) -> NoReturn:
    """Show the engine's last words, and raise why the run did not end well.

    Raises:
        LarError: always, with the exit code of the result.
    """
    failure = result.failure
    assert failure is not None
    engine_spoke = failure.exit_code in (EXIT_CODES["crashed"], EXIT_CODES["timed_out"])
    if result.log_tail and engine_spoke:
        print_lines(sys.stderr, ["the engine's last words:"])
        print_lines(sys.stderr, [f"  | {line}" for line in result.log_tail.splitlines()])
    if debug and failure.detail:
        print_lines(sys.stderr, [failure.detail.rstrip()])
    raise LarError(failure.message, failure.hint, failure.exit_code)


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
        print_lines(sys.stderr, [f"lar: {note}" for note in format_note(event)])

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        print_lines(
            self.lines,
            [format_row(index, rows.row(index), self.spec) for index in range(first, last)],
        )

    def on_log(self, text: bytes) -> None:
        if self.show_log:
            sys.stderr.write(text.decode(errors="replace"))
            sys.stderr.flush()

    def finish(self, result: RunResult) -> None:
        """Print what follows the last iteration."""
        finished = format_finish(result)
        print_lines(self.lines, [finished] if finished else [])
        print_lines(self.lines, format_summary(result))
