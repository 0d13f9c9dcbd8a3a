"""Prints the slowest operators of a profile, as MegEngine's tool of this name does.

    python tools/profile_analyze.py PROFILE [-t 5] [--aggregate-by type --aggregate sum] ...

PROFILE is a file that --profile wrote, or one that MegEngine wrote itself. It is
`lar report PROFILE --style megengine` with the same flags.
"""

from __future__ import annotations

import sys

from lar.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", "--style", "megengine", *sys.argv[1:]]))
