"""A model that gives every tensor between its operators, and computes what the session computes.

Outputs added to the original model would keep the engine from fusing operators: another graph
would run. They are added to the optimised graph instead, which then runs as it stands.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines.onnxruntime.blocked_layout import DOMAIN
from lar.engines.onnxruntime.model_fields import (
    GRAPH_OUTPUT,
    MODEL_GRAPH,
    VALUE_NAME,
    Node,
    bytes_field,
    nodes_in,
    output_names,
)
from lar.engines.onnxruntime.saving import SavedModel, save_optimized


class Producer(NamedTuple):
    """A tensor of the optimised graph and the node that gives it.

    `blocked` tells that it holds blocks of channels, as `blocked_layout` describes.
    """

    tensor: str
    operator: str
    node: str
    inputs: tuple[str, ...]
    blocked: bool


def instrument(driver: Any) -> tuple[SavedModel, tuple[Producer, ...]]:
    """Return the model that a loaded driver runs, with every tensor as an output.

    Its outputs are the original's, then all other tensors. What is returned beside it are the
    tensors in the order of the graph, the original's outputs among them; those inside control
    flow are not seen. `open_saved` makes a session of it. The weights stand in the spec's work
    folder for as long as that exists.
    """
    saved = driver.saved or save_to_work_folder(driver)
    tensors = tuple(producers_of(nodes_in(saved.content)))
    known = set(output_names(saved.content))
    added = [each.tensor for each in tensors if each.tensor not in known]
    return SavedModel(add_outputs(saved.content, added), saved.folder), tensors


def save_to_work_folder(driver: Any) -> SavedModel:
    """Save the driver's optimised model where the parent will remove it."""
    # A folder of its own: another session may have the weights of its own mapped.
    folder = Path(tempfile.mkdtemp(dir=driver.context.work_folder or None))
    save_optimized(driver, folder / "optimized.onnx", "optimized.data")
    return SavedModel((folder / "optimized.onnx").read_bytes(), folder)


def add_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """Return a model with outputs added; the engine infers their types."""
    outputs = (bytes_field(GRAPH_OUTPUT, bytes_field(VALUE_NAME, name.encode())) for name in names)
    # A second graph is merged into the first.
    return model + bytes_field(MODEL_GRAPH, b"".join(outputs))


def producers_of(nodes: Iterable[Node]) -> Iterable[Producer]:
    """Yield the tensors that nodes give, in their order."""
    blocked: set[str] = set()
    for node in nodes:
        # Other operators leave the layout as they find it; ReorderOutput ends it.
        if node.domain == DOMAIN.decode():
            is_blocked = node.operator != "ReorderOutput"
        else:
            is_blocked = not blocked.isdisjoint(node.inputs)
        for tensor in filter(None, node.outputs):
            if is_blocked:
                blocked.add(tensor)
            yield Producer(tensor, node.operator, node.name, node.inputs, is_blocked)
