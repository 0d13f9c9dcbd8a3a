"""ONNX Runtime's blocked layout (NCHWc): how wide its blocks are here, and the way back from it.

A tensor of the shape {N,C,H,W} in this layout holds {N,C/b,H,W,b} numbers for blocks of b
channels; the engine reports the plain shape all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lar.engines.onnx_file.fields import Message, Node
from lar.engines.onnxruntime.providers import CPU

if TYPE_CHECKING:
    from lar.inputs.loaded import Array

DOMAIN = "com.microsoft.nchwc"

# More channels than any block has.
CHANNELS = 64


def probe() -> bytes:
    """Return a model of one node, which brings its input into the blocked layout."""
    from lar.engines.onnxruntime.values import graph_alone, model_alone, tensor_type

    node = Message("Node", input=["x"], output=["y"], op_type="ReorderInput", domain=DOMAIN)
    return model_alone(graph_alone([node], {"x": tensor_type("float32")}, ["y"]), DOMAIN)


def block_size(onnxruntime: Any) -> int:
    """Return how many channels a block has on this processor, 1 if it has no such layout."""
    import numpy as np  # readers of a profile do not need it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a failure is an answer here, not an error
    try:
        session = onnxruntime.InferenceSession(probe(), options, providers=[CPU])
    except Exception:  # the engine has the operator only where it has the layout
        return 1
    # Two pixels a channel: the second of the first channel comes after a whole block.
    numbers = np.arange(2 * CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 1, 2)
    (blocked,) = session.run(None, {"x": numbers})
    return int(np.flatnonzero(blocked.reshape(-1) == 1)[0])


def blocked_tensors(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the tensors that are in the blocked layout."""
    blocked: set[str] = set()
    for node in nodes:
        # Other operators leave the layout as they find it; ReorderOutput ends it.
        of_layout = node.domain == DOMAIN and node.operator != "ReorderOutput"
        if of_layout or (node.domain != DOMAIN and not blocked.isdisjoint(node.inputs)):
            blocked.update(filter(None, node.outputs))
    return blocked


def split_blocks(array: Array, block: int) -> Array:
    """Return a tensor {N,C,...} of blocks with the axes {N,C/b,...,b} in which it is stored."""
    batch, channels, *sizes = array.shape
    return array.reshape(batch, channels // block, *sizes, block)


def join_blocks(array: Array) -> Array:
    """Return a tensor {N,C/b,...,b} in the shape {N,C,...} that the engine has for it."""
    batch, blocks, *sizes, block = array.shape
    return array.reshape(batch, blocks * block, *sizes)
