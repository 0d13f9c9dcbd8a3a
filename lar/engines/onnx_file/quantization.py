"""The real numbers that integers of an ONNX graph stand for: scales beside them in its operators.

QuantizeLinear and DequantizeLinear, QLinear* and *Integer take the scale and the zero point of a
tensor as inputs of their own; DynamicQuantizeLinear gives them. What the operators take in which
place: onnx.ai/onnx/operators, and docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lar.engines.onnx_file.bodies import Body, name_by_paths, operators_in, parameters_of
from lar.engines.onnx_file.fields import Node, open_model
from lar.engines.onnx_file.tensors import array_of
from lar.records.quantization import Quantization

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


class Role(NamedTuple):
    """A tensor of an operator and where its scale and zero point are.

    A place counts inputs from 0, `~place` outputs. The scale is the product of those at `scales`.
    `axis` is that of the tensor along which there are several.
    """

    tensor: int
    scales: tuple[int, ...]
    zero_point: int | None = None
    axis: int | None = None


# Along the channels of a convolution's result and weights, and the columns of a matrix.
CONVOLUTION = (
    Role(~0, (6,), 7, 1),
    Role(0, (1,), 2),
    Role(3, (4,), 5, 0),
    Role(8, (1, 4), axis=0),
)
BINARY = (Role(~0, (6,), 7), Role(0, (1,), 2), Role(3, (4,), 5))
UNARY = (Role(~0, (3,), 4), Role(0, (1,), 2))
ROLES: Mapping[str, tuple[Role, ...]] = {
    "DynamicQuantizeLinear": (Role(~0, (~1,), ~2),),
    "QLinearConv": CONVOLUTION,
    "QLinearMatMul": (Role(~0, (6,), 7, -1), Role(0, (1,), 2, -2), Role(3, (4,), 5, -1)),
    "QLinearAdd": BINARY,
    "QLinearMul": BINARY,
    "QLinearWhere": (Role(~0, (7,), 8), Role(1, (2,), 3), Role(4, (5,), 6)),
    **dict.fromkeys(
        (
            *("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearLeakyRelu"),
            *("QLinearSigmoid", "QLinearSoftmax", "QLinearReduceMean"),
        ),
        UNARY,
    ),
    "MatMulIntegerToFloat": (Role(0, (2,), 4, -2), Role(1, (3,), 5, -1)),
    "DynamicQuantizeMatMul": (Role(1, (2,), 3, -1),),
    "QAttention": (Role(0, (3,), 6), Role(1, (4,), 7, -1)),
}
INTEGER_PRODUCTS = {"MatMulInteger": -1, "ConvInteger": 0}  # the axis of the weights' scales


class Scales(NamedTuple):
    """The names of what a tensor is quantised with."""

    tensor: str
    scales: tuple[str, ...]
    zero_point: str = ""
    axis: int | None = None


def quantizations_of(
    scales: Iterable[Scales], values: Mapping[str, Array]
) -> dict[str, Quantization]:
    """Return the quantization of each tensor whose scales are among the values."""
    found: dict[str, Quantization] = {}
    for each in scales:
        if each.tensor not in found and all(name in values for name in each.scales):
            quantization = quantization_of(each, values)
            if quantization is not None:
                found[each.tensor] = quantization
    return found


def quantization_of(each: Scales, values: Mapping[str, Array]) -> Quantization | None:
    """Return a tensor's quantization, None if its scales are no list of numbers."""
    scale = np.ones(1, np.float32)
    axis = each.axis
    for name in each.scales:
        array = values[name]
        if array.dtype.kind != "f" or sum(size > 1 for size in array.shape) > 1:
            return None  # one for each block of a row, or each row and column
        if array.ndim > 1 and array.size > 1:
            axis = int(np.argmax(array.shape)) - array.ndim
        scale = scale * array.reshape(-1).astype(np.float32)
    if each.zero_point and each.zero_point not in values:
        return None
    zeros = values[each.zero_point].reshape(-1) if each.zero_point else np.zeros(1, int)
    if zeros.dtype.kind not in "iu" or zeros.size not in (1, scale.size) or not scale.size:
        return None
    if scale.size == 1:
        axis = None
    elif axis is None:
        return None
    return Quantization(
        scale=tuple(map(float, scale)), zero_point=tuple(map(int, zeros)), axis=axis
    )


def scales_in(nodes: Sequence[Node], parameters: Sequence[Parameters]) -> list[Scales]:
    """Return what the tensors of a graph are quantised with: what the operator says that gives a
    tensor comes before what those say that take it."""
    given: list[Scales] = []
    taken: list[Scales] = []
    for node, known in zip(nodes, parameters, strict=True):
        for role in roles_of(node, known):
            tensor, *scales = (name_at(node, place) for place in (role.tensor, *role.scales))
            if tensor and all(scales):
                zero = "" if role.zero_point is None else name_at(node, role.zero_point)
                side = given if role.tensor < 0 else taken
                side.append(Scales(tensor, tuple(scales), zero, role.axis))
    known_so_far = {each.tensor: each for each in (*taken, *given)}
    return [*given, *taken, *products_in(nodes, known_so_far)]


def roles_of(node: Node, parameters: Parameters) -> Sequence[Role]:
    """Return the quantised tensors of an operator."""
    if node.operator in ("QuantizeLinear", "DequantizeLinear"):
        tensor = ~0 if node.operator == "QuantizeLinear" else 0
        blocked = parameters.get("block_size")
        return () if blocked else (Role(tensor, (1,), 2, int(parameters.get("axis", 1))),)
    if node.operator == "QGemm":
        columns = 0 if parameters.get("transB") else 1
        return (
            Role(~0, (7,), 8),
            Role(0, (1,), 2),
            Role(3, (4,), 5, columns),
            Role(6, (1, 4), axis=-1),
        )
    if node.operator == "QLinearConcat":
        triples = range(2, len(node.inputs) - 2, 3)
        return (Role(~0, (0,), 1), *(Role(place, (place + 1,), place + 2) for place in triples))
    return ROLES.get(node.operator, ())


def name_at(node: Node, place: int) -> str:
    """Return the name of an input or output, empty if it is left out."""
    names = node.inputs if place >= 0 else node.outputs
    place = place if place >= 0 else ~place
    return names[place] if place < len(names) else ""


def products_in(nodes: Sequence[Node], known: Mapping[str, Scales]) -> Iterator[Scales]:
    """Yield the scales of products of integers, and of their weights: they are multiplied by them
    later, and by both at once."""
    makers = {name: node for node in nodes for name in node.outputs}
    takers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            takers.setdefault(name, []).append(node)
    for node in nodes:
        if node.operator not in INTEGER_PRODUCTS:
            continue
        data, weight, product = node.inputs[0], node.inputs[1], node.outputs[0]
        casts = [it for it in takers.get(product, ()) if it.operator == "Cast"]
        scaled = [it for cast in casts for it in takers.get(cast.outputs[0], ())]
        for each in scaled:
            factors = [name for name in each.inputs if name != casts[0].outputs[0]]
            if each.operator != "Mul" or len(factors) != 1:
                continue
            axis = 1 if node.operator == "ConvInteger" else -1
            yield Scales(product, (factors[0],), axis=axis)
            maker = makers.get(factors[0])
            of_data = known[data].scales if data in known else ()
            if maker and maker.operator == "Mul" and of_data and of_data[0] in maker.inputs:
                of_weight = tuple(name for name in maker.inputs if name != of_data[0])
                zero = name_at(node, 3)
                yield Scales(weight, of_weight, zero, INTEGER_PRODUCTS[node.operator])


def wanted_names(scales: Iterable[Scales]) -> set[str]:
    """Return the names of the scales and zero points."""
    return {name for each in scales for name in (*each.scales, each.zero_point) if name}


def read_quantizations(path: Path) -> dict[str, Quantization]:
    """Return what the integers of a model's tensors stand for, by name, as far as its weights say.

    Raises:
        ValueError, OSError: the model cannot be read.
    """
    graph = open_model(path).graph
    name_by_paths(graph)
    operators = [*operators_in(Body("", graph))]
    parameters = [parameters_of(each.message) for each in operators]
    scales = scales_in([each.node for each in operators], parameters)
    wanted = wanted_names(scales)
    held = (it for it in graph.initializer if it.name in wanted)
    values = {it.name: array_of(it, path.parent) for it in held}
    return quantizations_of(scales, values)
