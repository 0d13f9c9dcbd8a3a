"""`lar run MODEL`: run a model, print its times, write the result."""

from __future__ import annotations

import argparse

from lar.engines import support_of_options
from lar.options import add_arguments as add_options
from lar.plan import plan_run
from lar.worker_process import start_worker

MODEL = "a model file (.mge, .onnx, ...), or a file or folder of testcases"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    add_options(parser, support_of_options())


def main(arguments: argparse.Namespace) -> int:
    """Run, print and write; return the exit code."""
    plan = plan_run(arguments.model, vars(arguments))
    if plan.is_stack:
        from lar.api import settle_stack

        plan = settle_stack(plan)
    if arguments.in_process:
        from lar.commands.run_console import run_on_console

        return run_on_console(plan, None)
    # The worker loads its libraries while this process loads its own.
    count, runners = plan.sample_count, plan.runners
    with start_worker("run", plan.driver.path, count, plan.environment, runners) as worker:
        from lar.commands.run_console import run_on_console

        return run_on_console(plan, worker)
