"""The graphs inside the nodes of an ONNX graph, and the names of what they hold.

A tensor or node of a body is named by its path: `NODE/then/NAME`, `NODE/else/NAME`,
`NODE/body/NAME`; NODE is the node's name, or its type and its number among those of that type, in
the order of what they give. In a body within a body the paths are nested.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines.onnx_file import fields
from lar.engines.onnx_file.fields import Message, Node
from lar.graphs.origins import ModelOperator

LOOPS = frozenset({"Loop", "Scan"})
CONTROL_FLOW = LOOPS | {"If"}
BRANCHES = {"then_branch": "then", "else_branch": "else"}
Names = ChainMap[str, str]
BODY_INPUT = "BodyInput"  # the type of the operator that gives what a body is fed with


class Body(NamedTuple):
    """A graph inside a node: all names in it begin with `path`; `around` has the types of the nodes
    around it, from the outermost on."""

    path: str
    graph: Message
    around: tuple[str, ...] = ()


class Operator(NamedTuple):
    """A node with the names by which a dump knows it and its tensors, its message, and the graph
    that holds it; the message of an operator that feeds a body is empty."""

    node: Node
    message: Message
    body: Body


def name_by_paths(graph: Message, path: str = "", outside: Names | None = None) -> None:
    """Give all that the bodies within a graph hold the names of a dump, which no other graph has.

    `outside` has the names in a dump of what the graphs around this one hold.
    """
    names = (outside or ChainMap()).new_child({it: path + it for it in names_given(graph)})
    name_control_flow(graph)
    for node in graph.node:
        flows = node.op_type in CONTROL_FLOW
        node.name = node.name and path + node.name
        for each in node.attribute:
            if "g" in each:
                # Others have names for what their graphs take and give.
                inner = path_in(node, each.name) if flows else ""
                name_by_paths(each.g, inner, names)
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
    for each in (*graph.input, *graph.output, *fields.held_in(graph)):
        each.name = names.get(each.name, each.name)
    if path:
        del graph.value_info[:]


def path_in(node: Message, attribute: str) -> str:
    """Return the beginning of all names in a graph within a node of control flow."""
    return f"{node.name}/{BRANCHES.get(attribute, attribute)}/"


def name_control_flow(graph: Message) -> None:
    """Give nodes of control flow names where they have none, or one that is taken: an engine may
    change the order of nodes, but not the names of tensors."""
    nodes = (node for node in graph.node if node.op_type in CONTROL_FLOW)
    counts, taken = Counter[str](), set[str]()
    for node in sorted(nodes, key=lambda node: [*node.output]):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{counts[node.op_type]}"
        counts[node.op_type] += 1
        taken.add(node.name)


def bodies_in(outer: Body) -> Iterator[tuple[Message, list[Body]]]:
    """Yield the nodes of a graph, each of control flow with the graphs right inside it."""
    for node in outer.graph.node:
        around, flows = (*outer.around, node.op_type), node.op_type in CONTROL_FLOW
        inner = [each for each in node.attribute if flows and "g" in each]
        yield node, [Body(path_in(node, each.name), each.g, around) for each in inner]


def open_operators(path: Path) -> tuple[Message, list[Operator]]:
    """Return the graph of a model file, named by paths, and its operators.

    Raises:
        ValueError, OSError: it cannot be read, or is damaged.
    """
    graph = fields.open_model(path).graph
    name_by_paths(graph)
    return graph, [*operators_in(Body("", graph))]


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return the operators of a model file, and one for each input, as `Engine.read_operators`."""
    graph, operators = open_operators(path)
    held = {each.name for each in graph.initializer}
    fed = (each.name for each in graph.input if each.name not in held)
    nodes = (each.node for each in operators)
    return (
        *(ModelOperator("Input", name, (), (name,)) for name in fed),
        *(ModelOperator(it.operator, it.name, it.inputs, it.outputs) for it in nodes),
    )


def operators_in(graph: Body, outside: frozenset[str] = frozenset()) -> Iterator[Operator]:
    """Yield the operators of a graph and of its bodies, each behind what gives its inputs.

    All must be named by paths. A node with bodies takes its inputs, then the tensors that its
    bodies take from around it, then their results. Each input of a body comes from an operator of
    its own, which takes what the first iteration is fed with. `outside` are the tensors of the
    graphs around this one, without weights.
    """
    weights = {each.name for each in fields.held_in(graph.graph)}
    known = outside | {*names_given(graph.graph)} - weights
    for node, bodies in bodies_in(graph):
        taken, results = tuple(node.input), list[str]()
        inside = known.intersection(names_taken(node)).difference(taken)
        for body in bodies:
            # The leading inputs of Scan before opset 9, and of others, are not the body's.
            fed = zip(reversed(body.graph.input), reversed(taken), strict=False)
            for each, source in reversed([*fed]):
                inner = Node(each.name, BODY_INPUT, "", (source,), (each.name,))
                yield Operator(inner, Message("Node"), body)
            yield from operators_in(body, known)
            results += [each.name for each in body.graph.output]
        name = node.name or (graph.path and graph.path + node.op_type)
        inputs = (*taken, *sorted(inside), *results)
        seen = Node(name, node.op_type, node.domain, inputs, tuple(node.output))
        yield Operator(seen, node, graph)


def names_given(graph: Message) -> Iterator[str]:
    """Yield the names of the tensors that a graph itself holds."""
    yield from (each.name for each in (*graph.input, *fields.held_in(graph)))
    yield from (name for node in graph.node for name in node.output if name)


def names_taken(node: Message) -> Iterator[str]:
    """Yield the tensors that a node takes, also those that graphs inside it take from outside."""
    yield from filter(None, node.input)
    for graph in fields.graphs_of(node):
        own = {*names_given(graph)}
        inside = [name for inner in graph.node for name in names_taken(inner)]
        # A branch may hand out a tensor from around it.
        inside += [output.name for output in graph.output]
        yield from (name for name in inside if name not in own)


def parameters_of(node: Message) -> dict[str, Any]:
    """Return the attributes of a node that are numbers, texts or lists of numbers."""
    return {
        name: value
        for name, value in fields.attributes_of(node).items()
        if isinstance(value, str)
        or all(isinstance(it, (int, float)) for it in (value if type(value) is list else [value]))
    }
