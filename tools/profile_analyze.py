"""Prints the slowest operators of a profile, as MegEngine's tool of this name does.

    python tools/profile_analyze.py PROFILE [-t 5] [--aggregate-by type --aggregate sum] ...

PROFILE is a file that --profile wrote, or one that MegEngine wrote itself. It is
`lar report PROFILE --style megengine` with the same flags; -t 0 shows all operators.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lar.cli import main as run_lar

ALL = 999_999


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-t", "--top", type=int, default=3)
    given, rest = parser.parse_known_args(words)
    top = given.top or ALL
    return run_lar(["report", "--style", "megengine", "--top", str(top), *rest])


if __name__ == "__main__":
    sys.exit(main())
