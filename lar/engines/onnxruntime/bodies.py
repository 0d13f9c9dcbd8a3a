"""The graphs inside the nodes of an ONNX graph, and the names of what they hold.

A tensor or node of a body is named by its path: `NODE/then/NAME`, `NODE/else/NAME`,
`NODE/body/NAME`; NODE is the node's name, or its type and its number among those of that type. In a
body within a body the paths are nested.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from lar.engines.onnxruntime.model_fields import Node

BRANCHES = {"then_branch": "then", "else_branch": "else"}
BODY_INPUT = "BodyInput"  # the type of the operator that gives what a body is fed with


class Body(NamedTuple):
    """A graph inside a node: `path` is what the names of all that it holds begin with."""

    path: str
    graph: Any


class Operator(NamedTuple):
    """A node with the names by which a dump knows it and its tensors, `path` that of the graph
    that holds it, and its message; that of an operator that feeds a body is empty."""

    node: Node
    path: str
    proto: Any


def bodies_in(graph: Any, path: str = "") -> Iterator[tuple[Any, list[Body]]]:
    """Yield the nodes of a graph, each with the graphs right inside it; `path` is that of the
    graph."""
    counts, taken = Counter[str](), set[str]()
    for node in graph.node:
        number = counts[node.op_type]
        counts[node.op_type] += 1
        name = node.name
        if not name or name in taken:
            name = f"{node.op_type}_{number}"
        taken.add(name)
        yield (
            node,
            [
                Body(f"{path}{name}/{BRANCHES.get(each.name, each.name)}/", each.g)
                for each in node.attribute
                if each.HasField("g")
            ],
        )


def operators_in(
    graph: Any, path: str = "", outside: ChainMap[str, str] | None = None
) -> Iterator[Operator]:
    """Yield the operators of a graph and of its bodies, each behind what gives its inputs.

    A node with bodies takes their results too, behind its inputs. What a body is fed with is given
    by an operator of its own, whose inputs are what the first iteration is fed with. `outside` has
    the names in a dump of what the graphs around this one hold.
    """
    names = (outside or ChainMap()).new_child({name: path + name for name in names_given(graph)})

    def named(tensors: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in tensors)

    for node, bodies in bodies_in(graph, path):
        taken, results = named(node.input), list[str]()
        for body in bodies:
            # The leading inputs of Scan before opset 9, and of others, are not the body's.
            fed = zip(reversed(body.graph.input), reversed(taken), strict=False)
            for each, source in reversed([*fed]):
                name = body.path + each.name
                inner = Node(name, BODY_INPUT, "", (source,), (name,))
                yield Operator(inner, body.path, type(node)())
            yield from operators_in(body.graph, body.path, names)
            results += [body.path + each.name for each in body.graph.output]
        known = Node(
            path + node.name if node.name else "",
            node.op_type,
            node.domain,
            (*taken, *results),
            named(node.output),
        )
        yield Operator(known, path, node)


def names_given(graph: Any) -> Iterator[str]:
    """Yield the names of the tensors that a graph itself holds."""
    yield from (each.name for each in chain(graph.input, graph.initializer))
    yield from (each.values.name for each in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)
