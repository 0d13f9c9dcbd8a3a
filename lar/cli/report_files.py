"""Where a report goes: printed, and into the files of `--json`, `--csv` and their like, which a
command opens before it does anything."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from lar.cli.screen import screen_of_output
from lar.errors import LarError, UsageError, kind_of_error, writing
from lar.options.table import SAVE, STORE, TAG

if TYPE_CHECKING:
    from lar.files.report_file import OutputFile
    from lar.options.paths import Place
    from lar.records.run import RunResult
    from lar.reports.report import Report
    from lar.results.store import Store

    Content = Report | str | bytes | Iterator[bytes]

FORMS = ("json", "csv", "html", "markdown")  # whose flags name files
SUFFIXES = {"markdown": "md"}


class ReportFiles:
    """The files of a report, each with its form; without one the report is only printed. `kept` are
    the store for results and their tag there."""

    def __init__(self, forms: Iterable[tuple[str, OutputFile]] = ()) -> None:
        self.forms = [*forms]
        self.files = [file for _, file in self.forms]
        self.kept: tuple[Store, str] | None = None

    @property
    def console(self) -> TextIO:
        """The stream for other lines: standard error, if a file is standard output."""
        return sys.stderr if any(file.to_stdout for file in self.files) else sys.stdout

    def write(self, made: Content | Callable[[str], Content], *, prints: bool = True) -> None:
        """Print a report, and write it in all forms. It may be made anew for each form, and
        rendered already.

        Raises:
            LarError: some could not be written; the others are.
        """
        errors = list[LarError]()

        def content_as(form: str, *, to_stdout: bool) -> str | bytes | Iterator[bytes]:
            content = made(form) if callable(made) else made
            if isinstance(content, (str, bytes, Iterator)):
                return content
            return render(content, form, to_stdout=to_stdout)

        if prints and self.console is sys.stdout:
            print(content_as("text", to_stdout=True), end="", flush=True)
        # Standard output comes last: its reader may have gone.
        for form, file in sorted(self.forms, key=lambda it: it[1].to_stdout):
            with kept_for_later(errors):
                file.write(content_as(form, to_stdout=file.to_stdout))
        raise_all(errors)

    def save(self, results: Sequence[RunResult]) -> list[str]:
        """Put results into the store, if there is one, and return a note of their numbers there.

        Raises:
            LarError: the store cannot be written.
        """
        if self.kept is None or not results:
            return []
        store, tag = self.kept
        numbers = [str(each.id) for each in store.add(results, tag)]
        named = f"results {numbers[0]} to {numbers[-1]}" if numbers[1:] else f"result {numbers[0]}"
        return [f"lar: note: saved as {named} of {store.path}"]


def render(report: Report, form: str, *, to_stdout: bool) -> str:
    """Return a report in the form that is asked for."""
    from lar.reports.text import PAPER  # a run without a report does without

    if form == "text":
        return report.text_for(screen_of_output() if to_stdout else PAPER)
    # Imported here: most commands need one of them.
    module = importlib.import_module(f"lar.reports.{'html' if form == 'html' else 'formats'}")
    text: str = getattr(module, f"format_{form}")(report)
    return text


@contextlib.contextmanager
def open_places(
    places: Iterable[tuple[str, str, str]], read: Iterable[str] = (), others: Sequence[Place] = ()
) -> Iterator[ReportFiles]:
    """Open files, each of a form, a place and the flag that names it.

    Raises:
        UsageError: one cannot be written, or would replace another or a file that is read, or spoil
            one of the others.
    """
    places = [*places]
    if not places:
        yield ReportFiles()
        return
    from lar.files.report_file import OutputFile  # what only prints needs no files

    with contextlib.ExitStack() as stack:
        files = ReportFiles(
            (form, stack.enter_context(OutputFile(place, flag))) for form, place, flag in places
        )
        check_places(files.files, read, others)
        yield files


def check_places(
    outputs: Sequence[OutputFile], read: Iterable[str], places: Sequence[Place] = ()
) -> None:
    """Refuse reports that would replace each other, or a file that is read, or spoil one of the
    command's other places.

    Raises:
        UsageError: naming the flags.
    """
    from lar.options.paths import Place, refuse_clashes  # they need `pathlib`, which is slow

    on_stdout = [output.flag for output in outputs if output.to_stdout]
    if len(on_stdout) > 1:
        raise UsageError(
            f"{on_stdout[0]} and {on_stdout[1]} go to the same place", "give each its own"
        )
    files = [Place(output.name, output.flag) for output in outputs if not output.to_stdout]
    refuse_clashes([*places, *files], read)


@contextlib.contextmanager
def open_reports(
    values: Mapping[str, Any], name: str = "", read: Iterable[str] = ()
) -> Iterator[ReportFiles]:
    """Open the files that --json, --csv and their like name, and the store of --save; `name` is
    that of the file in folders, which the flags name then. See `open_places`."""
    given = {key: values[key] for key in FORMS if values.get(key) is not None}
    suffixes = {key: SUFFIXES.get(key, key) for key in given}
    places = [(key, place_in(path, name, suffixes[key]), f"--{key}") for key, path in given.items()]
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(open_places(places, read))
        if values.get(SAVE.key):
            from lar.results.store import open_store  # few runs need it

            store = stack.enter_context(open_store(values[STORE.key], create=True))
            files.kept = store, values[TAG.key] or ""
        yield files


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
    raise kind_of_error(worst.exit_code)(text, worst.hint)


def place_in(path: str, name: str, suffix: str) -> str:
    """Return where a file goes: with a name into a folder, which is made.

    Raises:
        UsageError: it is not a folder, or cannot be made.
    """
    if not name or path == "-":
        return path
    with writing(path, hint="give a folder"):
        os.makedirs(path, exist_ok=True)
    return os.path.join(path, f"{name}.{suffix}")
