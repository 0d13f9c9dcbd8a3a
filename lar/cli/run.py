"""`lar run MODEL`: run a model, print its times, write the result."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lar.cli.run_help import MODEL, add_run_help
from lar.options.arguments import add_arguments as add_options

if TYPE_CHECKING:
    from lar.running.plan import Plan
    from lar.running.worker_process import WorkerProcess


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_help(parser)
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    add_options(parser, {})  # which engines honour a flag is slow to collect: see `name_engines`


def main(arguments: argparse.Namespace) -> int:
    """Run, print and write; return the exit code."""
    began = time.monotonic()
    # Not before: the help needs neither, and they are slow to import.
    from lar.running.plan import plan_run, spec_of

    plan = plan_run(arguments.model, vars(arguments))
    check_files(plan.values)
    if plan.is_stack:
        from lar.running.api import settle_stack

        plan = settle_stack(plan, began)
    with contextlib.ExitStack() as stack:
        worker = None if arguments.in_process else stack.enter_context(start_planned(plan))
        # The worker loads its libraries while this process loads its own.
        from lar.cli.run_console import Console
        from lar.running.run import Run
        from lar.running.steps import make_run

        spec = spec_of(plan)
        console = stack.enter_context(Console(plan, spec, began))
        run = Run(
            spec=spec,
            listener=console.printer,
            worker=worker,
            in_process=arguments.in_process,
            overwrite=bool(plan.values["overwrite"]),
            resume=bool(plan.values["resume"]),
            began=began,
        )
        return console.finish(make_run(run))


def start_planned(plan: Plan) -> contextlib.AbstractContextManager[WorkerProcess]:
    """Start the worker of a planned run."""
    from lar.running.worker_process import start_worker

    return start_worker(
        "run",
        plan.engine.name,
        plan.driver.name,
        plan.sample_count,
        plan.environment,
        plan.runners,
    )


def check_files(values: Mapping[str, Any]) -> None:
    """Refuse, before anything is started, labels that cannot be read and reports that cannot be
    written: those who will do it are asked then, and say why.

    Raises:
        UsageError: naming the flag.
    """
    labels = values["labels"]
    if labels is not None and not os.access(labels, os.R_OK):
        from lar.datasets.classes import read_labels

        read_labels(labels, ())
    for key in ("json", "csv"):
        name = values[key]
        if name is not None and name != "-" and not is_writable(name):
            from lar.files.report_file import OutputFile

            with OutputFile(name, f"--{key}"):
                pass


def is_writable(name: str) -> bool:
    """Tell whether a file can probably be written."""
    if os.path.exists(name):
        return not os.path.isdir(name) and os.access(name, os.W_OK)
    return os.access(os.path.dirname(name) or os.curdir, os.W_OK | os.X_OK)
