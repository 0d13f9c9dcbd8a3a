"""Trains the digits CNN with MegEngine, and quantises it to int8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from megengine import Tensor, functional
from megengine.autodiff import GradManager
from megengine.optimizer import Adam
from megengine_twin import compute, make_weights
from model_zoo import NETWORKS
from network import Array, Network, Node
from sample_data import split_digits

EPOCH_COUNT = 12
BATCH_SIZE = 32
LEARNING_RATE = 3e-3
# Keeps the logits small, so that no value of the softmax is close to 0 or 1.
LABEL_SMOOTHING = 0.1
GREATEST_PIXEL = 16.0
GREATEST_INT8 = 127
# Processors without VNNI add two products of an unsigned byte and a weight in 16 bits. With greater
# weights than this, such sums would saturate in ONNX Runtime.
GREATEST_INT8_WEIGHT = 64


def train_digits_cnn() -> Network:
    """Train the digits CNN on the training digits; each call uses the same order of digits."""
    network = NETWORKS["digits_cnn"]()
    digits, _ = split_digits()
    weights = {node.name: make_weights(node, trainable=True) for node in network.nodes}
    parameters = [weight for of_node in weights.values() for weight in of_node.values()]
    optimizer = Adam(parameters, lr=LEARNING_RATE)
    gradients = GradManager().attach(parameters)
    random = np.random.RandomState(0)
    for epoch in range(EPOCH_COUNT):
        if epoch == EPOCH_COUNT * 2 // 3:
            optimizer.param_groups[0]["lr"] = LEARNING_RATE / 10
        order = random.permutation(len(digits.labels))
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            images = Tensor(digits.images[batch] / np.float32(GREATEST_PIXEL))
            with gradients:
                logits = compute(network, weights, {"data": images})["logits"]
                labels = Tensor(digits.labels[batch])
                loss = functional.nn.cross_entropy(logits, labels, label_smooth=LABEL_SMOOTHING)
                gradients.backward(loss)
            optimizer.step().clear_grad()
    network.nodes = [_trained_node(node, weights[node.name]) for node in network.nodes]
    return network


def _trained_node(node: Node, weights: dict[str, Any]) -> Node:
    """Return a node with its trained weights.

    The scaling of the pixels is folded into the first convolution.
    """
    trained = {
        name: weights[name].numpy().reshape(weight.shape) for name, weight in node.weights.items()
    }
    if node.name == "conv1":
        # The division is exact, since the divisor is a power of two.
        trained["weight"] = trained["weight"] / np.float32(GREATEST_PIXEL)
    return replace(node, weights=trained)


def quantize_digits_cnn(trained: Network) -> Network:
    """Quantise convolutions and pooling to int8; the last layer stays float.

    Each tensor has one scale. The scale of an activation follows from its greatest value over the
    training digits. With the layout nchw4 or nchw32, MegEngine 1.13 gives wrong logits, since it
    flattens a tensor that is still in blocks of channels.
    """
    digits, _ = split_digits()
    weights = {node.name: make_weights(node) for node in trained.nodes}
    tensors = compute(trained, weights, {"data": Tensor(digits.images)})
    network = Network("int8")
    network.inputs = trained.inputs
    scale = _scale_of(digits.images)
    x = network.add("quantize", "data.int8", trained.inputs[0].name, scale=scale)
    for node in trained.nodes:
        if node.kind == "conv":
            output_scale = _scale_of(tensors[node.name].numpy().clip(min=0))
            x = _add_quantized_conv(network, node, x, scale, output_scale)
            scale = output_scale
        elif node.kind == "max_pool":
            x = network.add("max_pool", node.name, x, **node.settings)
        elif node.kind == "flatten":
            x = network.add("dequantize", "pool3.float", x, scale=scale)
            x = network.add("flatten", node.name, x)
        elif node.kind == "linear":
            x = network.add("linear", node.name, x, weights=node.weights)
        # The ReLUs are part of the quantised convolutions.
    network.outputs = trained.outputs
    return network


def _scale_of(values: Array, greatest: int = GREATEST_INT8) -> float:
    """Return the smallest scale with which all `values` fit into -greatest to greatest."""
    # Both engines store scales as float32.
    return float(np.float32(np.abs(values).max() / greatest))


def _add_quantized_conv(
    network: Network, node: Node, x: str, input_scale: float, output_scale: float
) -> str:
    weight_scale = _scale_of(node.weights["weight"], GREATEST_INT8_WEIGHT)
    bias_scale = input_scale * weight_scale
    weights: dict[str, Any] = {
        "weight": np.rint(node.weights["weight"] / weight_scale).astype(np.int8),
        "bias": np.rint(node.weights["bias"] / bias_scale).astype(np.int32),
    }
    sizes = {name: node.settings[name] for name in ("stride", "padding", "groups")}
    scales = {"input_scale": input_scale, "weight_scale": weight_scale}
    settings = {**sizes, **scales, "output_scale": output_scale}
    return network.add("quantized_conv", node.name, x, weights=weights, **settings)
