"""Packs testcases into a model, as MegEngine's script of this name does.

    python tools/dump_with_testcase_mge.py ./resnet50.mge --optimize -d cat.jpg -o resnet50.mdl

It is `lar pack`, whose help lists the flags.
"""

from __future__ import annotations

import sys

from lar.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pack", *sys.argv[1:]]))
