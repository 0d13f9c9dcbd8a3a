"""Numbers the tensors of an ONNX graph for dumps, in the same way as MegEngine does.

Several engines use this module to number the tensors in their dumps. The module also finds scales
and zero points of quantised tensors. QuantizeLinear, DequantizeLinear, QLinear* and *Integer have
the scale and the zero point of a tensor among their inputs. DynamicQuantizeLinear has the scale and
the zero point among its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lar.dumps import DumpFacts, OperatorFact
from lar.dumps.binary import BY_DTYPE, Numbering
from lar.dumps.recording import Dumped, Part, Unheld
from lar.engines.onnx_file.bodies import Body, Operator, open_operators, operators_in, parameters_of
from lar.engines.onnx_file.fields import Message, Node, bits_of, type_name
from lar.engines.onnx_file.operators import ROLES, Role
from lar.engines.onnx_file.tensors import Array, array_of
from lar.records.run import Quantization

Parameters = Mapping[str, Any]

# By operator: the axis of the scales of an integer product, and of the scales of its weights.
INTEGER_PRODUCTS = {"MatMulInteger": (-1, -1), "ConvInteger": (1, 0)}


class Scales(NamedTuple):
    """The names of a tensor's scales and zero point."""

    tensor: str
    scales: tuple[str, ...]
    zero_point: str = ""
    axis: int | None = None

    @property
    def names(self) -> list[str]:
        """The names of the scales and of the zero point."""
        return [*self.scales, *filter(None, (self.zero_point,))]


def quantizations_of(
    scales: Iterable[Scales], values: Mapping[str, Array]
) -> dict[str, Quantization]:
    """Return the quantization of each tensor whose scales are among the known values."""
    found: dict[str, Quantization] = {}
    for each in scales:
        if each.tensor not in found and (known := quantization_of(each, values)):
            found[each.tensor] = known
    return found


def quantization_of(each: Scales, values: Mapping[str, Array]) -> Quantization | None:
    """Return a tensor's quantization; None if its scales are unknown or vary along several axes."""
    if not values.keys() >= {*each.names}:
        return None
    scale, axis = np.ones(1, np.float32), each.axis
    for array in (values[name] for name in each.scales):
        if array.dtype.kind != "f" or sum(size > 1 for size in array.shape) > 1:
            return None  # a scale for each block of a row, or for each row and column
        if array.ndim > 1 and array.size > 1:
            axis = int(np.argmax(array.shape)) - array.ndim
        scale = scale * array.reshape(-1).astype(np.float32)
    zeros = values[each.zero_point].reshape(-1) if each.zero_point else np.zeros(1, int)
    if zeros.dtype.kind not in "iu" or zeros.size not in (1, scale.size) or not scale.size:
        return None
    axis = axis if scale.size > 1 else None
    if scale.size > 1 and axis is None:
        return None
    numbers, zero_point = tuple(map(float, scale)), tuple(map(int, zeros))
    return Quantization(scale=numbers, zero_point=zero_point, axis=axis)


def scales_in(nodes: Sequence[Node], parameters: Sequence[Parameters]) -> list[Scales]:
    """Return the names of the scales and zero points of a graph's tensors.

    Scales that are inputs of the operator that writes the tensor come first. Scales that are inputs
    of operators that read the tensor come second. The scales of integer products come last.
    """
    given: list[Scales] = []
    taken: list[Scales] = []
    for node, known in zip(nodes, parameters, strict=True):
        for role in roles_of(node, known):
            places = (role.tensor, role.zero_point, *role.scales)
            tensor, zero_point, *scales = (name_at(node, place) for place in places)
            if tensor and all(scales):
                side = given if role.tensor < 0 else taken
                side.append(Scales(tensor, tuple(scales), zero_point, role.axis))
    return [*given, *taken, *products_in(nodes, {each.tensor: each for each in (*taken, *given)})]


def roles_of(node: Node, parameters: Parameters) -> Sequence[Role]:
    """Return the roles of an operator's quantised tensors."""
    if parameters.get("block_size"):
        return ()
    if node.operator == "QLinearConcat":
        triples = range(2, len(node.inputs) - 2, 3)
        return (Role(~0, (0,), 1), *(Role(place, (place + 1,), place + 2) for place in triples))
    # Scales are along axis 1, unless the operator names another axis or transposes the tensor.
    axis = 0 if parameters.get("transB") else int(parameters.get("axis", 1))
    roles = ROLES.get(node.operator, ())
    return [role._replace(axis=axis) if role.axis == 1 else role for role in roles]


def name_at(node: Node, place: int | None) -> str:
    """Return the name of the input or output at a place, empty if nothing is there."""
    if place is None:
        return ""
    names, place = (node.inputs, place) if place >= 0 else (node.outputs, ~place)
    return names[place] if place < len(names) else ""


def products_in(nodes: Sequence[Node], known: Mapping[str, Scales]) -> Iterator[Scales]:
    """Yield the scales of integer products and of their weights.

    In a model, an integer product is cast to a float type. Then the float product is multiplied by
    two scales: the scale of the data and the scale of the weights.
    """
    makers = {name: node for node in nodes for name in node.outputs}
    muls = [node for node in nodes if node.operator == "Mul"]
    for casted, factor in (pair for node in muls for pair in permutations(node.inputs, 2)):
        cast = makers.get(casted)
        node = makers.get(cast.inputs[0]) if cast and cast.operator == "Cast" else None
        if node is None or node.operator not in INTEGER_PRODUCTS or casted == factor:
            continue
        data, weight, product = *node.inputs[:2], node.outputs[0]
        axis, axis_of_weight = INTEGER_PRODUCTS[node.operator]
        yield Scales(product, (factor,), axis=axis)
        maker = makers.get(factor)
        of_data = known[data].scales if data in known else ()
        if maker and maker.operator == "Mul" and of_data and of_data[0] in maker.inputs:
            of_weight = tuple(name for name in maker.inputs if name != of_data[0])
            yield Scales(weight, of_weight, name_at(node, 3), axis_of_weight)


def wanted_names(scales: Iterable[Scales]) -> set[str]:
    """Return the names of the scales and zero points."""
    return {name for each in scales for name in each.names}


def read_quantizations(path: Path) -> dict[str, Quantization]:
    """Return the quantizations of a model's tensors whose scales are in the file, by tensor name.

    Raises:
        ValueError, OSError: the model cannot be read.
    """
    graph, operators = open_operators(path)
    parameters = [parameters_of(each.message) for each in operators]
    scales = scales_in([each.node for each in operators], parameters)
    wanted = wanted_names(scales)
    held = (it for it in graph.initializer if it.name in wanted)
    return quantizations_of(scales, {it.name: array_of(it, path.parent) for it in held})


class NumberedGraph:
    """The graph of a model in which all tensors are numbered, including the tensors in bodies.

    Call `name_by_paths` for the graph before an object of this class is made. When all tensors have
    been computed, `left_out` has the tensors that no file can hold, each with the reason.
    """

    def __init__(self, graph: Message, fed: Iterable[str]) -> None:
        self.outputs = [each.name for each in graph.output]
        # Constants of 4 bits, which no file of a dump can hold.
        self.of_4_bits = {
            it.name for it in graph.initializer if bits_of(type_name(it.data_type)) == 4
        }
        self.operators = [*operators_in(Body("", graph))]
        self.nodes = [each.node for each in self.operators]
        self.makers = {name: it for it in self.operators for name in filter(None, it.node.outputs)}
        self.numbering = Numbering(fed)
        for node in self.nodes:
            kind = "Initializer" if node.operator == "Constant" else node.operator
            self.numbering.add_node(kind, node.name, node.inputs, node.outputs)
        self.numbering.add_constants(self.outputs)
        self.variables = self.numbering.variables
        self.parts: dict[str, list[str]] = {}  # the names of the dumped parts of each value
        self.left_out: dict[str, str] = {}
        self.factors: dict[str, Array] = {}  # the values of known scales and zero points

    def facts(self) -> DumpFacts:
        """Return the facts for a dump: the operators and the quantizations of tensors.

        The operators are in the order of the graph, with their numbers and parameters.
        """
        operators = [
            OperatorFact(
                self.variables[name].operator_id,
                known if self.of_4_bits.isdisjoint(node.inputs) else {**known, "bits": 4},
            )
            for node, known in zip(self.nodes, self.parameters, strict=True)
            for name in [*filter(None, node.outputs)][:1]
        ]
        known, left_out = quantizations_of(self.scales, self.factors), self.left_out
        return DumpFacts(operators, 0, {}, known, outputs=self.outputs, left_out=left_out)

    def holds_weight(self, name: str, type_name: str) -> bool:
        """Return whether a dump contains a given constant.

        A dump contains the weights and biases that operators read, but no scales, zero points or
        shapes.
        """
        is_taken = name in self.variables and name not in {*self.wanted, *self.outputs}
        is_weight = type_name.startswith("float") or name in {it.tensor for it in self.scales}
        return is_taken and is_weight and type_name in BY_DTYPE

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of each operator."""
        return [parameters_of(each.message) for each in self.operators]

    @cached_property
    def scales(self) -> list[Scales]:
        """The names of the scales and zero points of each quantised tensor."""
        return scales_in(self.nodes, self.parameters)

    @cached_property
    def wanted(self) -> set[str]:
        """The names of all scales and zero points in the graph."""
        return wanted_names(self.scales)

    def dump_parts(self, name: str, parts: Sequence[Part | Unheld]) -> Iterator[Dumped]:
        """Yield the tensors to dump for the parts of a value."""
        maker = self.makers.get(name)
        held = [each for each in parts if isinstance(each, Part)]
        self.left_out |= {each.name: each.reason for each in parts if isinstance(each, Unheld)}
        if held or not parts:
            self.parts[name] = [each.name for each in held]
        if name in self.wanted and len(held) == len(parts) == 1:
            self.factors[name] = held[0].array
        for each in held:
            array, layout = each.array, ""
            if each.name != name:
                self.numbering.add_part(name, each.name)
            elif maker is not None:
                array, layout = self.stored(name, maker, array)
            inputs = maker.node.inputs if maker else ()
            yield self.dumped(each.name, inputs, array, layout, each.dtype)

    def stored(self, name: str, maker: Operator, array: Array) -> tuple[Array, str]:
        """Return an operator's output in the layout of the dump, and the layout's name."""
        return array, ""

    def dumped(
        self, name: str, inputs: Sequence[str], array: Array, layout: str = "", dtype: str = ""
    ) -> Dumped:
        """Return a tensor as a dump stores it, with names, numbers and the name of the layout."""
        kind, known = dtype or BY_DTYPE[array.dtype.name].name, self.variables[name]
        variable = replace(known, shape=array.shape, stored=True, format=layout, dtype=kind)
        self.variables[name] = variable
        # A sequence is dumped under other names, and a tensor of an untaken branch is not dumped.
        taken = [it for each in inputs if each for it in self.parts.get(each, [each])]
        return Dumped(variable, tuple(self.variables[each] for each in taken), array)
