"""A program that writes the model that `--layout-transform` has made.

    ... MODEL PLACE < DUMP

DUMP is what lite wrote, MODEL the file that it had loaded. The model is written to PLACE with the
names of the inputs, which lite loses.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.engines.megengine.graph import import_megengine
from lar.engines.megengine.model_dump import metadata_of, write_graph
from lar.engines.megengine.model_file import INPUT
from lar.engines.megengine.packed_model import graph_in


def main(arguments: list[str]) -> None:
    """Read and write; never returns."""
    model, place = arguments
    import_megengine()
    from megengine.core.tensor.megbrain_graph import load_graph
    from megengine.utils.comp_graph_tools import get_dep_vars

    found = load_graph(io.BytesIO(sys.stdin.buffer.read()))
    loaded = load_graph(io.BytesIO(graph_in(model)))
    inputs = get_dep_vars(loaded.output_vars_list, INPUT)
    names = {variable.owner.name: variable.name for variable in inputs}
    write_graph(
        Path(place),
        [(variable.name, variable) for variable in found.output_vars_list],
        metadata_of(loaded, None),
        lambda variable: name_of(variable, names),
    )
    os._exit(0)  # the engine's destructors take time and some of them crash


def name_of(variable: Any, names: Mapping[str, str]) -> str:
    """Return the name of an input in the model file; lite has named it by its operator."""
    if variable.name in names.values():
        return str(variable.name)
    return names[variable.name]
