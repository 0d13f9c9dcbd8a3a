"""The operators of a profile: the nodes that ONNX Runtime has run, and what is known of them.

The engine's profile gives each node's name and the shapes that it had in the run, but neither the
weights that were rearranged when the model was loaded nor the attributes. The optimised model has
both. Where both have the same operators in the same order, they are the same nodes; else those of
the same name are. Nodes without a name are called `TYPE_INDEX` in the profile, and stand in both
in the order of their indices; names of reorders say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

from lar.engines.flops import Shape, flops_of
from lar.engines.onnxruntime.optimized_graph import BLOCKED_NAME, GraphNode, OptimizedGraph
from lar.engines.onnxruntime.profile_file import TYPES, RawEvent, RawProfile, tensors_in
from lar.records.profile import ProfiledOperator, TensorFact

NodeKey = tuple[str, str, str]
Listed = list[tuple[str, tuple[int, ...]]]

BYTES = dict(TYPES.values())
ELEMENT_TYPES = {name: dtype for name, (dtype, _) in TYPES.items()}
# Of torch's exporter, `/layer1/conv/Conv`; else the path of the weights or of the node.
SCOPE = re.compile(r"/?(.+)/[^/]+")
DOTTED = re.compile(r"(\w+(?:\.\w+)*)\.\w+")


# Names that are given anew in each session, to other nodes.
REORDER = re.compile(r"Reorder(Input|Output)(_token_\d+)?")


class OperatorTable:
    """The operators of a profile, one for each node and for each shapes that it had."""

    def __init__(self, raw: RawProfile, graph: OptimizedGraph | None) -> None:
        self.graph = graph or OptimizedGraph()
        self.operators: list[ProfiledOperator] = []
        self.nodes: list[GraphNode | None] = []
        self._nodes = match_nodes(raw, self.graph)
        self._places: dict[tuple[object, ...], int] = {}
        self._ids: dict[str, int] = defaultdict(int)

    def place_of(self, event: RawEvent) -> int:
        """Return the index of an execution's operator."""
        shapes = bytes(event.args.input_type_shape), bytes(event.args.output_type_shape)
        key = (*key_of(event), *shapes)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.operators)
            node = self._nodes.get(key_of(event))
            self.operators.append(self.operator_of(event, node))
            self.nodes.append(node)
        return place

    def operator_of(self, event: RawEvent, node: GraphNode | None) -> ProfiledOperator:
        args = event.args
        self._ids[args.node_index] += 1
        again = self._ids[args.node_index]
        given, made = tensors_in(args.input_type_shape), tensors_in(args.output_type_shape)
        inputs = input_facts(node, given, self.graph) if node else None
        outputs = output_facts(node, made, self.graph) if node else None
        known = inputs is not None and outputs is not None
        flops, size_bytes = None, None
        if node and inputs is not None and outputs is not None:
            flops = flops_of_node(node, {**inputs, **outputs}, self.graph)
            size_bytes = bytes_of((*inputs.values(), *outputs.values()))
        return ProfiledOperator(
            id=args.node_index if again == 1 else f"{args.node_index}.{again}",
            type=args.op_name,
            name=event.node,
            module=module_of(event.node, node, self.graph.constants),
            inputs=tuple(inputs.values()) if known and inputs else facts_of(given),
            outputs=tuple(outputs.values()) if known and outputs else facts_of(made),
            parameters=node.parameters if node else {},
            flops=flops,
            size_bytes=size_bytes,
            provider=args.provider,
            source="none" if flops is None and size_bytes is None else "derived",
        )


def key_of(event: RawEvent) -> NodeKey:
    return event.node, event.args.op_name, event.args.node_index


def match_nodes(raw: RawProfile, graph: OptimizedGraph) -> dict[NodeKey, GraphNode]:
    """Return the nodes of the events, without those that are not sure."""
    first = [node.event for node in raw.runs[0].nodes] if raw.runs else []
    if len(first) == len(graph.nodes) and all(map(is_likely, first, graph.nodes)):
        return {key_of(event): node for event, node in zip(first, graph.nodes, strict=True)}
    names = {node.proto.name for node in graph.nodes}
    alike: dict[tuple[str, str], dict[NodeKey, RawEvent]] = defaultdict(dict)
    for run in raw.runs:
        for event, _ in run.nodes:
            unnamed = has_made_up_name(event) and event.node not in names
            alike[event.args.op_name, "" if unnamed else event.node][key_of(event)] = event
    nodes: dict[tuple[str, str], list[GraphNode]] = defaultdict(list)
    for node in graph.nodes:
        nodes[node.proto.op_type, node.proto.name].append(node)
    found: dict[NodeKey, GraphNode] = {}
    for name, events in alike.items():
        if len(events) == len(nodes[name]) and not REORDER.fullmatch(name[1]):
            ordered = sorted(events.values(), key=lambda event: int(event.args.node_index or 0))
            found.update(zip(map(key_of, ordered), nodes[name], strict=True))
    return found


def is_likely(event: RawEvent, node: GraphNode) -> bool:
    """Tell whether a node may be that of an event, by what does not differ between sessions."""
    proto = node.proto
    if event.args.op_name != proto.op_type:
        return False
    free = REORDER.fullmatch(event.node) if proto.name else has_made_up_name(event)
    return bool(free) or event.node == proto.name


def has_made_up_name(event: RawEvent) -> bool:
    return event.node == f"{event.args.op_name}_{event.args.node_index}"


def input_facts(
    node: GraphNode, listed: Listed, graph: OptimizedGraph
) -> dict[str, TensorFact] | None:
    """Return a node's inputs by name, None where they are not those that the profile lists.

    A constant is there only if it was not rearranged when the model was loaded.
    """
    facts, at = {}, 0
    for name in node.inputs:
        constant = graph.constants.get(name)
        told = listed[at] if at < len(listed) else None
        if constant is not None and (told is None or fact_of(told) != constant):
            facts[name] = constant
            continue
        if told is None:
            return None
        facts[name] = fact_of(told, graph.layout if name in graph.blocked else "")
        at += 1
    return facts if at == len(listed) else None


def output_facts(
    node: GraphNode, listed: Listed, graph: OptimizedGraph
) -> dict[str, TensorFact] | None:
    """Return a node's outputs by name, None where they are not those that the profile lists."""
    if len(node.outputs) != len(listed):
        return None
    return {
        name: fact_of(told, graph.layout if name in graph.blocked else "")
        for name, told in zip(node.outputs, listed, strict=True)
    }


def fact_of(told: tuple[str, tuple[int, ...]], layout: str = "") -> TensorFact:
    name, shape = told
    return TensorFact(shape, ELEMENT_TYPES.get(name, name), layout)


def facts_of(listed: Listed) -> tuple[TensorFact, ...]:
    return tuple(map(fact_of, listed))


def flops_of_node(
    node: GraphNode, facts: Mapping[str, TensorFact], graph: OptimizedGraph
) -> int | None:
    """Return a node's operations (`lar.engines.flops`), None where they are unknown."""
    from lar.engines.onnxruntime.model_file import operation_of

    shapes: dict[str, Shape] = {name: fact.shape for name, fact in facts.items()}
    for name in facts.keys() & graph.channels.keys():
        batch, _, *sizes = facts[name].shape
        shapes[name] = (batch, graph.channels[name], *sizes)
    shapes.update({name: graph.filters[name] for name in facts.keys() & graph.filters.keys()})
    return flops_of(operation_of(node.proto, shapes))


def bytes_of(facts: Iterable[TensorFact]) -> int | None:
    """Return how many bytes tensors have, None where the size of an element is unknown."""
    total = 0
    for fact in facts:
        if fact.dtype not in BYTES:
            return None
        total += prod(fact.shape) * BYTES[fact.dtype]
    return total


def module_of(name: str, node: GraphNode | None, constants: Mapping[str, TensorFact]) -> str:
    """Return the path of the layer, where names tell it: of the weights, else of the node."""
    weights = [each for each in node.inputs if each in constants] if node else []
    for each in (name.removesuffix(BLOCKED_NAME), *weights):
        if found := SCOPE.fullmatch(each):
            return found[1]
    for each in (*weights, name.removesuffix(BLOCKED_NAME)):
        if found := DOTTED.fullmatch(each):
            return found[1]
    return ""
