"""Which layers of a quantised model cost most, found by leaving one layer at a time in float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from network import Array

from lar.comparison.loss import squares_of_loss
from lar.records.comparison import Comparison

LAYERS = ("Conv", "Gemm", "MatMul")
# What the quantiser removes where a range of integers does the same.
ACTIVATIONS = ("Relu", "Clip")
# What it appends to the names of weights, and of outputs before they are rounded.
QUANTIZED = "_quantized"
APPENDED = "_QuantizeLinear_Input"
# What a layer gives, then the same rounded.
ENDINGS = ("", APPENDED, "_QuantizeLinear_Output", "_DequantizeLinear_Output")

Makers = Mapping[str, onnx.NodeProto]


def costs_by_leaving_out(
    quantized: Path, plain: Path, feeds: Sequence[Mapping[str, Array]], *, whole: bool
) -> dict[str, float]:
    """Return by how much the outputs of a model of QuantizeLinear and DequantizeLinear change where
    one layer is left in float, by the layer's name. All other layers stay quantised.

    There are two ways to leave a layer in float:

    - With `whole`, its operator is that of the float model: it takes its data as it was before it
      was rounded, the weights and the bias of the float model, and hands on what it gives with the
      activation that the float model has behind it, neither rounded nor clipped by a range of
      integers. This is the counterpart of a single error. That is the difference between what the
      quantised operator gives, with what is rounded before it and behind it, and what the float
      operator gives of the same data.
    - Without, the data, the weights and the bias alone are those of the float model, and what the
      layer gives is still rounded. This is what a user gets who leaves a layer out of the
      quantiser's list while the operators behind it stay in that list.

    The change is that of the model's own run, so the layers behind round it again, as they do
    with a layer that is left in float.
    """
    model = onnx.load(quantized)
    give_floats(model)
    original = onnx.load(plain)
    before = run(model, feeds)
    costs = {}
    for node in model.graph.node:
        if node.op_type in LAYERS:
            without = onnx.ModelProto()
            without.CopyFrom(model)
            if whole:
                give_float(without, node.name, original)
            take_floats(without, node.name, original)
            costs[node.name] = float(np.linalg.norm(run(without, feeds) - before))
    return costs


def give_floats(model: onnx.ModelProto) -> None:
    """Have a model give its outputs before they are quantised: their steps would hide changes."""
    makers = makers_in(model)
    for output in model.graph.output:
        maker = makers[output.name]
        if maker.op_type == "DequantizeLinear":
            output.name = makers[maker.input[0]].input[0]


def take_floats(model: onnx.ModelProto, name: str, plain: onnx.ModelProto) -> None:
    """Have a layer take its data, its weights and its bias as they are in float."""
    makers = makers_in(model)
    layer = next(node for node in model.graph.node if node.name == name)
    for place, source in enumerate(layer.input):
        maker = makers.get(source)
        if maker is None or maker.op_type != "DequantizeLinear":
            continue
        quantizer = makers.get(maker.input[0])
        if quantizer is not None:
            taken = quantizer.input[0]
            layer.input[place] = add_activation(model, layer, taken, f"{name}.{taken}", plain)
        else:
            layer.input[place] = add_weight(model, maker.input[0].removesuffix(QUANTIZED), plain)


def give_float(model: onnx.ModelProto, name: str, plain: onnx.ModelProto) -> None:
    """Have all take what a layer gives as it is in float."""
    makers = makers_in(model)
    (given,) = next(node for node in model.graph.node if node.name == name).output
    users = [
        (node, place)
        for node in model.graph.node
        for place, source in enumerate(node.input)
        if is_read_from(given, source, makers)
    ]
    if users:
        activated = add_activation(model, users[0][0], given, f"{name}.float", plain)
        for node, place in users:
            node.input[place] = activated


def is_read_from(given: str, source: str, makers: Makers) -> bool:
    """Return whether a tensor is another one after it was quantised and dequantised."""
    reader = makers.get(source)
    if reader is None or reader.op_type != "DequantizeLinear":
        return False
    quantizer = makers.get(reader.input[0])
    return quantizer is not None and quantizer.input[0] == given


def add_activation(
    model: onnx.ModelProto, user: onnx.NodeProto, tensor: str, result: str, plain: onnx.ModelProto
) -> str:
    """Add the activation of the float model that the quantiser folded into a range of integers,
    before the node that uses it; return the name of the result, the tensor's own without one."""
    activation = makers_in(plain).get(tensor.removesuffix(APPENDED))
    maker = makers_in(model).get(tensor)
    if maker is None or activation is None or activation.op_type not in ACTIVATIONS:
        return tensor
    if maker.op_type == activation.op_type:
        return tensor  # it is there
    bounds = [add_weight(model, each, plain) for each in activation.input[1:]]
    node = onnx.helper.make_node(activation.op_type, [tensor, *bounds], [result])
    model.graph.node.insert(list(model.graph.node).index(user), node)
    return result


def add_weight(model: onnx.ModelProto, name: str, plain: onnx.ModelProto) -> str:
    """Add a constant of the float model; return its new name."""
    added = f"{name}.float"
    if all(each.name != added for each in model.graph.initializer):
        weight = onnx.TensorProto()
        weight.CopyFrom(next(each for each in plain.graph.initializer if each.name == name))
        weight.name = added
        model.graph.initializer.append(weight)
    return added


def makers_in(model: onnx.ModelProto) -> Makers:
    """Return the nodes of a model by what they give."""
    return {output: node for node in model.graph.node for output in node.output}


def run(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> Array:
    """Return all outputs of a model for all that it is fed with, one behind the other."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    outputs = [np.ravel(each) for feed in feeds for each in session.run(None, dict(feed))]
    array: Array = np.concatenate(outputs).astype(np.float64)
    return array


def costs_by_single_errors(found: Comparison, quantized: Path, *, whole: bool) -> dict[str, float]:
    """Return what `lar compare --isolate` says of the same layers: what the single error of each
    makes of the loss, as a square.

    With `whole`, the part of the quantiser behind a layer is added where that has a row of its own:
    it rounds what the layer gives, and is left out with it.
    """
    squares = {each.actual.name: square for each, square in squares_of_loss(found.tensors)}
    costs = {}
    for node in onnx.load(quantized).graph.node:
        if node.op_type in LAYERS:
            name = node.output[0].removesuffix(APPENDED)
            parts = [squares[name + end] for end in ENDINGS if name + end in squares]
            costs[node.name] = sum(parts if whole else parts[:1])
    return costs


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's coefficient of two lists of numbers; equal ones share their ranks."""
    ranks = [ranks_of(np.asarray(side)) for side in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def ranks_of(numbers: Array) -> Array:
    """Return the rank of each number, from 0."""
    below = (numbers[:, None] > numbers).sum(axis=1)
    ranks: Array = below + ((numbers[:, None] == numbers).sum(axis=1) - 1) / 2
    return ranks
