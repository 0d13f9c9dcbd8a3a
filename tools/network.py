"""A neural network as plain data: nodes in execution order, with weights as NumPy arrays.

`megengine_twin` and `onnx_twin` make the .mge and the .onnx of a model from one network. So the
outputs of both files can differ only because the engines compute differently.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from tables import read_sections

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One operator, whose output has the operator's name.

    `kind` is a key in the tables of `megengine_twin` and `onnx_twin`.

    Each line has a kind of node, then the settings and weights of this kind:

      conv             stride, padding, groups; weight (out, in / groups, k, k), bias (out,);
                       norm: scale and shift of the batch norm to fold in (see `calibration`);
                       perhaps dilation, and pads (top, left, bottom, right) instead of padding
      linear           weight (out, in), bias (out,)
      layer_norm       epsilon; weight and bias of the last axis
      relu, relu6, tanh, sigmoid, gelu, add, sub, mul, matmul, flatten (all but the first axis)
      leaky_relu       slope
      softmax, concat  axis
      max_pool         kernel_size, stride, padding
      average_pool     kernel_size, stride, padding; count_pad: whether padding counts
      half             to float16 and back
      global_average   NCHW to NC11
      cast             to float32
      transpose        axes
      affine           scale, shift: x * scale + shift
      quantize         scale: float32 to int8, zero point 0
      dequantize       scale: int8 to float32
      quantized_conv   as conv, then ReLU; input_scale, weight_scale, output_scale;
                       weight int8, bias int32 in units of input_scale * weight_scale
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class InputSpec:
    """An input tensor. If `any_batch` is true, its first axis may have any size in a run."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    any_batch: bool = False


class Network:
    """A network: its inputs, its nodes in execution order, and the names of its outputs.

    Nodes refer to other nodes by name. If `biases` is given, the biases of layers are random
    numbers with the mean `biases`; otherwise, they are zero.
    """

    def __init__(self, name: str, seed: int = 0, biases: float | None = None) -> None:
        self.name = name
        self.inputs: list[InputSpec] = []
        self.nodes: list[Node] = []
        self.outputs: list[str] = []
        self.biases = biases
        self.random = np.random.RandomState(seed)

    def add_input(self, name: str, **fields: Any) -> str:
        """Append an input with the fields of an `InputSpec`."""
        self.inputs.append(InputSpec(name, **fields))
        return name

    def add(
        self,
        kind: str,
        name: str,
        *inputs: str,
        weights: dict[str, Array] | None = None,
        **settings: Any,
    ) -> str:
        """Append a node; return its name, which is also the name of its output."""
        self.nodes.append(Node(kind, name, inputs, settings, weights or {}))
        return name

    def add_conv(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        norm: tuple[float, float] = (1.0, 0.0),
    ) -> str:
        """Append a convolution with random weights; return its name.

        `channels` are the numbers of input and output channels. The padding is half the kernel.
        """
        shape = (channels[1], channels[0] // groups, kernel, kernel)
        sizes = {"stride": stride, "padding": kernel // 2, "groups": groups}
        return self.add("conv", name, source, weights=self._draw(shape), **sizes, norm=norm)

    def add_linear(self, name: str, source: str, features: tuple[int, int]) -> str:
        """Append a fully connected layer with random weights; return its name.

        `features` are the numbers of inputs and outputs.
        """
        return self.add("linear", name, source, weights=self._draw(features[::-1]))

    def add_layer_norm(self, name: str, source: str, width: int) -> str:
        means = {"weight": 1.0, "bias": 0.0}
        weights = {role: self._draw_around(mean, width) for role, mean in means.items()}
        return self.add("layer_norm", name, source, weights=weights, epsilon=1e-5)

    def add_quantized_conv(
        self, name: str, source: str, channels: tuple[int, int], **scales: float
    ) -> str:
        """Append an int8 convolution with random integers as weights."""
        weights: dict[str, Array] = {
            "weight": self.random.randint(-90, 91, (*channels[::-1], 3, 3)).astype(np.int8),
            "bias": self.random.randint(-500, 500, channels[1]).astype(np.int32),
        }
        sizes = {"stride": 1, "padding": 1, "groups": 1}
        return self.add("quantized_conv", name, source, weights=weights, **sizes, **scales)

    def count_parameters(self) -> int:
        return sum(weight.size for node in self.nodes for weight in node.weights.values())

    def _draw(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Return random weights with He initialisation.

        A ReLU halves the variance of its input, so that the weights double the variance.
        """
        fan_in = int(np.prod(shape[1:]))
        weight = self.random.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)
        return {"weight": weight, "bias": self._draw_around(self.biases or 0.0, shape[0])}

    def _draw_around(self, mean: float, size: int) -> Array:
        if self.biases is None:
            return np.full(size, mean, np.float32)
        return (mean + 0.1 * self.random.normal(size=size)).astype(np.float32)


# Networks in text files


def read_networks(module: str) -> dict[str, Callable[[], Network]]:
    """Return a function for each network in a module's text file; the function makes the network.

    A line `[name seed=1]` begins a network. Each further line is a node: its name, its kind, the
    names of its inputs, and its settings. A node without names of inputs takes the output of the
    line before. A line with `>` lists the outputs. A line `[block kind]` begins a block: a node of
    this kind is replaced by the lines of the block.
    """
    sections = read_sections(module)
    return {
        head.split()[0]: partial(read_network, head, sections)
        for head in sections
        if not head.startswith("block ")
    }


def read_network(head: str, sections: Mapping[str, Sequence[str]]) -> Network:
    name, *words = head.split()
    network = Network(name, **settings_in(words))
    add_lines(network, sections[head], "", sections)
    return network


def add_lines(
    network: Network, lines: Iterable[str], before: str, sections: Mapping[str, Sequence[str]]
) -> str:
    """Append the nodes of some lines; return the name of the last node."""
    for line in lines:
        name, *words = line.split()
        block = sections.get(f"block {words[0]}")
        if name == ">":
            network.outputs = words
        elif block:
            fields = dict(word.split("=") for word in words[1:])
            filled = (each.format(name=name, source=before, **fields) for each in block)
            before = add_lines(network, filled, before, sections)
        else:
            before = add_line(network, name, before, *words)
    return before


def add_line(network: Network, name: str, before: str, kind: str, *words: str) -> str:
    """Append the node or input of a line; return its name."""
    settings = settings_in(words)
    if kind == "input":
        return network.add_input(name, **settings)
    sources = [word for word in words if "=" not in word] or [before]
    adds: Callable[..., str] = getattr(network, f"add_{kind}", partial(network.add, kind))
    return adds(name, *sources, **settings)


def settings_in(words: Sequence[str]) -> dict[str, Any]:
    given = (word.split("=") for word in words if "=" in word)
    return {name: ast.literal_eval(value) for name, value in given}
