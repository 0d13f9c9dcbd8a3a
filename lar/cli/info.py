"""`lar info MODEL`: what a model holds."""

from __future__ import annotations

import argparse
from typing import Any

from lar.cli.arguments import argument, option
from lar.cli.run_help import MODEL
from lar.options.table import ALLOW_EXTERNAL_DATA, BATCH_SIZE, INPUT, SHAPE
from lar.running.plan import plan_run

# What gives the inputs shapes, at which FLOPs and bytes are counted.
OPTIONS = (INPUT, SHAPE, BATCH_SIZE, ALLOW_EXTERNAL_DATA)


ARGUMENTS = (
    argument("model MODEL", MODEL),
    argument("--engine NAME", "the engine that reads it"),
    *(option(each) for each in OPTIONS),
    argument("--json FILE", "write it as JSON; - is standard output"),
)


def values_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a run that only reads the model."""
    values = {"engine": arguments.engine, "json": arguments.json, "iter": 0}
    return values | {each.key: getattr(arguments, each.key) for each in OPTIONS}


def main(arguments: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    spec = plan_run(arguments.model, values_of(arguments))
    # Not before: an error in the command line should cost no more than it must.
    from lar.cli.report_files import open_reports
    from lar.reports.info_text import report_info
    from lar.running.tasks import info_of

    with open_reports(vars(arguments), ("json",)) as files:
        info = info_of(spec, at_shapes=bool(spec.inputs or spec.shape or spec.batch_size))
        files.write(report_info(info))
    return 0
