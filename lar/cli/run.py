"""`lar run MODEL`: run a model, print its times, write the result."""

from __future__ import annotations

import argparse
import contextlib
import time

from lar.cli.arguments import MODEL, argument, headings_of
from lar.cli.run_help import print_run_help
from lar.options.table import OPTIONS
from lar.running.named_files import check_files

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from lar.running.worker_process import WorkerProcess


class RunHelp(argparse.Action):
    """`--help`, `--help GROUP` and `--help all`: print the help and leave."""

    def __call__(self, parser: object, namespace: object, value: Any, flag: Any = "") -> NoReturn:
        print_run_help(value)
        raise SystemExit(0)


# fmt: off
HELP = argument("-h --help GROUP", "print the common options, the options of GROUP, or all options",
                action=RunHelp, nargs="?", const="")
# fmt: on

# `all_parsers` adds the names of the engines that honour a flag, which are slow to collect.
ARGUMENTS = (HELP, MODEL, *headings_of(OPTIONS))


def main(arguments: argparse.Namespace) -> int:
    """Run the model, print and write the result; return the exit code."""
    began = time.monotonic()
    values = vars(arguments)
    check_files(values)
    with contextlib.ExitStack() as stack:
        worker: WorkerProcess | None = None
        if arguments.can_be_copied:
            from lar.running.worker_process import WorkerProcess

            worker = WorkerProcess(stack)  # it starts while this process imports modules
        # Imported here: the help does not need it, and it is slow to import.
        from lar.running.plan import plan_run

        spec = plan_run(arguments.model, values, began=began)
        words = "run", spec.engine, spec.driver
        is_here = not arguments.in_process and arguments.scheduler is None
        if worker and not (is_here and worker.take_words(words, spec.environment, spec.python)):
            worker.kill()
            worker = None
        from lar.cli.run_console import open_console
        from lar.records.run import RunContext
        from lar.running.steps import make_run

        asked = {key: values[key] for key in ("in_process", "overwrite", "resume")}
        context = RunContext(began=began, **asked)
        console = stack.enter_context(open_console(spec, context, values))
        if arguments.scheduler is not None:
            from lar.farm.runs import make_on_farm, open_farm  # few runs are made elsewhere

            farm = stack.enter_context(open_farm(arguments.scheduler))
            result = make_on_farm(farm, arguments.on or "", spec, context, console.printer)
            return console.finish(result)
        return console.finish(make_run(spec, context, console.printer, worker))
