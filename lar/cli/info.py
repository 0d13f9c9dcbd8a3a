"""`lar info MODEL`: print what a model holds, such as its inputs and operators."""

from __future__ import annotations

import argparse

from lar.cli.arguments import MODEL, declared
from lar.running.named_files import check_files

ARGUMENTS = (MODEL, declared("info"))


def main(arguments: argparse.Namespace) -> int:
    """Read the model and print its description; return the exit code."""
    check_files(vars(arguments))
    # Imported here: an error in the command line should appear at once.
    from lar.running.plan import plan_run

    spec = plan_run(arguments.model, {**vars(arguments), "iter": 0})
    from lar.cli.report_files import open_reports
    from lar.reports.info_text import report_info
    from lar.running.isolation import info_of

    with open_reports(vars(arguments)) as files:
        info = info_of(spec, at_shapes=bool(spec.inputs or spec.shape or spec.batch_size))
        files.write(report_info(info))
    return 0
