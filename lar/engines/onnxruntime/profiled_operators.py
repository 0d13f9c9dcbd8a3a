"""The operators of a profile of ONNX Runtime, from its events and from the optimised graph.

The profile gives each node's name and the shapes that it had in the run, but neither the weights
that were rearranged when the model was loaded nor the attributes. The optimised model, which ONNX
Runtime saves, has both. If both have the same operators in the same order, they are the same
nodes; if not, nodes of the same name are the same. The profile calls nodes without a name
`TYPE_INDEX`, and both have them in the order of their indices; names of reorders say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import le
from typing import Any

import msgspec

from lar.engines.flops import Shape, flops_of
from lar.engines.onnx_file.bodies import CONTROL_FLOW, parameters_of
from lar.engines.onnx_file.fields import Message, graphs_in, node_of, type_name
from lar.engines.onnx_file.operators import FACTS
from lar.engines.onnxruntime.blocked_layout import DOMAIN, blocked_tensors
from lar.engines.onnxruntime.kernel_kinds import kernel_kind
from lar.engines.onnxruntime.profile_file import NodeKey, RawEvent, RawRun
from lar.engines.operator_times import DOTTED, bytes_of, layer_in
from lar.records.profile import Count, ProfiledOperator, TensorFact

# The engine's names of element types that NumPy calls otherwise.
OTHER_NAMES = {"float": "float32", "double": "float64"}
TENSORS = msgspec.json.Decoder(list[dict[str, tuple[Count, ...]]])

BLOCKED_NAME = "_nchwc"  # the blocked layout's optimiser puts it behind a node's name
# From torch's exporter, `/layer1/conv/Conv`; else the path of the weights or of the node.
SCOPE = re.compile(r"/?(.+)/[^/]+")
# Names that are given anew in each session, to other nodes.
REORDER = re.compile(r"Reorder(Input|Output)(_token_\d+)?")

VIEWS = FACTS.moves["views"]


class OptimizedGraph:
    """The graph of an optimised model: its nodes, those inside control flow too, and what is
    constant in it.

    `blocked` names the tensors in the blocked layout, which is called `layout`. There channels are
    filled up to whole blocks: `filters` has the shapes of weights, and `channels` the numbers of
    channels, that the network itself asks for, if they may be fewer; None is for unknown. They
    come from `block`, the number of channels in a block, and `plain`, the model with little
    optimisation and without the layout.

    Raises:
        ValueError: it is not a model.
    """

    def __init__(self, content: bytes = b"", block: int = 1, plain: bytes = b"") -> None:
        graph = Message("Model", content).graph
        graphs = [*graphs_in(graph)]
        self.nodes = [node for each in graphs for node in each.node]
        held = [tensor for each in graphs for tensor in each.initializer]
        self.constants = {
            it.name: TensorFact(tuple(it.dims), type_name(it.data_type)) for it in held
        }
        self.outputs = {info.name for info in graph.output}
        self.blocked = blocked_tensors(map(node_of, graph.node))
        self.layout = f"NCHW{block}c"
        self.filters, self.channels = unfilled(graph, Message("Model", plain).graph)


def unfilled(
    graph: Message, plain: Message
) -> tuple[dict[str, tuple[int, ...]], dict[str, int | None]]:
    """Return the shapes of weights and the numbers of channels without the filling of blocks.

    A blocked convolution has its name from the output of the convolution that it was made of, or of
    an operator fused into that. Other operators leave the channels as they are, up to the reorder
    that takes the filling away.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in plain.initializer}
    filled = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    makers = {name: node for node in plain.node for name in node.output if name}
    filters: dict[str, tuple[int, ...]] = {}
    channels: dict[str, int | None] = {}
    for node in graph.node:
        counts = [channels[name] for name in node.input if name in channels][:1]
        if node.domain == DOMAIN and node.op_type == "Conv":
            maker = makers.get(node.name.removesuffix(BLOCKED_NAME))
            while maker is not None and maker.op_type != "Conv":
                maker = makers.get(maker.input[0]) if maker.input else None
            shape = shapes.get(maker.input[1], ()) if maker is not None else ()
            wide, counts = filled.get(node.input[1], ()), [None]
            # Weights are padded only in their channels.
            if shape and shape[2:] == wide[2:] and all(map(le, shape, wide)):
                counts, filters[node.input[1]] = [shape[0]], shape
        if counts and node.op_type != "ReorderOutput":
            channels.update(dict.fromkeys(filter(None, node.output), counts[0]))
    return filters, channels


class OperatorTable:
    """The operators of a profile, one for each node and for each shapes that it had."""

    def __init__(self, runs: Sequence[RawRun], graph: OptimizedGraph | None) -> None:
        self.graph = graph or OptimizedGraph()
        self.operators: list[ProfiledOperator] = []
        self._nodes = match_nodes(runs, self.graph)
        self._places: dict[tuple[object, ...], int] = {}
        self._ids: dict[str, int] = defaultdict(int)

    def place_of(self, event: RawEvent) -> int:
        """Return the index of an execution's operator."""
        place = self._places.setdefault(event.fingerprint, len(self.operators))
        if place == len(self.operators):
            self.operators.append(self.operator_of(event))
        return place

    def operator_of(self, event: RawEvent) -> ProfiledOperator:
        args, node = event.args, self._nodes.get(event.key)
        self._ids[args.node_index] += 1
        again = self._ids[args.node_index]
        known: dict[str, Any] = {
            "inputs": facts_in(args.input_type_shape),
            "outputs": facts_in(args.output_type_shape),
        }
        if node is not None:
            known |= self.known_of(node, **known)
        return ProfiledOperator(
            id=args.node_index if again == 1 else f"{args.node_index}.{again}",
            type=args.op_name,
            name=event.node,
            module=module_of(event.node, known.get("weights", ())),
            provider=args.provider,
            **known,
        )

    def known_of(
        self, node: Message, inputs: Sequence[TensorFact], outputs: Sequence[TensorFact]
    ) -> dict[str, Any]:
        """Return what is known of an operator with these tensors, whose node has been found; its
        work only if the node takes and gives the same tensors."""
        graph, parameters = self.graph, parameters_of(node)
        reads, writes = (tuple(filter(None, names)) for names in (node.input, node.output))
        weights = tuple(name for name in reads if name in graph.constants)
        known: dict[str, Any] = {"parameters": parameters, "reads": reads, "writes": writes}
        known["weights"] = weights
        taken = self.taken_facts(reads, inputs)
        if taken is None or len(writes) != len(outputs):
            return known
        given = self.in_layout(dict(zip(writes, outputs, strict=True)))
        facts = taken | given
        flops = flops_of_node(node, facts, graph)
        size_bytes = moved_bytes_of(node, taken, given, graph)
        return known | {
            "inputs": tuple(taken.values()),
            "outputs": tuple(given.values()),
            "flops": flops,
            "size_bytes": size_bytes,
            "source": "none" if flops is None and size_bytes is None else "derived",
            "algorithm": kernel_kind(node, parameters, facts, graph.constants, graph.filters),
        }

    def taken_facts(
        self, reads: Iterable[str], listed: Sequence[TensorFact]
    ) -> dict[str, TensorFact] | None:
        """Return a node's inputs by name, None if they are not those listed.

        A constant is listed only if it was not rearranged when the model was loaded.
        """
        inputs, rest = dict[str, TensorFact](), [*listed]
        for name in reads:
            constant = self.graph.constants.get(name)
            if constant is not None and rest[:1] != [constant]:
                inputs[name] = constant
            elif rest:
                inputs[name] = rest.pop(0)
            else:
                return None
        return None if rest else self.in_layout(inputs)

    def in_layout(self, facts: Mapping[str, TensorFact]) -> dict[str, TensorFact]:
        """Return tensors by name, those in the blocked layout with its name."""
        graph = self.graph
        return {
            name: TensorFact(it.shape, it.dtype, graph.layout if name in graph.blocked else "")
            for name, it in facts.items()
        }


def facts_in(raw: msgspec.Raw) -> tuple[TensorFact, ...]:
    """Return an event's inputs or outputs. Those that are not tensors, are left out, or have been
    rearranged beforehand are not listed.

    Raises:
        msgspec.MsgspecError: they are not written as in the versions that lar knows.
    """
    pairs = (pair for each in TENSORS.decode(raw) for pair in each.items())
    return tuple(TensorFact(shape, OTHER_NAMES.get(name, name)) for name, shape in pairs)


def match_nodes(runs: Sequence[RawRun], graph: OptimizedGraph) -> dict[NodeKey, Message]:
    """Return the nodes of the events, as far as they are certain."""
    first = [event for run in runs[:1] for event in run.nodes]
    names = {"" if REORDER.fullmatch(node.name) else node.name for node in graph.nodes}
    # By types and lasting names, if these agree for all nodes in their order.
    labels = [(node.op_type, node.name if node.name in names else "") for node in graph.nodes]
    if [label_of(event, names) for event in first] == labels:
        return {event.key: node for event, node in zip(first, graph.nodes, strict=True)}
    alike: dict[tuple[str, str], dict[NodeKey, RawEvent]] = defaultdict(dict)
    for event in (event for run in runs for event in run.nodes):
        alike[label_of(event, names)][event.key] = event
    nodes: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for label, node in zip(labels, graph.nodes, strict=True):
        nodes[label].append(node)
    found: dict[NodeKey, Message] = {}
    for label, events in alike.items():
        if len(events) == len(nodes[label]) and not REORDER.fullmatch(label[0]):
            ordered = sorted(events.values(), key=lambda event: int(event.args.node_index or 0))
            found.update(zip((event.key for event in ordered), nodes[label], strict=True))
    return found


def label_of(event: RawEvent, names: Container[str]) -> tuple[str, str]:
    """Return the type and name of an event's node; the name is empty if the session has made it
    up."""
    made_up = f"{event.args.op_name}_{event.args.node_index}"
    is_own = event.node in names if event.node == made_up else not REORDER.fullmatch(event.node)
    return event.args.op_name, event.node if is_own else ""


def flops_of_node(
    node: Message, facts: Mapping[str, TensorFact], graph: OptimizedGraph
) -> int | None:
    """Return a node's operations (`lar.engines.flops`), None if they are unknown."""
    from lar.engines.onnx_file.contents import operation_of

    shapes: dict[str, Shape] = {name: fact.shape for name, fact in facts.items()}
    for name in facts.keys() & graph.channels.keys():
        batch, _, *sizes = facts[name].shape
        shapes[name] = (batch, graph.channels[name], *sizes)
    shapes.update({name: graph.filters[name] for name in facts.keys() & graph.filters.keys()})
    return flops_of(operation_of(node, shapes))


def moved_bytes_of(
    node: Message,
    inputs: Mapping[str, TensorFact],
    outputs: Mapping[str, TensorFact],
    graph: OptimizedGraph,
) -> int | None:
    """Return how many bytes a node reads and writes, each tensor once; None if the size of an
    element is unknown.

    A view moves nothing, unless it is an output of the model: that has a place of its own. An
    operator that runs others moves nothing itself.
    """
    kind = node.op_type
    if kind in CONTROL_FLOW or (kind in VIEWS and graph.outputs.isdisjoint(outputs)):
        return 0
    picked = {name for at, name in enumerate(node.input) if at in FACTS.picked_from.get(kind, ())}
    written, sizes = bytes_of(outputs.values()), [bytes_of((it,)) for it in inputs.values()]
    known = [size for size in sizes if size is not None]
    if written is None or len(known) < len(sizes):
        return None
    pairs = zip(inputs, known, strict=True)
    return written + sum(min(size, written) if name in picked else size for name, size in pairs)


def module_of(name: str, weights: Iterable[str]) -> str:
    """Return the path of the layer in the names: those of the weights, else the node's."""
    own, weights = name.removesuffix(BLOCKED_NAME), tuple(weights)
    return layer_in((own, *weights), SCOPE) or layer_in((*weights, own), DOTTED)
