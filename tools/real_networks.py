"""Small networks as exporters and quantisers write them, each with what it is fed with.

Names, decompositions and constants are those of the exporters of PyTorch (old and new), Paddle,
Keras and scikit-learn. All is drawn with seeds: the same call gives the same bytes.
"""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from network import Array
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
    shape_inference,
)

IR_VERSION = 8
SCIKIT_LEARN = "ai.onnx.ml"


class RealNetwork(NamedTuple):
    """A model, and an array for each of its inputs."""

    model: onnx.ModelProto
    feeds: dict[str, Array]


class Exporter:
    """Writes a graph with the names that an exporter gives: `torch` those of modules, `running`
    numbers, `paddle` and `keras`."""

    def __init__(self, naming: str = "torch", opset: int = 17, seed: int = 0) -> None:
        self.naming = naming
        self.opset = opset
        self.random = np.random.RandomState(seed)
        self.scope = ""
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, Array] = {}
        self.counts: dict[str, int] = {}

    def add_input(self, name: str, feed: Array) -> str:
        kind = helper.np_dtype_to_tensor_dtype(feed.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, feed.shape))
        self.feeds[name] = feed
        return name

    def add_image(self, channels: int = 3, size: int = 32) -> str:
        return self.add_input("input", self.draw(1, channels, size, size))

    def draw(self, *shape: int, spread: float = 1.0) -> Array:
        array: Array = self.random.normal(0, spread, shape).astype(np.float32)
        return array

    def weight(self, role: str, array: Array) -> str:
        """Append a weight of the present scope."""
        name = f"{self.scope}.{role}".strip(".")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Append a constant; exporters of PyTorch write a node for it."""
        array = np.asarray(value, dtype)
        if self.naming in ("torch", "running"):
            return self.add("Constant", value=numpy_helper.from_array(array))
        number = self.count("constant")
        self.constants.append(numpy_helper.from_array(array, f"const_{number}"))
        return f"const_{number}"

    def count(self, what: str) -> int:
        self.counts[what] = self.counts.get(what, -1) + 1
        return self.counts[what]

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.add_all(kind, *inputs, **attributes)[0]

    def add_all(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Append an operator; return the names of its outputs."""
        node, tensors = self.names(kind, outputs)
        self.nodes.append(helper.make_node(kind, inputs, tensors, node, **attributes))
        return tensors

    def names(self, kind: str, outputs: int) -> tuple[str, list[str]]:
        if self.naming == "running":
            numbers = [self.count("tensor") + 100 for _ in range(outputs)]
            return f"{kind}_{self.count('node')}", [str(number) for number in numbers]
        if self.naming == "paddle":
            number = self.count(kind)
            lower = "".join(each for each in kind.lower() if each.isalnum())
            return f"{kind}.{number}", [f"{lower}_{number}.tmp_{k}" for k in range(outputs)]
        path = self.scope.replace(".", "/")
        number = self.count(f"{path}/{kind}")
        word = f"{path}/{kind}" + (f"_{number}" if number else "")
        if self.naming == "keras":
            return f"model/{word}", [f"model/{word}:{k}" for k in range(outputs)]
        return f"/{word}", [f"/{word}_output_{k}" for k in range(outputs)]

    def body(self) -> Exporter:
        """Return what writes a graph inside this one: names and draws go on."""
        inner = copy.copy(self)
        inner.nodes, inner.constants, inner.inputs = [], [], []
        return inner

    def graph(self, name: str, *outputs: onnx.ValueInfoProto) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, name, self.inputs, outputs, self.constants)

    def finish(self, **outputs: str) -> RealNetwork:
        """Return the model; the outputs' tensors get these names."""
        names = {tensor: name for name, tensor in outputs.items()}
        for node in self.nodes:
            node.input[:] = [names.get(each, each) for each in node.input]
            node.output[:] = [names.get(each, each) for each in node.output]
        graph = self.graph("main_graph", *(onnx.ValueInfoProto(name=name) for name in outputs))
        domains = {node.domain for node in self.nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(each, 3 if each == SCIKIT_LEARN else 1) for each in domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return RealNetwork(onnx.shape_inference.infer_shapes(model), self.feeds)

    # Layers

    def conv(self, x: str, channels: tuple[int, int], kernel: int = 3, **more: Any) -> str:
        """Append a convolution; `bias`, `stride`, `group` as in PyTorch."""
        group, bias = more.get("group", 1), more.get("bias", True)
        shape = (channels[1], channels[0] // group, kernel, kernel)
        spread = np.sqrt(2 / np.prod(shape[1:]))
        weights = [self.weight("weight", self.draw(*shape, spread=spread))]
        weights += [self.weight("bias", self.draw(channels[1], spread=0.1))] if bias else []
        return self.add(
            "Conv",
            x,
            *weights,
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel] * 2,
            pads=[kernel // 2] * 4,
            strides=[more.get("stride", 1)] * 2,
        )

    def batch_norm(self, x: str, channels: int) -> str:
        scope, self.scope = self.scope, self.scope.replace("conv", "bn")
        weights = {
            "scale": self.random.uniform(0.5, 1.5, channels),
            "bias": self.random.normal(0, 0.3, channels),
            "running_mean": self.random.normal(0, 0.3, channels),
            "running_var": self.random.uniform(0.5, 2, channels),
        }
        names = [self.weight(role, each.astype(np.float32)) for role, each in weights.items()]
        x = self.add("BatchNormalization", x, *names, epsilon=1e-5, momentum=0.9)
        self.scope = scope
        return x

    def conv_norm(
        self, scope: str, x: str, channels: tuple[int, int], kernel: int = 3, **more: Any
    ) -> str:
        self.scope = scope
        return self.batch_norm(self.conv(x, channels, kernel, bias=False, **more), channels[1])

    def linear(self, scope: str, x: str, features: tuple[int, int]) -> str:
        """Append a layer over the last axis of more than two: MatMul and Add."""
        self.scope = scope
        weight = self.weight("weight", self.draw(*features, spread=features[0] ** -0.5))
        product = self.add("MatMul", x, weight)
        return self.add("Add", self.weight("bias", self.draw(features[1], spread=0.1)), product)

    def classifier(self, x: str, channels: int, classes: int = 10) -> str:
        self.scope = "head"
        x = self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)
        weight = self.weight("weight", self.draw(classes, channels, spread=channels**-0.5))
        bias = self.weight("bias", self.draw(classes, spread=0.1))
        return self.add("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)

    def layer_norm(self, scope: str, x: str, size: int) -> str:
        """Append a LayerNormalization: an operator since opset 17, before that its parts."""
        self.scope = scope
        weight = self.weight("weight", 1 + self.draw(size, spread=0.1))
        bias = self.weight("bias", self.draw(size, spread=0.1))
        if self.opset >= 17:
            return self.add("LayerNormalization", x, weight, bias, axis=-1, epsilon=1e-5)
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        square = self.add("Pow", centred, self.constant(2))
        variance = self.add("ReduceMean", square, axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.constant(1e-5)))
        scaled = self.add("Mul", self.add("Div", centred, root), weight)
        return self.add("Add", scaled, bias)

    def gelu(self, x: str) -> str:
        if self.opset >= 20:
            return self.add("Gelu", x, approximate="none")
        erf = self.add("Erf", self.add("Div", x, self.constant(2**0.5)))
        product = self.add("Mul", x, self.add("Add", erf, self.constant(1)))
        return self.add("Mul", product, self.constant(0.5))

    def clip(self, x: str) -> str:
        return self.add("Clip", x, self.constant(0), self.constant(6))

    def silu_block(
        self, scope: str, x: str, channels: tuple[int, int], kernel: int = 3, stride: int = 1
    ) -> str:
        return self.silu(self.conv_norm(scope, x, channels, kernel, stride=stride))

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(shape, np.int64))

    def attend(self, q: str, k: str, v: str, size: int, mask: str = "") -> str:
        """Append the attention of heads; `size` is that of a head."""
        keys = self.add("Transpose", k, perm=[0, 1, 3, 2])
        if self.naming == "paddle":
            scores = self.add("MatMul", self.add("Mul", q, self.constant(size**-0.5)), keys)
        else:
            scores = self.add("Div", self.add("MatMul", q, keys), self.constant(size**0.5))
        if mask:
            scores = self.add("Add", scores, mask)
        x = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        return self.add("Transpose", x, perm=[0, 2, 1, 3])


# Convolutions


def make_residual(naming: str = "running") -> RealNetwork:
    """ResNet: convolutions without bias, each before a BatchNormalization."""
    net = Exporter(naming, opset=11, seed=1)
    x = net.add("Relu", net.conv_norm("conv1", net.add_image(), (3, 16)))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    for block, (before, after, stride) in enumerate(((16, 16, 1), (16, 32, 2), (32, 32, 1))):
        scope = f"layer{block}.0"
        inner = net.add("Relu", net.conv_norm(f"{scope}.conv1", x, (before, after), stride=stride))
        inner = net.conv_norm(f"{scope}.conv2", inner, (after, after))
        if before != after:
            x = net.conv_norm(f"{scope}.conv3", x, (before, after), 1, stride=stride)
        x = net.add("Relu", net.add("Add", inner, x))
    return net.finish(output=net.classifier(x, 32))


def make_mobile(naming: str = "torch") -> RealNetwork:
    """MobileNetV2: depthwise convolutions, Clip from 0 to 6."""
    net = Exporter(naming, opset=13, seed=2)
    x = net.clip(net.conv_norm("features.0.conv", net.add_image(), (3, 16), stride=2))
    for block, stride in enumerate((1, 2, 1), 1):
        inner = net.clip(net.conv_norm(f"features.{block}.conv.0", x, (16, 48), 1))
        inner = net.clip(
            net.conv_norm(f"features.{block}.conv.1", inner, (48, 48), group=48, stride=stride)
        )
        inner = net.conv_norm(f"features.{block}.conv.2", inner, (48, 16), 1)
        x = net.add("Add", x, inner) if stride == 1 else inner
    x = net.clip(net.conv_norm("features.4.conv", x, (16, 64), 1))
    return net.finish(output=net.classifier(x, 64))


def make_mobile_v3(naming: str = "paddle") -> RealNetwork:
    """MobileNetV3: HardSwish, blocks that squeeze and excite."""
    net = Exporter(naming, opset=14, seed=3)

    def swish(x: str) -> str:
        if naming == "torch":
            return net.add("HardSwish", x)
        return net.add("Mul", x, net.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    x = swish(net.conv_norm("stem.conv", net.add_image(), (3, 16), stride=2))
    for block in range(2):
        inner = swish(net.conv_norm(f"b{block}.conv1", x, (16, 32), 1))
        inner = swish(net.conv_norm(f"b{block}.conv2", inner, (32, 32), 5, group=32))
        net.scope = f"b{block}.se.fc1"
        gate = net.add("Relu", net.conv(net.add("GlobalAveragePool", inner), (32, 8), 1))
        net.scope = f"b{block}.se.fc2"
        gate = net.add("HardSigmoid", net.conv(gate, (8, 32), 1), alpha=0.2, beta=0.5)
        inner = net.conv_norm(f"b{block}.conv3", net.add("Mul", inner, gate), (32, 16), 1)
        x = net.add("Add", x, inner)
    return net.finish(output=net.add("Softmax", net.classifier(x, 16), axis=1))


def make_detector(naming: str = "torch") -> RealNetwork:
    """YOLO: Sigmoid times its input, Split, Concat, Resize, and heads that decode boxes."""
    net = Exporter(naming, opset=13, seed=4)
    x = net.silu_block("model.0.conv", net.add_image(), (3, 16), stride=2)
    net.scope = "model.1"
    parts = net.add_all(
        "Split",
        net.silu_block("model.1.conv", x, (16, 16), 1),
        net.constant([8, 8], np.int64),
        outputs=2,
        axis=1,
    )
    deeper = net.silu_block("model.1.m.0.conv1", parts[1], (8, 8))
    fine = net.silu_block("model.2.conv", net.add("Concat", *parts, deeper, axis=1), (24, 16), 1)
    coarse = net.silu_block("model.3.conv", fine, (16, 16), stride=2)
    net.scope = "model.4"
    pools = [coarse]
    for _ in range(2):
        pools.append(
            net.add("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
        )
    coarse = net.silu_block("model.4.conv", net.add("Concat", *pools, axis=1), (48, 16), 1)
    net.scope = "model.5"
    scales = net.constant([1, 1, 2, 2])
    larger = net.add(
        "Resize",
        coarse,
        "",
        scales,
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )
    fine = net.silu_block("model.6.conv", net.add("Concat", larger, fine, axis=1), (32, 16))
    heads = []
    for number, (x, cells) in enumerate(((fine, 256), (coarse, 64))):
        net.scope = f"model.7.cv{number}"
        heads.append(net.reshape(net.conv(x, (16, 9), 1), 1, 9, cells))
    net.scope = "model.7"
    x = net.add("Concat", *heads, axis=2)
    ends = [net.constant([each], np.int64) for each in (0, 4, 9, 1)]
    boxes = net.add("Slice", x, ends[0], ends[1], ends[3])
    classes = net.add("Sigmoid", net.add("Slice", x, ends[1], ends[2], ends[3]))
    corner, size = net.add_all("Split", boxes, net.constant([2, 2], np.int64), outputs=2, axis=1)
    half = net.add("Div", net.add("Exp", size), net.constant(2))
    low, high = net.add("Sub", corner, half), net.add("Add", corner, half)
    boxes = net.add("Concat", low, high, axis=1)
    return net.finish(output=net.add("Concat", boxes, classes, axis=1), scores=classes)


def make_segmenter(naming: str = "torch") -> RealNetwork:
    """U-Net: LeakyRelu, InstanceNormalization, ConvTranspose, skip connections, linear Resize."""
    net = Exporter(naming, opset=16, seed=5)

    def block(scope: str, x: str, channels: tuple[int, int], stride: int = 1) -> str:
        net.scope = f"{scope}.conv"
        x = net.conv(x, channels, stride=stride)
        net.scope = f"{scope}.norm"
        weights = np.ones(channels[1], np.float32), net.draw(channels[1], spread=0.1)
        names = [net.weight(*each) for each in zip(("weight", "bias"), weights, strict=True)]
        x = net.add("InstanceNormalization", x, *names, epsilon=1e-5)
        return net.add("LeakyRelu", x, alpha=0.1)

    first = block("down1", net.add_image(1), (1, 8))
    second = block("down2", first, (8, 16), 2)
    net.scope = "up1"
    weight = net.weight("weight", net.draw(16, 8, 2, 2, spread=0.2))
    x = net.add("ConvTranspose", second, weight, kernel_shape=[2, 2], strides=[2, 2])
    x = block("join", net.add("Concat", x, first, axis=1), (16, 8))
    pooled = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    scales = net.constant([1, 1, 2, 2])
    x = net.add(
        "Add",
        x,
        net.add(
            "Resize", pooled, "", scales, coordinate_transformation_mode="half_pixel", mode="linear"
        ),
    )
    net.scope = "out"
    return net.finish(mask=net.add("Tanh", net.conv(x, (8, 2), 1)))


def make_convnext(naming: str = "torch") -> RealNetwork:
    """ConvNeXt: wide depthwise convolutions, LayerNormalization with channels last."""
    net = Exporter(naming, opset=17, seed=6)
    net.scope = "stem"
    x = net.conv(net.add_image(), (3, 16), 5, stride=4)
    for block in range(2):
        net.scope = f"stages.{block}.conv_dw"
        inner = net.add("Transpose", net.conv(x, (16, 16), 7, group=16), perm=[0, 2, 3, 1])
        inner = net.layer_norm(f"stages.{block}.norm", inner, 16)
        inner = net.gelu(net.linear(f"stages.{block}.mlp.fc1", inner, (16, 64)))
        inner = net.linear(f"stages.{block}.mlp.fc2", inner, (64, 16))
        inner = net.add("Mul", inner, net.weight("gamma", net.draw(16)))
        x = net.add("Add", net.add("Transpose", inner, perm=[0, 3, 1, 2]), x)
    return net.finish(output=net.classifier(x, 16))


def make_keras(last: bool = True) -> RealNetwork:
    """A convolutional network of Keras: the input has channels last, and is transposed."""
    net = Exporter("keras", opset=13, seed=7)
    image = net.draw(1, 3, 24, 24)
    if last:
        x = net.add_input("input_1", np.ascontiguousarray(image.transpose(0, 2, 3, 1)))
        net.scope = "conv2d"
        x = net.add("Transpose", x, perm=[0, 3, 1, 2])
    else:
        x = net.add_input("input_1", image)
    x = net.add("Relu", net.conv_norm("conv2d", x, (3, 8)))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Elu", net.conv_norm("conv2d_1", x, (8, 16)), alpha=1.0)
    net.scope = "reshape"
    x = net.reshape(net.add("Transpose", x, perm=[0, 2, 3, 1]), 1, 2304)
    x = net.add("Tanh", net.linear("dense", x, (2304, 16)))
    return net.finish(dense_1=net.add("Softmax", net.linear("dense_1", x, (16, 5)), axis=-1))


# Attention

TOKENS, WIDTH, HEADS = 12, 32, 4


def make_attention_paddle(naming: str = "paddle") -> RealNetwork:
    """A block of attention by Paddle: Slice and Squeeze out of a transposed Reshape."""
    net = Exporter(naming, opset=13, seed=8)
    source = net.add_input("x", net.draw(1, TOKENS, WIDTH))
    x = net.linear("qkv", net.layer_norm("norm", source, WIDTH), (WIDTH, 3 * WIDTH))
    x = net.add("Transpose", net.reshape(x, 0, -1, 3, HEADS, WIDTH // HEADS), perm=[2, 0, 3, 1, 4])
    axis, parts = net.constant([0], np.int64), []
    for place in range(3):
        start, end = (net.constant([each], np.int64) for each in (place, place + 1))
        parts.append(net.add("Squeeze", net.add("Slice", x, start, end, axis), axis))
    x = net.reshape(net.attend(parts[0], parts[1], parts[2], WIDTH // HEADS), 0, -1, WIDTH)
    x = net.add("Add", source, net.linear("proj", x, (WIDTH, WIDTH)))
    x = net.silu(net.linear("fc1", net.layer_norm("norm2", x, WIDTH), (WIDTH, 64)))
    return net.finish(y=net.linear("fc2", x, (64, WIDTH)))


def make_attention_timm(naming: str = "torch", opset: int = 17) -> RealNetwork:
    """A vision transformer by timm: patches, a class token, Split and Squeeze or Gather."""
    net = Exporter(naming, opset=opset, seed=9)
    net.scope = "patch_embed.proj"
    weight = net.weight("weight", net.draw(WIDTH, 3, 8, 8, spread=0.1))
    x = net.add("Conv", net.add_image(), weight, kernel_shape=[8, 8], strides=[8, 8])
    x = net.add("Transpose", net.reshape(x, 1, WIDTH, 16), perm=[0, 2, 1])
    net.scope = ""
    x = net.add("Concat", net.weight("cls_token", net.draw(1, 1, WIDTH)), x, axis=1)
    x = net.add("Add", x, net.weight("pos_embed", net.draw(1, 17, WIDTH, spread=0.3)))
    for block in range(2):
        scope = f"blocks.{block}"
        inner = net.layer_norm(f"{scope}.norm1", x, WIDTH)
        inner = net.linear(f"{scope}.attn.qkv", inner, (WIDTH, 3 * WIDTH))
        net.scope = f"{scope}.attn"
        inner = net.reshape(inner, 1, 17, 3, HEADS, WIDTH // HEADS)
        inner = net.add("Transpose", inner, perm=[2, 0, 3, 1, 4])
        parts = [net.add("Gather", inner, net.constant(k, np.int64), axis=0) for k in range(3)]
        inner = net.attend(parts[0], parts[1], parts[2], WIDTH // HEADS)
        inner = net.linear(f"{scope}.attn.proj", net.reshape(inner, 1, 17, WIDTH), (WIDTH, WIDTH))
        x = net.add("Add", x, inner)
        inner = net.layer_norm(f"{scope}.norm2", x, WIDTH)
        inner = net.gelu(net.linear(f"{scope}.mlp.fc1", inner, (WIDTH, 64)))
        x = net.add("Add", x, net.linear(f"{scope}.mlp.fc2", inner, (64, WIDTH)))
    x = net.layer_norm("norm", x, WIDTH)
    x = net.add("Gather", x, net.constant(0, np.int64), axis=1)
    return net.finish(output=net.linear("head", x, (WIDTH, 10)))


def make_bert(naming: str = "torch", opset: int = 12) -> RealNetwork:
    """BERT: embeddings, a mask, heads by Reshape and Transpose, Gelu by Erf; LayerNormalization is
    an operator from opset 17 on."""
    net = Exporter(naming, opset=opset, seed=10)
    ids = net.add_input("input_ids", net.random.randint(0, 50, (1, TOKENS)).astype(np.int64))
    mask = net.add_input("attention_mask", np.array([[1] * 9 + [0] * 3], np.int64))
    net.scope = "embeddings"
    x = net.add("Gather", net.weight("word", net.draw(50, WIDTH)), ids)
    x = net.add("Add", x, net.weight("position", net.draw(1, TOKENS, WIDTH, spread=0.3)))
    x = net.layer_norm("embeddings.LayerNorm", x, WIDTH)
    net.scope = ""
    hidden = net.add("Cast", net.reshape(mask, 1, 1, 1, TOKENS), to=TensorProto.FLOAT)
    hidden = net.add("Sub", net.constant(1), hidden)
    hidden = net.add("Mul", hidden, net.constant(-10000))
    for layer in range(2):
        scope, parts = f"encoder.layer.{layer}", []
        for part in ("query", "key", "value"):
            each = net.linear(f"{scope}.attention.self.{part}", x, (WIDTH, WIDTH))
            each = net.reshape(each, 1, TOKENS, HEADS, WIDTH // HEADS)
            parts.append(net.add("Transpose", each, perm=[0, 2, 1, 3]))
        net.scope = f"{scope}.attention.self"
        inner = net.attend(parts[0], parts[1], parts[2], WIDTH // HEADS, hidden)
        inner = net.reshape(inner, 1, TOKENS, WIDTH)
        inner = net.linear(f"{scope}.attention.output.dense", inner, (WIDTH, WIDTH))
        x = net.add("Add", inner, x)
        x = net.layer_norm(f"{scope}.attention.output.LayerNorm", x, WIDTH)
        inner = net.gelu(net.linear(f"{scope}.intermediate.dense", x, (WIDTH, 64)))
        inner = net.linear(f"{scope}.output.dense", inner, (64, WIDTH))
        x = net.layer_norm(f"{scope}.output.LayerNorm", net.add("Add", inner, x), WIDTH)
    net.scope = "pooler"
    first = net.add("Gather", x, net.constant(0, np.int64), axis=1)
    pooled = net.add("Tanh", net.linear("pooler.dense", first, (WIDTH, WIDTH)))
    return net.finish(last_hidden_state=x, pooler_output=pooled)


# Recurrent networks, and networks inside operators


def make_recurrent(kind: str, naming: str = "torch") -> RealNetwork:
    """An LSTM or a GRU in two directions over features, then a classifier of each step."""
    gates = {"LSTM": 4, "GRU": 3}[kind]
    net = Exporter(naming, opset=14, seed=11)
    x = net.add_input("features", net.draw(1, 10, 16))
    x = net.add("Relu", net.linear("proj", x, (16, 24)))
    x = net.add("Transpose", x, perm=[1, 0, 2])
    net.scope = "rnn"
    weights = net.draw(2, gates * 12, 24, spread=0.2), net.draw(2, gates * 12, 12, spread=0.2)
    names = [net.weight(role, each) for role, each in zip("WR", weights, strict=True)]
    names.append(net.weight("B", net.draw(2, gates * 24, spread=0.1)))
    states = [net.weight("state", np.zeros((2, 1, 12), np.float32))] * (2 if kind == "LSTM" else 1)
    more = {} if kind == "LSTM" else {"linear_before_reset": 1}
    outputs = 3 if kind == "LSTM" else 2
    steps, *ends = net.add_all(
        kind,
        x,
        *names,
        "",
        *states,
        outputs=outputs,
        hidden_size=12,
        direction="bidirectional",
        **more,
    )
    x = net.reshape(net.add("Transpose", steps, perm=[2, 0, 1, 3]), 1, 10, 24)
    x = net.add("LogSoftmax", net.linear("fc", x, (24, 6)), axis=-1)
    return net.finish(log_probs=x, state=ends[0])


def make_branching(naming: str = "torch") -> RealNetwork:
    """A network inside If: both branches have convolutions, one of them more."""
    net = Exporter(naming, opset=16, seed=12)
    x = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    choice = net.add("Greater", net.add("ReduceMax", x, keepdims=0), net.constant(0))
    branches = {}
    for branch, layers in (("then_branch", 2), ("else_branch", 1)):
        body, inner = net.body(), x
        for layer in range(layers):
            body.scope = f"{branch}.conv{layer}"
            inner = body.add("Relu", body.conv(inner, (8, 8)))
        branches[branch] = body.graph(
            branch, helper.make_tensor_value_info(inner, TensorProto.FLOAT, None)
        )
        net.constants += branches[branch].initializer
        del branches[branch].initializer[:]
    net.scope = "gate"
    x = net.add("If", choice, **branches)
    net.scope = "conv1"
    return net.finish(output=net.classifier(net.add("Sigmoid", net.conv(x, (8, 8))), 8))


def make_looping(naming: str = "torch") -> RealNetwork:
    """A network inside Loop: a convolution that is done three times, with what each step gave."""
    net = Exporter(naming, opset=16, seed=13)
    x = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    trips, going = net.constant(3, np.int64), net.constant(True, np.bool_)
    body = net.body()
    body.inputs = [
        helper.make_tensor_value_info("step", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("carried", TensorProto.FLOAT, [1, 8, 16, 16]),
    ]
    body.scope = "loop.conv"
    inner = body.add("Tanh", body.conv("carried", (8, 8)))
    after = body.add("Add", inner, "carried")
    mean = body.add("ReduceMean", after, axes=[1, 2, 3], keepdims=0)
    still = body.add("Identity", "going")
    graph = body.graph(
        "loop_body",
        helper.make_tensor_value_info(still, TensorProto.BOOL, []),
        helper.make_tensor_value_info(after, TensorProto.FLOAT, None),
        helper.make_tensor_value_info(mean, TensorProto.FLOAT, None),
    )
    net.constants += graph.initializer
    del graph.initializer[:]
    net.scope = "loop"
    x, means = net.add_all("Loop", trips, going, x, outputs=2, body=graph)
    return net.finish(output=net.classifier(x, 8), means=means)


# Outputs that are no tensors of numbers


def make_forest(naming: str = "keras") -> RealNetwork:
    """A classifier of scikit-learn: a Scaler, trees, labels as strings, ZipMap."""
    net = Exporter(naming, opset=15, seed=14)
    x = net.add_input("X", net.draw(6, 4))
    x = net.add("Scaler", x, domain=SCIKIT_LEARN, offset=[0.1] * 4, scale=[0.9, 1.1, 1.2, 0.8])
    tree, node = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    leaves = [place for place in range(9) if place % 3]
    numbers, scores = net.add_all(
        "TreeEnsembleClassifier",
        x,
        outputs=2,
        domain=SCIKIT_LEARN,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=[0, 0, 0, 1, 0, 0, 2, 0, 0],
        nodes_values=[0.1, 0, 0] * 3,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 3,
        nodes_truenodeids=[1, 0, 0] * 3,
        nodes_falsenodeids=[2, 0, 0] * 3,
        nodes_missing_value_tracks_true=[0] * 9,
        nodes_hitrates=[1.0] * 9,
        class_treeids=[int(tree[place]) for place in leaves],
        class_nodeids=[int(node[place]) for place in leaves],
        class_ids=[0, 1, 1, 2, 2, 0],
        class_weights=[0.2, 0.3, 0.1, 0.4, 0.25, 0.15],
        classlabels_int64s=[0, 1, 2],
        post_transform="NONE",
    )
    labels = ["setosa", "versicolor", "virginica"]
    words = net.add(
        "LabelEncoder", numbers, domain=SCIKIT_LEARN, keys_int64s=[0, 1, 2], values_strings=labels
    )
    scores = net.add("Normalizer", scores, domain=SCIKIT_LEARN, norm="L1")
    maps = net.add("ZipMap", scores, domain=SCIKIT_LEARN, classlabels_strings=labels)
    return net.finish(output_label=words, output_probability=maps)


def make_sequence(naming: str = "torch") -> RealNetwork:
    """Convolutions whose only output is a sequence."""
    net = Exporter(naming, opset=13, seed=15)
    first = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    second = net.add("Relu", net.conv_norm("conv1", first, (8, 8), stride=2))
    net.scope = ""
    return net.finish(levels=net.add("SequenceConstruct", first, second))


NETWORKS: dict[str, Callable[[], RealNetwork]] = {
    "residual": make_residual,
    "residual_paddle": lambda: make_residual("paddle"),
    "mobile": make_mobile,
    "mobile_running": lambda: make_mobile("running"),
    "mobile_v3": make_mobile_v3,
    "mobile_v3_torch": lambda: make_mobile_v3("torch"),
    "detector": make_detector,
    "segmenter": make_segmenter,
    "convnext": make_convnext,
    "keras": make_keras,
    "keras_first": lambda: make_keras(last=False),
    "attention_paddle": make_attention_paddle,
    "attention_timm": make_attention_timm,
    "attention_running": lambda: make_attention_timm("running", 13),
    "bert": make_bert,
    "bert_17": lambda: make_bert(opset=17),
    "bert_running": lambda: make_bert("running", 12),
    "lstm": lambda: make_recurrent("LSTM"),
    "gru": lambda: make_recurrent("GRU"),
    "branching": make_branching,
    "looping": make_looping,
    "forest": make_forest,
    "sequence": make_sequence,
}

# Those that others convert, and what the quantiser takes of them; empty: all that it knows.
CONVERTED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("residual", "mobile", "mobile_v3", "detector", "convnext", "keras"), ()),
    **dict.fromkeys(("attention_paddle", "attention_timm", "lstm", "gru"), ()),
    # A mask of -10000 leaves no step for other numbers.
    "bert": ("MatMul", "Gemm", "Gather"),
    "bert_17": ("MatMul", "Gemm", "Gather"),
}
CONVERSIONS = ("float16", "qdq", "qoperator", "dynamic")
# ONNX Runtime 1.23 fails to load what it makes of the parts of a LayerNormalization.
NO_HALF = ("attention_paddle", "bert")


# What others make of a network


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """What a model is calibrated with: its own input, and some that are drawn about it."""

    def __init__(self, feeds: Mapping[str, Array], count: int = 4) -> None:
        random = np.random.RandomState(0)
        self.left = [dict(feeds)]
        for _ in range(count - 1):
            self.left.append(
                {
                    name: (array + random.normal(0, 0.3, array.shape)).astype(array.dtype)
                    if array.dtype == np.float32
                    else array
                    for name, array in feeds.items()
                }
            )

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def quantize(recipe: str, network: RealNetwork, operators: Sequence[str] = ()) -> RealNetwork:
    """Return a network as ONNX Runtime's quantiser writes it: `qdq` after the optimisation that its
    manual asks for, `qoperator` of the model as it is, `dynamic`.

    All have seven bits: processors without VNNI add products of eight bits in sixteen.
    """
    logging.getLogger().setLevel(logging.ERROR)  # the quantiser gives advice
    with tempfile.TemporaryDirectory() as folder:
        plain, path = Path(folder) / "plain.onnx", Path(folder) / "quantized.onnx"
        onnx.save(network.model, plain)
        if recipe == "dynamic":
            # ONNX Runtime has no ConvInteger with weights of int8.
            convolves = any(node.op_type == "Conv" for node in network.model.graph.node)
            weights = QuantType.QUInt8 if convolves else QuantType.QInt8
            quantize_dynamic(plain, path, weight_type=weights, reduce_range=True)
        else:
            if recipe == "qdq":
                shape_inference.quant_pre_process(plain, plain, skip_symbolic_shape=True)
            quantize_static(
                plain,
                path,
                Samples(network.feeds),
                quant_format=QuantFormat.QDQ if recipe == "qdq" else QuantFormat.QOperator,
                op_types_to_quantize=list(operators) or None,
                per_channel=recipe == "qdq" and network.model.opset_import[0].version >= 13,
                reduce_range=True,
            )
        return RealNetwork(onnx.load(path), network.feeds)


def halve(network: RealNetwork) -> RealNetwork:
    """Return a network in float16 between its inputs and its outputs."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = copy.deepcopy(network.model)
    return RealNetwork(convert_float_to_float16(model, keep_io_types=True), network.feeds)


def optimize(network: RealNetwork) -> RealNetwork:
    """Return a network as ONNX Runtime saves it after its basic optimisations."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        onnxruntime.InferenceSession(network.model.SerializeToString(), options)
        return RealNetwork(onnx.load(f"{folder}/optimized.onnx"), network.feeds)


def rename(network: RealNetwork, recipe: str) -> RealNetwork:
    """Return a network in which tensors and nodes have other names: `moved N` numbers those that
    are numbers N higher, `rotated` gives each tensor the name of the next one."""
    model = copy.deepcopy(network.model)
    nodes = list(walk_nodes(model.graph))
    tensors = [name for node in nodes for name in node.output if name]
    fixed = {each.name for each in model.graph.output}
    tensors = [name for name in dict.fromkeys(tensors) if name not in fixed]
    if recipe == "rotated":
        names = dict(zip(tensors, [*tensors[1:], *tensors[:1]], strict=True))
    else:
        step = int(recipe.split()[1])
        names = {name: str(int(name) + step) for name in tensors if name.isdigit()}
    for node in nodes:
        node.input[:] = [names.get(each, each) for each in node.input]
        node.output[:] = [names.get(each, each) for each in node.output]
        if recipe == "rotated":
            node.name = f"n_{node.output[0]}"
    for graph in walk_graphs(model.graph):
        del graph.value_info[:]
        if graph is not model.graph:
            for each in graph.output:
                each.name = names.get(each.name, each.name)
    return RealNetwork(model, network.feeds)


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside its operators."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk_graphs(attribute.g)


def walk_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for each in walk_graphs(graph):
        yield from each.node


def make_network(name: str, form: str = "float") -> RealNetwork:
    """Return a network of `NETWORKS` in a form: `float`, `float16`, `optimised`, `qdq`,
    `qoperator`, `dynamic`, `moved N`, `rotated`."""
    network = NETWORKS[name]()
    if form == "float":
        return network
    if form == "float16":
        return halve(network)
    if form == "optimised":
        return optimize(network)
    if form.partition(" ")[0] in ("moved", "rotated"):
        return rename(network, form)
    return quantize(form, network, CONVERTED.get(name, ()))
