"""Writes model files: `--model-dump`, `--layout-transform-dump` and `--get-static-mem-info`.

If the tensors of a graph are in blocks of channels (as in nchw44), lar writes the graph in the
older of MegEngine's two formats. When lite loads a file in the newer format, lite does not copy the
weights. If the weights of a file in the newer format are not aligned, lite's kernels for blocks
crash. When lite loads a file in the older format, lite copies the weights, and the kernels for
blocks do not crash.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.graph import GraphDriver, import_megengine
from lar.engines.megengine.graph_operators import INPUTS, OUTPUTS, open_graph
from lar.engines.megengine.model_file import INPUT
from lar.engines.megengine.packed_model import graph_in
from lar.errors import LarError
from lar.files.python_process import python_command
from lar.options.table import GET_STATIC_MEM_INFO, LAYOUT_TRANSFORM_DUMP, MODEL_DUMP

if TYPE_CHECKING:
    from lar.engines.megengine.lite import LiteDriver


def dump_model(driver: GraphDriver, _: str) -> None:
    """Write the graph of the graph driver, as the options have changed it, into a model file."""
    outputs = list(zip(driver.output_names, driver.output_vars, strict=True))
    metadata = metadata_of(driver.loaded, driver.optimize_options)
    write_graph(driver.context.written[MODEL_DUMP.key], outputs, metadata)


def metadata_of(loaded: Any, optimize_options: int | None) -> Any:
    """Return the metadata for a model file that is made from a loaded model file.

    If a loaded graph was not optimised, its optimisation options are uninitialised memory.
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
    """Write a model file with the graph that computes the given outputs.

    Each output is given as a name and a variable. The function `input_name` gets the variable of an
    input, and returns the name of the input in the file.
    """
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
    """Return whether any operator has a layout in blocks of channels, such as NCHW44."""
    return any(re.search(r"\d", layout_of(operator)) for operator in operators)


def layout_of(operator: Any) -> str:
    """Return an operator's layout, an empty string if it has no layout."""
    parameters = json.loads(operator.params) if operator.params else {}
    return str(parameters.get("format", "")) if isinstance(parameters, dict) else ""


# `--get-static-mem-info`: the engine's plan of the memory that it allocates once for a graph.
#
# The engine writes two files into the folder:
#
#     graph.json             operators, variables and chunks of memory, each with its address and
#                            size
#     StaticMemoryInfo.json  for each planned chunk: the operators during which it is in use, and
#                            its address; weights come last
#
# The engine accepts only letters, digits and slashes in the folder's name. For a name of one letter
# it writes into the current folder.
HERE = "x"


def begin_recording(driver: GraphDriver, _: str) -> None:
    """Have the engine record the memory plan in the first execution."""
    folder = driver.context.written[GET_STATIC_MEM_INFO.key]
    os.mkdir(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        driver.function.get_static_memory_alloc_info(HERE)  # it keeps the current folder's path
    finally:
        os.chdir(before)


def finish_recording(driver: GraphDriver, _: str) -> None:
    """Have the engine write graph.json again, now with the memory plan."""
    driver.function.get_static_memory_alloc_info(HERE)


# `--layout-transform`: MegEngine measures each operator in each layout while it loads the model,
# and takes the layouts that are fastest together. `--layout-transform-dump` writes that model.
#
# The dump needs MegEngine's graph interface, to give the inputs their names again. This interface
# is slow to load and would change this run's measurements, so the dump has a process of its own.

NCHW88 = 6  # MegEngine's number of this layout
CODE = "from lar.engines.megengine.model_dump import write_found; write_found(*sys.argv[1:])"


def search_layouts(driver: LiteDriver, _: str) -> None:
    """Have the engine search for the fastest layouts on the network's device during the load."""
    driver.network_setup.append(lambda network: network.enable_global_layout_transform())


def read_layouts(driver: LiteDriver, _: str) -> None:
    """Warn if the layout search has chosen layouts that give wrong numbers."""
    if driver.runner:
        return
    if names := [*wrong_convolutions(found_by(driver))]:
        driver.notes.append(
            "--layout-transform chose a layout that gives wrong numbers for convolutions of 8 "
            f"input channels: {', '.join(names)}; take --enable-nchw88 instead"
        )


def found_by(driver: LiteDriver) -> memoryview:
    """Return the model that the layout search has made, in lite's format."""
    with open(os.memfd_create("layouts"), "rb") as file:
        driver.network.dump_layout_transform_model(f"/proc/self/fd/{file.fileno()}")
        return memoryview(file.read())


def wrong_convolutions(graph: memoryview) -> Iterator[str]:
    """Yield the names of convolutions that convert 8 channels of the plain layout into a block.

    The layout search lets a convolution convert up to 8 channels from the plain layout into a
    block. But if the input has exactly 8 channels, the convolution's kernel reads the plain input
    as if it were a block. The result is wrong.
    """
    from lar.engines.megengine.defects import CONVOLUTIONS, SHAPE

    opened = open_graph(graph)
    for operator in opened.operators:
        fields = CONVOLUTIONS.get(opened.kind_of(operator))
        if fields and opened.parameters_of(operator).integer(fields[1]) == NCHW88:
            taken = opened.variables[operator.numbers(INPUTS)[0]].numbers(SHAPE)
            if len(taken) == 4 and taken[1] == 8:
                yield opened.names_of(operator, OUTPUTS)[0]


def write_layouts(driver: LiteDriver, _: str) -> None:
    """Write the model that the layout search has made.

    Raises:
        LarError: the engine cannot read the model that it has written.
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


def write_found(model: str, place: str) -> None:
    """Read from standard input a model that lite has dumped, write a model file, and exit.

    The names of the inputs, which lite loses, are taken from `model`, the file that lite has
    loaded.
    """
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
    os._exit(0)  # the engine's destructors take time, and some of them crash


def name_of(variable: Any, names: Mapping[str, str]) -> str:
    """Return the name that an input has in the model file.

    In lite, an input has the name of the operator that stands for the input in the graph.
    """
    return str(variable.name if variable.name in names.values() else names[variable.name])
