"""`--layout-transform`: MegEngine measures each operator in each layout while it loads the model,
and takes what is fastest in all; `--layout-transform-dump` writes the model that comes of it.

Its result is read in a process of its own (layout_result.py): only MegEngine's graph
interface can read it, which is slow to load and would count in what is measured here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from lar.errors import LarError
from lar.options.table import LAYOUT_TRANSFORM_DUMP

if TYPE_CHECKING:
    from lar.engines.megengine.lite import LiteDriver

CODE = """\
import sys
sys.path[:] = {path!r}
from lar.engines.megengine.layout_result import main
main(sys.argv[1:])
"""


def search_layouts(driver: LiteDriver, _: str) -> None:
    """Have the engine search when it loads; it does so for the network's own device."""
    driver.network_setup.append(lambda network: network.enable_global_layout_transform())


def read_layouts(driver: LiteDriver, _: str) -> None:
    """Warn of layouts that give wrong numbers, unless `write_layouts` does."""
    if not LAYOUT_TRANSFORM_DUMP.is_given(driver.spec.settings):
        examine_layouts(driver, "")


def write_layouts(driver: LiteDriver, _: str) -> None:
    """Write the model that the search has made, and warn of layouts that give wrong numbers."""
    examine_layouts(driver, driver.context.written[LAYOUT_TRANSFORM_DUMP.key])


def examine_layouts(driver: LiteDriver, place: str) -> None:
    """Have the model that the search has made read, and written to a place if that is not empty.

    Raises:
        LarError: the engine cannot read what it has written.
    """
    if driver.runner:
        return
    file = os.memfd_create("layouts")
    try:
        driver.network.dump_layout_transform_model(f"/proc/self/fd/{file}")
        done = subprocess.run(
            [sys.executable, "-S", "-c", CODE.format(path=sys.path), driver.model_file, place],
            stdin=file,
            capture_output=True,
            text=True,
            errors="replace",
        )
    finally:
        os.close(file)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LarError(
            "the model that the search made cannot be read",
            f"leave the flag out; MegEngine says: {said[-1][:300]}",
            flag="--layout-transform",
        )
    names = json.loads(done.stdout.splitlines()[-1])
    if names:
        driver.notes.append(
            "--layout-transform chose a layout that gives wrong numbers for convolutions of 8 "
            f"input channels: {', '.join(names)}; take --enable-nchw88 instead"
        )
