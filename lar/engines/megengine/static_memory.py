"""`--get-static-mem-info`: the engine's plan of the memory that it allocates once for a graph.

The engine writes two files into the folder:

    graph.json             operators, variables and chunks of memory, each with its place and size
    StaticMemoryInfo.json  for each planned chunk: when it is in use, counted in operators, and
                           where; weights come behind all others
"""

from __future__ import annotations

import os

from lar.engines.megengine.graph import GraphDriver
from lar.options.table import GET_STATIC_MEM_INFO

# The engine takes letters, digits and slashes alone, and makes no folder for a name of one letter.
HERE = "x"


def begin_recording(driver: GraphDriver, _: str) -> None:
    """Have the first execution record the memory, before it."""
    folder = driver.context.written[GET_STATIC_MEM_INFO.key]
    os.mkdir(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        driver.function.get_static_memory_alloc_info(HERE)  # it remembers the folder
    finally:
        os.chdir(before)


def finish_recording(driver: GraphDriver, _: str) -> None:
    """Write the graph again, now with its memory; the other file is there already."""
    driver.function.get_static_memory_alloc_info(HERE)
