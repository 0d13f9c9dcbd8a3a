"""Computes networks with MegEngine, and saves networks as .mge files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The files are always made on the CPU, since a GPU would round sums differently.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
from megengine import Parameter, Tensor, functional, jit
from megengine.core.tensor.dtype import qint8, qint32
from megengine.functional.nn import conv_bias_activation
from megenginelite import LiteNetwork
from network import Array, Network, Node

Weights = dict[str, Any]  # the weights of one node: name to MegEngine tensor
Operator = Callable[..., Any]


def _compute_conv(node: Node, weights: Weights, x: Any) -> Any:
    settings, padding = node.settings, node.settings["padding"]
    if "pads" in settings:
        top, left, bottom, right = settings["pads"]
        x = functional.nn.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        padding = 0
    sizes = settings["stride"], padding, settings.get("dilation", 1), settings["groups"]
    return functional.conv2d(x, weights["weight"], weights["bias"], *sizes)


def _compute_global_average(node: Node, weights: Weights, x: Any) -> Any:
    height, width = (int(size) for size in x.shape[2:])
    return functional.avg_pool2d(x, (height, width))


def _compute_pool(node: Node, weights: Weights, x: Any) -> Any:
    settings = node.settings
    sizes = settings["kernel_size"], settings["stride"], settings["padding"]
    if node.kind == "max_pool":
        return functional.max_pool2d(x, *sizes)
    mode = "average" if settings["count_pad"] else "average_count_exclude_padding"
    return functional.avg_pool2d(x, *sizes, mode)


def _compute_layer_norm(node: Node, weights: Weights, x: Any) -> Any:
    shape, epsilon = node.weights["weight"].shape, node.settings["epsilon"]
    return functional.nn.layer_norm(x, shape, True, weights["weight"], weights["bias"], epsilon)


def _compute_quantized_conv(node: Node, weights: Weights, x: Any) -> Any:
    settings, given = node.settings, (x, weights["weight"], weights["bias"])
    sizes = {name: settings[name] for name in ("stride", "padding", "groups")}
    output = qint8(settings["output_scale"])
    return conv_bias_activation(*given, output, **sizes, nonlinear_mode="relu")


# Kinds of nodes that have neither weights nor settings.
PLAIN: dict[str, Operator] = {
    **{name: getattr(functional, name) for name in ("relu", "relu6", "tanh", "sigmoid", "gelu")},
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "matmul": functional.matmul,
    "flatten": lambda x: functional.flatten(x, 1),
    **dict.fromkeys(("cast", "dequantize"), lambda x: x.astype("float32")),
    "narrow": lambda x: x.astype("float16"),
    "half": lambda x: x.astype("float16").astype("float32"),
}
OPERATORS: dict[str, Operator] = {
    "conv": _compute_conv,
    "linear": lambda node, weights, x: functional.linear(x, weights["weight"], weights["bias"]),
    "layer_norm": _compute_layer_norm,
    "leaky_relu": lambda node, weights, x: functional.leaky_relu(x, node.settings["slope"]),
    "softmax": lambda node, weights, x: functional.softmax(x, axis=node.settings["axis"]),
    "concat": lambda node, weights, *x: functional.concat(x, axis=node.settings["axis"]),
    "max_pool": _compute_pool,
    "average_pool": _compute_pool,
    "global_average": _compute_global_average,
    "transpose": lambda node, weights, x: functional.transpose(x, node.settings["axes"]),
    "affine": lambda node, weights, x: x * node.settings["scale"] + node.settings["shift"],
    "quantize": lambda node, weights, x: x.astype(qint8(node.settings["scale"])),
    "quantized_conv": _compute_quantized_conv,
}


def make_weights(node: Node, trainable: bool = False) -> Weights:
    """Return a node's weights as named tensors, in the shapes and types that MegEngine needs."""
    made = Parameter if trainable else Tensor
    weights = {name: made(weight) for name, weight in node.weights.items()}
    if node.kind in ("conv", "quantized_conv"):
        out_channels, in_channels, *kernel = node.weights["weight"].shape
        groups = node.settings["groups"]
        if groups > 1:
            shape = (groups, out_channels // groups, in_channels, *kernel)
            weights["weight"] = made(node.weights["weight"].reshape(shape))
        weights["bias"] = made(node.weights["bias"].reshape(1, out_channels, 1, 1))
    if node.kind == "quantized_conv":
        weight_scale = node.settings["weight_scale"]
        bias_scale = node.settings["input_scale"] * weight_scale
        # A quantised tensor cannot be made from int8 values, so that floats are quantised.
        weights["weight"] = _quantize(weights["weight"], weight_scale, qint8(weight_scale))
        weights["bias"] = _quantize(weights["bias"], bias_scale, qint32(bias_scale))
    for name, weight in weights.items():
        weight.name = f"{node.name}.{name}"
    return weights


def _quantize(integers: Any, scale: float, dtype: Any) -> Any:
    return (integers.astype("float32") * scale).astype(dtype)


def compute_node(node: Node, weights: Weights, tensors: dict[str, Any]) -> Any:
    inputs = [tensors[name] for name in node.inputs]
    if node.kind in PLAIN:
        output = PLAIN[node.kind](*inputs)
    else:
        output = OPERATORS[node.kind](node, weights, *inputs)
    # A tensor has the same name in both files, so that dumps of both can be compared.
    output.name = node.name
    return output


def compute(network: Network, weights: dict[str, Weights], feeds: dict[str, Any]) -> dict[str, Any]:
    """Compute all nodes; return every tensor by name, including the feeds."""
    tensors = dict(feeds)
    for node in network.nodes:
        tensors[node.name] = compute_node(node, weights[node.name], tensors)
    return tensors


def dump_megengine(network: Network, path: Path) -> None:
    """Write a network as a .mge file that any device can run (`xpux`)."""
    weights = {node.name: make_weights(node) for node in network.nodes}
    names = [spec.name for spec in network.inputs]

    def compute_outputs(*feeds: Any) -> list[Any]:
        tensors = compute(network, weights, dict(zip(names, feeds, strict=True)))
        return [tensors[name] for name in network.outputs]

    trace = jit.trace(compute_outputs, symbolic=True, capture_as_const=True)
    trace(*(Tensor(np.zeros(spec.shape, spec.dtype)) for spec in network.inputs))
    # The graph is saved without optimisations, since lar measures what these gain.
    with path.open("wb") as file:
        trace.dump(
            file,
            arg_names=names,
            output_names=network.outputs,
            keep_var_name=2,
            optimize_for_inference=False,
        )


def run_megengine(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """Load a .mge file and run it once."""
    lite = LiteNetwork()
    lite.load(str(path))
    for name, array in feeds.items():
        lite.get_io_tensor(name).set_data_by_copy(np.ascontiguousarray(array))
    lite.forward()
    lite.wait()
    return {name: lite.get_io_tensor(name).to_numpy().copy() for name in lite.get_all_output_name()}
