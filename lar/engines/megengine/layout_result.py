"""Reads the model that `--layout-transform` has made, as a program of its own.

    ... MODEL PLACE < DUMP

DUMP is what lite wrote, MODEL the file that it had loaded. It prints the names of the
convolutions that compute wrong numbers, as a JSON list, and writes the model to PLACE if that is
not empty, with the names of the inputs, which lite loses.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lar.engines.megengine.graph import import_megengine
from lar.engines.megengine.model_dump import INPUT, layout_of, metadata_of, write_graph
from lar.engines.megengine.packed_model import graph_in

CONVOLUTIONS = ("ConvBiasForward", "ConvolutionForward")


def main(arguments: list[str]) -> None:
    """Read, write and print; never returns."""
    model, place = arguments
    import_megengine()
    from megengine.core.tensor.megbrain_graph import load_graph
    from megengine.utils.comp_graph_tools import get_dep_vars, get_oprs_seq

    found = load_graph(io.BytesIO(sys.stdin.buffer.read()))
    operators = get_oprs_seq(found.output_vars_list, prune_reshape=False, prune_immtensor=False)
    if place:
        loaded = load_graph(io.BytesIO(graph_in(model)))
        inputs = get_dep_vars(loaded.output_vars_list, INPUT)
        names = {variable.owner.name: variable.name for variable in inputs}
        write_graph(
            Path(place),
            [(variable.name, variable) for variable in found.output_vars_list],
            metadata_of(loaded, None),
            lambda variable: name_of(variable, names),
        )
    print(json.dumps(list(wrong_convolutions(operators))), flush=True)
    os._exit(0)  # the engine's destructors take time and some of them crash


def name_of(variable: Any, names: Mapping[str, str]) -> str:
    """Return the name of an input in the model file; lite has named it by its operator."""
    if variable.name in names.values():
        return str(variable.name)
    return names[variable.name]


def wrong_convolutions(operators: Iterable[Any]) -> Iterable[str]:
    """Yield the convolutions from a plain layout into blocks of 8 that have 8 input channels.

    The search allows this one for up to 8 channels; the kernel takes plain inputs for fewer
    than 8, and reads 8 as blocks.
    """
    for operator in operators:
        if operator.type in CONVOLUTIONS and layout_of(operator) == "NCHW88":
            shape = operator.inputs[0].shape
            if len(shape) == 4 and shape[1] == 8:
                yield operator.outputs[0].name
