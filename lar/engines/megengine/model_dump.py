"""`--model-dump`: a graph as the options have made it, written as a model file.

A graph whose tensors are in blocks (nchw44, ...) is written in the older of MegEngine's two
formats. With the newer one lite computes on the weights where they stand in the file, and its
kernels for blocks crash if they are not aligned; with the older one it copies them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lar.engines.megengine.graph import GraphDriver
from lar.engines.megengine.model_file import INPUT
from lar.options.table import MODEL_DUMP


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
