"""The files of `--json`, `--csv` and their like, which a command opens before it does anything."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from lar.cli.screen import screen_of_output
from lar.cli.table_output import render
from lar.errors import LarError, error_of_write, error_with_code
from lar.reports.report import Report

if TYPE_CHECKING:
    from lar.files.report_file import OutputFile

SUFFIXES = {"markdown": "md"}


class ReportFiles:
    """The files of a report, each with its form; without one the report is only printed."""

    def __init__(self, files: Iterable[tuple[str, OutputFile]] = ()) -> None:
        self.forms = [*files]
        self.files = [file for _, file in self.forms]

    @property
    def console(self) -> TextIO:
        """Where else something is printed: standard error, if a file is standard output."""
        return sys.stderr if any(file.to_stdout for file in self.files) else sys.stdout

    def write(self, made: Report | Callable[[str], Report]) -> list[LarError]:
        """Print a report, and write it in all forms; return why some could not be written. It may
        be made anew for each form."""
        errors = list[LarError]()

        def report_as(form: str) -> Report:
            return made(form) if callable(made) else made

        if self.console is sys.stdout:
            print(report_as("text").text_for(screen_of_output()), end="", flush=True)
        for form, file in self.forms:
            with kept_for_later(errors):
                file.write(render(report_as(form), form, to_stdout=file.to_stdout))
        return errors


def open_reports(
    arguments: argparse.Namespace, keys: Iterable[str], stack: contextlib.ExitStack, name: str = ""
) -> ReportFiles:
    """Open the files that flags name, whose keys are the forms; `name` is that of the file in
    folders, which the flags name then.

    Raises:
        UsageError: a file cannot be written.
    """
    from lar.files.report_file import OutputFile  # what only prints needs no files

    given = {key: path for key in keys if (path := getattr(arguments, key)) is not None}
    places = {key: place_in(path, name, SUFFIXES.get(key, key)) for key, path in given.items()}
    return ReportFiles(
        (key, stack.enter_context(OutputFile(place, f"--{key}"))) for key, place in places.items()
    )


@contextlib.contextmanager
def kept_for_later(errors: list[LarError]) -> Iterator[None]:
    """Add an error to those that are raised in the end."""
    try:
        yield
    except LarError as error:
        errors.append(error)


def raise_all(errors: Sequence[LarError], head: str = "") -> None:
    """Raise errors as one, with the highest exit code; a head stands before several.

    Raises:
        LarError: if there are any.
    """
    if not errors:
        return
    worst = max(errors, key=lambda error: error.exit_code)
    if len(errors) == 1:
        raise worst
    text = head + "; ".join(each.message for each in errors)
    raise error_with_code(worst.exit_code, text, worst.hint)


def place_in(path: str, name: str, suffix: str) -> str:
    """Return where a file goes: with a name into a folder, which is made.

    Raises:
        UsageError: it is not a folder, or cannot be made.
    """
    if not name or path == "-":
        return path
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise error_of_write(error, subject=path, hint="give a folder") from None
    return os.path.join(path, f"{name}.{suffix}")
