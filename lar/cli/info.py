"""`lar info MODEL`: what a model holds."""

from __future__ import annotations

import argparse

from lar.cli.arguments import argument, option
from lar.cli.run_help import MODEL
from lar.options.table import ALLOW_EXTERNAL_DATA, BATCH_SIZE, INPUT, SHAPE
from lar.running.plan import plan_run

# What gives the inputs shapes, at which FLOPs and bytes are counted.
OPTIONS = (INPUT, SHAPE, BATCH_SIZE, ALLOW_EXTERNAL_DATA)


ARGUMENTS = (
    argument("model MODEL", MODEL),
    argument("--engine NAME", "read the model with this engine"),
    *(option(each) for each in OPTIONS),
    argument("--json FILE", "write it as JSON; - is standard output"),
)


def main(arguments: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    values = {each.key: getattr(arguments, each.key) for each in OPTIONS}
    only_reads = {"engine": arguments.engine, "json": arguments.json, "iter": 0}
    spec = plan_run(arguments.model, only_reads | values)
    # Not before: an error in the command line should cost no more than it must.
    from lar.cli.report_files import open_reports
    from lar.reports.info_text import report_info
    from lar.running.tasks import info_of

    with open_reports(vars(arguments), ("json",)) as files:
        info = info_of(spec, at_shapes=bool(spec.inputs or spec.shape or spec.batch_size))
        files.write(report_info(info))
    return 0
