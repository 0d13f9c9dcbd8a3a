"""`lar results A.json B.json ...` prints results of any machines and models side by side."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lar.cli import gates
from lar.cli.arguments import declared
from lar.cli.screen import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lar.files.report_file import OutputFile
    from lar.records.run import RunResult
    from lar.results import NamedResult
    from lar.results.side_by_side import Row, SideBySide

ARGUMENTS = (declared("results"),)


def main(arguments: argparse.Namespace) -> int:
    """Print the table; return the exit code.

    Raises:
        UsageError: a file is no result, or the table cannot be written.
    """
    # Imported here: the help needs none of it.
    from lar.cli.report_files import check_places
    from lar.files.report_file import OutputFile
    from lar.results.reading import name_of_baseline, read_named

    with OutputFile(arguments.output, "--output") as output:
        named = read_named(arguments.files)
        check_places([output], [each.path for each in named if each.path != "-"])
        baseline = name_of_baseline(arguments.baseline, named)
        compared = write_table(arguments, named, baseline, output)
    if not output.to_stdout:
        say(f"wrote {output.name}", sys.stdout)
    if not gates.is_asked(arguments):
        return 0
    form = arguments.format if output.to_stdout else "text"
    return gates.close(arguments, outcomes_of(compared), gates.stream_beside(form))


def write_table(
    arguments: argparse.Namespace, named: Sequence[NamedResult], baseline: str, output: OutputFile
) -> SideBySide:
    """Write the table of results side by side, and return its content.

    A table in CSV has no place for warnings, so lar prints the warnings. A table in any format
    except CSV contains the warnings.
    """
    from lar.cli.report_files import render
    from lar.reports.results_report import report_results, warnings_of
    from lar.results.side_by_side import compare_results

    by = [word for word in arguments.by.replace(" ", "").split(",") if word]
    compared = compare_results(named, by, baseline)
    output.write(render(report_results(compared), arguments.format, to_stdout=output.to_stdout))
    for text in warnings_of(compared) if arguments.format == "csv" else ():
        say(f"lar: warning: {text}")
    return compared


def outcomes_of(compared: SideBySide) -> list[gates.Outcome]:
    """Return how each row failed, or how the row differs from its baseline.

    A baseline row without a failure is left out.
    """
    from lar.results.side_by_side import DISTURBED

    return [
        gates.failed_run(row.name, failed)
        if (failed := find_failed(row))
        else gates.Outcome(row.name, row.difference, reason=DISTURBED)
        for row in compared.rows
        if row.baseline != row.name or find_failed(row)
    ]


def find_failed(row: Row) -> RunResult | None:
    """Return the first failed run of a row; if no run has times, the first run counts as failed."""
    found = next((each for each in row.results if each.status != "ok"), None)
    return found if found or row.timed else row.results[0]
