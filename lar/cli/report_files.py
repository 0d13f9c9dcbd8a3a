"""The outputs of a report: the console, and the files of `--json`, `--csv` and similar flags.

A command opens the files of its report before it does anything else.
"""

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
    """The files of a report, each with its format; without files, the report is only printed.

    With --save, `kept` has the store, and the tag with which results are stored.
    """

    def __init__(self, forms: Iterable[tuple[str, OutputFile]] = ()) -> None:
        self.forms = [*forms]
        self.files = [file for _, file in self.forms]
        self.kept: tuple[Store, str] | None = None

    @property
    def console(self) -> TextIO:
        """The stream for lines that do not belong to a report.

        The stream is standard error if a report goes to standard output, else standard output.
        """
        return sys.stderr if any(file.to_stdout for file in self.files) else sys.stdout

    def write(self, made: Content | Callable[[str], Content], *, prints: bool = True) -> None:
        """Print a report, and write it to each file in the file's format.

        `made` is the report, or its finished text, or a function that returns the report or the
        text for a format.

        Raises:
            LarError: a file could not be written; all other files were written.
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
        """If --save is given, store the results; return a note with their numbers in the store.

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
    """Return the text of a report in a format."""
    from lar.reports.text import PAPER  # a run without a report does not need it

    if form == "text":
        return report.text_for(screen_of_output() if to_stdout else PAPER)
    # Imported here: most commands need only one of these modules.
    module = importlib.import_module(f"lar.reports.{'html' if form == 'html' else 'formats'}")
    text: str = getattr(module, f"format_{form}")(report)
    return text


@contextlib.contextmanager
def open_places(
    places: Iterable[tuple[str, str, str]], read: Iterable[str] = (), others: Sequence[Place] = ()
) -> Iterator[ReportFiles]:
    """Open the files of a report.

    `places` has the format, the path and the flag of each file.

    Raises:
        UsageError: a file cannot be written, or would overwrite another file of the command.
    """
    places = [*places]
    if not places:
        yield ReportFiles()
        return
    from lar.files.report_file import OutputFile  # not needed if the report is only printed

    with contextlib.ExitStack() as stack:
        files = ReportFiles(
            (form, stack.enter_context(OutputFile(place, flag))) for form, place, flag in places
        )
        check_places(files.files, read, others)
        yield files


def check_places(
    outputs: Sequence[OutputFile], read: Iterable[str], places: Sequence[Place] = ()
) -> None:
    """Refuse reports that would overwrite each other, or another file of the command.

    `read` are the files that the command reads, and `places` are other paths that the command uses.

    Raises:
        UsageError: naming the flags.
    """
    from lar.options.paths import Place, refuse_clashes  # they need `pathlib`, which is slow

    on_stdout = [output.flag for output in outputs if output.to_stdout]
    if len(on_stdout) > 1:
        raise UsageError(
            f"{on_stdout[0]} and {on_stdout[1]} both write to stdout", "give each flag its own path"
        )
    files = [Place(output.name, output.flag) for output in outputs if not output.to_stdout]
    refuse_clashes([*places, *files], read)


@contextlib.contextmanager
def open_reports(
    values: Mapping[str, Any], name: str = "", read: Iterable[str] = ()
) -> Iterator[ReportFiles]:
    """Open the files that --json, --csv and similar flags name, and the store of --save.

    If `name` is given, each flag names a folder, and the file in this folder is called `name`. See
    `open_places`.
    """
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
    """Catch an error of the `with` block; add it to `errors`, which the caller raises later."""
    try:
        yield
    except LarError as error:
        errors.append(error)


def raise_all(errors: Sequence[LarError], head: str = "") -> None:
    """Raise all errors as one error, with the highest exit code.

    The message for several errors begins with `head`.

    Raises:
        LarError: `errors` is not empty.
    """
    if not errors:
        return
    worst = max(errors, key=lambda error: error.exit_code)
    if len(errors) == 1:
        raise worst
    text = head + "; ".join(each.message for each in errors)
    raise kind_of_error(worst.exit_code)(text, worst.hint)


def place_in(path: str, name: str, suffix: str) -> str:
    """Return the path of the file to write for a flag with the value `path`.

    If `name` is given, `path` is the folder of the file, and the folder is created.

    Raises:
        UsageError: the path is not a folder, or the folder cannot be created.
    """
    if not name or path == "-":
        return path
    with writing(path, hint="give a folder"):
        os.makedirs(path, exist_ok=True)
    return os.path.join(path, f"{name}.{suffix}")
