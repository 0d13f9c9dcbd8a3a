"""Packs testcases into a model, like MegEngine's script `dump_with_testcase_mge.py`.

    python tools/dump_with_testcase_mge.py ./resnet50.mge --optimize -d cat.jpg -o resnet50.mdl

The script calls `lar pack`; `lar pack --help` lists the flags.
"""

from __future__ import annotations

import sys

from lar.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pack", *sys.argv[1:]]))
