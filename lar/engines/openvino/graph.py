"""The graph that a compiled model executes, read beside the model that it was compiled from.

OpenVINO tells what it executes: each node with the names of the model's operators that it stands
for (`originalLayersNames`), its kernel, its layout and its precision. What a node gives is what the
last of those operators gives, and what another of them gives that is taken elsewhere. All between
two such tensors is one operator of a dump or a profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from lar.engines.flops import Operation, Shape, flops_of
from lar.engines.openvino.operator_kinds import KINDS, WORK
from lar.graphs.operator_kinds import WITH_CONSTANT

# Nodes that give nothing of the model's: constants, results, and copies in another layout.
WITHOUT_TENSOR = ("Const", "Output", "Reorder")

# Operators that give something else each time, whatever they take.
UNSTEADY = ("RandomUniform", "Multinomial", "ReadValue")

# Operators that take shapes and not values: what is computed from these is no data.
OF_SHAPES = ("ShapeOf",)
FIXED = ("Constant", *OF_SHAPES)

# Operators that stand for what a model is fed with and what it gives.
ENDS = ("Parameter", "Result")

Port = tuple[str, int]
"""An output of an operator of the model: the operator's unique name, and its place."""


class ExecutedNode(NamedTuple):
    """A node of the executed graph. `origins` are the model's operators, by their names."""

    name: str
    type: str
    kernel: str
    layout: str
    precision: str
    origins: tuple[str, ...]

    @property
    def title(self) -> str:
        """What a person calls it: the first of the model's operators in it."""
        return (self.origins or (self.name,))[0].removesuffix("/WithoutBiases")


class Region(NamedTuple):
    """What an executed node computes, as the model has it.

    `outputs` are the tensors that it gives; `operators` lie between them and what it takes, in the
    model's order. `inputs` are tensors that are computed or fed, `constants` those of the model.
    `steps` are the kinds of what it does, in order.
    """

    node: ExecutedNode
    outputs: tuple[Any, ...]
    operators: tuple[Any, ...]
    inputs: tuple[Any, ...]
    constants: tuple[Any, ...]
    steps: tuple[str, ...]

    @property
    def taken(self) -> list[str]:
        """The names of what it takes."""
        return [tensor_name(it) for it in (*self.inputs, *self.constants)]

    @property
    def flops(self) -> int | None:
        """Its operations (`lar.engines.flops`), None where they are unknown."""
        counts = [flops_of(operation_of(operator)) for operator in self.operators]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None


def executed_nodes(compiled: Any) -> list[ExecutedNode]:
    """Return the nodes of the executed graph in the order in which they run."""
    found: list[tuple[int, ExecutedNode]] = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: str(getattr(it, "value", it)) for key, it in node.get_rt_info().items()}
        executed = ExecutedNode(
            node.get_friendly_name(),
            info.get("layerType", node.get_type_name()),
            info.get("primitiveType", ""),
            info.get("outputLayouts", ""),
            info.get("outputPrecisions", ""),
            tuple(filter(None, info.get("originalLayersNames", "").split(","))),
        )
        found.append((int(info.get("execOrder", 0)), executed))
    return [node for _, node in sorted(found, key=lambda it: it[0])]


def constants_in(operators: Iterable[Any]) -> set[str]:
    """Return the unique names of the operators that compute from constants and shapes alone, of a
    model's in its order."""
    found: set[str] = set()
    for operator in operators:
        sources = [it.get_node().get_name() for it in operator.input_values()]
        is_fixed = bool(sources) and operator.get_type_name() not in UNSTEADY
        if operator.get_type_name() in FIXED or (is_fixed and found.issuperset(sources)):
            found.add(operator.get_name())
    return found


def port_of(output: Any) -> Port:
    return output.get_node().get_name(), output.get_index()


def tensor_name(output: Any) -> str:
    """Return the name of what an operator gives: the first of those that the model has for it."""
    names = sorted(output.get_names())
    own = output.get_node().get_friendly_name()
    return own if own in names or not names else str(names[0])


class ExecutedGraph:
    """The executed graph of a compiled model, with the regions of the model."""

    def __init__(self, model: Any, compiled: Any) -> None:
        self.operators = model.get_ordered_ops()
        self.constants = constants_in(self.operators)
        self.by_name = {it.get_friendly_name(): it for it in self.operators}
        self.nodes = executed_nodes(compiled)

    @cached_property
    def signatures(self) -> Counter[tuple[str, ...]]:
        """The nodes that compute something of the model's, without the names that OpenVINO makes
        up while it compiles."""
        return Counter(map(self.signature_of, self.computing))

    def signature_of(self, node: ExecutedNode) -> tuple[str, ...]:
        known = [name for name in node.origins if name in self.by_name]
        return (node.type, node.kernel, *known)

    @cached_property
    def computing(self) -> list[ExecutedNode]:
        """The nodes that give tensors of the model's."""
        nodes = (it for it in self.nodes if it.type not in (*WITHOUT_TENSOR, "Input"))
        return [it for it in nodes if any(name in self.by_name for name in it.origins)]

    @cached_property
    def regions(self) -> list[Region]:
        """What each computing node stands for, in the order in which they run."""
        return self.regions_between({port_of(it) for it in self.ports.values()})

    @cached_property
    def given(self) -> dict[str, list[Any]]:
        """The tensors that each computing node gives, by its name."""
        owners = {name: node for node in self.computing for name in node.origins}
        return {node.name: [*self.outputs_of(node, owners)] for node in self.computing}

    @property
    def ports(self) -> dict[Port, Any]:
        """All tensors that computing nodes give."""
        return {port_of(it): it for outputs in self.given.values() for it in outputs}

    def regions_between(self, ends: Container[Port]) -> list[Region]:
        """Return what lies between some of the tensors: a node that gives none of them belongs to
        the regions behind it."""
        found = []
        for node in self.computing:
            outputs = [it for it in self.given[node.name] if port_of(it) in ends]
            if outputs:
                found.append(self.region_of(node, outputs, ends))
        return found

    def outputs_of(self, node: ExecutedNode, owners: Mapping[str, ExecutedNode]) -> Iterator[Any]:
        """Yield what a node gives: all that is taken of its last operator, and of the others what
        another node takes."""
        operators = [self.by_name[name] for name in node.origins if name in self.by_name]
        for operator in operators:
            for output in operator.outputs():
                takers = [it.get_node().get_friendly_name() for it in output.get_target_inputs()]
                elsewhere = (owners[name] for name in takers if name in owners)
                is_last = operator is operators[-1] and (output.get_names() or takers)
                if is_last or any(each is not node for each in elsewhere):
                    yield output

    def region_of(
        self, node: ExecutedNode, outputs: Sequence[Any], ends: Container[Port]
    ) -> Region:
        """Return what is between the tensors that a node gives and others at which nodes end."""
        names = self.names_between(outputs, ends)
        inside = tuple(it for it in self.operators if it.get_name() in names)
        values = {port_of(it): it for each in inside for it in data_of(each)}
        given = {port_of(it) for it in outputs}
        taken = {
            port: it
            for port, it in values.items()
            if port not in given and (port in ends or port[0] not in names)
        }
        fixed = [it for it in taken.values() if self.is_constant(it)]
        constants = {port_of(it): it for value in fixed for it in constants_before(value)}
        inputs = [it for it in taken.values() if not self.is_constant(it)]
        steps = tuple(self.steps_of(inside))
        return Region(node, tuple(outputs), inside, (*inputs,), (*constants.values(),), steps)

    def names_between(self, outputs: Iterable[Any], ends: Container[Port]) -> set[str]:
        """Return the unique names of the operators between tensors and those before them."""
        waiting, found = [it.get_node() for it in outputs], set[str]()
        while waiting:
            operator = waiting.pop()
            if operator.get_name() in found:
                continue
            found.add(operator.get_name())
            for value in data_of(operator):
                stops = port_of(value) in ends or self.is_constant(value)
                if not stops and value.get_node().get_type_name() != "Parameter":
                    waiting.append(value.get_node())
        return found

    def is_constant(self, value: Any) -> bool:
        return value.get_node().get_name() in self.constants

    def steps_of(self, operators: Iterable[Any]) -> list[str]:
        """Return the kinds of what operators do; what only moves data is left out beside others."""
        found: list[str] = []
        for operator in operators:
            kind = KINDS.kind_of(operator.get_type_name())
            values = operator.input_values()
            if sum(map(self.is_constant, values)) >= len(values) - 1 > 0:
                kind = WITH_CONSTANT.get(kind, kind)
            if kind == "min" and found[-1:] == ["max"]:
                found[-1] = "clip"
            else:
                found.append(kind)
        return [kind for kind in found if kind not in ("move", "cast")] or found[-1:]


def data_of(operator: Any) -> list[Any]:
    """Return what an operator takes the values of, and not only the shapes."""
    return [] if operator.get_type_name() in OF_SHAPES else operator.input_values()


def constants_before(value: Any) -> Iterator[Any]:
    """Yield the constants that a constant tensor is computed from."""
    if value.get_node().get_type_name() == "Constant":
        yield value
    for each in data_of(value.get_node()):
        yield from constants_before(each)


def shape_of(value: Any) -> Shape:
    """Return the shape of an output or input, with None for open axes."""
    shape = value.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(axis.get_length() if axis.is_static else None for axis in shape)


def operation_of(operator: Any) -> Operation:
    """Return what the work of an operator of a model depends on."""
    kind = WORK.get(operator.get_type_name())
    attributes = operator.get_attributes() if kind in ("pooling", "matrix product") else {}
    inputs = [shape_of(it) for it in operator.inputs()]
    if attributes.get("transpose_a") and inputs[0]:
        inputs[0] = (*inputs[0][:-2], *inputs[0][:-3:-1])
    return Operation(
        type=operator.get_type_name(),
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(map(shape_of, operator.outputs())),
        taps=prod(attributes.get("kernel") or (1,)),
    )


def operations_in(model: Any) -> Iterator[Operation]:
    """Yield the operators of a model that compute something, as far as their work depends on it."""
    operators = model.get_ordered_ops()
    constants = constants_in(operators)
    for operator in operators:
        if operator.get_name() not in constants and operator.get_type_name() not in ENDS:
            yield operation_of(operator)
