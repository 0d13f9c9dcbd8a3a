"""Scales random weights by what a network makes of real pictures.

Each convolution is followed by a batch norm whose statistics are measured on the pictures, and
which is folded into the convolution at once: a dump with batch norms left in can't be loaded with
most layout options. Without all this a deep random network saturates its outputs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from megengine import Tensor
from megengine_twin import compute_node, make_weights
from network import Array, Network, Node

EPSILON = 1e-5
# The softmax of 1000 such logits has its greatest value near 0.1: classes apart, none certain.
LOGIT_DEVIATION = 2.0


def calibrate(network: Network, images: Array) -> None:
    """Replace the weights of a network with one input and ReLUs for the scale of `images`."""
    tensors = {network.inputs[0].name: Tensor(images)}
    last_reader = {name: node.name for node in network.nodes for name in node.inputs}
    for index, node in enumerate(network.nodes):
        output = compute_node(node, make_weights(node), tensors)
        if node.kind in ("conv", "linear"):
            node = network.nodes[index] = _normalize(node, output.numpy())
            output = compute_node(node, make_weights(node), tensors)
        tensors[node.name] = output
        # All activations of all images at once would take a gigabyte.
        for name in node.inputs:
            if last_reader[name] == node.name:
                tensors.pop(name, None)


def _normalize(node: Node, measured: Array) -> Node:
    """Fold into the weights a batch norm of the node's output, whose values are `measured`.

    The channels of a convolution are scaled one by one; logits share one factor, which keeps the
    differences between classes.
    """
    weight, bias = node.weights["weight"], node.weights["bias"]
    scale, shift = node.settings["norm"] if node.kind == "conv" else (LOGIT_DEVIATION, 0.0)
    other_axes = (0, 2, 3) if node.kind == "conv" else 0
    mean = measured.mean(axis=other_axes, dtype=np.float64)
    variance = measured.var(axis=other_axes, dtype=np.float64)
    if node.kind == "linear":
        variance = np.full_like(variance, variance.mean())
    factor = scale / np.sqrt(variance + EPSILON)
    per_output = factor.reshape(-1, *[1] * (weight.ndim - 1))
    weights = {
        "weight": (weight * per_output).astype(np.float32),
        "bias": ((bias - mean) * factor + shift).astype(np.float32),
    }
    return replace(node, weights=weights)
