"""A model file as the evaluator takes it: its weights apart, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from lar.engines.reference.evaluator import nodes_within
from lar.engines.reference.implementations import Array, graphs_of, widened


def take_weights(graph: Any, folder: Path) -> tuple[dict[str, Array], dict[str, np.dtype[Any]]]:
    """Take the weights out of a graph, in float64: the file's own form of them is let go.

    Those of its branches stay there, if they do not lie in files of their own. The types that they
    have in the file are returned beside them.
    """
    weights: dict[str, Array] = {}
    types: dict[str, np.dtype[Any]] = {}
    while graph.initializer:
        tensor = graph.initializer.pop()
        read_external(tensor, folder)
        array = numpy_helper.to_array(tensor)
        weights[tensor.name], types[tensor.name] = widened(array), array.dtype
    for node in nodes_within(graph.node):
        for inner in graphs_of(node):
            for tensor in inner.initializer:
                read_external(tensor, folder)
    return weights, types


def without_spare_memory(model: Any) -> Any:
    """Return a model in memory of its own: what was taken out of a message stays with it."""
    return onnx.load_model_from_string(model.SerializeToString())


def rename_domain(model: Any) -> None:
    """Call ONNX's own domain by its empty name alone; `ai.onnx` is another name of it."""
    functions = [node for each in model.functions for node in each.node]
    imports = [each for function in model.functions for each in function.opset_import]
    for each in (*model.opset_import, *imports, *nodes_within([*model.graph.node, *functions])):
        each.domain = "" if each.domain == "ai.onnx" else each.domain


def read_external(tensor: Any, folder: Path) -> None:
    """Read the data of a tensor that lies in a file beside the model."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with open(folder / entries["location"], "rb") as file:
        file.seek(int(entries.get("offset", 0)))
        tensor.raw_data = file.read(int(entries["length"]) if "length" in entries else -1)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
