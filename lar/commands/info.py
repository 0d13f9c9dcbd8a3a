"""`lar info MODEL`: what a model holds."""

from __future__ import annotations

import argparse
import sys

from lar.api import read_info
from lar.records import record_to_json
from lar.reports.info_text import format_info
from lar.reports.output import OutputFile, check_places


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a model file (.mge, .onnx, ...), or a file or folder of testcases",
    )
    parser.add_argument("--engine", metavar="NAME", help="the engine that reads it")
    parser.add_argument("--json", metavar="FILE", help="write it as JSON; - is standard output")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    if arguments.json is None:
        print("\n".join(format_info(read_info(arguments.model, arguments.engine))))
        return 0
    with OutputFile(arguments.json, "--json") as file:
        check_places([file], [arguments.model])
        info = read_info(arguments.model, arguments.engine)
        if not file.to_stdout:
            print("\n".join(format_info(info)), file=sys.stdout)
        file.write(record_to_json(info).decode() + "\n")
    return 0
