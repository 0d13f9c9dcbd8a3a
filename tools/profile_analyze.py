"""Prints the slowest operators of a profile, as MegEngine's tool of this name does.

    python tools/profile_analyze.py PROFILE [-t 5] [--aggregate-by type --aggregate sum] ...

PROFILE is a file that --profile wrote, or one that MegEngine wrote itself. It is
`lar report PROFILE --style megengine` with the same flags.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lar.cli.main import main as run_lar


def main(words: Sequence[str]) -> int:
    return run_lar(["report", "--style", "megengine", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
