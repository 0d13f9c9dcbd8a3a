"""A graph computed in float64, operator by operator, each tensor dropped after its last use.

What cannot be computed is `NoTruth`, and so is what is computed from it; the rest goes on. Graphs
within operators are graphs here too, which If, Loop and Scan run.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from lar.engines.onnx_file import control_flow
from lar.engines.onnx_file.bodies import Body, bodies_in, name_by_paths, names_taken
from lar.engines.onnx_file.control_flow import NoTruth, NoTruthHere, Values, Visit
from lar.engines.onnx_file.fields import SCHEMA, Message, Node, attributes_of, graphs_in, type_name
from lar.engines.onnx_file.tensors import array_of, dense_of, dtype_of
from lar.engines.reference import operators  # noqa: F401
from lar.engines.reference.implementations import (
    Array,
    Call,
    Function,
    check_truth,
    implementation_of,
    widened,
)
from lar.errors import first_line


class Meaning(NamedTuple):
    """The meaning of operators' names: opsets by domain, and the functions of the model; and the
    folder of the model, where weights stand in files of their own."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Message]
    folder: Path


class Graph:
    """The graph of a model, a body within an operator, or a function, ready to be run."""

    def __init__(self, body: Body, meaning: Meaning) -> None:
        self.body = body
        graph = body.graph
        sort_nodes(graph)
        self.inputs: Sequence[str] = [getattr(each, "name", each) for each in graph.input]
        self.outputs: Sequence[str] = [getattr(each, "name", each) for each in graph.output]
        self.weights = {name: widened(it) for name, it in weights_in(graph, meaning.folder)}
        self.steps = [Step(node, bodies, meaning) for node, bodies in bodies_in(body)]
        self.spent = names_after_last_use(graph.node, {*self.outputs, ""})

    def run(
        self, fed: Mapping[str, Any], visit: Visit | None = None, around: Values | None = None
    ) -> list[Any]:
        """Compute the outputs from inputs and tensors around the graph; `visit` is given what each
        operator gives, as soon as it is known."""
        values = (around or Values()).new_child({**self.weights, **fed})
        for step, spent in zip(self.steps, self.spent, strict=True):
            found = step.compute(values, visit)
            values.update(zip(step.node.output, found, strict=True))
            if visit is not None:
                visit(step.seen, found)
            del found
            for name in spent:
                values.pop(name, None)
        return [take(values, name) for name in self.outputs]


class Step:
    """A node of a graph; the function that computes it is found when it is first run."""

    def __init__(self, node: Message, bodies: Sequence[Body], meaning: Meaning) -> None:
        self.node = node
        self.meaning = meaning
        node.domain = domain_of(node)
        self.seen = Node(node.name, node.op_type, node.domain, (), tuple(node.output))
        self.bodies = [Graph(each, meaning) for each in bodies]
        self.function: Function | None = None

    @property
    def title(self) -> str:
        """The operator with its domain and opset."""
        domain = f"{self.node.domain}." if self.node.domain else ""
        version = self.meaning.opsets.get(self.node.domain, "unknown")
        return f"{domain}{self.node.op_type} of opset {version}"

    def compute(self, values: Values, visit: Visit | None) -> list[Any]:
        """Return what the node gives; for a result without truth, the operator where that began."""
        taken = [take(values, name) for name in self.node.input]
        unknown = next((each for each in taken if isinstance(each, NoTruth)), None)
        if unknown is not None:
            return [unknown] * len(self.node.output)
        found, says = list[Any](), "it does not give this output"
        try:
            with np.errstate(all="ignore"):  # NaN and infinities are results like others
                found = [widened(each) for each in self.results(taken, values, visit)]
        except MemoryError:
            raise
        except NoTruthHere as error:
            says = str(error)
        except Exception as error:  # implementations have no one kind for these
            shapes = ", ".join(shape_of(each) for each in taken if each is not None)
            says = f"with {shapes or 'no input'}: {first_line(error.__cause__ or error)}"
        for name in self.seen.outputs[len(found) :]:
            found.append(NoTruth(self.title, says, name))
        return found[: len(self.node.output)]

    def results(self, taken: Sequence[Any], values: Values, visit: Visit | None) -> Sequence[Any]:
        """Return what the operator gives, as it gives it.

        Raises:
            NoTruthHere: nothing computes it.
        """
        node, opset = self.node, self.meaning.opsets.get(self.node.domain, 0)
        call = Call(node.op_type, taken, attributes_of(node), opset, len(node.output))
        check_truth(call)
        if self.bodies:
            return run_bodies(call, self.bodies, values, visit)
        self.function = self.function or self.find_function(call)
        results = self.function(call)
        return results if isinstance(results, tuple) else [results]

    def find_function(self, call: Call) -> Function:
        """Return the function that computes the node.

        Raises:
            NoTruthHere: there is none.
        """
        node = self.node
        own = self.meaning.functions.get((node.domain, node.op_type))
        function = None if own else implementation_of(node, call.opset)
        if function is not None:
            return function
        made = own or function_of_standard(node, call)
        attributes = {each.name: each for each in (*made.attribute_proto, *node.attribute)}
        body = with_attributes(made, attributes)
        graph = Graph(Body("", body), self.meaning._replace(opsets=opsets_of(made)))
        return lambda call: tuple(graph.run(dict(zip(graph.inputs, call.inputs, strict=False))))


def domain_of(message: Message) -> str:
    """Return the domain of a node or an opset, ONNX's own by its empty name alone."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def opsets_of(message: Message) -> dict[str, int]:
    """Return the opsets of a model or a function, by domain."""
    return {domain_of(each): each.version for each in message.opset_import}


def run_bodies(
    call: Call, bodies: Sequence[Graph], values: Values, visit: Visit | None
) -> Sequence[Any]:
    """Compute an operator whose bodies take tensors from around them out of `values`."""
    if call.type == "If":
        return control_flow.branch_taken(call.inputs, bodies).run({}, visit, values)
    rounds = control_flow.run_rounds(
        call.type, call.inputs, call.attributes, bodies[0], values, visit
    )
    kinds = [each.type.tensor_type for each in bodies[0].body.graph.output]
    kinds = kinds[(call.type == "Loop") + len(rounds.states) :]
    # Without an iteration, results are known up to the first whose shape the body leaves open.
    none = [() for _ in takewhile(lambda kind: "shape" in kind, kinds)]
    pieces = [*zip(*rounds.pieces, strict=True)] or none
    ways = control_flow.ways_of(call.attributes, "output", len(pieces))
    return [*rounds.states, *map(joined, pieces, kinds, *ways)]


def joined(pieces: Sequence[Any], kind: Message, axis: int, backwards: int) -> Any:
    """Return a tensor's values of all iterations side by side on an axis, the last one first if the
    axis goes backwards; `kind` is the type that the body states."""
    lacking = next((each for each in pieces if isinstance(each, NoTruth)), None)
    if lacking is not None:
        return lacking
    shape = (0, *(each.dim_value for each in kind.shape.dim))
    array = np.stack(pieces) if pieces else np.zeros(shape, dtype_of(type_name(kind.elem_type)))
    return np.moveaxis(array[::-1] if backwards else array, 0, axis)


def take(values: Values, name: str) -> Any:
    """Return a value that a node takes, None for one that is left out."""
    missing = NoTruth("the graph", f"nothing gives {name}", name)
    return values.get(name, missing) if name else None


def shape_of(value: Any) -> str:
    """Return the shape of an array as text, or the name of another value's type."""
    return str(value.shape) if isinstance(value, np.ndarray) else type(value).__name__


def function_of_standard(node: Message, call: Call) -> Message:
    """Return the function by which the standard defines an operator through other operators.

    Raises:
        NoTruthHere: it has none for that.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, call.opset, node.domain)
    except onnx.defs.SchemaError:
        raise NoTruthHere("") from None
    if schema.has_function:
        content = schema.function_body.SerializeToString()
    elif schema.has_context_dependent_function:
        types = [type_of(each).SerializeToString() for each in call.inputs]
        content = schema.get_context_dependent_function(node.encode(), types)
    else:
        raise NoTruthHere("")
    found = Message("Function", content)
    defaults = (each.default_value for each in schema.attributes.values())
    stated = [Message("Attribute", each.SerializeToString()) for each in defaults if each.type]
    found.attribute_proto = [*stated, *found.attribute_proto]
    return found


def type_of(value: Any) -> Any:
    """Return the ONNX type of an array; an empty one for an input that is left out."""
    if value is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def with_attributes(function: Message, attributes: Mapping[str, Message]) -> Message:
    """Return a function whose nodes have the attributes that it is called with."""
    copy = Message("Function", function.encode())
    for graph in graphs_in(copy):
        for node in graph.node:
            node.attribute = [
                Message("Attribute", attributes[ref].encode(), name=it.name) if ref else it
                for it in node.attribute
                if not (ref := it.ref_attr_name) or ref in attributes
            ]
    return copy


def sort_nodes(graph: Message) -> None:
    """Sort the nodes of a graph, so that each stands behind those that give its inputs."""
    nodes = graph.node
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in names_taken(node) if name in makers} for node in nodes]
    if any(max(needed, default=-1) >= at for at, needed in enumerate(waits)):
        order = graphlib.TopologicalSorter(dict(enumerate(waits))).static_order()
        graph.node = [nodes[at] for at in order]


def names_after_last_use(nodes: Sequence[Message], kept: set[str]) -> list[list[str]]:
    """Return for each node the tensors that no node after it takes, without those to be kept."""
    numbered = enumerate(nodes)
    last = {it: at for at, node in numbered for it in (*node.output, *names_taken(node))}
    spent: list[list[str]] = [[] for _ in nodes]
    for name in last.keys() - kept:
        spent[last[name]].append(name)
    return spent


def weights_in(graph: Message, folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield the weights that stand in a graph; a function has none."""
    if "initializer" in SCHEMA[graph.kind]:
        sparse = (dense_of(each, folder) for each in graph.sparse_initializer)
        for tensor in (*graph.initializer, *sparse):
            yield tensor.name, array_of(tensor, folder)


def evaluator_of(model: Message, folder: Path) -> Graph:
    """Return a model, ready to be computed."""
    name_by_paths(model.graph)
    functions = {(domain_of(each), each.name): each for each in model.functions}
    return Graph(Body("", model.graph), Meaning(opsets_of(model), functions, folder))
