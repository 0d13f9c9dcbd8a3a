"""`--layout-transform`: MegEngine measures each operator in each layout while it loads the model,
and takes what is fastest in all; `--layout-transform-dump` writes the resulting model.

The model is written anew, with the names of its inputs, in a process of its own (model_dump.py):
MegEngine's graph interface alone can do it, which is slow to load and would count in what is
measured here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

from lar.engines.megengine.defects import CONVOLUTIONS, SHAPE
from lar.engines.megengine.graph_operators import INPUTS, OUTPUTS, open_graph
from lar.engines.megengine.lite import LiteDriver
from lar.errors import LarError
from lar.files.python_process import python_command
from lar.options.table import LAYOUT_TRANSFORM_DUMP

NCHW88 = 6  # its number among the layouts
CODE = "from lar.engines.megengine.model_dump import write_found; write_found(*sys.argv[1:])"


def search_layouts(driver: LiteDriver, _: str) -> None:
    """Have the engine search when it loads; it does so for the network's own device."""
    driver.network_setup.append(lambda network: network.enable_global_layout_transform())


def read_layouts(driver: LiteDriver, _: str) -> None:
    """Warn of layouts that the search has chosen and that give wrong numbers."""
    if driver.runner:
        return
    if names := [*wrong_convolutions(found_by(driver))]:
        driver.notes.append(
            "--layout-transform chose a layout that gives wrong numbers for convolutions of 8 "
            f"input channels: {', '.join(names)}; take --enable-nchw88 instead"
        )


def found_by(driver: LiteDriver) -> memoryview:
    """Return the model that the search has made, as lite writes it."""
    with open(os.memfd_create("layouts"), "rb") as file:
        driver.network.dump_layout_transform_model(f"/proc/self/fd/{file.fileno()}")
        return memoryview(file.read())


def wrong_convolutions(graph: memoryview) -> Iterator[str]:
    """Yield the convolutions from a plain layout into blocks of 8 that have 8 input channels.

    The search allows this one for up to 8 channels; the kernel takes plain inputs for fewer
    than 8, and reads 8 as blocks.
    """
    opened = open_graph(graph)
    for operator in opened.operators:
        fields = CONVOLUTIONS.get(opened.kind_of(operator))
        if fields and opened.parameters_of(operator).integer(fields[1]) == NCHW88:
            taken = opened.variables[operator.numbers(INPUTS)[0]].numbers(SHAPE)
            if len(taken) == 4 and taken[1] == 8:
                yield opened.names_of(operator, OUTPUTS)[0]


def write_layouts(driver: LiteDriver, _: str) -> None:
    """Write the model that the search has made.

    Raises:
        LarError: the engine cannot read what it has written.
    """
    if driver.runner:
        return
    place = driver.context.written[LAYOUT_TRANSFORM_DUMP.key]
    words = python_command(CODE, driver.model_file, place)
    done = subprocess.run(words, input=bytes(found_by(driver)), capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1][:300] if said else f"exit code {done.returncode}"
        problem = "the model that the search made cannot be read"
        hint = f"leave the flag out; MegEngine says: {reason}"
        raise LarError(problem, hint, flag="--layout-transform")
