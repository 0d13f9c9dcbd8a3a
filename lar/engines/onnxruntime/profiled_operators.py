"""The operators of a profile of ONNX Runtime, from its events and from the optimised graph.

The profile gives each node's name and the shapes that it had in the run, but neither the weights
that were rearranged when the model was loaded nor the attributes. The optimised model, which ONNX
Runtime saves, has both. Where both have the same operators in the same order, they are the same
nodes; else those of the same name are. Nodes without a name are called `TYPE_INDEX` in the profile,
and stand in both in the order of their indices; names of reorders say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec

from lar.engines.flops import Shape, flops_of
from lar.engines.onnx_file.fields import Message, bits_of, graphs_in, node_of, type_name
from lar.engines.onnxruntime.kernel_kinds import kernel_kind
from lar.engines.onnxruntime.profile_file import NodeKey, RawEvent, RawProfile
from lar.records.profile import Count, ProfiledOperator, TensorFact

# The engine's names of element types that NumPy calls otherwise.
OTHER_NAMES = {"float": "float32", "double": "float64"}
TENSORS = msgspec.json.Decoder(list[dict[str, tuple[Count, ...]]])

BLOCKED_DOMAIN = "com.microsoft.nchwc"
BLOCKED_NAME = "_nchwc"  # the blocked layout's optimiser puts it behind a node's name
# Of torch's exporter, `/layer1/conv/Conv`; else the path of the weights or of the node.
SCOPE = re.compile(r"/?(.+)/[^/]+")
DOTTED = re.compile(r"(\w+(?:\.\w+)*)\.\w+")
# Names that are given anew in each session, to other nodes.
REORDER = re.compile(r"Reorder(Input|Output)(_token_\d+)?")

# Operators whose output is their first input, seen in another shape.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# Operators that run others, of which each has its own bytes.
RUNNING_OTHERS = frozenset({"If", "Loop", "Scan"})
# The inputs of which an operator reads no more than it gives: tables to pick from, and tensors of
# which it asks for the shape alone.
PICKED_FROM = {
    **dict.fromkeys(
        ("Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "Slice"), (0,)
    ),
    **dict.fromkeys(("Shape", "Size"), (0,)),
    **dict.fromkeys(("EmbedLayerNormalization", "QEmbedLayerNormalization"), (2, 3, 4)),
}


class GraphNode(NamedTuple):
    """A node of the optimised graph, and its attributes that are plain."""

    message: Message
    parameters: dict[str, Any]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(filter(None, self.message.input))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(filter(None, self.message.output))


class OptimizedGraph(NamedTuple):
    """The optimised graph: its nodes, those inside control flow too, and what is constant in it.

    `blocked` names the tensors in the blocked layout, which is called `layout`. There channels are
    filled up to whole blocks: `filters` has the shapes of weights, and `channels` the numbers of
    channels, that the network asks for, as far as they may be fewer; None is for unknown.
    """

    nodes: tuple[GraphNode, ...] = ()
    constants: Mapping[str, TensorFact] = {}
    outputs: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    layout: str = ""
    filters: Mapping[str, tuple[int, ...]] = {}
    channels: Mapping[str, int | None] = {}


def read_graph(content: bytes, block: int = 1, plain: bytes = b"") -> OptimizedGraph:
    """Return the graph of an optimised model.

    Of one in the blocked layout, `block` is how many channels a block has, and `plain` the model
    with little optimisation, without the layout.

    Raises:
        ValueError: it is not a model.
    """
    from lar.engines.onnx_file.bodies import parameters_of
    from lar.engines.onnxruntime.blocked_layout import blocked_tensors

    model = Message("Model", content)
    graphs = [*graphs_in(model.graph)]
    nodes = [node for graph in graphs for node in graph.node]
    constants = {
        tensor.name: TensorFact(tuple(tensor.dims), type_name(tensor.data_type))
        for graph in graphs
        for tensor in graph.initializer
    }
    filters, channels = unfilled(model.graph, Message("Model", plain).graph)
    return OptimizedGraph(
        nodes=tuple(GraphNode(node, parameters_of(node)) for node in nodes),
        constants=constants,
        outputs=frozenset(info.name for info in model.graph.output),
        blocked=frozenset(blocked_tensors(map(node_of, model.graph.node))),
        layout=f"NCHW{block}c",
        filters=filters,
        channels=channels,
    )


def unfilled(
    graph: Message, plain: Message
) -> tuple[dict[str, tuple[int, ...]], dict[str, int | None]]:
    """Return the shapes of weights and the numbers of channels without the filling of blocks.

    A blocked convolution is named by the output of the one that it was made of, or of what was
    fused into that. Other operators leave the channels as they are, up to the reorder that takes
    the filling away.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in plain.initializer}
    filled = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    makers = {name: node for node in plain.node for name in node.output if name}
    filters: dict[str, tuple[int, ...]] = {}
    channels: dict[str, int | None] = {}
    for node in graph.node:
        counts = [channels[name] for name in node.input if name in channels][:1]
        if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv":
            maker = makers.get(node.name.removesuffix(BLOCKED_NAME))
            while maker is not None and maker.op_type != "Conv":
                maker = makers.get(maker.input[0]) if maker.input else None
            shape = shapes.get(maker.input[1]) if maker is not None else None
            if shape and not fits(shape, filled.get(node.input[1], ())):
                shape = None
            counts = [shape[0] if shape else None]
            if shape:
                filters[node.input[1]] = shape
        if counts and node.op_type != "ReorderOutput":
            channels.update(dict.fromkeys(filter(None, node.output), counts[0]))
    return filters, channels


def fits(shape: tuple[int, ...], filled: tuple[int, ...]) -> bool:
    """Return whether weights may have been padded to another shape: in their channels alone."""
    return (
        len(shape) == len(filled)
        and shape[2:] == filled[2:]
        and all(map(int.__le__, shape[:2], filled[:2]))
    )


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
        place = self._places.setdefault(event.fingerprint, len(self.operators))
        if place == len(self.operators):
            node = self._nodes.get(event.key)
            self.operators.append(self.operator_of(event, node))
            self.nodes.append(node)
        return place

    def operator_of(self, event: RawEvent, node: GraphNode | None) -> ProfiledOperator:
        args, constants = event.args, self.graph.constants
        self._ids[args.node_index] += 1
        again = self._ids[args.node_index]
        given, made = facts_in(args.input_type_shape), facts_in(args.output_type_shape)
        known: dict[str, Any] = {}
        if node is not None:
            known = {"parameters": node.parameters, "reads": node.inputs, "writes": node.outputs}
            known["weights"] = tuple(name for name in node.inputs if name in constants)
            if named := self.named_facts(node, given, made):
                given, made = (tuple(facts.values()) for facts in named)
                known |= self.work_of(node, *named)
        return ProfiledOperator(
            id=args.node_index if again == 1 else f"{args.node_index}.{again}",
            type=args.op_name,
            name=event.node,
            module=module_of(event.node, node, constants),
            inputs=given,
            outputs=made,
            provider=args.provider,
            **known,
        )

    def named_facts(
        self, node: GraphNode, given: Sequence[TensorFact], made: Sequence[TensorFact]
    ) -> tuple[dict[str, TensorFact], dict[str, TensorFact]] | None:
        """Return a node's inputs and outputs by name, None where they are not those listed.

        A constant is listed only if it was not rearranged when the model was loaded.
        """
        inputs, rest = dict[str, TensorFact](), [*given]
        for name in node.inputs:
            constant = self.graph.constants.get(name)
            if constant is not None and (not rest or rest[0] != constant):
                inputs[name] = constant
            elif rest:
                inputs[name] = self.in_its_layout(name, rest.pop(0))
            else:
                return None
        if rest or len(node.outputs) != len(made):
            return None
        pairs = zip(node.outputs, made, strict=True)
        return inputs, {name: self.in_its_layout(name, fact) for name, fact in pairs}

    def in_its_layout(self, name: str, fact: TensorFact) -> TensorFact:
        if name not in self.graph.blocked:
            return fact
        return msgspec.structs.replace(fact, layout=self.graph.layout)

    def work_of(
        self, node: GraphNode, inputs: dict[str, TensorFact], outputs: dict[str, TensorFact]
    ) -> dict[str, Any]:
        """Return the FLOPs and bytes of a node, and the kind of its kernel."""
        facts, graph = {**inputs, **outputs}, self.graph
        flops = flops_of_node(node, facts, graph)
        size_bytes = moved_bytes_of(node, inputs, outputs, graph)
        return {
            "flops": flops,
            "size_bytes": size_bytes,
            "source": "none" if flops is None and size_bytes is None else "derived",
            "algorithm": kernel_kind(
                node.message, node.parameters, facts, graph.constants, graph.filters
            ),
        }


def facts_in(raw: msgspec.Raw) -> tuple[TensorFact, ...]:
    """Return an event's inputs or outputs. Those that are not tensors, are left out, or have been
    rearranged beforehand are not listed.

    Raises:
        msgspec.MsgspecError: they are not written as in the versions that lar knows.
    """
    pairs = (pair for each in TENSORS.decode(raw) for pair in each.items())
    return tuple(TensorFact(shape, OTHER_NAMES.get(name, name)) for name, shape in pairs)


def match_nodes(raw: RawProfile, graph: OptimizedGraph) -> dict[NodeKey, GraphNode]:
    """Return the nodes of the events, without those that are not sure."""
    first = [node.event for node in raw.runs[0].nodes] if raw.runs else []
    if len(first) == len(graph.nodes) and all(map(is_likely, first, graph.nodes)):
        return {event.key: node for event, node in zip(first, graph.nodes, strict=True)}
    names = {node.message.name for node in graph.nodes}
    alike: dict[tuple[str, str], dict[NodeKey, RawEvent]] = defaultdict(dict)
    for run in raw.runs:
        for event, _ in run.nodes:
            unnamed = has_made_up_name(event) and event.node not in names
            alike[event.args.op_name, "" if unnamed else event.node][event.key] = event
    nodes: dict[tuple[str, str], list[GraphNode]] = defaultdict(list)
    for node in graph.nodes:
        nodes[node.message.op_type, node.message.name].append(node)
    found: dict[NodeKey, GraphNode] = {}
    for name, events in alike.items():
        if len(events) == len(nodes[name]) and not REORDER.fullmatch(name[1]):
            ordered = sorted(events.values(), key=lambda event: int(event.args.node_index or 0))
            found.update(zip((event.key for event in ordered), nodes[name], strict=True))
    return found


def is_likely(event: RawEvent, node: GraphNode) -> bool:
    """Return whether an event may be of a node, by what does not differ between sessions."""
    message = node.message
    if event.args.op_name != message.op_type:
        return False
    free = REORDER.fullmatch(event.node) if message.name else has_made_up_name(event)
    return bool(free) or event.node == message.name


def has_made_up_name(event: RawEvent) -> bool:
    return event.node == f"{event.args.op_name}_{event.args.node_index}"


def flops_of_node(
    node: GraphNode, facts: Mapping[str, TensorFact], graph: OptimizedGraph
) -> int | None:
    """Return a node's operations (`lar.engines.flops`), None where they are unknown."""
    from lar.engines.onnx_file.contents import operation_of

    shapes: dict[str, Shape] = {name: fact.shape for name, fact in facts.items()}
    for name in facts.keys() & graph.channels.keys():
        batch, _, *sizes = facts[name].shape
        shapes[name] = (batch, graph.channels[name], *sizes)
    shapes.update({name: graph.filters[name] for name in facts.keys() & graph.filters.keys()})
    return flops_of(operation_of(node.message, shapes))


def bytes_of(facts: Iterable[TensorFact]) -> int | None:
    """Return how many bytes tensors have, None where the size of an element is unknown."""
    total = 0
    for fact in facts:
        bits = bits_of(fact.dtype)
        if bits is None:
            return None
        total += -(-prod(fact.shape) * bits // 8)
    return total


def moved_bytes_of(
    node: GraphNode,
    inputs: Mapping[str, TensorFact],
    outputs: Mapping[str, TensorFact],
    graph: OptimizedGraph,
) -> int | None:
    """Return how many bytes a node reads and writes, each tensor once; None where the size of an
    element is unknown.

    A view moves nothing, unless it is an output of the model: that has a place of its own. What
    runs other operators leaves moving to these.
    """
    kind = node.message.op_type
    if kind in RUNNING_OTHERS or (kind in VIEWS and graph.outputs.isdisjoint(outputs)):
        return 0
    written = bytes_of(outputs.values())
    if written is None:
        return None
    numbers = PICKED_FROM.get(kind, ())
    picked = {name for at, name in enumerate(node.message.input) if at in numbers}
    total = written
    for name, fact in inputs.items():
        size = bytes_of((fact,))
        if size is None:
            return None
        total += min(size, written) if name in picked else size
    return total


def module_of(name: str, node: GraphNode | None, constants: Mapping[str, TensorFact]) -> str:
    """Return the path of the layer in the names: those of the weights, else the node's."""
    weights = [each for each in node.inputs if each in constants] if node else []
    for each in (name.removesuffix(BLOCKED_NAME), *weights):
        if found := SCOPE.fullmatch(each):
            return found[1]
    for each in (*weights, name.removesuffix(BLOCKED_NAME)):
        if found := DOTTED.fullmatch(each):
            return found[1]
    return ""
