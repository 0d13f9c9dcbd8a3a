"""The graph that a compiled model executes, and the part of the model that each node computes.

For each node of the executed graph, OpenVINO reports the names of the model's operators in the node
(`originalLayersNames`), the node's kernel and the node's layout. A node has the outputs of the last
operator in it. If an operator outside the node reads the output of an earlier operator in the node,
the output of the earlier operator is an output of the node too. A region is the set of the model's
operators that compute the outputs of one node from the outputs of other nodes. Dumps and profiles
show a region as one operator.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lar.dumps import DumpedOperator
from lar.engines.operator_facts import Operation, count_flops, facts_beside
from lar.errors import UsageError
from lar.graphs import WITH_CONSTANT, Steps
from lar.graphs.origins import ModelOperator
from lar.records.run import ModelInfo

# Facts about OpenVINO's operators: their kinds, in words for all engines, and their FLOPs


# The parameter of a dumped operator that has the kinds of its steps, in order.
STEPS = "steps"


def steps_of(operator: DumpedOperator) -> Steps:
    """Return the kinds of a dumped operator's steps; empty if the dump does not have the steps."""
    text = operator.parameters.get(STEPS)
    kinds = text.split(",") if isinstance(text, str) and text else ()
    return tuple("bias" if it == "add" else it for it in kinds)  # `add` here adds a constant


FACTS = facts_beside(__file__)
KINDS = FACTS.operator_kinds(steps_by_mode=steps_of)


# The graph that a compiled model executes


FACTS_OF_NODES = ("primitiveType", "outputLayouts", "runtimePrecision")

# Types of nodes whose outputs are no results of the model's operators.
WITHOUT_TENSOR = ("Input", "Const", "Output", "Reorder")

# Operators that read only the shape of their input, so their results are not data.
OF_SHAPES = ("ShapeOf",)

# The element types of weights, biases and factors; axes and shapes have other types.
OF_WEIGHTS = ("f32", "f16", "f64", "i8", "u8")

# Operators whose results differ in each run, even for the same inputs.
UNSTEADY = ("RandomUniform", "Multinomial", "ReadValue")

# Operators that stand for the inputs and outputs of a model.
ENDS = ("Parameter", "Result")

# The suffix that OpenVINO adds to an operator's name if it computes an output in another type.
APPENDED = re.compile(r"(\.\d+)+$")


class ExecutedNode(NamedTuple):
    """A node of the executed graph.

    `origins` has the names of the model's operators in the node. `precision` is the type in which
    the node computes, or the type of its weights if these are integers.
    """

    order: int
    name: str
    type: str
    kernel: str
    layout: str
    origins: tuple[str, ...]
    precision: str

    @property
    def title(self) -> str:
        """The name to show for the node: the name of the node's first operator in the model."""
        return (self.origins or (self.name,))[0].removesuffix("/WithoutBiases")


class Region(NamedTuple):
    """A region: the part of the model that one node of the executed graph computes.

    `outputs` are the region's output tensors. `operators` are the model's operators in the region,
    in the order of the model. `inputs` are the region's input tensors, which are fed or computed
    before the region. `constants` are the weights. `steps` are the kinds of the operators, in
    order.
    """

    node: ExecutedNode
    outputs: tuple[Any, ...]
    operators: tuple[Any, ...]
    inputs: tuple[Any, ...]
    constants: tuple[Any, ...]
    steps: tuple[str, ...]

    @property
    def taken(self) -> list[str]:
        """The names of the region's inputs and constants."""
        from lar.engines.openvino.driver import tensor_name  # the parent of a run has no NumPy

        return [tensor_name(it) for it in (*self.inputs, *self.constants)]

    @property
    def flops(self) -> int | None:
        """The region's number of operations (see `operator_facts`), None if it is unknown."""
        return count_flops(map(operation_of, self.operators))[0]


def executed_nodes(compiled: Any) -> list[ExecutedNode]:
    """Return the nodes of the executed graph in the order of execution."""
    found = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: str(getattr(it, "value", it)) for key, it in node.get_rt_info().items()}
        kernel, layout, precision = (info.get(it, "") for it in FACTS_OF_NODES)
        origins = tuple(filter(None, info.get("originalLayersNames", "").split(",")))
        order, name, kind = int(info["execOrder"]), node.get_friendly_name(), info["layerType"]
        found.append(ExecutedNode(order, name, kind, kernel, layout, origins, precision))
    return sorted(found)


def constants_in(operators: Iterable[Any]) -> set[Any]:
    """Return the operators that depend only on constants and on shapes.

    The operators must be in the order of the model.
    """
    found: set[Any] = set()
    for operator in operators:
        kind = operator.get_type_name()
        sources = [it.get_node() for it in operator.input_values()]
        if (kind not in (*UNSTEADY, *ENDS) and found.issuperset(sources)) or kind in OF_SHAPES:
            found.add(operator)
    return found


class ExecutedGraph:
    """The executed graph of a compiled model, with the model's region that each node computes."""

    def __init__(self, model: Any, compiled: Any) -> None:
        self.operators = model.get_ordered_ops()
        self.constants = constants_in(self.operators)
        self.by_name = {it.get_friendly_name(): it for it in self.operators}
        nodes = self.with_own_names(executed_nodes(compiled))
        named = {name for node in nodes for name in node.origins}
        self.nodes = [self.with_last_move(node, named) for node in nodes]
        # The nodes whose outputs are tensors of the model, each with its operators.
        self.computing = {
            node: operators
            for node in self.nodes
            if (operators := [self.by_name[name] for name in node.origins if name in self.by_name])
            and node.type not in WITHOUT_TENSOR
        }

    def with_last_move(self, node: ExecutedNode, named: Container[str]) -> ExecutedNode:
        """Return a node; some outputs are replaced by the operator before the output.

        An output is replaced if no node has the operator before it. OpenVINO does not execute a
        last Transpose if only the strides of the output change.
        """
        result = self.by_name.get(node.name) if node.type == "Output" else None
        last = result.input_value(0).get_node() if result else None
        if last is None or last in self.constants or last.get_type_name() == "Parameter":
            return node
        name, kind = last.get_friendly_name(), last.get_type_name()
        return node if name in named else node._replace(name=name, type=kind, origins=(name,))

    def with_own_names(self, nodes: Sequence[ExecutedNode]) -> list[ExecutedNode]:
        """Return nodes with the names that operators have in the model.

        If OpenVINO converts an output to another type, OpenVINO adds a node for the conversion.
        OpenVINO gives the operator's name to the added node, and a longer name to the node that
        computes the output.
        """
        seen = {name for node in nodes for name in node.origins}

        def own_name(name: str) -> str:
            plain = APPENDED.sub("", name)
            is_known = name in self.by_name or plain not in self.by_name or plain in seen
            seen.add(plain)
            return name if is_known else plain

        named = [it._replace(origins=tuple(map(own_name, it.origins))) for it in nodes]
        # A node with packed weights may have only the names of the operators of its input.
        wrong = {it for it in named if it.name in self.by_name and it.name not in it.origins}
        return [it._replace(origins=(it.name,)) if it in wrong else it for it in named]

    @cached_property
    def signatures(self) -> Counter[tuple[str, ...]]:
        """How often each signature occurs among the nodes that compute something.

        The signature of a node has its type, its kernel and the names of its operators in the
        model, but no names that OpenVINO has invented.
        """
        return Counter(map(self.signature_of, self.computing))

    def signature_of(self, node: ExecutedNode) -> tuple[str, ...]:
        return (node.type, node.kernel, *[it.get_friendly_name() for it in self.computing[node]])

    @cached_property
    def given(self) -> dict[ExecutedNode, list[Any]]:
        """The output tensors of each node."""
        owners = {operator: node for node, each in self.computing.items() for operator in each}

        def is_given(output: Any, node: ExecutedNode) -> bool:
            """Return whether an output of an operator in the node is an output of the node too.

            An operator's output is an output of the node if an operator outside the node reads this
            output, or if it is an output of the model. An output of the node's last operator is an
            output of the node too, if any operator reads the output, or if the output has a name.
            """
            takers = [it.get_node() for it in output.get_target_inputs()]
            is_result = any(it.get_type_name() == "Result" for it in takers)
            is_last = output.get_node() == self.computing[node][-1]
            is_taken = is_result or (is_last and bool(output.get_names() or takers))
            return is_taken or any(owners.get(it, node) is not node for it in takers)

        return {
            node: [it for each in operators for it in each.outputs() if is_given(it, node)]
            for node, operators in self.computing.items()
        }

    @property
    def outputs(self) -> list[Any]:
        """The output tensors of all nodes."""
        return [output for outputs in self.given.values() for output in outputs]

    @cached_property
    def regions(self) -> list[Region]:
        """The regions of all nodes, in the order of execution."""
        return self.regions_between({*self.outputs})

    def regions_between(self, ends: Container[Any]) -> list[Region]:
        """Return the regions of a model that is cut at the tensors `ends`.

        If no output of a node is in `ends`, the node belongs to the regions of later nodes.
        """
        given = {node: [it for it in outputs if it in ends] for node, outputs in self.given.items()}
        return [self.region_of(node, given[node], ends) for node in given if given[node]]

    def region_of(self, node: ExecutedNode, outputs: Sequence[Any], ends: Container[Any]) -> Region:
        """Return a node's region, from the nearest tensors in `ends` to `outputs`."""
        found = self.operators_between(outputs, ends)
        inside = tuple(it for it in self.operators if it in found)
        values = dict.fromkeys(it for each in inside for it in data_of(each))
        taken = [it for it in values if it not in outputs]
        inputs = [it for it in taken if it in ends or it.get_node() not in found]
        weights = dict.fromkeys(
            it
            for value in inputs
            if self.is_constant(value)
            for it in constants_before(value)
            if it.get_element_type().get_type_name() in OF_WEIGHTS
        )
        data = tuple(it for it in inputs if not self.is_constant(it))
        return Region(node, (*outputs,), inside, data, (*weights,), self.steps_of(inside))

    def operators_between(self, outputs: Iterable[Any], ends: Container[Any]) -> set[Any]:
        """Return the operators that compute `outputs` from the nearest tensors in `ends`."""
        waiting, found = [it.get_node() for it in outputs], set[Any]()
        while waiting:
            operator = waiting.pop()
            if operator not in found:
                found.add(operator)
                values = [it for it in data_of(operator) if it not in ends]
                sources = [it.get_node() for it in values if not self.is_constant(it)]
                waiting += [it for it in sources if it.get_type_name() not in ENDS]
        return found

    def is_constant(self, value: Any) -> bool:
        return value.get_node() in self.constants

    def steps_of(self, operators: Iterable[Any]) -> tuple[str, ...]:
        """Return the kinds of operators; moves and casts are left out if there are other kinds."""
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
        return tuple(it for it in found if it not in ("move", "cast")) or (*found[-1:],)


def cut_model(openvino: Any, model: Any, at: Mapping[Any, Any], ends: Iterable[Any]) -> Any:
    """Return a copy of a model that computes only the part between some tensors.

    The copy's results are the tensors `ends`. The inputs of the copy are the tensors in `at`, which
    are not computed in the copy. `at` maps each input of the copy to its shape.

    Raises:
        RuntimeError: the results need an input of the model that is not in `at`.
    """
    clone = model.clone()
    places = dict(zip(model.get_ordered_ops(), clone.get_ordered_ops(), strict=True))

    def copy_of(port: Any) -> Any:
        return places[port.get_node()].output(port.get_index())

    results, parameters = [*map(copy_of, ends)], []
    for port, shape in at.items():
        parameters.append(openvino.op.Parameter(port.get_element_type(), shape))
        if port.get_node().get_type_name() == "Parameter":
            # Nodes of the executed graph have this name among their operators.
            parameters[-1].set_friendly_name(port.get_node().get_friendly_name())
        for taker in copy_of(port).get_target_inputs():
            taker.replace_source_output(parameters[-1].output(0))
    return openvino.Model(results, parameters, "cut")


def data_of(operator: Any) -> list[Any]:
    """Return the input tensors of an operator; empty if the operator reads only their shapes."""
    return [] if operator.get_type_name() in OF_SHAPES else operator.input_values()


def constants_before(value: Any) -> Iterator[Any]:
    """Yield the constants from which a constant tensor is computed."""
    if value.get_node().get_type_name() == "Constant":
        yield value
    for each in data_of(value.get_node()):
        yield from constants_before(each)


def operation_of(operator: Any) -> Operation:
    """Return an operator of a model in the form in which the formulas for FLOPs need it."""
    from lar.engines.openvino.driver import shape_of  # the parent of a run has no NumPy

    kind = FACTS.work_by_type.get(operator.get_type_name())
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


# Files in OpenVINO's own format: an `.xml`, with its weights beside it


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the name of a model's weight file, or an empty tuple if the model has no weights.

    Raises:
        UsageError: the model has weights, but the weight file is missing.
    """
    weights = path.with_suffix(".bin")
    if weights.is_file():
        return (weights.name,)
    if b'type="Const"' in path.read_bytes():
        raise UsageError(
            f"the weights {weights.name} are missing", "put the file beside the model", subject=path
        )
    return ()


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return an empty tuple, since only OpenVINO can read the operators."""
    return ()


def read_model(path: Path) -> ModelInfo:
    """Read a description of a model file; for FLOPs, the size of an open batch axis counts as 1.

    Raises:
        UsageError: the model file is damaged, or the weight file is missing.
    """
    from lar.engines.openvino.driver import (
        MEANINGS,
        describe,
        import_openvino,
        shape_of,
        tensor_name,
    )

    files_beside(path)
    try:
        model = import_openvino().Core().read_model(path)
    except RuntimeError as error:
        raise MEANINGS.explain(str(error), str(path)) or error from None
    inputs, outputs = (tuple(map(describe, ports)) for ports in (model.inputs, model.outputs))
    batches = [it for it in model.inputs if (shape_of(it) or (1,))[0] is None]
    for port in batches:
        shape = port.get_partial_shape()
        shape[0] = 1
        model.reshape({port: shape})
    operators = model.get_ordered_ops()
    constants = constants_in(operators)
    fixed = [it for it in operators if it.get_type_name() == "Constant"]
    weights = [it for it in fixed if it.get_element_type().get_type_name() in OF_WEIGHTS]
    computing = [it for it in operators if it not in constants and it.get_type_name() not in ENDS]
    flops, unknown = count_flops(map(operation_of, computing))
    flops_at = ", ".join(f"{tensor_name(it)}[0]=1" for it in batches)
    return ModelInfo(
        engine="openvino",
        inputs=inputs,
        outputs=outputs,
        operators=dict(Counter(it.get_type_name() for it in computing).most_common()),
        parameter_count=sum(it.data.size for it in weights),
        weight_bytes=sum(it.get_byte_size() for it in weights),
        flops=flops,
        flops_unknown=unknown,
        metadata={"flops_at": flops_at} if flops_at else {},
    )
