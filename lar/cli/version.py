"""`lar version` prints the version of lar."""

from __future__ import annotations

import argparse

from lar import __version__


def main(arguments: argparse.Namespace) -> int:
    """Print the version; return the exit code."""
    print(f"lar {__version__}")
    return 0
