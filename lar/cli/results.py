"""`lar results A.json B.json ...`: results of any machines, models and engines side by side."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from lar.cli.screen import screen_of_output
from lar.errors import UsageError, printable
from lar.files.report_file import OutputFile, check_places
from lar.reports.report import Report
from lar.reports.results_report import build_report
from lar.reports.text import PAPER, Screen
from lar.results.facts import NAMES, NamedResult
from lar.results.reading import read_parts
from lar.results.side_by_side import SideBySide, compare_results

FORMATS = ("text", "markdown", "csv", "html", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="what --json wrote, or what C++ load_and_run printed; NAME=FILE gives it a name; "
        "- for stdin",
    )
    add_table_arguments(parser)
    parser.add_argument("-o", "--output", metavar="OUT", default="-", help="write it there")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that shape a table of results."""
    parser.add_argument(
        "--by",
        metavar="FACTS",
        default="",
        help="a row for all results that agree in these, with commas between: "
        f"{', '.join(NAMES)}, or the flag of an option",
    )
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        default="",
        help="the row that ratios are against: its file or name, or a fact (`none`: without "
        "options) for the row that differs in nothing else (default the first of each model)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="the form of the table (default text)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the table; return the exit code.

    Raises:
        UsageError: a file is no result, or the table cannot be written.
    """
    with OutputFile(arguments.output, "--output") as output:
        named = read_named(arguments.files)
        check_places([output], [each.path for each in named if each.path != "-"])
        by = [word for word in arguments.by.replace(" ", "").split(",") if word]
        compared = compare_results(named, by, name_of_baseline(arguments.baseline, named))
        made = build_report(compared, with_page=arguments.format == "html")
        output.write(render(made, arguments.format, to_stdout=output.to_stdout))
    if not output.to_stdout:
        print(f"wrote {output.name}")
    warn_of(compared, arguments.format)
    return 0


def warn_of(compared: SideBySide, form: str) -> None:
    """Print the warnings of a table in CSV; the other forms have them beside it."""
    if form == "csv":
        for text in compared.warnings:
            print(printable(f"lar: warning: {text}"), file=sys.stderr)


def render(report: Report, form: str, *, to_stdout: bool) -> str:
    """Return a report in the form that is asked for."""
    if form == "markdown":
        from lar.reports.markdown import format_markdown

        return format_markdown(report)
    if form == "csv":
        from lar.reports.csv import format_csv

        return format_csv(report)
    if form == "json":
        from lar.reports.json import format_json

        return format_json(report)
    if form == "html":
        from lar.reports.html import format_html

        return format_html(report)
    screen: Screen = screen_of_output() if to_stdout else PAPER
    return report.text_for(screen)


def read_named(words: Sequence[str]) -> list[NamedResult]:
    """Return the results in files, each with a name of its own.

    Raises:
        UsageError: a file is no result.
    """
    names, paths = zip(*map(split_name, words), strict=True)
    if sum(path == "-" for path in paths) > 1:
        raise UsageError("standard input is given twice", "give it once", subject="-")
    parts = [
        (f"{name or short} {part.name}".strip(), name, path, part)
        for name, short, path in zip(names, shorten(paths), paths, strict=True)
        for part in read_parts(path)
    ]
    labels = distinguish([label for label, *_ in parts])
    return [
        NamedResult(label, result, path, name)
        for label, (_, name, path, part) in zip(labels, parts, strict=True)
        for result in part.results
    ]


def split_name(word: str) -> tuple[str, str]:
    """Return the name and the path in `NAME=FILE`; what exists is a path."""
    name, equals, path = word.partition("=")
    return ("", word) if not equals or not name or os.path.lexists(word) else (name, path)


def shorten(paths: Sequence[str]) -> list[str]:
    """Return each path as short as distinguishes it from the others."""
    parts = [os.path.normpath(path).split(os.sep) for path in paths]
    short = [its[-1] for its in parts]
    for length in range(2, max(map(len, parts)) + 1):
        count = Counter(short)
        distinct = {name: {*its} for name, its in group(short, paths)}
        short = [
            os.sep.join(its[-length:]) if count[name] > 1 and len(distinct[name]) > 1 else name
            for name, its in zip(short, parts, strict=True)
        ]
    return short


def group(names: Sequence[str], paths: Sequence[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each name with the paths that have it."""
    for name in dict.fromkeys(names):
        yield (
            name,
            {os.path.normpath(it) for its, it in zip(names, paths, strict=True) if its == name},
        )


def distinguish(names: Sequence[str]) -> list[str]:
    """Return names without two alike: the second `a` is `a (2)`."""
    seen: set[str] = set()
    labels = []
    for name in names:
        label, number = name, 1
        while label in seen:
            number += 1
            label = f"{name} ({number})"
        seen.add(label)
        labels.append(label)
    return labels


def name_of_baseline(asked: str, named: Sequence[NamedResult]) -> str:
    """Return the name of the row that a baseline's path stands for; anything else as it is."""
    if any(each.name == asked for each in named):
        return asked
    return next((each.name for each in named if each.path == asked), asked)
