"""A neural network as plain data: nodes in execution order, their weights as NumPy arrays.

One description yields both files of a model: `megengine_twin` and `onnx_twin` each translate it,
so the two can differ only in how an engine computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Node:
    """One operator; `kind` is a key of both translators' tables, its output bears its name.

    Kinds, with their settings and weights:
      conv             stride, padding, groups; weight (out, in / groups, k, k), bias (out,);
                       norm: scale and shift of the batch norm to fold in (see `calibration`)
      linear           weight (out, in), bias (out,)
      relu, relu6, add, matmul, flatten (all but the first axis)
      max_pool         kernel_size, stride, padding
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
    """An input tensor; with `any_batch` the first axis of `shape` may change between runs."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    any_batch: bool = False


class Network:
    """Inputs, nodes in execution order, names of the outputs; nodes are added by name."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.inputs: list[InputSpec] = []
        self.nodes: list[Node] = []
        self.outputs: list[str] = []
        self._random = np.random.RandomState(seed)

    def add_input(
        self, name: str, shape: tuple[int, ...], dtype: str = "float32", any_batch: bool = False
    ) -> str:
        self.inputs.append(InputSpec(name, shape, dtype, any_batch))
        return name

    def add(
        self,
        kind: str,
        name: str,
        *inputs: str,
        weights: dict[str, Array] | None = None,
        **settings: Any,
    ) -> str:
        """Append a node; returns its name, which is also the name of its output."""
        self.nodes.append(Node(kind, name, inputs, settings, weights or {}))
        return name

    def add_conv(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        norm: tuple[float, float] = (1.0, 0.0),
    ) -> str:
        """Append a convolution, `channels` in and out, half its kernel of padding."""
        in_channels, out_channels = channels
        shape = (out_channels, in_channels // groups, kernel, kernel)
        weights = {"weight": self._draw_weight(shape), "bias": np.zeros(out_channels, np.float32)}
        return self.add(
            "conv",
            name,
            source,
            weights=weights,
            stride=stride,
            padding=kernel // 2,
            groups=groups,
            norm=norm,
        )

    def add_linear(self, name: str, source: str, features: tuple[int, int]) -> str:
        """Append a fully connected layer, `features` in and out, He-initialised."""
        in_features, out_features = features
        weights = {
            "weight": self._draw_weight((out_features, in_features)),
            "bias": np.zeros(out_features, np.float32),
        }
        return self.add("linear", name, source, weights=weights)

    def count_parameters(self) -> int:
        return sum(weight.size for node in self.nodes for weight in node.weights.values())

    def _draw_weight(self, shape: tuple[int, ...]) -> Array:
        """He initialisation: ReLU halves the variance, so the weights double it."""
        fan_in = int(np.prod(shape[1:]))
        return self._random.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)
