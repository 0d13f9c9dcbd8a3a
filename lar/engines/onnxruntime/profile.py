"""ONNX Runtime's own profile: taken on the clock of the run's recorder, read into lar's records.

The file is a Chrome trace as a list, with times in whole microseconds:

    Session  model_loading_uri, session_initialization, and for each run model_run
    Node     one execution of a node: `NAME_kernel_time`
    Kernel   what a node had a device do; it follows the node in the file

An event is written when it has ended, and no more of them than a limit.

It gives each node's name and the shapes that it had in the run, but neither the weights that were
rearranged when the model was loaded nor the attributes. The optimised model, which ONNX Runtime
saves, has both. Where both have the same operators in the same order, they are the same nodes;
else those of the same name are. Nodes without a name are called `TYPE_INDEX` in the profile, and
stand in both in the order of their indices; names of reorders say nothing.

ONNX Runtime reports no allocations: the memory that operators take is estimated from the sizes of
their outputs. A tensor is taken to be allocated when the operator that gives it begins, and given
back when the last operator that reads it has ended. What the engine reuses in place, or keeps for
later, is not seen; neither are scratch buffers.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.flops import Shape, flops_of
from lar.engines.onnx_file.fields import Message
from lar.engines.onnxruntime.cupti import DeviceRecorder, DeviceWork, open_recorder
from lar.engines.onnxruntime.kernel_kinds import kernel_kind
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.providers import CPU, DEVICES
from lar.engines.onnxruntime.thread_use import ThreadUses
from lar.errors import LarError, UsageError
from lar.options.table import PROFILE_MEMORY, PROFILES, one_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.records.columns import ExecutionColumns, RecordColumns, SpanColumns, step_columns
from lar.records.profile import (
    Alignment,
    Allocation,
    Category,
    Count,
    Execution,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
    TensorFact,
)

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

MOST_EVENTS = 1_000_000  # the engine's default, of all kinds
NODE_SUFFIX = "_kernel_time"
RUN = "model_run"
INNER = "SequentialExecutor::Execute"
NAMES = re.compile(rb'(?<="name" :")(.*?)(?=","args" : \{)', re.DOTALL)
HINT = "ONNX Runtime's file is what --profile-raw wrote, lar's what --profile wrote"

# The engine's names of element types, and how many bytes an element has.
TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "bool": ("bool", 1),
    **{
        f"{kind}{bits}": (f"{kind}{bits}", bits // 8)
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}

Tensors = list[dict[str, tuple[Count, ...]]]


class RawArgs(msgspec.Struct, gc=False):
    """The facts of an event besides its times; numbers stand as texts."""

    op_name: str = ""
    provider: str = ""
    node_index: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    thread_scheduling_stats: msgspec.Raw = msgspec.Raw(b"")
    stream: str = ""
    grid_x: str = ""
    grid_y: str = ""
    grid_z: str = ""
    block_x: str = ""
    block_y: str = ""
    block_z: str = ""


class RawEvent(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are microseconds since the profile began."""

    name: str
    cat: str
    ts: int
    dur: int = 0
    tid: int = 0
    args: RawArgs = msgspec.field(default_factory=RawArgs)

    @property
    def start_ns(self) -> int:
        return self.ts * 1000

    @property
    def end_ns(self) -> int:
        return (self.ts + self.dur) * 1000

    @property
    def node(self) -> str:
        return self.name.removesuffix(NODE_SUFFIX)


class NodeEvent(NamedTuple):
    """One execution of a node, and what it had a device do."""

    event: RawEvent
    kernels: tuple[DeviceWork, ...]


class RawRun(NamedTuple):
    """One run of the model: its nodes in the order in which they began."""

    start_ns: int
    end_ns: int
    thread: int
    nodes: tuple[NodeEvent, ...]


class RawProfile(NamedTuple):
    """The engine's whole report: what came before the runs, and the runs that ended."""

    load: tuple[RawEvent, ...]
    runs: tuple[RawRun, ...]


DECODER = msgspec.json.Decoder(list[RawEvent])
BYTES_AT_ONCE = 1 << 17
BETWEEN_EVENTS = b"},\n{"  # but not within one, whose name is a single line
TENSORS = msgspec.json.Decoder(Tensors)


def decode_raw(data: bytes) -> RawProfile:
    """Return what is in a file.

    Raises:
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    return profile_in(decode_events(data))


def read_raw(path: str) -> RawProfile:
    """Return what is in a file of runs that came one after the other on a CPU. Of the nodes of the
    runs after the first, each is there once: `nodes_by_run` reads all, some at a time.

    Raises:
        msgspec.MsgspecError, ValueError: it is damaged.
    """
    load: list[RawEvent] = []
    runs: list[RawRun] = []
    known: set[tuple[object, ...]] = set()
    for run in runs_in(events_in(path), load.append):
        new = [node for node in run.nodes if fingerprint_of(node.event) not in known]
        known.update(fingerprint_of(node.event) for node in new)
        runs.append(run if not runs else run._replace(nodes=tuple(new)))
    return RawProfile(tuple(load), tuple(runs))


def nodes_by_run(path: str) -> Iterator[tuple[NodeEvent, ...]]:
    """Yield the nodes of each run that a file holds, as `read_raw` counts them."""
    for run in runs_in(events_in(path), lambda event: None):
        yield run.nodes


def runs_in(events: Iterable[RawEvent], load: Callable[[RawEvent], object]) -> Iterator[RawRun]:
    """Yield the runs, each of which follows its nodes; `load` takes what came before them."""
    nodes: list[RawEvent] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(NODE_SUFFIX):
            nodes.append(event)
        elif event.cat == "Session" and event.name == RUN:
            own = [each for each in nodes if event.ts <= each.ts <= event.ts + event.dur]
            yield run_of(event, [(each, []) for each in own])
            nodes.clear()
        elif event.cat == "Session" and event.name != INNER:
            load(event)


def events_in(path: str) -> Iterator[RawEvent]:
    """Yield the events in a file.

    Raises:
        msgspec.MsgspecError, ValueError: it is damaged.
    """
    for piece in pieces_of_list(path):
        yield from decode_events(piece)


def pieces_of_list(path: str) -> Iterator[bytes]:
    """Yield JSON lists of some events each, of which the file has one on each line."""
    with open(path, "rb") as file:
        held = file.read(BYTES_AT_ONCE).lstrip().removeprefix(b"[")
        while piece := file.read(BYTES_AT_ONCE):
            held += piece
            done, between, rest = held.rpartition(BETWEEN_EVENTS)
            if between:
                yield b"[" + done + b"}]"
                held = b"{" + rest
        yield b"[" + held


def fingerprint_of(event: RawEvent) -> tuple[object, ...]:
    """Return what an event's operator is known by."""
    args = event.args
    return *key_of(event), bytes(args.input_type_shape), bytes(args.output_type_shape)


def decode_events(data: bytes) -> list[RawEvent]:
    """Return the events in a list.

    Raises:
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    try:
        return DECODER.decode(data)
    except msgspec.DecodeError:
        return DECODER.decode(NAMES.sub(escape_name, data))


def escape_name(found: re.Match[bytes]) -> bytes:
    """Return a name as JSON has it: the engine writes those of nodes as they are."""
    return json.dumps(found[0].decode(), ensure_ascii=False)[1:-1].encode()


def profile_in(events: Sequence[RawEvent]) -> RawProfile:
    """Return the events by the run that they belong to; a run that was cut is left out."""
    runs = sorted(
        (event for event in events if event.cat == "Session" and event.name == RUN),
        key=lambda event: event.ts,
    )
    starts = [run.ts for run in runs]
    found: list[list[tuple[RawEvent, list[RawEvent]]]] = [[] for _ in runs]
    kernels: list[RawEvent] = []
    for event in events:
        if event.cat == "Kernel":
            kernels.append(event)
        elif event.cat == "Node" and event.name.endswith(NODE_SUFFIX):
            kernels = []
            index = bisect_right(starts, event.ts) - 1
            if index >= 0 and event.ts <= runs[index].ts + runs[index].dur:
                found[index].append((event, kernels))
    return RawProfile(
        load=tuple(
            event for event in events if event.cat == "Session" and event.name not in (RUN, INNER)
        ),
        runs=tuple(run_of(run, nodes) for run, nodes in zip(runs, found, strict=True)),
    )


def run_of(run: RawEvent, nodes: Iterable[tuple[RawEvent, list[RawEvent]]]) -> RawRun:
    """Return a run; it ends no sooner than its last node, as both are rounded down."""
    ordered = sorted(nodes, key=lambda node: node[0].ts)
    ends = (event.end_ns for event, _ in ordered)
    return RawRun(
        run.start_ns,
        max((run.end_ns, *ends)),
        run.tid,
        tuple(NodeEvent(event, tuple(map(work_of, kernels))) for event, kernels in ordered),
    )


def work_of(event: RawEvent) -> DeviceWork:
    """Return what the engine itself reports of a kernel or, without a grid, of a copy."""
    args = event.args
    is_copy = args.grid_x in ("", NO_GRID)
    return DeviceWork(
        event.name,
        event.start_ns,
        event.start_ns,
        event.end_ns,
        int(args.stream) if args.stream.isdigit() else 0,
        None if is_copy else triple_of(args.grid_x, args.grid_y, args.grid_z),
        None if is_copy else triple_of(args.block_x, args.block_y, args.block_z),
    )


def tensors_in(raw: msgspec.Raw) -> list[tuple[str, tuple[int, ...]]]:
    """Return the element types and shapes of an event's inputs or outputs.

    Those that are not tensors, are left out, or have been rearranged beforehand are not listed.

    Raises:
        msgspec.MsgspecError: they are not written as in the versions that lar knows.
    """
    return [pair for each in TENSORS.decode(raw) for pair in each.items()]


BLOCKED_DOMAIN = "com.microsoft.nchwc"
BLOCKED_NAME = "_nchwc"  # the blocked layout's optimiser puts it behind a node's name


class GraphNode(NamedTuple):
    """A node of the optimised graph: onnx's own record, and its attributes that are plain."""

    proto: Message
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
        ValueError: it is not a model.
    """
    from lar.engines.onnx_file.bodies import parameters_of
    from lar.engines.onnx_file.fields import graphs_in, node_of
    from lar.engines.onnx_file.tensors import type_name
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


NodeKey = tuple[str, str, str]
Listed = list[tuple[str, tuple[int, ...]]]

# The bits of an element; of the packed types two share a byte.
BITS = {dtype: 8 * size for dtype, size in TYPES.values()} | {
    **dict.fromkeys(("int4", "uint4", "Int4x2", "UInt4x2", "float4_e2m1fn", "Float4E2M1x2"), 4),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 8),
    **dict.fromkeys(("Float8E4M3FN", "Float8E4M3FNUZ", "Float8E5M2", "Float8E5M2FNUZ"), 8),
}
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
        key = fingerprint_of(event)
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
        flops, size_bytes, kind = None, None, None
        if node and inputs is not None and outputs is not None:
            facts = {**inputs, **outputs}
            flops = flops_of_node(node, facts, self.graph)
            size_bytes = moved_bytes_of(node, inputs, outputs, self.graph)
            kind = kind_of_node(node, facts, self.graph)
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
            algorithm=kind,
            provider=args.provider,
            source="none" if flops is None and size_bytes is None else "derived",
            reads=node.inputs if node else (),
            writes=node.outputs if node else (),
            weights=tuple(each for each in node.inputs if each in self.graph.constants)
            if node
            else (),
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
    """Return whether an event may be of a node, by what does not differ between sessions."""
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
        entry = listed[at] if at < len(listed) else None
        if constant is not None and (entry is None or fact_of(entry) != constant):
            facts[name] = constant
            continue
        if entry is None:
            return None
        facts[name] = fact_of(entry, graph.layout if name in graph.blocked else "")
        at += 1
    return facts if at == len(listed) else None


def output_facts(
    node: GraphNode, listed: Listed, graph: OptimizedGraph
) -> dict[str, TensorFact] | None:
    """Return a node's outputs by name, None where they are not those that the profile lists."""
    if len(node.outputs) != len(listed):
        return None
    return {
        name: fact_of(entry, graph.layout if name in graph.blocked else "")
        for name, entry in zip(node.outputs, listed, strict=True)
    }


def fact_of(entry: tuple[str, tuple[int, ...]], layout: str = "") -> TensorFact:
    name, shape = entry
    return TensorFact(shape, ELEMENT_TYPES.get(name, name), layout)


def facts_of(listed: Listed) -> tuple[TensorFact, ...]:
    return tuple(map(fact_of, listed))


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
    return flops_of(operation_of(node.proto, shapes))


def kind_of_node(
    node: GraphNode, facts: Mapping[str, TensorFact], graph: OptimizedGraph
) -> str | None:
    """Return the kind of a node's kernel (`lar.engines.onnxruntime.kernel_kinds`)."""
    proto = node.proto
    return kernel_kind(
        proto.op_type,
        tuple(proto.input),
        tuple(proto.output),
        node.parameters,
        facts,
        graph.constants,
        graph.filters,
    )


def bytes_of(facts: Iterable[TensorFact]) -> int | None:
    """Return how many bytes tensors have, None where the size of an element is unknown."""
    total = 0
    for fact in facts:
        if fact.dtype not in BITS:
            return None
        total += -(-prod(fact.shape) * BITS[fact.dtype] // 8)
    return total


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
    kind = node.proto.op_type
    if kind in RUNNING_OTHERS or (kind in VIEWS and graph.outputs.isdisjoint(outputs)):
        return 0
    written = bytes_of(outputs.values())
    if written is None:
        return None
    numbers = PICKED_FROM.get(kind, ())
    picked = {node.proto.input[at] for at in numbers if at < len(node.proto.input)}
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


SOURCE = "estimate"
# An estimate has no addresses: the number of an iteration and, in these bits, that of a tensor.
ADDRESS_BITS = 32


def allocations_of(
    executions: Iterable[Execution], steps: Sequence[Step], table: OperatorTable
) -> tuple[Allocation, ...]:
    """Return what the executions of each iteration take and give back, in the order of time.

    The model's outputs stay until the iteration has ended.
    """
    ends = {step.number: step.end_ns for step in steps}
    found: list[Allocation] = []
    for number, group in groupby(executions, key=lambda execution: execution.step):
        found += allocations_in([*group], ends[number], table)
    return tuple(sorted(found, key=lambda each: each.at_ns))


def allocations_in(
    executions: Sequence[Execution], end_ns: int, table: OperatorTable
) -> list[Allocation]:
    """Return what the executions of one iteration take and give back. A tensor in the body of a
    loop is taken each time."""
    roots: dict[str, str] = {}  # of a view, the tensor that it shows
    held: dict[str, int] = {}  # the place in `taken`
    last: list[int] = []
    taken: list[tuple[int, int]] = []  # size, execution
    for index, execution in enumerate(executions):
        node = table.nodes[execution.operator]
        if node is None:
            continue
        for name in node.inputs:
            if (place := held.get(roots.get(name, name))) is not None:
                last[place] = index
        if node.proto.op_type in VIEWS:
            roots.update({name: roots.get(node.inputs[0], node.inputs[0]) for name in node.outputs})
            continue
        for name, size in sizes_of(node, table.operators[execution.operator]):
            held[name] = len(taken)
            last.append(index)
            taken.append((size, index))
    kept = {held.get(roots.get(name, name)) for name in table.graph.outputs}
    found = []
    for place, (size, index) in enumerate(taken):
        taker, reader = executions[index], executions[last[place]]
        at = end_ns if place in kept else reader.end_ns
        address = (taker.step << ADDRESS_BITS) + place
        for time, signed, user in ((taker.start_ns, size, taker), (at, -size, reader)):
            found.append(Allocation(time, signed, user.operator, address, source=SOURCE))
    return found


def sizes_of(node: GraphNode, operator: ProfiledOperator) -> Iterable[tuple[str, int]]:
    """Yield the names and bytes of the tensors that a node gives, where they are known."""
    if len(node.outputs) != len(operator.outputs):
        return
    for name, fact in zip(node.outputs, operator.outputs, strict=True):
        size = bytes_of((fact,))
        if size:
            yield name, size


RELAYOUTS = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})

# Nodes that copy between the host and a device: from where, where to, what the span is called.
COPIES = {
    "MemcpyFromHost": ("host", "device", "[CUDA memcpy HtoD]"),
    "MemcpyToHost": ("device", "host", "[CUDA memcpy DtoH]"),
}

ENDS = {name: (source, destination) for source, destination, name in COPIES.values()}

NO_GRID = "-1"  # of a kernel event that is a copy

NO_PARTS = "dispatch and wait of an operator: ONNX Runtime does not report them separately"
NO_KERNELS = (
    "times on the device: this ONNX Runtime was built without them, and reports an operator's "
    "dispatch alone"
)
ONE_COPY = "the profile has no times of the device: they are recorded of a single copy alone"
WITH_CUPTI = (
    "the profile has no times of the device: pip install nvidia-cuda-cupti, NVIDIA's library for "
    "profilers, for them"
)
NO_RATES = "FLOPs and bytes: those of a dispatch say nothing"


def has_kernels(runs: Iterable[RawRun]) -> bool:
    """Return whether it is known what a device did in some runs."""
    return any(node.kernels for run in runs for node in run.nodes)


def with_works(runs: Sequence[TimedRun], works: Sequence[DeviceWork]) -> list[TimedRun]:
    """Return runs with what their nodes had a device do: a work, of which the host asked for in the
    order given, is of the node that was last begun then and had not ended."""
    called = [work.called_ns for work in works]
    found = []
    for run in runs:
        nodes, offset = run.raw.nodes, run.offset_ns
        starts = [node.event.start_ns + offset for node in nodes]
        own: list[list[DeviceWork]] = [[] for _ in nodes]
        first = bisect_left(called, run.raw.start_ns + offset)
        for work in works[first : bisect_right(called, run.raw.end_ns + offset)]:
            place = bisect_right(starts, work.called_ns) - 1
            if place >= 0 and work.called_ns <= nodes[place].event.end_ns + offset + ROUNDING_NS:
                own[place].append(work.moved(-offset))
        kept = tuple(NodeEvent(node.event, tuple(it)) for node, it in zip(nodes, own, strict=True))
        found.append(run._replace(raw=run.raw._replace(nodes=kept)))
    return found


class TimedRun(NamedTuple):
    """A run that the engine reports, its iteration, and what to add to its times."""

    raw: RawRun
    step: Step
    offset_ns: int


class RunEvents:
    """The contents of runs: executions of operators, and spans that belong to them.

    On the CPU an operator is executed where and when the engine reports. On a device it is
    executed while its kernels run, and the engine reports its dispatch, which stands for it where
    there are `no_kernels`.
    """

    def __init__(self, table: OperatorTable, device: str, *, no_kernels: bool = False) -> None:
        self.table = table
        self.device = device
        self.on_device = not device.startswith("cpu") and not no_kernels
        self.dispatch_only = not device.startswith("cpu") and no_kernels
        self.executions = ExecutionColumns()
        self.spans = SpanColumns()
        self.threads: dict[int, str] = {}
        self.dropped = [] if self.on_device else [NO_PARTS]
        self.dropped += (NO_KERNELS, NO_RATES) if self.dispatch_only else ()
        self.uses = ThreadUses()
        self._numbers: dict[str, int] = {}

    def add_runs(
        self, runs: Sequence[TimedRun], nodes: Iterable[Sequence[NodeEvent]] | None = None
    ) -> None:
        """Add what is in runs, in the order of time; `nodes` are those of each run."""
        for run, own in zip(runs, nodes or (run.raw.nodes for run in runs), strict=False):
            for node in own:
                self._add_node(run, node)
        self.executions.sort_by_start()

    def operators(self) -> tuple[ProfiledOperator, ...]:
        """Return the operators, with the use that each made of the engine's threads."""
        operators = self.uses.added_to(self.table.operators)
        if not self.dispatch_only:
            return operators
        nothing = {"flops": None, "size_bytes": None, "source": "none"}
        return tuple(msgspec.structs.replace(each, **nothing) for each in operators)

    def add_busy_threads(self) -> int:
        """Add the threads that did some of the work, in which nothing begins or ends; return how
        many."""
        names = self.uses.busy_threads()
        for number, name in enumerate(names, start=1):
            self._number_of(f"pool {name}", f"intra-op {number}")
        return len(names)

    def _number_of(self, key: str, name: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = number = HOST_THREAD + 1 + len(self._numbers)
            self.threads[number] = name
        return self._numbers[key]

    def _add_node(self, run: TimedRun, node: NodeEvent) -> None:
        event, step = node.event, run.step
        start, end = event.start_ns + run.offset_ns, event.end_ns + run.offset_ns
        place = self.table.place_of(event)
        self.uses.add(place, bytes(event.args.thread_scheduling_stats), timed=not step.warmup)
        same = event.tid == run.raw.thread
        thread = HOST_THREAD if same else self._number_of(f"{event.tid}", f"thread {event.tid}")
        by_host = event.args.provider == CPU and not node.kernels
        if by_host or not self.on_device:
            self.executions.append(
                Execution(place, step.number, thread, start, end, warmup=step.warmup)
            )
        elif node.kernels:
            self._add_kernels(run, node, place)
        else:  # it has nothing to do there, as a view
            self._add_span(run, "runtime", event.node, start, end, place, thread)
        if event.args.op_name in RELAYOUTS and not self.on_device:
            self._add_span(run, "relayout", "[relayout]", start, end, place, thread)
        elif event.args.op_name in COPIES:
            source, destination, name = COPIES[event.args.op_name]
            kinds = source, destination
            self._add_span(run, "memcpy", name, start, end, place, thread, kinds)

    def _add_kernels(self, run: TimedRun, node: NodeEvent, place: int) -> None:
        """Add what a node had the device do, and the execution that this makes."""
        event, offset = node.event, run.offset_ns
        start = min(each.start_ns for each in node.kernels)
        end = max(each.end_ns for each in node.kernels)
        busy = total_of(merge_intervals((each.start_ns, each.end_ns) for each in node.kernels))
        names = [f"stream {each.stream}" for each in node.kernels]
        streams = [self._number_of(name, name) for name in names]
        self.executions.append(
            Execution(
                place,
                run.step.number,
                streams[0],
                start + offset,
                end + offset,
                wait_ns=end - start - busy,  # for the host to dispatch the next kernel
                dispatch_start_ns=event.start_ns + offset,
                dispatch_end_ns=event.end_ns + offset,
                dispatch_thread=HOST_THREAD,
                warmup=run.step.warmup,
            )
        )
        for each, thread in zip(node.kernels, streams, strict=True):
            kinds = ENDS.get(each.name, (None, None))
            self.spans.add(
                each.start_ns + offset,
                each.end_ns + offset,
                run.step.number,
                category=each.category,
                name=each.name,
                thread=thread,
                warmup=run.step.warmup,
                operator=place,
                device=self.device,
                stream=each.stream,
                grid=each.grid,
                block=each.block,
                size_bytes=each.size_bytes,
                source_kind=kinds[0],
                destination_kind=kinds[1],
            )

    def _add_span(
        self,
        run: TimedRun,
        category: Category,
        name: str,
        start_ns: int,
        end_ns: int,
        place: int,
        thread: int,
        kinds: tuple[str | None, str | None] = (None, None),
    ) -> None:
        outputs = self.table.operators[place].outputs
        self.spans.add(
            start_ns,
            end_ns,
            run.step.number,
            category=category,
            name=name,
            thread=thread,
            warmup=run.step.warmup,
            operator=place,
            size_bytes=None if category == "runtime" else bytes_of(outputs),
            source_kind=kinds[0],
            destination_kind=kinds[1],
        )


def triple_of(x: str, y: str, z: str) -> tuple[int, int, int]:
    return int(x), int(y), int(z)


def load_spans(events: Iterable[RawEvent], offset_ns: int) -> tuple[Span, ...]:
    """Return what the engine did to load the model, as calls."""
    return tuple(
        Span(
            category="runtime",
            name=event.name,
            start_ns=event.start_ns + offset_ns,
            end_ns=event.end_ns + offset_ns,
            thread=HOST_THREAD,
        )
        for event in events
    )


def profile_of_raw(data: bytes, name: str) -> Profile:
    """Return the profile of the runs that the engine's own file holds, which may all be timed.

    Raises:
        UsageError: it holds no run.
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    raw = decode_raw(data)
    if not raw.runs:
        raise UsageError("no run of a model is in it", HINT, subject=name)
    table = OperatorTable(raw, None)
    providers = {node.event.args.provider for run in raw.runs for node in run.nodes}
    device = "cuda" if providers & DEVICES.keys() else "cpu"
    events = RunEvents(table, device, no_kernels=not has_kernels(raw.runs))
    runs = [
        TimedRun(run, Step(number, run.start_ns, run.end_ns), 0)
        for number, run in enumerate(raw.runs)
    ]
    events.add_runs(runs)
    others = events.add_busy_threads()
    return Profile(
        facts=ProfileFacts(
            engine="onnxruntime",
            device=events.device,
            iterations=len(runs),
            threads=1 + others,
            dropped=(
                *events.dropped,
                "FLOPs and bytes: the file has neither the weights nor the attributes",
                "warm-up: the file does not record which runs were part of it",
            ),
            dispatch_only=events.dispatch_only,
        ),
        operators=events.operators(),
        steps=tuple(run.step for run in runs),
        executions=tuple(events.executions),
        spans=(*load_spans(raw.load, 0), *events.spans),
        threads={HOST_THREAD: "host", **events.threads},
    )


ROUNDING_NS = 1000  # the engine's times are whole microseconds, rounded down


class Call(NamedTuple):
    """The times at which an iteration called the engine and that call returned."""

    step: Step
    begin_ns: int
    end_ns: int


def start_profiling(driver: SessionDriver, _: object) -> None:
    """Have the driver's session write its profile, beside where lar's is written."""
    if driver.profiler is None:
        is_read = one_of(PROFILES, driver.spec.settings) is not None
        on_device = driver.asked_provider() in DEVICES and driver.spec.runners == 1
        device = open_recorder() if is_read and on_device else None
        driver.profiler = SessionProfiler(driver, device)
        driver.options.enable_profiling = True
        # The engine adds the second in which it began, which copies may have in common.
        prefix = os.path.join(folder_of(driver), f"onnxruntime_{driver.runner}")
        driver.options.profile_file_prefix = prefix


def profile_no_other(driver: SessionDriver, _: object) -> None:
    """Have the sessions that are made besides the driver's write none."""
    driver.options.enable_profiling = False


def folder_of(driver: SessionDriver) -> str:
    """Return the folder in which the run's profile is written; it goes away with the run."""
    written = driver.context.written
    place: str = next(written[key] for key in ("profile", "profile_raw") if key in written)
    return os.path.dirname(place)


class SessionProfiler:
    """Keeps the times of the iterations, and reads the session's report when all have ended."""

    def __init__(self, driver: SessionDriver, device: DeviceRecorder | None = None) -> None:
        self.driver = driver
        self._steps = step_columns()
        self._times = RecordColumns(lambda *times_ns: times_ns, "qq")
        self._device = device
        self._graph: tuple[OptimizedGraph | None, list[str]] | None = None

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self._steps.add(*msgspec.structs.astuple(step))
        self._times.add(forward_ns, dispatched_ns)

    def read_graph(self) -> tuple[OptimizedGraph | None, list[str]]:
        """Return the graph that the driver runs, or None and the reason; copies share that of the
        first."""
        first = self.driver.first.profiler
        if isinstance(first, SessionProfiler) and first is not self:
            return first.read_graph()
        if self._graph is None:
            self._graph = graph_of(self.driver)
        return self._graph

    def finish(self) -> EngineTrace:
        from lar.engines.onnxruntime.graph import release_memory

        driver, session = self.driver, self.driver.session
        works = self._device.finish() if self._device else []
        began_ns = session.get_profiling_start_time_ns()
        file = session.end_profiling()
        # It holds all its events until it goes.
        del session
        driver.drop_session()
        release_memory()
        if not ends_as_list(file):  # it does not say so itself
            raise LarError(
                "ONNX Runtime could not write the whole of its profile", "make room on the disk"
            )
        settings = driver.spec.settings
        if one_of(PROFILES, settings) is None:
            return EngineTrace(raw_file=file)
        device = driver.facts().device
        on_host = device.startswith("cpu")
        steps = [*self._steps]
        calls = [Call(step, *times) for step, times in zip(steps, self._times, strict=True)]
        raw = read_raw(file) if on_host else decode_raw(Path(file).read_bytes())
        graph, unknown = self.read_graph()
        dropped = [*unknown, *cut_of(raw, len(calls))]
        offset, error = align_runs(raw.runs, calls, began_ns - driver.recorder.unix_ns)
        table = OperatorTable(raw, graph)
        runs = place_runs(raw.runs, calls, offset)
        if works and not has_kernels(raw.runs):
            runs = with_works(runs, [work.moved(-driver.recorder.unix_ns) for work in works])
        hint = WITH_CUPTI if driver.spec.runners == 1 else ONE_COPY
        told = has_kernels(run.raw for run in runs)
        events = RunEvents(table, device, no_kernels=not told)
        events.add_runs(runs, nodes_by_run(file) if on_host else None)
        others = events.add_busy_threads()
        executions = events.executions
        with_memory = PROFILE_MEMORY.is_given(settings) and on_host
        events.spans.add_all(load_spans(raw.load, offset))
        return EngineTrace(
            operators=events.operators(),
            executions=executions,
            spans=events.spans,
            allocations=allocations_of(executions, steps, table) if with_memory else (),
            threads=events.threads,
            # Short operators leave some of the threads without work.
            thread_count=driver.thread_count() or 1 + others,
            alignments=(Alignment("onnxruntime", offset, error),),
            dropped=(*events.dropped, *dropped),
            dispatch_only=events.dispatch_only,
            notes=(hint,) if events.dispatch_only else (),
            raw_file=file,
        )


def ends_as_list(path: str) -> bool:
    """Return whether a file ends as a JSON list does."""
    with open(path, "rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - 100))
        return file.read().rstrip().endswith(b"]")


def graph_of(driver: SessionDriver) -> tuple[OptimizedGraph | None, list[str]]:
    """Return the graph that a driver runs, or None and the reason."""
    from lar.engines.onnxruntime.blocked_layout import DOMAIN, block_size  # imports NumPy

    try:
        content = driver.saved.content if driver.saved else save_graph(driver)
        is_blocked = DOMAIN.encode() in content
        plain = save_graph(driver, level="ORT_ENABLE_BASIC") if is_blocked else b""
    except Exception as error:  # the engine has no one kind for these
        why = one_line(str(error))
        return None, [f"FLOPs, bytes and memory: ONNX Runtime cannot save the graph: {why}"]
    block = block_size(driver.onnxruntime) if is_blocked else 1
    return read_graph(content, block, plain), []


def save_graph(driver: SessionDriver, level: str = "") -> bytes:
    """Return the optimised model of a driver without the larger weights, at another `level`."""
    from lar.engines.onnxruntime.saving import save_optimized

    options, levels = driver.options, driver.onnxruntime.GraphOptimizationLevel
    usual = options.graph_optimization_level
    with tempfile.TemporaryDirectory(dir=folder_of(driver)) as folder:
        # The engine always writes the weights too, and only into the model's folder.
        os.symlink(os.devnull, os.path.join(folder, "weights"))
        path = Path(folder, "optimized.onnx")
        try:
            options.graph_optimization_level = getattr(levels, level) if level else usual
            save_optimized(driver, path, "weights")
        finally:
            options.graph_optimization_level = usual
        return path.read_bytes()


def cut_of(raw: RawProfile, calls: int) -> list[str]:
    """Say how many iterations are missing in the engine's profile, if some are."""
    missing = calls - len(raw.runs)
    if missing <= 0:
        return []
    return [
        f"the operators of the last {missing} of {calls} iterations: ONNX Runtime keeps "
        f"{MOST_EVENTS} events"
    ]


def align_runs(
    runs: Sequence[RawRun], calls: Sequence[Call], guess_ns: int
) -> tuple[int, int | None]:
    """Return what to add to the engine's times, and how far that can be off.

    Each run lies within the call that made it, which bounds the offset from both sides. `guess_ns`
    is the offset by the time of day; it is used as far as it lies within the bounds.
    """
    pairs = [*zip(runs, calls, strict=False)]
    if not pairs:
        return guess_ns, None
    least = max(call.begin_ns - run.start_ns - ROUNDING_NS for run, call in pairs)
    most = min(call.end_ns - run.end_ns for run, call in pairs)
    # The time of day may have been set meanwhile: no one offset then fits all.
    offset = min(max(guess_ns, least), most) if least <= most else (least + most) // 2
    return offset, max(abs(offset - least), abs(most - offset))


def place_runs(runs: Sequence[RawRun], calls: Sequence[Call], offset_ns: int) -> list[TimedRun]:
    """Return the runs with the iterations that they were, each moved into its own call."""
    placed = []
    for run, call in zip(runs, calls, strict=False):
        own = max(offset_ns, call.begin_ns - run.start_ns)
        placed.append(TimedRun(run, call.step, min(own, call.end_ns - run.end_ns)))
    return placed
