"""`lar version`: the version of lar."""

from __future__ import annotations

import argparse

from lar import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: argparse.Namespace) -> int:
    """Print it; return the exit code."""
    print(f"lar {__version__}")
    return 0
