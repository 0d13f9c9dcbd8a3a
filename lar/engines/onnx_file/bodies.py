"""Reads the graphs inside nodes of an ONNX graph (bodies), and gives their tensors unique names.

A tensor or node of a body is named by its path, which is `NODE/then/NAME`, `NODE/else/NAME` or
`NODE/body/NAME`. In a path, NODE is the name of the node that contains the body. If the node that
contains the body has no name, NODE is the type of the node and a number, such as Loop_0. The number
in a name such as Loop_0 is the node's position among all nodes of its type, sorted by the names of
their outputs. If a body is inside another body, the path of the inner body begins with the path of
the outer body.
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
BODY_INPUT = "BodyInput"  # the type of the operator that stands for an input of a body


class Body(NamedTuple):
    """A graph inside a node; the names of all its tensors and nodes begin with `path`.

    `around` has the types of the nodes that contain the graph, the outermost node first.
    """

    path: str
    graph: Message
    around: tuple[str, ...] = ()


class Operator(NamedTuple):
    """A node, with the names that the node and its tensors have in a dump.

    `message` is the node's message in the file, and `body` is the graph that contains the node. If
    an operator stands for an input of a body, its `message` is empty.
    """

    node: Node
    message: Message
    body: Body


def name_by_paths(graph: Message, path: str = "", outside: Names | None = None) -> None:
    """Rename all tensors and nodes in the bodies of a graph to their paths, which are unique.

    `outside` has the new names of the tensors in the graphs around this graph.
    """
    names = (outside or ChainMap()).new_child({it: path + it for it in names_given(graph)})
    name_control_flow(graph)
    for node in graph.node:
        flows = node.op_type in CONTROL_FLOW
        node.name = node.name and path + node.name
        for each in node.attribute:
            if "g" in each:
                # Only the graphs of control flow get a path.
                name_by_paths(each.g, path_in(node, each.name) if flows else "", names)
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
    for each in (*graph.input, *graph.output, *fields.held_in(graph)):
        each.name = names.get(each.name, each.name)
    if path:
        del graph.value_info[:]


def path_in(node: Message, attribute: str) -> str:
    """Return the path of a graph inside a node of control flow.

    The names of all tensors and nodes in the graph begin with this path.
    """
    return f"{node.name}/{BRANCHES.get(attribute, attribute)}/"


def name_control_flow(graph: Message) -> None:
    """Give a unique name to each node of control flow without a name, or with a repeated name.

    The names depend on the names of output tensors, not on the order of nodes, since an engine may
    change that order.
    """
    nodes = (node for node in graph.node if node.op_type in CONTROL_FLOW)
    counts, taken = Counter[str](), set[str]()
    for node in sorted(nodes, key=lambda node: [*node.output]):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{counts[node.op_type]}"
        counts[node.op_type] += 1
        taken.add(node.name)


def bodies_in(outer: Body) -> Iterator[tuple[Message, list[Body]]]:
    """Yield each node of a graph with its bodies.

    The bodies of a node of control flow are the graphs directly inside the node. A node that is not
    control flow has no bodies.
    """
    for node in outer.graph.node:
        around, flows = (*outer.around, node.op_type), node.op_type in CONTROL_FLOW
        inner = [each for each in node.attribute if flows and "g" in each]
        yield node, [Body(path_in(node, each.name), each.g, around) for each in inner]


def open_operators(path: Path) -> tuple[Message, list[Operator]]:
    """Return the graph of a model file, with names made unique by paths, and the graph's operators.

    Raises:
        ValueError, OSError: the file cannot be read, or is damaged.
    """
    graph = fields.open_model(path).graph
    name_by_paths(graph)
    return graph, [*operators_in(Body("", graph))]


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return an operator `Input` for each input of a model file, then the model's operators."""
    graph, operators = open_operators(path)
    held = {each.name for each in graph.initializer}
    fed = (each.name for each in graph.input if each.name not in held)
    nodes = (each.node for each in operators)
    return (
        *(ModelOperator("Input", name, (), (name,)) for name in fed),
        *(ModelOperator(it.operator, it.name, it.inputs, it.outputs) for it in nodes),
    )


def operators_in(graph: Body, outside: frozenset[str] = frozenset()) -> Iterator[Operator]:
    """Yield the operators of a graph and of its bodies, each after the operators of its inputs.

    Call `name_by_paths` for the graph before this function. The inputs of a node with bodies are
    the node's own inputs, then the tensors that its bodies take from outside, then the results of
    its bodies. An extra operator is yielded for each input of a body. The extra operator reads the
    node's input that feeds the body's input (in a loop, for the first iteration). The output of the
    extra operator is the body's input. `outside` has the names of the tensors of the graphs around
    this graph, without weights.
    """
    weights = {each.name for each in fields.held_in(graph.graph)}
    known = outside | {*names_given(graph.graph)} - weights
    for node, bodies in bodies_in(graph):
        taken, results = tuple(node.input), list[str]()
        inside = known.intersection(names_taken(node)).difference(taken)
        for body in bodies:
            # The last inputs of the node feed the body; its first inputs may be for the node only.
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
    """Yield the names of a graph's own tensors: inputs, weights, and outputs of its nodes."""
    yield from (each.name for each in (*graph.input, *fields.held_in(graph)))
    yield from (name for node in graph.node for name in node.output if name)


def names_taken(node: Message) -> Iterator[str]:
    """Yield the names of the tensors that a node reads, itself or in the graphs inside the node."""
    yield from filter(None, node.input)
    for graph in fields.graphs_of(node):
        own = {*names_given(graph)}
        inside = [name for inner in graph.node for name in names_taken(inner)]
        # An output of a branch may be a tensor from outside the branch.
        inside += [output.name for output in graph.output]
        yield from (name for name in inside if name not in own)


def parameters_of(node: Message) -> dict[str, Any]:
    """Return the attributes of a node that are numbers, strings or lists of numbers."""
    return {
        name: value
        for name, value in fields.attributes_of(node).items()
        if isinstance(value, str)
        or all(isinstance(it, (int, float)) for it in (value if type(value) is list else [value]))
    }
