"""Writes the networks of `planted_networks` in both formats, and what engines dump of them.

    python tools/planted_twins.py FOLDER NAME ...

Each fault has a variant of its own, by its number; `clean` is the network as it should be. Of each
variant there are dumps in the folders NAME.VARIANT.onnx, NAME.VARIANT.plain (MegEngine) and, where
the engine can, NAME.VARIANT.nchw44; of the clean one also NAME.clean.blocked, ONNX Runtime's with
all its optimisations.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import megengine_twin
import numpy as np
import onnx_twin
from megengine import functional
from network import Array, Network, Node
from onnx import TensorProto
from onnx_twin import OnnxGraph, onnx_of
from planted_networks import IN_BLOCKS, NETWORKS, Fault

from lar.records.run import RunContext
from lar.running.plan import plan_run
from lar.running.steps import make_run


def add_conv(graph: OnnxGraph, node: Node) -> None:
    settings = node.settings
    attributes = onnx_twin._conv_attributes(node)
    attributes["dilations"] = [settings.get("dilation", 1)] * 2
    if "pads" in settings:
        attributes["pads"] = settings["pads"]
    inputs = [*node.inputs, *onnx_twin._add_weights(graph, node)]
    graph.add("Conv", inputs, node.name, **attributes)


def compute_conv(node: Node, weights: Any, x: Any) -> Any:
    settings, padding = node.settings, node.settings["padding"]
    if "pads" in settings:
        top, left, bottom, right = settings["pads"]
        x = functional.nn.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        padding = 0
    return functional.conv2d(
        x,
        weights["weight"],
        weights["bias"],
        settings["stride"],
        padding,
        settings.get("dilation", 1),
        settings["groups"],
    )


def add_average_pool(graph: OnnxGraph, node: Node) -> None:
    settings = node.settings
    graph.add(
        "AveragePool",
        list(node.inputs),
        node.name,
        kernel_shape=[settings["kernel_size"]] * 2,
        strides=[settings["stride"]] * 2,
        pads=[settings["padding"]] * 4,
        count_include_pad=int(settings["count_pad"]),
    )


def compute_average_pool(node: Node, weights: Any, x: Any) -> Any:
    settings = node.settings
    mode = "average" if settings["count_pad"] else "average_count_exclude_padding"
    return functional.avg_pool2d(
        x, settings["kernel_size"], settings["stride"], settings["padding"], mode
    )


def add_max_pool(graph: OnnxGraph, node: Node) -> None:
    node.settings.pop("count_pad", None)
    onnx_twin._add_max_pool(graph, node)


def compute_max_pool(node: Node, weights: Any, x: Any) -> Any:
    settings = node.settings
    return functional.max_pool2d(
        x, settings["kernel_size"], settings["stride"], settings["padding"]
    )


def add_half(graph: OnnxGraph, node: Node) -> None:
    half = graph.add("Cast", list(node.inputs), f"{node.name}.narrow", to=TensorProto.FLOAT16)
    graph.add("Cast", [half], node.name, to=TensorProto.FLOAT)


def add_layer_norm(graph: OnnxGraph, node: Node) -> None:
    inputs = [*node.inputs, *onnx_twin._add_weights(graph, node)]
    graph.add("LayerNormalization", inputs, node.name, epsilon=node.settings["epsilon"])


def compute_layer_norm(node: Node, weights: Any, x: Any) -> Any:
    shape = node.weights["weight"].shape
    return functional.nn.layer_norm(
        x, shape, True, weights["weight"], weights["bias"], node.settings["epsilon"]
    )


def add_with(operator: str, *settings: str) -> Any:
    """Translate a node without weights; its settings become attributes."""

    def add(graph: OnnxGraph, node: Node) -> None:
        attributes = {{"slope": "alpha"}.get(name, name): node.settings[name] for name in settings}
        graph.add(operator, list(node.inputs), node.name, **attributes)

    return add


onnx_twin.OPERATORS |= {
    "conv": add_conv,
    "average_pool": add_average_pool,
    "max_pool": add_max_pool,
    "half": add_half,
    "layer_norm": add_layer_norm,
    "tanh": add_with("Tanh"),
    "sigmoid": add_with("Sigmoid"),
    "leaky_relu": add_with("LeakyRelu", "slope"),
    "softmax": add_with("Softmax", "axis"),
    "concat": add_with("Concat", "axis"),
    "sub": add_with("Sub"),
    "mul": add_with("Mul"),
}
megengine_twin.OPERATORS |= {
    "conv": compute_conv,
    "average_pool": compute_average_pool,
    "max_pool": compute_max_pool,
    "half": lambda node, weights, x: x.astype("float16").astype("float32"),
    "layer_norm": compute_layer_norm,
    "tanh": lambda node, weights, x: functional.tanh(x),
    "sigmoid": lambda node, weights, x: functional.sigmoid(x),
    "leaky_relu": lambda node, weights, x: functional.leaky_relu(x, node.settings["slope"]),
    "softmax": lambda node, weights, x: functional.softmax(x, axis=node.settings["axis"]),
    "concat": lambda node, weights, *x: functional.concat(x, axis=node.settings["axis"]),
    "sub": lambda node, weights, x, y: x - y,
    "mul": lambda node, weights, x, y: x * y,
}


def draw_inputs(network: Network) -> dict[str, Array]:
    random = np.random.RandomState(0)
    feeds = {}
    for spec in network.inputs:
        if spec.dtype == "uint8":
            feeds[spec.name] = random.randint(0, 256, spec.shape).astype(np.uint8)
        else:
            feeds[spec.name] = random.normal(0, 3, spec.shape).astype(np.float32)
    return feeds


def dump(model: Path, folder: Path, inputs: list[str], **options: Any) -> None:
    """Run a model once in this process and have lar dump every tensor."""
    values = {"iter": 1, "warmup_iter": 0, "input": inputs, "bin_io_dump": str(folder), **options}
    spec = plan_run(str(model), values)
    result = make_run(spec, RunContext(in_process=True))
    assert result.status == "ok", result.failure


def write_variant(network: Network, path: Path, inputs: list[str], fault: Fault | None) -> None:
    """Write a network as .mge and .onnx, and the dumps of them."""
    model, onnx_model = Path(f"{path}.mge"), Path(f"{path}.onnx_model.onnx")
    megengine_twin.dump_megengine(network, model)
    onnx_model.write_bytes(onnx_of(network).SerializeToString())
    dump(model, Path(f"{path}.plain"), inputs)
    if network.name in IN_BLOCKS and (fault is None or fault.in_blocks):
        dump(model, Path(f"{path}.nchw44"), inputs, enable_nchw44=True)
    dump(onnx_model, Path(f"{path}.onnx"), inputs, graph_optimization_level="basic")
    if fault is None:
        dump(onnx_model, Path(f"{path}.blocked"), inputs)


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        describe, faults = NETWORKS[name]
        clean = describe()
        inputs = []
        for each, array in draw_inputs(clean).items():
            np.save(folder / f"{name}.{each}.npy", array)
            inputs.append(f"{each}:{folder}/{name}.{each}.npy")
        write_variant(clean, folder / f"{name}.clean", inputs, None)
        for number, fault in enumerate(faults):
            altered = copy.deepcopy(clean)
            node = next(it for it in altered.nodes if it.name == fault.operator)
            fault.change(altered, node)
            write_variant(altered, folder / f"{name}.{number}", inputs, fault)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # the engine's own destructors may crash
