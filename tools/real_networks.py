"""Small networks as exporters write them, each with arrays for its inputs.

The files in `networks/` are in ONNX's own text form. Their names, decompositions and constants are
as the exporters of PyTorch (old and new), Paddle, Keras and scikit-learn write them. The files have
only the shapes of weights. The numbers are drawn here, with the model's version as the seed, so
that each call gives the same bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from network import Array
from onnx import numpy_helper, parser

FOLDER = Path(__file__).with_name("networks")
NETWORKS = tuple(sorted(path.stem for path in FOLDER.glob("*.onnxtxt")))

# The operators to quantise in some networks; in other networks, all that the quantiser knows. With
# a mask of -10000, a quantised tensor would have no steps left for other numbers.
QUANTIZED = dict.fromkeys(("bert", "bert_17"), ("MatMul", "Gemm", "Gather"))

# How weights are drawn, by the ends of their names: from a range, or with a deviation.
RANGES = {"scale": (0.5, 1.5), "running_var": (0.5, 2.0)}
SPREADS = {
    **dict.fromkeys(("word", "cls_token", "gamma"), 1.0),
    **dict.fromkeys(("running_mean", "pos_embed", "position"), 0.3),
    **dict.fromkeys(("W", "R", "B"), 0.2),
}
VOCABULARY, MASKED_TOKENS = 50, 3


class RealNetwork(NamedTuple):
    """A model, and an array for each of its inputs."""

    model: onnx.ModelProto
    feeds: dict[str, Array]


def network_of(
    inputs: str, outputs: str, weights: Iterable[str], nodes: Iterable[str]
) -> RealNetwork:
    """Return a network whose parts are given in ONNX's text form: `float[4] x`, `y = Relu (x)`."""
    head = '<ir_version: 8, opset_import: ["" : 13]>'
    body = "{" + "\n".join(nodes) + "}"
    return parse_network(f"{head} g ({inputs}) => ({outputs}) <{', '.join(weights)}> {body}")


def parse_network(text: str) -> RealNetwork:
    """Return the model of a text, with random weights and random inputs."""
    model = parser.parse_model(text)
    random = np.random.RandomState(model.model_version)
    feeds = {info.name: draw_input(info, random) for info in model.graph.input}
    for info in model.graph.value_info:
        shape = [axis.dim_value for axis in info.type.tensor_type.shape.dim]
        array = draw_weight(info.name, shape, random).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.value_info[:]
    return RealNetwork(onnx.shape_inference.infer_shapes(model), feeds)


def draw_input(info: onnx.ValueInfoProto, random: np.random.RandomState) -> Array:
    kind = info.type.tensor_type
    shape = [axis.dim_value for axis in kind.shape.dim]
    if shape[3:] == [3]:  # an image whose channels come last
        image = random.normal(0, 1, [shape[0], 3, *shape[1:3]])
        return np.ascontiguousarray(image.transpose(0, 2, 3, 1), np.float32)
    if kind.elem_type == onnx.TensorProto.FLOAT:
        return random.normal(0, 1, shape).astype(np.float32)
    if info.name == "attention_mask":
        return np.asarray([np.arange(shape[1]) < shape[1] - MASKED_TOKENS], np.int64)
    return random.randint(0, VOCABULARY, shape).astype(np.int64)


def draw_weight(name: str, shape: list[int], random: np.random.RandomState) -> Array:
    """Return a random weight with which numbers neither grow nor vanish."""
    role = name.rpartition(".")[2]
    if role in RANGES:
        return np.asarray(random.uniform(*RANGES[role], shape))
    if role == "rotation":
        basis, _ = np.linalg.qr(random.normal(0, 1, shape[:2]))
        return np.asarray(basis).reshape(shape)
    if len(shape) == 1:
        is_norm = ".bn" in f".{name}"
        spread = SPREADS.get(role, 0.3 if is_norm and role == "bias" else 0.1)
        return (role == "weight") + random.normal(0, spread, shape)
    taken = max(shape) if name == "head.weight" else shape[0]
    of_kernel = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 2 else taken**-0.5
    return random.normal(0, SPREADS.get(role, of_kernel), shape)


def make_network(name: str, form: str = "float") -> RealNetwork:
    """Return a network of `NETWORKS` in a form.

    The forms are `float`, `float16`, `optimised`, `qdq`, `qoperator`, `dynamic`, `int4`, `moved N`
    and `rotated`.
    """
    model, feeds = parse_network((FOLDER / f"{name}.onnxtxt").read_text())
    if form == "float":
        return RealNetwork(model, feeds)
    import conversions  # slow: imports the quantiser, and SymPy with it

    if form == "float16":
        model = conversions.halve(model)
    elif form == "optimised":
        model = conversions.optimize(model)
    elif form.startswith(("moved", "rotated")):
        model = rename(model, form)
    else:
        if form == "qdq":
            form, model = "qdq channels", conversions.prepare(model)
        model = conversions.quantize(form, model, feeds, QUANTIZED.get(name, ()))
    return RealNetwork(model, feeds)


def rename(original: onnx.ModelProto, recipe: str) -> onnx.ModelProto:
    """Return a model in which tensors and nodes have other names.

    `moved N` adds N to names that are numbers. `rotated` gives each tensor the name of the next
    tensor.
    """
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
        yield from bodies_of(node)


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs inside an operator."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from walk_graphs(attribute.g)
