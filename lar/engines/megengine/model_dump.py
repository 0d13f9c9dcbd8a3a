"""`--model-dump`: a graph as the options have made it, written as a model file.

A graph whose tensors are in blocks (nchw44, ...) is written in the older of MegEngine's two
formats. With the newer one lite computes on the weights where they stand in the file, and its
kernels for blocks crash if they are not aligned; with the older one it copies them.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lar.engines.megengine.graph import GraphDriver, import_megengine
from lar.engines.megengine.model_file import INPUT
from lar.engines.megengine.packed_model import graph_in
from lar.options.table import GET_STATIC_MEM_INFO, MODEL_DUMP


def dump_model(driver: GraphDriver, _: str) -> None:
    """Write the graph driver's graph to its place."""
    outputs = list(zip(driver.output_names, driver.output_vars, strict=True))
    metadata = metadata_of(driver.loaded, driver.optimize_options)
    write_graph(driver.context.written[MODEL_DUMP.key], outputs, metadata)


def metadata_of(loaded: Any, optimize_options: int | None) -> Any:
    """Return what a file made of a loaded one says about itself.

    The options of a loaded graph are uninitialised memory unless it was optimised.
    """
    from megengine.core._imperative_rt import SerializationMetadata

    old, new = loaded.metadata, SerializationMetadata()
    new.is_valid = old.is_valid or optimize_options is not None
    new.graph_modified, new.user_info = old.graph_modified, old.user_info
    if optimize_options is None and old.is_valid and old.optimized_for_inference:
        optimize_options = old.optimize_options
    if optimize_options is not None:
        new.optimize_options = optimize_options
    return new


def write_graph(
    path: str | Path,
    outputs: Sequence[tuple[str, Any]],
    metadata: Any,
    input_name: Callable[[Any], str] = lambda variable: str(variable.name),
) -> None:
    """Write the graph of these outputs, by name; `input_name` gives the name of an input."""
    from megengine.core.tensor import megbrain_graph
    from megengine.utils import comp_graph_tools

    variables = [variable for _, variable in outputs]
    for name, variable in outputs:
        variable.name = name
    for variable in comp_graph_tools.get_dep_vars(variables, INPUT):
        # The dump names an input by its operator, whose name a loaded graph has lost.
        variable.owner.name = input_name(variable)
    operators = comp_graph_tools.get_oprs_seq(variables, prune_reshape=False, prune_immtensor=False)
    kept = {"keep_var_name": 2, "dump_format": "FBS" if has_blocks(operators) else "FBS_V2"}
    content, _ = megbrain_graph.dump_graph(variables, **kept, metadata=metadata)
    Path(path).write_bytes(content)


def has_blocks(operators: Sequence[Any]) -> bool:
    """Return whether an operator's layout has the size of a block in its name, as NCHW44."""
    return any(re.search(r"\d", layout_of(operator)) for operator in operators)


def layout_of(operator: Any) -> str:
    """Return an operator's layout, an empty string if it has no layout."""
    parameters = json.loads(operator.params) if operator.params else {}
    return str(parameters.get("format", "")) if isinstance(parameters, dict) else ""


# The model that `--layout-transform` has made, in a process of its own


def write_found(model: str, place: str) -> None:
    """Write the model that lite has dumped to standard input; never returns. `model` is the file
    that it had loaded: lite loses the names of the inputs."""
    import_megengine()
    from megengine.core.tensor.megbrain_graph import load_graph
    from megengine.utils.comp_graph_tools import get_dep_vars

    found = load_graph(io.BytesIO(sys.stdin.buffer.read()))
    loaded = load_graph(io.BytesIO(graph_in(model)))
    inputs = get_dep_vars(loaded.output_vars_list, INPUT)
    names = {variable.owner.name: variable.name for variable in inputs}
    write_graph(
        place,
        [(variable.name, variable) for variable in found.output_vars_list],
        metadata_of(loaded, None),
        lambda variable: name_of(variable, names),
    )
    os._exit(0)  # the engine's destructors take time and some of them crash


def name_of(variable: Any, names: Mapping[str, str]) -> str:
    """Return the name of an input in the model file; lite has named it by its operator."""
    return str(variable.name if variable.name in names.values() else names[variable.name])


# `--get-static-mem-info`: the engine's plan of the memory that it allocates once for a graph.
#
# The engine writes two files into the folder:
#
#     graph.json             operators, variables and chunks of memory, each with its place and size
#     StaticMemoryInfo.json  for each planned chunk: when it is in use, counted in operators, and
#                            where; weights come behind all others
#
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
