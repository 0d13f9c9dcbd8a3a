"""The graph that a session runs, as ONNX Runtime saves it: nodes, constants, the blocked layout.

onnx is imported only where a graph is read, since the engine's own profiles are read without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lar.records.profile import TensorFact

BLOCKED_DOMAIN = "com.microsoft.nchwc"
BLOCKED_NAME = "_nchwc"  # the blocked layout's optimiser puts it behind a node's name


class GraphNode(NamedTuple):
    """A node of the optimised graph: onnx's own record, and its attributes that are plain."""

    proto: Any
    parameters: dict[str, Any]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.proto.input if name)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.proto.output if name)


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
        google.protobuf.message.DecodeError: it is no model.
    """
    import onnx
    from onnx import helper

    from lar.engines.onnxruntime.dump_graph import producers_of
    from lar.engines.onnxruntime.model_fields import nodes_in
    from lar.engines.onnxruntime.model_file import graphs_in

    model = onnx.load_from_string(content)
    graphs: Sequence[Any] = list(graphs_in(model.graph))
    constants = {
        tensor.name: TensorFact(
            tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        )
        for graph in graphs
        for tensor in graph.initializer
    }
    blocked = {each.tensor for each in producers_of(nodes_in(content)) if each.blocked}
    filters, channels = unfilled(model.graph, onnx.load_from_string(plain).graph)
    return OptimizedGraph(
        nodes=tuple(
            GraphNode(node, parameters_of(node)) for graph in graphs for node in graph.node
        ),
        constants=constants,
        outputs=frozenset(info.name for info in model.graph.output),
        blocked=frozenset(blocked),
        layout=f"NCHW{block}c",
        filters=filters,
        channels=channels,
    )


def unfilled(graph: Any, plain: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, int | None]]:
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
    """Tell whether weights may have been filled up to another shape: in their channels alone."""
    return (
        len(shape) == len(filled)
        and shape[2:] == filled[2:]
        and all(map(int.__le__, shape[:2], filled[:2]))
    )


def parameters_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node that are numbers, texts or lists of numbers."""
    from lar.engines.onnxruntime.model_file import attributes_of

    found: dict[str, Any] = {}
    for name, value in attributes_of(node).items():
        if isinstance(value, bytes):
            found[name] = value.decode(errors="replace")
        elif all(isinstance(each, (int, float)) for each in listed(value)):
            found[name] = value
    return found


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
