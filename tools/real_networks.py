"""Small networks as exporters write them, each with what it is fed with.

Names, decompositions and constants are those of the exporters of PyTorch (old and new), Paddle,
Keras and scikit-learn. All is drawn with seeds: the same call gives the same bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import conversions
import numpy as np
import onnx
from network import Array
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 8
SCIKIT_LEARN = "ai.onnx.ml"
Channels = tuple[int, int]
TOKENS, WIDTH, HEADS = 12, 32, 4  # of attention


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
        name = f"const_{self.count('constant')}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

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

    def body(self, **inputs: tuple[int, list[int]]) -> Exporter:
        """Return what writes a graph inside this one: names, draws and weights go on. Inputs have
        types and shapes."""
        inner = copy.copy(self)
        values = (helper.make_tensor_value_info(name, *each) for name, each in inputs.items())
        inner.nodes, inner.inputs = [], list(values)
        return inner

    def graph(self, name: str, *outputs: str) -> onnx.GraphProto:
        values = [onnx.ValueInfoProto(name=each) for each in outputs]
        return helper.make_graph(self.nodes, name, self.inputs, values)

    def finish(self, **outputs: str) -> RealNetwork:
        """Return the model; the outputs' tensors get these names."""
        names = {tensor: name for name, tensor in outputs.items()}
        for node in self.nodes:
            node.input[:] = [names.get(each, each) for each in node.input]
            node.output[:] = [names.get(each, each) for each in node.output]
        graph = self.graph("main_graph", *outputs)
        graph.initializer.extend(self.constants)
        domains = {node.domain for node in self.nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(each, 3 if each == SCIKIT_LEARN else 1) for each in domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return RealNetwork(onnx.shape_inference.infer_shapes(model), self.feeds)

    # Layers

    def conv(self, scope: str, x: str, channels: Channels, kernel: int = 3, **more: Any) -> str:
        """Append a convolution; `bias`, `stride`, `group` as in PyTorch."""
        self.scope = scope
        group, stride = more.get("group", 1), more.get("stride", 1)
        shape = (channels[1], channels[0] // group, kernel, kernel)
        spread = np.sqrt(2 / np.prod(shape[1:]))
        weights = [self.weight("weight", self.draw(*shape, spread=spread))]
        if more.get("bias", True):
            weights.append(self.weight("bias", self.draw(channels[1], spread=0.1)))
        sizes = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "strides": [stride] * 2}
        return self.add("Conv", x, *weights, dilations=[1, 1], group=group, **sizes)

    def conv_norm(
        self, scope: str, x: str, channels: Channels, kernel: int = 3, **more: Any
    ) -> str:
        """Append a convolution without bias and a BatchNormalization."""
        x = self.conv(scope, x, channels, kernel, bias=False, **more)
        self.scope = scope.replace("conv", "bn")
        weights = {
            "scale": self.random.uniform(0.5, 1.5, channels[1]),
            "bias": self.random.normal(0, 0.3, channels[1]),
            "running_mean": self.random.normal(0, 0.3, channels[1]),
            "running_var": self.random.uniform(0.5, 2, channels[1]),
        }
        names = [self.weight(role, each.astype(np.float32)) for role, each in weights.items()]
        x = self.add("BatchNormalization", x, *names, epsilon=1e-5, momentum=0.9)
        self.scope = scope
        return x

    def pool(self, kind: str, x: str, kernel: int, stride: int, padding: int = 0) -> str:
        sizes = {"kernel_shape": [kernel] * 2, "pads": [padding] * 4, "strides": [stride] * 2}
        return self.add(kind, x, **sizes)

    def double(self, x: str, **modes: str) -> str:
        return self.add("Resize", x, "", self.constant([1, 1, 2, 2]), **modes)

    def transpose(self, x: str, *perm: int) -> str:
        return self.add("Transpose", x, perm=perm)

    def concat(self, *parts: str, axis: int = 1) -> str:
        return self.add("Concat", *parts, axis=axis)

    def halves(self, x: str, size: int) -> list[str]:
        return self.add_all("Split", x, self.integers(size, size), outputs=2, axis=1)

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
        erf = self.add("Erf", self.add("Div", x, self.constant(2**0.5)))
        product = self.add("Mul", x, self.add("Add", erf, self.constant(1)))
        return self.add("Mul", product, self.constant(0.5))

    def clip(self, x: str) -> str:
        return self.add("Clip", x, self.constant(0), self.constant(6))

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.integers(*shape))

    def attend(self, parts: list[str], mask: str = "") -> str:
        """Append the attention of heads to query, key and value."""
        q, k, v = parts
        keys = self.transpose(k, 0, 1, 3, 2)
        if self.naming == "paddle":
            scores = self.add(
                "MatMul", self.add("Mul", q, self.constant((WIDTH // HEADS) ** -0.5)), keys
            )
        else:
            scores = self.add(
                "Div", self.add("MatMul", q, keys), self.constant((WIDTH // HEADS) ** 0.5)
            )
        scores = self.add("Add", scores, mask) if mask else scores
        x = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        return self.transpose(x, 0, 2, 1, 3)


# Convolutions


def make_residual(naming: str = "running") -> RealNetwork:
    """ResNet: convolutions without bias, each before a BatchNormalization."""
    net = Exporter(naming, opset=11, seed=1)
    x = net.add("Relu", net.conv_norm("conv1", net.add_image(), (3, 16)))
    x = net.pool("MaxPool", x, 3, 2, 1)
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
        gate = net.add("GlobalAveragePool", inner)
        gate = net.add("Relu", net.conv(f"b{block}.se.fc1", gate, (32, 8), 1))
        gate = net.conv(f"b{block}.se.fc2", gate, (8, 32), 1)
        gate = net.add("HardSigmoid", gate, alpha=0.2, beta=0.5)
        inner = net.conv_norm(f"b{block}.conv3", net.add("Mul", inner, gate), (32, 16), 1)
        x = net.add("Add", x, inner)
    return net.finish(output=net.add("Softmax", net.classifier(x, 16), axis=1))


def make_detector() -> RealNetwork:
    """YOLO: Sigmoid times its input, Split, Concat, Resize, and heads that decode boxes."""
    net = Exporter("torch", opset=13, seed=4)

    def block(scope: str, x: str, channels: Channels, kernel: int = 3, stride: int = 1) -> str:
        return net.silu(net.conv_norm(f"model.{scope}", x, channels, kernel, stride=stride))

    x = block("0.conv", net.add_image(), (3, 16), stride=2)
    parts = net.halves(block("1.conv", x, (16, 16), 1), 8)
    deeper = block("1.m.0.conv1", parts[1], (8, 8))
    fine = block("2.conv", net.concat(*parts, deeper), (24, 16), 1)
    pools = [block("3.conv", fine, (16, 16), stride=2)]
    for _ in range(2):
        pools.append(net.pool("MaxPool", pools[-1], 5, 1, 2))
    coarse = block("4.conv", net.concat(*pools), (48, 16), 1)
    modes = {"mode": "nearest", "nearest_mode": "floor"}
    larger = net.double(coarse, coordinate_transformation_mode="asymmetric", **modes)
    fine = block("6.conv", net.concat(larger, fine), (32, 16))
    heads = []
    for number, (x, cells) in enumerate(((fine, 256), (coarse, 64))):
        heads.append(net.reshape(net.conv(f"model.7.cv{number}", x, (16, 9), 1), 1, 9, cells))
    net.scope = "model.7"
    x = net.concat(*heads, axis=2)
    ends = [net.integers(each) for each in (0, 4, 9, 1)]
    boxes = net.add("Slice", x, ends[0], ends[1], ends[3])
    classes = net.add("Sigmoid", net.add("Slice", x, ends[1], ends[2], ends[3]))
    corner, size = net.halves(boxes, 2)
    half = net.add("Div", net.add("Exp", size), net.constant(2))
    boxes = net.concat(net.add("Sub", corner, half), net.add("Add", corner, half))
    return net.finish(output=net.concat(boxes, classes), scores=classes)


def make_segmenter() -> RealNetwork:
    """U-Net: LeakyRelu, InstanceNormalization, ConvTranspose, skip connections, linear Resize."""
    net = Exporter("torch", opset=16, seed=5)

    def block(scope: str, x: str, channels: Channels, stride: int = 1) -> str:
        x = net.conv(f"{scope}.conv", x, channels, stride=stride)
        net.scope = f"{scope}.norm"
        weight = net.weight("weight", np.ones(channels[1], np.float32))
        bias = net.weight("bias", net.draw(channels[1], spread=0.1))
        x = net.add("InstanceNormalization", x, weight, bias, epsilon=1e-5)
        return net.add("LeakyRelu", x, alpha=0.1)

    first = block("down1", net.add_image(1), (1, 8))
    second = block("down2", first, (8, 16), 2)
    net.scope = "up1"
    weight = net.weight("weight", net.draw(16, 8, 2, 2, spread=0.2))
    x = net.add("ConvTranspose", second, weight, kernel_shape=[2, 2], strides=[2, 2])
    x = block("join", net.concat(x, first), (16, 8))
    pooled = net.pool("AveragePool", x, 2, 2)
    larger = net.double(pooled, coordinate_transformation_mode="half_pixel", mode="linear")
    x = net.conv("out", net.add("Add", x, larger), (8, 2), 1)
    return net.finish(mask=net.add("Tanh", x))


def make_convnext() -> RealNetwork:
    """ConvNeXt: wide depthwise convolutions, LayerNormalization with channels last."""
    net = Exporter("torch", opset=17, seed=6)
    x = net.conv("stem", net.add_image(), (3, 16), 5, stride=4)
    for block in range(2):
        scope = f"stages.{block}"
        inner = net.conv(f"{scope}.conv_dw", x, (16, 16), 7, group=16)
        inner = net.layer_norm(f"{scope}.norm", net.transpose(inner, 0, 2, 3, 1), 16)
        inner = net.gelu(net.linear(f"{scope}.mlp.fc1", inner, (16, 64)))
        inner = net.linear(f"{scope}.mlp.fc2", inner, (64, 16))
        inner = net.add("Mul", inner, net.weight("gamma", net.draw(16)))
        x = net.add("Add", net.transpose(inner, 0, 3, 1, 2), x)
    return net.finish(output=net.classifier(x, 16))


def make_keras(last: bool = True) -> RealNetwork:
    """A convolutional network of Keras: the input has channels last, and is transposed."""
    net = Exporter("keras", opset=13, seed=7)
    image, net.scope = net.draw(1, 3, 24, 24), "conv2d"
    x = net.add_input("input_1", image.transpose(0, 2, 3, 1).copy() if last else image)
    x = net.transpose(x, 0, 3, 1, 2) if last else x
    x = net.add("Relu", net.conv_norm("conv2d", x, (3, 8)))
    x = net.pool("MaxPool", x, 2, 2)
    x = net.add("Elu", net.conv_norm("conv2d_1", x, (8, 16)), alpha=1.0)
    net.scope = "reshape"
    x = net.reshape(net.transpose(x, 0, 2, 3, 1), 1, 2304)
    x = net.add("Tanh", net.linear("dense", x, (2304, 16)))
    return net.finish(dense_1=net.add("Softmax", net.linear("dense_1", x, (16, 5)), axis=-1))


# Attention


def make_attention_paddle() -> RealNetwork:
    """A block of attention by Paddle: Slice and Squeeze out of a transposed Reshape."""
    net = Exporter("paddle", opset=13, seed=8)
    source = net.add_input("x", net.draw(1, TOKENS, WIDTH))
    x = net.linear("qkv", net.layer_norm("norm", source, WIDTH), (WIDTH, 3 * WIDTH))
    x = net.transpose(net.reshape(x, 0, -1, 3, HEADS, WIDTH // HEADS), 2, 0, 3, 1, 4)
    axis, parts = net.integers(0), []
    for place in range(3):
        part = net.add("Slice", x, net.integers(place), net.integers(place + 1), axis)
        parts.append(net.add("Squeeze", part, axis))
    x = net.reshape(net.attend(parts), 0, -1, WIDTH)
    x = net.add("Add", source, net.linear("proj", x, (WIDTH, WIDTH)))
    x = net.silu(net.linear("fc1", net.layer_norm("norm2", x, WIDTH), (WIDTH, 64)))
    return net.finish(y=net.linear("fc2", x, (64, WIDTH)))


def make_attention_timm(naming: str = "torch", opset: int = 17) -> RealNetwork:
    """A vision transformer by timm: patches, a class token, heads by Reshape and Gather."""
    net = Exporter(naming, opset=opset, seed=9)
    net.scope = "patch_embed.proj"
    weight = net.weight("weight", net.draw(WIDTH, 3, 8, 8, spread=0.1))
    x = net.add("Conv", net.add_image(), weight, kernel_shape=[8, 8], strides=[8, 8])
    x = net.transpose(net.reshape(x, 1, WIDTH, 16), 0, 2, 1)
    net.scope = ""
    x = net.add("Concat", net.weight("cls_token", net.draw(1, 1, WIDTH)), x, axis=1)
    x = net.add("Add", x, net.weight("pos_embed", net.draw(1, 17, WIDTH, spread=0.3)))
    for block in range(2):
        scope = f"blocks.{block}"
        inner = net.layer_norm(f"{scope}.norm1", x, WIDTH)
        inner = net.linear(f"{scope}.attn.qkv", inner, (WIDTH, 3 * WIDTH))
        net.scope = f"{scope}.attn"
        inner = net.reshape(inner, 1, 17, 3, HEADS, WIDTH // HEADS)
        inner = net.transpose(inner, 2, 0, 3, 1, 4)
        parts = [net.add("Gather", inner, net.constant(k, np.int64), axis=0) for k in range(3)]
        inner = net.attend(parts)
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
    mask = net.add_input("attention_mask", (np.arange(TOKENS)[None] < TOKENS - 3).astype(np.int64))
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
            parts.append(net.transpose(each, 0, 2, 1, 3))
        net.scope = f"{scope}.attention.self"
        inner = net.attend(parts, hidden)
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


def make_recurrent(kind: str) -> RealNetwork:
    """An LSTM or a GRU in two directions over features, then a classifier of each step."""
    net = Exporter("torch", opset=14, seed=11)
    gates, ends = (4, 2) if kind == "LSTM" else (3, 1)
    more: dict[str, Any] = {} if kind == "LSTM" else {"linear_before_reset": 1}
    x = net.add_input("features", net.draw(1, 10, 16))
    x = net.transpose(net.add("Relu", net.linear("proj", x, (16, 24))), 1, 0, 2)
    net.scope = "rnn"
    shapes = {"W": (2, gates * 12, 24), "R": (2, gates * 12, 12), "B": (2, gates * 24)}
    names = [net.weight(role, net.draw(*each, spread=0.2)) for role, each in shapes.items()]
    states = [net.weight("state", np.zeros((2, 1, 12), np.float32))] * ends
    more |= {"hidden_size": 12, "direction": "bidirectional"}
    steps, state, *_ = net.add_all(kind, x, *names, "", *states, outputs=1 + ends, **more)
    x = net.reshape(net.transpose(steps, 2, 0, 1, 3), 1, 10, 24)
    x = net.add("LogSoftmax", net.linear("fc", x, (24, 6)), axis=-1)
    return net.finish(log_probs=x, state=state)


def make_branching() -> RealNetwork:
    """A network inside If: both branches have convolutions, one of them more."""
    net = Exporter("torch", opset=16, seed=12)
    x = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    choice = net.add("Greater", net.add("ReduceMax", x, keepdims=0), net.constant(0))
    branches = {}
    for branch, layers in (("then_branch", 2), ("else_branch", 1)):
        body, inner = net.body(), x
        for layer in range(layers):
            inner = body.add("Relu", body.conv(f"{branch}.conv{layer}", inner, (8, 8)))
        branches[branch] = body.graph(branch, inner)
    net.scope = "gate"
    x = net.conv("conv1", net.add("If", choice, **branches), (8, 8))
    return net.finish(output=net.classifier(net.add("Sigmoid", x), 8))


def make_looping() -> RealNetwork:
    """A network inside Loop: a convolution that is done three times, with what each step gave."""
    net = Exporter("torch", opset=16, seed=13)
    x = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    trips, going = net.constant(3, np.int64), net.constant(True, np.bool_)
    body = net.body(
        step=(TensorProto.INT64, []),
        going=(TensorProto.BOOL, []),
        carried=(TensorProto.FLOAT, [1, 8, 16, 16]),
    )
    after = body.add("Tanh", body.conv("loop.conv", "carried", (8, 8)))
    after = body.add("Add", after, "carried")
    mean = body.add("ReduceMean", after, axes=[1, 2, 3], keepdims=0)
    graph = body.graph("loop_body", body.add("Identity", "going"), after, mean)
    net.scope = "loop"
    x, means = net.add_all("Loop", trips, going, x, outputs=2, body=graph)
    return net.finish(output=net.classifier(x, 8), means=means)


# Outputs that are no tensors of numbers


def make_scikit_learn() -> RealNetwork:
    """A pipeline of scikit-learn: Scaler, LogisticRegression with labels as strings, ZipMap."""
    net = Exporter("keras", opset=15, seed=14)
    labels, domain = ["setosa", "versicolor", "virginica"], {"domain": SCIKIT_LEARN}
    x = net.add_input("X", net.draw(6, 4))
    x = net.add("Scaler", x, offset=[0.1] * 4, scale=[0.9, 1.1, 1.2, 0.8], **domain)
    line = {"coefficients": net.draw(12).tolist(), "intercepts": [0.1, 0.0, -0.1]}
    modes = {"multi_class": 1, "post_transform": "SOFTMAX", "classlabels_strings": labels}
    words, scores = net.add_all("LinearClassifier", x, outputs=2, **line, **modes, **domain)
    scores = net.add("Normalizer", scores, norm="L1", **domain)
    maps = net.add("ZipMap", scores, classlabels_strings=labels, **domain)
    return net.finish(output_label=words, output_probability=maps)


def make_sequence() -> RealNetwork:
    """Convolutions whose only output is a sequence."""
    net = Exporter("torch", opset=13, seed=15)
    first = net.add("Relu", net.conv_norm("conv0", net.add_image(3, 16), (3, 8)))
    second = net.add("Relu", net.conv_norm("conv1", first, (8, 8), stride=2))
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
    "scikit_learn": make_scikit_learn,
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


# Other forms


def rename(original: onnx.ModelProto, recipe: str) -> onnx.ModelProto:
    """Return a model in which tensors and nodes have other names: `moved N` numbers those that
    are numbers N higher, `rotated` gives each tensor the name of the next one."""
    model = copy.deepcopy(original)
    nodes = [node for graph in walk_graphs(model.graph) for node in graph.node]
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
    return model


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs inside its operators."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk_graphs(attribute.g)


def make_network(name: str, form: str = "float") -> RealNetwork:
    """Return a network of `NETWORKS` in a form: `float`, `float16`, `optimised`, `qdq`,
    `qoperator`, `dynamic`, `moved N`, `rotated`."""
    network = NETWORKS[name]()
    model, feeds = network
    if form == "float16":
        model = conversions.halve(model)
    elif form == "optimised":
        model = conversions.optimize(model)
    elif form in CONVERSIONS:
        if form == "qdq":
            form, model = "qdq channels", conversions.prepare(model)
        model = conversions.quantize(form, model, feeds, CONVERTED[name])
    elif form != "float":
        model = rename(model, form)
    return RealNetwork(model, feeds)
