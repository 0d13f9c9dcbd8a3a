"""Ten small networks, and what can go wrong in them: one operator altered at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from network import Array, Network, Node

Change = Callable[[Network, Node], None]


@dataclass(frozen=True)
class Fault:
    """One altered operator: its name, and what is done to the network.

    `in_blocks` tells whether MegEngine can run the result in a blocked layout.
    """

    kind: str
    operator: str
    change: Change
    in_blocks: bool = True


# Networks of images, which MegEngine can run in blocks of four channels.
IN_BLOCKS = ("plain_cnn", "residual", "inverted", "branches", "excitation", "picture", "dense")


def plain_cnn() -> Network:
    network = Network("plain_cnn", seed=1)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add("relu", "relu1", add_conv(network, "conv1", x, (4, 16)))
    x = network.add("relu", "relu2", add_conv(network, "conv2", x, (16, 16)))
    x = network.add("max_pool", "pool2", x, kernel_size=2, stride=2, padding=0)
    x = network.add("relu", "relu3", add_conv(network, "conv3", x, (16, 32)))
    x = network.add("relu", "relu4", add_conv(network, "conv4", x, (32, 32)))
    x = network.add("global_average", "average", x)
    x = network.add("flatten", "features", x)
    network.outputs = [add_linear(network, "logits", x, (32, 10))]
    return network


def residual() -> Network:
    network = Network("residual", seed=2)
    x = network.add_input("data", (1, 4, 10, 10))
    x = network.add("relu", "stem.relu", add_conv(network, "stem", x, (4, 8)))
    for name in ("a", "b", "c"):
        y = network.add("relu", f"{name}.relu1", add_conv(network, f"{name}.conv1", x, (8, 8)))
        y = add_conv(network, f"{name}.conv2", y, (8, 8))
        shortcut = add_conv(network, f"{name}.short", x, (8, 8), kernel=1) if name == "b" else x
        x = network.add("relu", f"{name}.relu", network.add("add", f"{name}.sum", y, shortcut))
    x = network.add("flatten", "features", network.add("global_average", "average", x))
    network.outputs = [add_linear(network, "logits", x, (8, 6))]
    return network


def inverted() -> Network:
    network = Network("inverted", seed=3)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add("relu6", "stem.relu", add_conv(network, "stem", x, (4, 8)))
    for name in ("a", "b", "c"):
        y = add_conv(network, f"{name}.expand", x, (8, 24), kernel=1)
        y = network.add("relu6", f"{name}.expand_relu", y)
        y = add_conv(network, f"{name}.depthwise", y, (24, 24), groups=24)
        y = network.add("relu6", f"{name}.depthwise_relu", y)
        y = add_conv(network, f"{name}.project", y, (24, 8), kernel=1)
        x = network.add("add", f"{name}.sum", y, x)
    x = network.add("flatten", "features", network.add("global_average", "average", x))
    network.outputs = [add_linear(network, "logits", x, (8, 6))]
    return network


def branches() -> Network:
    network = Network("branches", seed=4)
    x = network.add_input("data", (1, 4, 12, 12))
    x = network.add("relu", "stem.relu", add_conv(network, "stem", x, (4, 16)))
    for name in ("a", "b"):
        one = network.add("relu", f"{name}.relu1", add_conv(network, f"{name}.one", x, (16, 8), 1))
        two = network.add("relu", f"{name}.relu2", add_conv(network, f"{name}.two", x, (16, 8)))
        pooled = network.add(
            "average_pool", f"{name}.pool", x, kernel_size=3, stride=1, padding=1, count_pad=True
        )
        three = network.add(
            "relu", f"{name}.relu3", add_conv(network, f"{name}.three", pooled, (16, 8), 1)
        )
        four = network.add("relu", f"{name}.relu4", add_conv(network, f"{name}.four", x, (16, 8)))
        x = network.add("concat", f"{name}.joined", one, two, three, four, axis=1)
        x = add_conv(network, f"{name}.mix", x, (32, 16), kernel=1)
    x = network.add("flatten", "features", network.add("global_average", "average", x))
    network.outputs = [add_linear(network, "logits", x, (16, 6))]
    return network


def perceptron() -> Network:
    network = Network("perceptron", seed=5)
    x = network.add_input("data", (4, 32))
    for index, kind in enumerate(("tanh", "sigmoid", "relu", "leaky_relu")):
        x = add_linear(network, f"dense{index}", x, (32, 32))
        settings: dict[str, Any] = {"slope": 0.01} if kind == "leaky_relu" else {}
        x = network.add(kind, f"{kind}{index}", x, **settings)
    x = add_linear(network, "logits", x, (32, 10))
    network.outputs = [network.add("softmax", "prob", x, axis=1)]
    return network


def attention() -> Network:
    network = Network("attention", seed=6)
    x = network.add_input("data", (12, 16))
    for name in ("a", "b"):
        query = add_linear(network, f"{name}.query", x, (16, 16))
        key = add_linear(network, f"{name}.key", x, (16, 16))
        value = add_linear(network, f"{name}.value", x, (16, 16))
        turned = network.add("transpose", f"{name}.turned", key, axes=(1, 0))
        scores = network.add("matmul", f"{name}.scores", query, turned)
        scaled = network.add("affine", f"{name}.scaled", scores, scale=0.25, shift=0.0)
        weights = network.add("softmax", f"{name}.weights", scaled, axis=1)
        mixed = network.add("matmul", f"{name}.mixed", weights, value)
        summed = network.add("add", f"{name}.sum", mixed, x)
        x = network.add(
            "layer_norm",
            f"{name}.norm",
            summed,
            weights={
                "weight": network_random(network, (16,), 1.0),
                "bias": network_random(network, (16,), 0.0),
            },
            epsilon=1e-5,
        )
    network.outputs = [add_linear(network, "logits", x, (16, 6))]
    return network


def excitation() -> Network:
    network = Network("excitation", seed=7)
    x = network.add_input("data", (1, 4, 10, 10))
    x = network.add("relu", "stem.relu", add_conv(network, "stem", x, (4, 16)))
    for name in ("a", "b"):
        x = network.add("relu", f"{name}.relu", add_conv(network, f"{name}.conv", x, (16, 16)))
        gate = network.add("global_average", f"{name}.squeeze", x)
        gate = network.add(
            "relu",
            f"{name}.gate_relu",
            add_conv(network, f"{name}.reduce", gate, (16, 4), kernel=1),
        )
        gate = add_conv(network, f"{name}.raise", gate, (4, 16), kernel=1)
        gate = network.add("sigmoid", f"{name}.gate", gate)
        x = network.add("mul", f"{name}.scaled", x, gate)
    x = network.add("flatten", "features", network.add("global_average", "average", x))
    network.outputs = [add_linear(network, "logits", x, (16, 6))]
    return network


def two_inputs() -> Network:
    network = Network("two_inputs", seed=8)
    a, b = network.add_input("a", (6, 20)), network.add_input("b", (6, 20))
    a = network.add("relu", "a.relu", add_linear(network, "a.dense", a, (20, 24)))
    b = network.add("tanh", "b.tanh", add_linear(network, "b.dense", b, (20, 24)))
    apart = network.add("sub", "apart", a, b)
    product = network.add("mul", "product", a, b)
    joined = network.add("concat", "joined", apart, product, axis=1)
    x = network.add("relu", "joint.relu", add_linear(network, "joint", joined, (48, 24)))
    network.outputs = [add_linear(network, "similarity", x, (24, 4)), product]
    return network


def picture() -> Network:
    network = Network("picture", seed=9)
    x = network.add_input("data", (1, 16, 16, 4), dtype="uint8")
    x = network.add("cast", "cast", x)
    x = network.add("transpose", "planes", x, axes=(0, 3, 1, 2))
    x = network.add("affine", "normalize", x, scale=1 / 64, shift=-2.0)
    x = network.add("relu", "relu1", add_conv(network, "conv1", x, (4, 8), stride=2))
    x = network.add("relu", "relu2", add_conv(network, "conv2", x, (8, 16)))
    x = network.add("average_pool", "pool", x, kernel_size=2, stride=2, padding=0, count_pad=True)
    x = network.add("flatten", "features", x)
    network.outputs = [add_linear(network, "logits", x, (256, 6))]
    return network


def dense() -> Network:
    network = Network("dense", seed=10)
    x = network.add_input("data", (1, 8, 8, 8))
    for index in range(4):
        width = 8 + 8 * index
        y = network.add("affine", f"scale{index}", x, scale=0.9, shift=0.1)
        y = network.add("relu", f"relu{index}", y)
        y = add_conv(network, f"conv{index}", y, (width, 8))
        x = network.add("concat", f"joined{index}", x, y, axis=1)
    x = network.add("flatten", "features", network.add("global_average", "average", x))
    network.outputs = [add_linear(network, "logits", x, (40, 6))]
    return network


def network_random(network: Network, shape: tuple[int, ...], mean: float) -> Array:
    return (mean + 0.1 * network._random.normal(size=shape)).astype(np.float32)


def add_conv(
    network: Network,
    name: str,
    source: str,
    channels: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
) -> str:
    network.add_conv(name, source, channels, kernel, stride, groups)
    node = network.nodes[-1]
    node.weights["bias"][:] = network_random(network, node.weights["bias"].shape, 0.1)
    return name


def add_linear(network: Network, name: str, source: str, features: tuple[int, int]) -> str:
    network.add_linear(name, source, features)
    node = network.nodes[-1]
    node.weights["bias"][:] = network_random(network, node.weights["bias"].shape, 0.1)
    return name


def alter_weight(network: Network, node: Node) -> None:
    node.weights["weight"].reshape(-1)[node.weights["weight"].size // 3] += 0.05


def alter_kernel(network: Network, node: Node) -> None:
    node.weights["weight"][node.weights["weight"].shape[0] // 2] *= 1.02


def alter_bias(network: Network, node: Node) -> None:
    node.weights["bias"][-1] += 0.01


def transpose_kernel(network: Network, node: Node) -> None:
    weight = node.weights["weight"]
    node.weights["weight"] = np.ascontiguousarray(np.swapaxes(weight, -1, -2))


def round_weight(network: Network, node: Node) -> None:
    node.weights["weight"] = node.weights["weight"].astype(np.float16).astype(np.float32)


def widen(network: Network, node: Node) -> None:
    """Dilate a kernel of 3 with as much more padding: the shape stays."""
    node.settings["dilation"] = 2
    node.settings["padding"] = 2


def shift_padding(network: Network, node: Node) -> None:
    """Pad the other value: what a border extended by its own edge would be."""
    node.settings["pads"] = (0, 2, 0, 2)


def remove(network: Network, node: Node) -> None:
    """Take an operator out: what took its output takes its input."""
    (source,) = node.inputs
    network.nodes = [
        replace(it, inputs=tuple(source if name == node.name else name for name in it.inputs))
        for it in network.nodes
        if it is not node
    ]


def cast_half(network: Network, node: Node) -> None:
    """Bring what an operator takes into float16 and back."""
    name = f"{node.name}.half"
    place = network.nodes.index(node)
    network.nodes[place : place + 1] = [
        Node("half", name, node.inputs[:1]),
        replace(node, inputs=(name, *node.inputs[1:])),
    ]


def swap_inputs(network: Network, node: Node) -> None:
    first, second, *others = node.inputs
    network.nodes[network.nodes.index(node)] = replace(node, inputs=(second, first, *others))


def become(kind: str, **settings: Any) -> Change:
    """Make it an operator of another kind."""

    def change(network: Network, node: Node) -> None:
        changed = replace(node, kind=kind, settings={**node.settings, **settings})
        network.nodes[network.nodes.index(node)] = changed

    return change


def set_to(**settings: Any) -> Change:
    def change(network: Network, node: Node) -> None:
        node.settings.update(settings)

    return change


NETWORKS: dict[str, tuple[Callable[[], Network], tuple[Fault, ...]]] = {
    "plain_cnn": (
        plain_cnn,
        (
            Fault("weight", "conv2", alter_weight),
            Fault("bias", "conv3", alter_bias),
            Fault("transposed kernel", "conv1", transpose_kernel),
            Fault("missing relu", "relu2", remove),
            Fault("dilation", "conv4", widen, in_blocks=False),
            Fault("half cast", "conv3", cast_half),
            # The engine pads another axis there.
            Fault("padding", "conv2", shift_padding, in_blocks=False),
            Fault("pooling mode", "pool2", become("average_pool", count_pad=True)),
        ),
    ),
    "residual": (
        residual,
        (
            Fault("weight", "a.conv2", alter_weight),
            Fault("bias", "b.conv2", alter_bias),
            Fault("shortcut", "b.short", alter_kernel),
            Fault("missing relu", "b.relu1", remove),
            Fault("missing relu at the sum", "a.relu", remove),
            Fault("transposed kernel", "c.conv1", transpose_kernel),
        ),
    ),
    "inverted": (
        inverted,
        (
            Fault("clip", "b.expand_relu", become("relu")),
            Fault("depthwise kernel", "b.depthwise", transpose_kernel),
            Fault("bias", "a.project", alter_bias),
            Fault("missing relu", "a.depthwise_relu", remove),
            Fault("rounded weight", "c.expand", round_weight),
        ),
    ),
    "branches": (
        branches,
        (
            Fault("padding counted", "a.pool", set_to(count_pad=False)),
            Fault("pooling mode", "b.pool", become("max_pool")),
            Fault("order of joining", "a.joined", swap_inputs),
            Fault("kernel", "b.two", alter_kernel),
            Fault("missing relu", "a.relu3", remove),
        ),
    ),
    "perceptron": (
        perceptron,
        (
            Fault("activation", "sigmoid1", become("tanh")),
            Fault("slope", "leaky_relu3", set_to(slope=0.02)),
            Fault("transposed matrix", "dense2", transpose_kernel),
            Fault("softmax axis", "prob", set_to(axis=0)),
            Fault("bias", "dense0", alter_bias),
        ),
    ),
    "attention": (
        attention,
        (
            Fault("epsilon", "a.norm", set_to(epsilon=1e-2)),
            Fault("scale", "b.scaled", set_to(scale=0.5)),
            Fault("softmax axis", "a.weights", set_to(axis=0)),
            Fault("weight", "b.key", alter_weight),
            Fault("half cast", "a.mixed", cast_half),
        ),
    ),
    "excitation": (
        excitation,
        (
            Fault("gate", "a.gate", become("tanh")),
            Fault("weight", "b.reduce", alter_weight),
            Fault("missing relu", "a.relu", remove),
            Fault("bias", "a.raise", alter_bias),
        ),
    ),
    "two_inputs": (
        two_inputs,
        (
            Fault("order of a difference", "apart", swap_inputs),
            Fault("product", "product", become("add")),
            Fault("weight", "b.dense", alter_weight),
            Fault("missing tanh", "b.tanh", remove),
        ),
    ),
    "picture": (
        picture,
        (
            Fault("scale", "normalize", set_to(scale=1 / 63)),
            Fault("shift", "normalize", set_to(shift=-2.01)),
            Fault("weight", "conv1", alter_weight),
            Fault("pooling mode", "pool", become("max_pool")),
        ),
    ),
    "dense": (
        dense,
        (
            Fault("scale", "scale2", set_to(scale=0.91)),
            Fault("missing relu", "relu1", remove),
            Fault("kernel", "conv2", alter_kernel),
            Fault("order of joining", "joined1", swap_inputs),
        ),
    ),
}
