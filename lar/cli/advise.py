"""`lar advise MODEL`: profile a model, and try the settings that the profile suggests."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lar.cli.arguments import MODEL, declared, headings_of
from lar.errors import UsageError
from lar.options.table import BENCH_OPTIONS, ITER, PROFILE

if TYPE_CHECKING:
    from lar.records.profile import Profile

# The suggestions need a median of this many iterations.
ITERATIONS = 20

ARGUMENTS = (MODEL, declared("advise"), *headings_of(BENCH_OPTIONS))


def main(arguments: argparse.Namespace) -> int:
    """Profile the model, try the suggested settings, print the results; return the exit code.

    Raises:
        LarError: the model cannot be run with these options.
    """
    began = time.monotonic()
    # Imported here: the help needs none of it.
    from lar.cli.bench import check_end, describe_progress
    from lar.cli.outlet import PacedLine
    from lar.cli.report_files import ReportFiles
    from lar.engines.advice import suggestions_of
    from lar.files.work_folders import work_folder
    from lar.profiles.trace_file import add_tried
    from lar.reports.bench_report import build_report, describe_advice
    from lar.reports.report import Report
    from lar.reports.styles.operators import summary_lines
    from lar.running.bench import MOST_TRIED, plan_plain, race, tried_in

    if arguments.iter == 0:
        raise UsageError("nothing would be profiled", "give 1 or more", flag=ITER.flag)
    values = vars(arguments)
    options = {it.key: values[it.key] for it in BENCH_OPTIONS if it.is_given(values)}
    plain = plan_plain(arguments.model, options)
    with work_folder() as folder, PacedLine(sys.stderr) as line:
        line.show("profiling the model")
        path = arguments.profile or os.path.join(folder, "profile.json")
        iterations = ITERATIONS if arguments.iter is None else arguments.iter
        recorded = {**options, ITER.key: iterations, PROFILE.key: path}
        profile = record_profile(arguments.model, recorded, began)
        line.end()
        found = suggestions_of(profile)[:MOST_TRIED]
        lines = summary_lines(profile, "" if found else describe_advice(profile))
        ReportFiles().write(Report(style="advise", body=tuple(lines)))
        if not found:
            return 0
        bench = race(
            plain,
            found,
            budget_seconds=arguments.budget,
            report=lambda progress: line.show(describe_progress(progress)),
            show=line.show,
        )
        line.end()
        if bench.failure is None:  # else the baseline failed, and `check_end` raises its error
            tried = tried_in(bench, found)
            print()
            ReportFiles().write(build_report(bench, tried, found, options))
            if arguments.profile and bench.stopped != "interrupted":
                add_tried(path, tried)
    check_end(bench)
    return 0


def record_profile(model: str, options: Mapping[str, Any], began: float) -> Profile:
    """Profile a model, and return its profile.

    The times of the operators are scaled so that they add up to the time of an iteration without
    profiler.

    Raises:
        LarError: the run failed or was ended early.
    """
    from lar.engines.operator_times import read_profile
    from lar.profiles.costs import fit_to_plain
    from lar.records.run import RunContext
    from lar.running.isolation import require_ok
    from lar.running.plan import plan_run
    from lar.running.steps import make_run

    require_ok(make_run(plan_run(model, options, began=began), RunContext(began=began)))
    return fit_to_plain(read_profile(str(options[PROFILE.key])))
