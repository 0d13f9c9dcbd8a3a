"""Which layers of a quantised model cost most, found by leaving one layer at a time in float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from network import Array
from onnx import numpy_helper

from lar.comparison.loss import squares_of_loss
from lar.records.comparison import Comparison

LAYERS = ("Conv", "Gemm", "MatMul")


def costs_by_leaving_out(
    quantized: Path, plain: Path, feeds: Sequence[Mapping[str, Array]]
) -> dict[str, float]:
    """Return by how much the outputs of a model of QuantizeLinear and DequantizeLinear change where
    one layer takes its data and its weights in float, by the layer's name."""
    model = onnx.load(quantized)
    give_floats(model)
    weights = {each.name: each for each in onnx.load(plain).graph.initializer}
    whole = run(model, feeds)
    costs = {}
    for node in model.graph.node:
        if node.op_type in LAYERS:
            without = onnx.ModelProto()
            without.CopyFrom(model)
            take_floats(without, node.name, weights)
            costs[node.name] = float(np.linalg.norm(run(without, feeds) - whole))
    return costs


def give_floats(model: onnx.ModelProto) -> None:
    """Have a model give its outputs before they are quantised: their steps would hide changes."""
    makers = {output: node for node in model.graph.node for output in node.output}
    for output in model.graph.output:
        maker = makers[output.name]
        if maker.op_type == "DequantizeLinear":
            output.name = makers[maker.input[0]].input[0]


def take_floats(model: onnx.ModelProto, name: str, weights: Mapping[str, onnx.TensorProto]) -> None:
    """Have a layer take what was quantised for it as it was before."""
    makers = {output: node for node in model.graph.node for output in node.output}
    layer = next(node for node in model.graph.node if node.name == name)
    for place, source in enumerate(layer.input):
        maker = makers.get(source)
        if maker is None or maker.op_type != "DequantizeLinear":
            continue
        quantizer = makers.get(maker.input[0])
        if quantizer is not None:
            layer.input[place] = add_clip(model, layer, quantizer)
            continue
        weight = onnx.TensorProto()
        weight.CopyFrom(weights[maker.input[0].removesuffix("_quantized")])
        weight.name += ".float"
        model.graph.initializer.append(weight)
        layer.input[place] = weight.name


def add_clip(model: onnx.ModelProto, layer: onnx.NodeProto, quantizer: onnx.NodeProto) -> str:
    """Add what a quantiser does besides rounding: an activation may have been folded into its
    range. Return the name of the result."""
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    scale, zero = (constants[name] for name in quantizer.input[1:3])
    limits = np.iinfo(zero.dtype)
    name = f"{layer.name}.{quantizer.input[0]}.clipped"
    bounds = []
    for end, limit in (("low", limits.min), ("high", limits.max)):
        bound = np.float32((limit - float(zero)) * float(scale))
        bounds.append(f"{name}.{end}")
        model.graph.initializer.append(numpy_helper.from_array(bound, bounds[-1]))
    clip = onnx.helper.make_node("Clip", [quantizer.input[0], *bounds], [name])
    model.graph.node.insert(list(model.graph.node).index(layer), clip)
    return name


def run(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> Array:
    """Return all outputs of a model for all that it is fed with, one behind the other."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    outputs = [np.ravel(each) for feed in feeds for each in session.run(None, dict(feed))]
    array: Array = np.concatenate(outputs).astype(np.float64)
    return array


def costs_by_single_errors(found: Comparison, quantized: Path) -> dict[str, float]:
    """Return what `lar compare --isolate` says of the same layers: what the single error of each
    makes of the loss."""
    singles = {each.actual.name: square for each, square in squares_of_loss(found.tensors)}
    nodes = onnx.load(quantized).graph.node
    return {
        node.name: single_of(node.output[0].removesuffix("_QuantizeLinear_Input"), singles)
        for node in nodes
        if node.op_type in LAYERS
    }


def single_of(name: str, singles: Mapping[str, float]) -> float:
    """Return the number of a tensor, or of what it was quantised to."""
    endings = ("", "_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output")
    return next((singles[name + end] for end in endings if name + end in singles), 0.0)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's coefficient of two lists of numbers; equal ones share their ranks."""
    ranks = [ranks_of(np.asarray(side)) for side in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def ranks_of(numbers: Array) -> Array:
    """Return the rank of each number, from 0."""
    below = (numbers[:, None] > numbers).sum(axis=1)
    ranks: Array = below + ((numbers[:, None] == numbers).sum(axis=1) - 1) / 2
    return ranks
