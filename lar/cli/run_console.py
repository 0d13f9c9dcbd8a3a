"""The output of a run: lines during the run, then its reports and its error."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from lar.cli.outlet import Outlet, ProgressLine
from lar.cli.report_files import ReportFiles, kept_for_later, open_reports, raise_all
from lar.engines import engine_named
from lar.engines.listener import Listener, Rows
from lar.errors import EXIT_CODES, LarError, one_line, printable, printable_lines
from lar.options.table import VERBOSE
from lar.records.events import Classified, Event, Fed, Finished, Judged
from lar.records.record import pieces_of_json
from lar.records.run import RunContext, RunResult, RunSpec
from lar.reports.run_text import (
    CaseLines,
    format_accuracy,
    format_algorithms,
    format_classes,
    format_event,
    format_finish,
    format_last_words,
    format_note,
    format_rows,
    format_summary,
)
from lar.running.isolation import LAST_SECONDS, info_of

if TYPE_CHECKING:
    from lar.cli.report_files import Content


# The time to format and write a row of CSV, which repeats the facts of the run.
CSV_SECONDS = 15e-6


@contextlib.contextmanager
def open_console(
    spec: RunSpec, context: RunContext, values: Mapping[str, Any]
) -> Iterator[Console]:
    """Open the output of a run; with --model-info, print what the model holds.

    Raises:
        UsageError: a report cannot be written.
    """
    with open_reports(values) as reports:
        # A report on standard output must be alone there.
        printer = LinePrinter(spec, reports.console, may_fail=bool(reports.files))
        if values["csv"] is not None:
            printer.report_seconds += CSV_SECONDS
        if values["model_info"]:
            from lar.reports.info_text import report_info

            print_lines(printer.lines, report_info(info_of(spec, context)).lines_for())
        yield Console(printer, reports)


class Console(NamedTuple):
    """The output of a run: lines and warnings during the run, and reports after the run."""

    printer: LinePrinter
    reports: ReportFiles

    def finish(self, result: RunResult) -> int:
        """Print and write what follows the last iteration; return the exit code.

        Raises:
            LarError: the run failed or was ended early, or a report cannot be written.
            OSError: the lines could not be written.
        """
        self.printer.finish(result)
        if result.status == "ok":
            spec = self.printer.spec
            hint = engine_named(spec.engine).hints_for(result, {**os.environ, **spec.environment})
            print_lines(self.printer.notes, [f"hint: {hint}"] if hint else [])
        errors = list[LarError]()
        with kept_for_later(errors):
            print_lines(self.printer.notes, self.reports.save([result]))
        with kept_for_later(errors):
            self.reports.write(partial(content_of, result), prints=False)
        raise_all(errors)
        if result.failure is not None:
            raise result.failure.to_error()
        if self.printer.lines.error:
            raise self.printer.lines.error
        return EXIT_CODES[result.status]


def content_of(result: RunResult, form: str) -> Content:
    """Return the content of the file of --json, --csv or --html."""
    if form == "json":  # the record alone: a report's rows would take time and are not used
        return chain(pieces_of_json(result), [b"\n"])
    from lar.reports.run_report import report_run  # few runs need it

    return report_run(result)


def print_lines(outlet: Outlet, lines: list[str]) -> None:
    """Print several lines with one system call, so that printing is fast."""
    if lines:
        outlet.write("".join(f"{printable(line)}\n" for line in lines))


class LinePrinter(Listener):
    """A listener that prints the lines of a run during the run."""

    def __init__(self, spec: RunSpec, lines: TextIO, *, may_fail: bool) -> None:
        """If `may_fail`, the run goes on to write its reports even if nobody reads its lines."""
        self.spec = spec
        self.notes = Outlet(sys.stderr, may_fail=True)
        self.lines = self.notes if lines is sys.stderr else Outlet(lines, may_fail=may_fail)
        self.show_log = bool(VERBOSE.of(spec.settings))
        self.began = time.monotonic()
        self.progress = ProgressLine(self.notes)
        self.printed_warnings: set[str] = set()  # of the result's warnings
        self.printed_rows = 0
        self.cases = CaseLines(spec) if spec.cases else None

    def has_room(self, seconds: float) -> bool:
        return self.lines.has_room(seconds) and self.notes.has_room(seconds)

    def on_event(self, event: Event, result: RunResult) -> None:
        self.progress.clear()
        if isinstance(event, (Fed, Finished)):
            self.printed_warnings.update(event.warnings)
        line = format_event(event, self.spec)
        lines = [line] if line else []
        if self.cases and isinstance(event, Judged):
            lines += self.cases.take(event)
        if isinstance(event, Classified):
            lines += [format_classes(each, self.spec) for each in event.items]
        print_lines(self.lines, lines)
        print_lines(self.notes, format_note(event, self.spec))

    def on_rows(self, rows: Rows, first: int, last: int, result: RunResult) -> None:
        self.progress.clear()
        self.printed_rows += last - first
        if self.cases:
            self.cases.add(rows, first, last)  # printed when they are judged
            return
        spec, warmups = result.spec, rows.warmups_so_far
        numbered = zip(range(first, last), rows.times(first, last), strict=True)
        print_lines(self.lines, [*format_rows(numbered, spec, rows.runner, warmups)])
        if spec.items and not self.lines.isatty():
            done = max(0, last - spec.warmup_iterations) // max(1, spec.iterations)
            self.progress.show(f"{done} of {len(spec.items)} items", time.monotonic() - self.began)

    def on_log(self, text: bytes) -> None:
        if self.show_log:
            self.progress.clear()
            self.notes.write(printable_lines(text.decode(errors="replace")))

    def on_progress(self, text: str, elapsed: float) -> None:
        self.progress.show(text, elapsed)

    def finish(self, result: RunResult) -> None:
        """Print what follows the last iteration."""
        self.progress.clear()
        lines = self.cases.finish(result) if self.cases else format_finish(result)
        lines = [*lines, *format_summary(result), *format_algorithms(result)]
        print_lines(self.lines, [*lines, *format_accuracy(result)])
        unprinted = [text for text in result.warnings if text not in self.printed_warnings]
        print_lines(self.notes, [one_line(f"lar: warning: {text}") for text in unprinted])
        left = len(result.warmup.end_to_end) + len(result.samples.end_to_end) - self.printed_rows
        if left > 0:
            note = f"lar: note: for {left} iterations there was no time to print their lines"
            print_lines(self.notes, [f"{note}; --json FILE and --csv FILE have them"])
        print_lines(self.notes, format_last_words(result))
        self.drain(LAST_SECONDS if result.status in ("interrupted", "timed_out") else math.inf)

    def drain(self, seconds: float) -> None:
        """Wait until all lines are printed, for at most `seconds`."""
        end = time.monotonic() + seconds
        while not self.has_room(0.1):
            if time.monotonic() > end:
                print_lines(self.notes, ["lar: warning: nobody reads the rest of the lines"])
                return
