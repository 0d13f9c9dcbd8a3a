"""A run on the console: its lines while it goes on, its reports, its errors."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from lar.api import error_of, read_info, run_spec
from lar.artifacts import STREAMS, artifacts_of
from lar.commands.progress_line import ProgressLine
from lar.engines import load_name
from lar.errors import EXIT_CODES, UsageError, printable
from lar.events import Classified, Event, Judged, Listener
from lar.measurement.rows import SampleRows
from lar.options import BY_KEY, flag_of
from lar.plan import Plan, spec_of
from lar.records import RunResult, RunSpec, record_to_json
from lar.reports.algorithms_text import format_algorithms
from lar.reports.case_text import CaseLines
from lar.reports.class_text import format_accuracy, format_classes
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
        check_artifacts(outputs.values(), spec)
        # A report on standard output stands there alone.
        on_stdout = [f"--{key}" for key, file in outputs.items() if file.to_stdout]
        if on_stdout and "io_dump_stdout" in spec.settings:
            raise UsageError(
                f"--io-dump-stdout and {on_stdout[0]} both go to standard output",
                "give one of them a file: --io-dump FILE",
            )
        lines = sys.stderr if on_stdout else sys.stdout
        printer = LinePrinter(spec, lines)
        if values["model_info"]:
            print_lines(lines, format_info(read_info(spec.model, engine=spec.engine)))
        result = run_spec(
            spec,
            path,
            printer,
            started=started,
            in_process=started is None,
            overwrite=bool(values["overwrite"]),
            resume=bool(values["resume"]),
        )
        printer.finish(result)
        if result.status == "ok" and plan.engine.hints:
            hints = load_name(plan.engine.hints)(spec.settings, {**os.environ, **spec.environment})
            print_lines(sys.stderr, [f"hint: {hint}" for hint in hints])
        for key, file in outputs.items():
            file.write(FORMATS[key](result))
    if result.failure is not None:
        raise error_of(result)
    return EXIT_CODES[result.status]


def check_artifacts(outputs: Iterable[OutputFile], spec: RunSpec) -> None:
    """Refuse a report where the engine writes a file, or writes one where it reads one.

    Raises:
        UsageError: naming the flags.
    """
    read = {os.path.realpath(name) for name in files_of(spec.inputs) if name}
    for key, place in artifacts_of(spec).items():
        if BY_KEY[key].writes in STREAMS:
            continue
        real = os.path.realpath(place)
        for file in outputs:
            if not file.to_stdout and real == str(file.path):
                raise UsageError(
                    f"{flag_of(key)} and {file.flag} go to the same place, {place}",
                    "give each its own",
                )
        if BY_KEY[key].writes == "file" and real in read and os.path.isfile(real):
            raise UsageError(f"{flag_of(key)}: {place}: the run reads this file", "choose another")


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
        self.began = time.monotonic()
        self.progress = ProgressLine(sys.stderr)
        self.told: set[str] = set()  # of the result's warnings
        self.cases = CaseLines(spec) if spec.cases else None

    def on_event(self, event: Event, result: RunResult) -> None:
        self.progress.clear()
        self.told.update(result.warnings)
        line = format_event(event, self.spec)
        lines = [line] if line else []
        if self.cases and isinstance(event, Judged):
            lines += self.cases.take(event)
        if isinstance(event, Classified):
            lines.append(printable(format_classes(event.classes, self.spec)))
        print_lines(self.lines, lines)
        print_lines(sys.stderr, format_note(event, self.spec))

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        self.progress.clear()
        if self.cases:
            self.cases.add(rows, first, last)  # printed when they are judged
            return
        spec = result.spec
        print_lines(
            self.lines,
            [format_row(index, rows.row(index), spec, rows.runner) for index in range(first, last)],
        )
        if spec.items and not self.lines.isatty():
            done = max(0, last - spec.warmup_iterations) // max(1, spec.iterations)
            elapsed = time.monotonic() - self.began
            self.progress.show(f"{done} of {len(spec.items)} items", elapsed)

    def on_log(self, text: bytes) -> None:
        if self.show_log:
            self.progress.clear()
            sys.stderr.write(text.decode(errors="replace"))
            sys.stderr.flush()

    def on_progress(self, text: str, elapsed: float) -> None:
        if text:
            self.progress.show(text, elapsed)
        else:
            self.progress.end()

    def finish(self, result: RunResult) -> None:
        """Print what follows the last iteration."""
        self.progress.end()
        lines = self.cases.finish(result) if self.cases else format_finish(result)
        print_lines(self.lines, lines)
        print_lines(self.lines, format_summary(result))
        print_lines(self.lines, format_algorithms(result))
        print_lines(self.lines, format_accuracy(result))
        untold = [text for text in result.warnings if text not in self.told]
        print_lines(sys.stderr, [printable(f"lar: warning: {text}") for text in untold])
        print_lines(sys.stderr, format_last_words(result))
