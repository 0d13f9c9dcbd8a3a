"""Small networks in which faults are planted: see `planted_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from network import Network

# Networks of images, which MegEngine can run in blocks of four channels.
IN_BLOCKS = ("plain_cnn", "residual", "inverted", "branches", "excitation", "picture", "dense")
BIAS = 0.1  # their mean


def plain_cnn() -> Network:
    network = Network("plain_cnn", seed=1, biases=BIAS)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add_activated("relu", "relu1", "conv1", x, (4, 16))
    x = network.add_activated("relu", "relu2", "conv2", x, (16, 16))
    x = network.add("max_pool", "pool2", x, kernel_size=2, stride=2, padding=0)
    x = network.add_activated("relu", "relu3", "conv3", x, (16, 32))
    x = network.add_activated("relu", "relu4", "conv4", x, (32, 32))
    network.add_classifier(x, 32, 10)
    return network


def residual() -> Network:
    network = Network("residual", seed=2, biases=BIAS)
    x = network.add_input("data", (1, 4, 10, 10))
    x = network.add_activated("relu", "stem.relu", "stem", x, (4, 8))
    for name in ("a", "b", "c"):
        y = network.add_activated("relu", f"{name}.relu1", f"{name}.conv1", x, (8, 8))
        y = network.add_conv(f"{name}.conv2", y, (8, 8))
        shortcut = network.add_conv(f"{name}.short", x, (8, 8), kernel=1) if name == "b" else x
        x = network.add("relu", f"{name}.relu", network.add("add", f"{name}.sum", y, shortcut))
    network.add_classifier(x, 8, 6)
    return network


def inverted() -> Network:
    network = Network("inverted", seed=3, biases=BIAS)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add_activated("relu6", "stem.relu", "stem", x, (4, 8))
    for name in ("a", "b", "c"):
        expand, depthwise = f"{name}.expand", f"{name}.depthwise"
        y = network.add_activated("relu6", f"{expand}_relu", expand, x, (8, 24), kernel=1)
        y = network.add_activated("relu6", f"{depthwise}_relu", depthwise, y, (24, 24), groups=24)
        y = network.add_conv(f"{name}.project", y, (24, 8), kernel=1)
        x = network.add("add", f"{name}.sum", y, x)
    network.add_classifier(x, 8, 6)
    return network


def branches() -> Network:
    network = Network("branches", seed=4, biases=BIAS)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add_activated("relu", "stem.relu", "stem", x, (4, 16))
    sizes: dict[str, Any] = {"kernel_size": 3, "stride": 1, "padding": 1, "count_pad": True}
    for name in ("a", "b"):
        parts = []
        for number, (part, kernel) in enumerate(
            (("one", 1), ("two", 3), ("three", 1), ("four", 3)), 1
        ):
            taken = network.add("average_pool", f"{name}.pool", x, **sizes) if number == 3 else x
            relu, conv = f"{name}.relu{number}", f"{name}.{part}"
            parts.append(network.add_activated("relu", relu, conv, taken, (16, 8), kernel=kernel))
        x = network.add("concat", f"{name}.joined", *parts, axis=1)
        x = network.add_conv(f"{name}.mix", x, (32, 16), kernel=1)
    network.add_classifier(x, 16, 6)
    return network


def perceptron() -> Network:
    network = Network("perceptron", seed=5, biases=BIAS)
    x = network.add_input("data", (4, 32))
    for index, kind in enumerate(("tanh", "sigmoid", "relu", "leaky_relu")):
        x = network.add_linear(f"dense{index}", x, (32, 32))
        settings: dict[str, Any] = {"slope": 0.01} if kind == "leaky_relu" else {}
        x = network.add(kind, f"{kind}{index}", x, **settings)
    x = network.add_linear("logits", x, (32, 10))
    network.outputs = [network.add("softmax", "prob", x, axis=1)]
    return network


def attention() -> Network:
    network = Network("attention", seed=6, biases=BIAS)
    x = network.add_input("data", (12, 16))
    for name in ("a", "b"):
        summed = network.add("add", f"{name}.sum", network.add_attention(name, x, 16), x)
        x = network.add_layer_norm(f"{name}.norm", summed, 16)
    network.outputs = [network.add_linear("logits", x, (16, 6))]
    return network


def excitation() -> Network:
    network = Network("excitation", seed=7, biases=BIAS)
    x = network.add_input("data", (1, 4, 10, 10))
    x = network.add_activated("relu", "stem.relu", "stem", x, (4, 16))
    for name in ("a", "b"):
        x = network.add_activated("relu", f"{name}.relu", f"{name}.conv", x, (16, 16))
        gate = network.add("global_average", f"{name}.squeeze", x)
        relu, conv = f"{name}.gate_relu", f"{name}.reduce"
        gate = network.add_activated("relu", relu, conv, gate, (16, 4), kernel=1)
        gate = network.add_conv(f"{name}.raise", gate, (4, 16), kernel=1)
        gate = network.add("sigmoid", f"{name}.gate", gate)
        x = network.add("mul", f"{name}.scaled", x, gate)
    network.add_classifier(x, 16, 6)
    return network


def two_inputs() -> Network:
    network = Network("two_inputs", seed=8, biases=BIAS)
    a, b = network.add_input("a", (6, 20)), network.add_input("b", (6, 20))
    a = network.add("relu", "a.relu", network.add_linear("a.dense", a, (20, 24)))
    b = network.add("tanh", "b.tanh", network.add_linear("b.dense", b, (20, 24)))
    apart = network.add("sub", "apart", a, b)
    product = network.add("mul", "product", a, b)
    joined = network.add("concat", "joined", apart, product, axis=1)
    x = network.add("relu", "joint.relu", network.add_linear("joint", joined, (48, 24)))
    network.outputs = [network.add_linear("similarity", x, (24, 4)), product]
    return network


def picture() -> Network:
    network = Network("picture", seed=9, biases=BIAS)
    x = network.add_input("data", (1, 16, 16, 4), dtype="uint8")
    x = network.add("cast", "cast", x)
    x = network.add("transpose", "planes", x, axes=(0, 3, 1, 2))
    x = network.add("affine", "normalize", x, scale=1 / 64, shift=-2.0)
    x = network.add_activated("relu", "relu1", "conv1", x, (4, 8), stride=2)
    x = network.add_activated("relu", "relu2", "conv2", x, (8, 16))
    x = network.add("average_pool", "pool", x, kernel_size=2, stride=2, padding=0, count_pad=True)
    x = network.add("flatten", "features", x)
    network.outputs = [network.add_linear("logits", x, (256, 6))]
    return network


def dense() -> Network:
    network = Network("dense", seed=10, biases=BIAS)
    x = network.add_input("data", (1, 8, 8, 8))
    for index in range(4):
        y = network.add("affine", f"scale{index}", x, scale=0.9, shift=0.1)
        y = network.add("relu", f"relu{index}", y)
        y = network.add_conv(f"conv{index}", y, (8 + 8 * index, 8))
        x = network.add("concat", f"joined{index}", x, y, axis=1)
    network.add_classifier(x, 40, 6)
    return network


def int8_cnn() -> Network:
    """A network that computes in int8 in both formats."""
    network = Network("int8_cnn", seed=11)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add("quantize", "quantize", x, scale=0.05)
    scale = 0.05
    for name, channels in (("conv1", 4), ("conv2", 8), ("conv3", 8)):
        weights: dict[str, Any] = {
            "weight": network.random.randint(-90, 91, (8, channels, 3, 3)).astype(np.int8),
            "bias": network.random.randint(-500, 500, 8).astype(np.int32),
        }
        scales = {"input_scale": scale, "weight_scale": 0.005, "output_scale": 0.08}
        sizes = {"stride": 1, "padding": 1, "groups": 1}
        x = network.add("quantized_conv", name, x, weights=weights, **sizes, **scales)
        scale = 0.08
    network.outputs = [network.add("dequantize", "dequantize", x, scale=0.08)]
    return network


NETWORKS: dict[str, Callable[[], Network]] = {
    make.__name__: make
    for make in (
        *(plain_cnn, residual, inverted, branches, perceptron, attention, excitation),
        *(two_inputs, picture, dense, int8_cnn),
    )
}
