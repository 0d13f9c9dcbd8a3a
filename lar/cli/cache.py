"""`lar cache`: cache files of fast-run, of any engine, shown, compared, merged and edited."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace

from lar.cli.arguments import declared
from lar.cli.report_files import ReportFiles, open_reports
from lar.engines import all_engines
from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.engines.formats import HEAD_SIZE
from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.reports.model import INDENTED, PLAIN, AnyTable, table_of_values
from lar.reports.report import Report
from lar.reports.text import format_bytes

# History of what `show --json` writes:
#   lar.cache/1  first version
CACHE_FORMAT = "lar.cache/1"

ARGUMENTS = (declared("cache"),)


def main(arguments: argparse.Namespace) -> int:
    """Do what the action says, as `show_cache`; return the exit code."""
    code: int = globals()[f"{arguments.action}_cache"](arguments)
    return code


def show_cache(arguments: argparse.Namespace) -> int:
    """Print what a file holds."""
    paths = arguments.files
    report = files_of_all(paths).show(paths, arguments.operator, every_algorithm=arguments.all)
    named = {"files": paths} if len(paths) > 1 else {"file": paths[0]}
    content = {"format": CACHE_FORMAT, **named, **report.record}
    with open_reports(vars(arguments)) as files:
        document = json.dumps(content, indent=2) + "\n"
        files.write(lambda form: report_of(report) if form == "text" else document)
    return 0


def diff_cache(arguments: argparse.Namespace) -> int:
    """Print how two files differ; return 1 when they do."""
    files = files_of_all([arguments.first, arguments.second])
    return print_report(files.compare(arguments.first, arguments.second))


def merge_cache(arguments: argparse.Namespace) -> int:
    """Add the content of all files to one file, which keeps what it has."""
    files = files_of_all([*arguments.files, *there(arguments.output)])
    return print_report(files.merge(arguments.files, arguments.output, arguments.prefer))


def pick_cache(arguments: argparse.Namespace) -> int:
    """Change one choice in a file, or in OUT, which then gets what it lacks from the file."""
    files = files_of_all([arguments.file, *there(arguments.output)])
    return print_report(
        files.pick(arguments.file, arguments.operator, arguments.algorithm, arguments.output)
    )


def print_report(report: CacheReport) -> int:
    """Print a report, and return the exit code: 1 where it is of a difference."""
    ReportFiles().write(report_of(report))
    return 1 if report.differs else 0


def there(output: str | None) -> list[str]:
    """Return the file to add to, if there is one."""
    return [output] if output and os.path.lexists(output) else []


def files_of(path: str) -> CacheFiles:
    """Return the engine's kind of cache files that a file is of.

    Raises:
        UsageError: it cannot be read, or no engine has such a cache.
    """
    with open_input(path, what="fast-run cache") as file:
        head = file.read(HEAD_SIZE)
    known = {engine.name: engine.cache for engine in all_engines() if engine.cache}
    for kind in known.values():
        if kind.begins(head):
            return kind
    problem = "is not a fast-run cache that an engine reads"
    raise UsageError(problem, f"engines with caches: {', '.join(known)}", subject=path)


def files_of_all(paths: Sequence[str]) -> CacheFiles:
    """Return the one kind that several files are of.

    Raises:
        UsageError: they are of two engines.
    """
    first, *others = (files_of(path) for path in paths)
    if any(kind is not first for kind in others):
        raise UsageError("these are caches of two engines", subject=", ".join(paths))
    return first


def report_of(report: CacheReport) -> Report:
    """Return what an engine says of caches as a report."""
    return Report(
        style="cache",
        body=tuple(it if isinstance(it, str) else table_of(it) for it in report.lines),
    )


def table_of(part: CacheTable) -> AnyTable:
    """Return a table of a report, sizes in the unit that fits."""

    def shown(cell: str | Size) -> str:
        return format_bytes(cell.size_bytes) + cell.note if isinstance(cell, Size) else cell

    rows = [[*map(shown, row)] for row in part.rows]
    table = table_of_values("", "", part.header, rows)
    return replace(table, layout=INDENTED if part.is_indented else PLAIN)
