"""`lar advise MODEL`: profile a model, and try what the profile suggests, in one go."""

from __future__ import annotations

import argparse
import os
import sys
import time

from lar.cli.report import TRY_SECONDS, print_tried, read_corrected
from lar.cli.run_help import MODEL
from lar.errors import UsageError
from lar.options.arguments import add_arguments as add_options
from lar.options.arguments import add_option
from lar.options.table import ITER, PROFILE
from lar.options.values import parse_duration
from lar.options.variants import BENCH_KEYS, BENCH_OPTIONS

# A median of so many iterations is what the suggestions rest on.
ITERATIONS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    group = parser.add_argument_group("what to try")
    group.add_argument(
        "--budget",
        type=parse_duration,
        default=TRY_SECONDS,
        metavar="S",
        help="measure the suggestions for at most S seconds, or 2m, after the profile "
        f"(default {TRY_SECONDS:g})",
    )
    add_option(group, ITER, f"profile N iterations (default {ITERATIONS})")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    add_options(parser, {}, BENCH_OPTIONS)


def main(arguments: argparse.Namespace) -> int:
    """Profile, try and print; return the exit code.

    Raises:
        LarError: the model cannot be run as it is asked for.
    """
    began = time.monotonic()
    # Not before: the help needs none of it.
    from lar.cli.progress_line import LateLine
    from lar.cli.screen import screen_of_output
    from lar.engines.advice import recommendations_for
    from lar.files.work_folders import work_folder
    from lar.records.run import Failure, RunContext
    from lar.reports.tried_text import format_advice
    from lar.running.plan import plan_run
    from lar.running.steps import make_run
    from lar.running.tried_advice import settings_of

    if arguments.iter == 0:
        raise UsageError("nothing would be profiled", "give 1 or more", flag=ITER.flag)
    options = {
        key: value
        for key, value in vars(arguments).items()
        if key in BENCH_KEYS and value is not None and value is not False
    }
    iterations = ITERATIONS if arguments.iter is None else arguments.iter
    with work_folder() as folder:
        path = os.path.join(folder, "profile.json")
        spec = plan_run(
            arguments.model, {**options, ITER.key: iterations, PROFILE.key: path}, began=began
        )
        with LateLine(sys.stderr) as line:
            line.show("profiling the model")
            result = make_run(spec, RunContext(began=began))
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if result.status != "ok":
            raise (result.failure or Failure(problem=result.status)).to_error()
        profile = read_corrected(path)
    found = recommendations_for(profile)
    print("\n".join(format_advice(profile, found, screen_of_output())), flush=True)
    tried = settings_of(found)
    if not tried:
        return 0
    print()
    return print_tried(profile, tried, arguments.budget, (arguments.model, options))
