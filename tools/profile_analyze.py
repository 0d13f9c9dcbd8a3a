"""Prints the slowest operators of a profile, like MegEngine's tool `profile_analyze.py`.

    python tools/profile_analyze.py PROFILE [-t 5] [--aggregate-by type --aggregate sum] ...

PROFILE is a file that --profile wrote, or a profile that MegEngine wrote itself. The script calls
`lar report PROFILE --style megengine` with the same flags.
"""

from __future__ import annotations

import sys

from lar.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", "--style", "megengine", *sys.argv[1:]]))
