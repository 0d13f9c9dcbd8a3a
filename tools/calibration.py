"""Scales the random weights of a network so that real pictures give moderate numbers.

For each convolution, the statistics of a batch norm are measured on the pictures. This batch norm
is folded into the weights at once, since MegEngine cannot load a model with batch norms with most
layout options. Without the scaling, the outputs of a deep random network would be saturated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from megengine import Tensor
from megengine_twin import compute_node, make_weights
from network import Array, Network, Node

EPSILON = 1e-5
# The largest value of the softmax of 1000 such logits is near 0.1: no class is certain.
LOGIT_DEVIATION = 2.0


def calibrate(network: Network, images: Array) -> None:
    """Scale the weights of a network to suit `images`; the network has one input and ReLUs."""
    tensors = {network.inputs[0].name: Tensor(images)}
    last_reader = {name: node.name for node in network.nodes for name in node.inputs}
    for index, node in enumerate(network.nodes):
        output = compute_node(node, make_weights(node), tensors)
        if node.kind in ("conv", "linear"):
            node = network.nodes[index] = _normalize(node, output.numpy())
            output = compute_node(node, make_weights(node), tensors)
        tensors[node.name] = output
        # Drop tensors that are no longer read: all activations together would take a gigabyte.
        for name in node.inputs:
            if last_reader[name] == node.name:
                tensors.pop(name, None)


def _normalize(node: Node, measured: Array) -> Node:
    """Return the node with a batch norm folded into its weights.

    `measured` are values of the node's output. Each channel of a convolution gets its own factor.
    All logits get the same factor, which keeps the differences between classes.
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
