"""MegEngine's own profile: taken after each iteration, and read into lar's records.

`lar.profiles.megengine_file` has the format of the file. Lite writes it at the end of each wait,
for which it needs longer than many a model: the iteration ends at lite's finish callback, which
comes before that. The graph driver is asked for it. A profiled run may execute several graphs, one
for all shapes that were fed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from lar.dumps.facts import Kernel
from lar.dumps.graph import CONSTANT
from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.flops import Operation, flops_of
from lar.engines.megengine.algorithms import ChoiceListener, algorithms_in
from lar.engines.megengine.clocks import Iterations, alignments_of, fit_clocks, place_executions
from lar.engines.megengine.model_file import KINDS, taps_of
from lar.errors import count_of
from lar.files.libraries import release_loaded
from lar.options.option import Option
from lar.options.table import PROFILE_FILES, PROFILE_MEMORY
from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.megengine_file import (
    RawFootprint,
    RawGraph,
    RawLayout,
    RawOperator,
    RawProfile,
    RawVariable,
    decode_raw,
)
from lar.records.columns import SpanColumns
from lar.records.profile import (
    Allocation,
    Execution,
    MemoryChunk,
    MemoryPlan,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
    TensorFact,
)

if TYPE_CHECKING:
    from lar.engines.megengine.graph import GraphDriver
    from lar.engines.megengine.lite import LiteDriver

CALLING_THREAD = ("cpu:default", "multithread:default")
COMP_NODE = re.compile(r'CompNode\("([^"]*)"')
MODULE_PATH = re.compile(r"(\w+(?:\.\w+)*)\.\w+")


def operators_of(raw: RawProfile) -> tuple[ProfiledOperator, ...]:
    """Return the executed operators in the order of execution, those without a footprint too."""
    names = variable_names_of(raw.graph_exec)
    return tuple(operator_of(raw, key, names) for key in raw.graph_exec.comp_seq)


class VariableNames(NamedTuple):
    """A key for each variable, by its number, and the numbers of those that are computed in a run
    or fed, not constant."""

    keys: Mapping[str, str]
    computed: frozenset[str]


def variable_names_of(graph: RawGraph) -> VariableNames:
    """Return the variables' names, with their numbers where several have one name."""
    counts = Counter(var.name for var in graph.var.values())
    keys = {
        number: var.name if counts[var.name] == 1 else f"{var.name}#{number}"
        for number, var in graph.var.items()
    }
    made = (graph.operator[key] for key in graph.comp_seq)
    computed = {it for each in made if not CONSTANT.fullmatch(each.type) for it in each.output}
    return VariableNames(keys, frozenset(computed))


def operator_of(raw: RawProfile, key: str, names: VariableNames) -> ProfiledOperator:
    graph, footprint = raw.graph_exec, raw.profiler.opr_footprint.get(key)
    operator = graph.operator[key]
    inputs = [graph.var[number] for number in operator.input]
    written = [graph.var[number] for number in operator.output]
    given = [number for number in operator.output if not is_workspace(graph.var[number])]
    workspaces = [var for var in written if is_workspace(var)]
    known = footprint or RawFootprint()
    if footprint:
        given = given[: len(footprint.out_shapes)]
    outputs = [graph.var[number] for number in given]
    taken = facts_of(inputs, known.in_shapes, known.in_layouts or ())
    made = facts_of(outputs, known.out_shapes)
    return ProfiledOperator(
        id=key,
        type=operator.type,
        name=operator.name,
        module=module_of([var.name for var in inputs], [var.name for var in outputs]),
        inputs=taken,
        outputs=made,
        parameters={"items": known.param} if isinstance(known.param, list) else known.param or {},
        flops=flops_of_operator(operator.type, taken, made, known) if footprint else None,
        size_bytes=moved_bytes_of(graph, operator, taken, made, known.memory)
        if footprint
        else None,
        workspace_bytes=workspace_bytes_of(workspaces),
        source="measured" if footprint else "none",
        reads=tuple(names.keys[number] for number in operator.input),
        writes=tuple(names.keys[number] for number in given),
        weights=tuple(names.keys[it] for it in operator.input if it not in names.computed),
    )


def is_workspace(variable: RawVariable) -> bool:
    return variable.name.endswith(":workspace")


def facts_of(
    variables: Sequence[RawVariable],
    shapes: Sequence[tuple[int, ...]],
    layouts: Sequence[tuple[int | str, ...] | None] = (),
) -> tuple[TensorFact, ...]:
    """Return what is known of variables; the footprint alone knows shapes of those that only the
    host reads."""
    facts = []
    for index, var in enumerate(variables):
        layout = var.mem_plan.layout if var.mem_plan else RawLayout()
        facts.append(
            TensorFact(
                shapes[index] if index < len(shapes) else layout.shape,
                dtype_of(layout.dtype),
                ",".join(map(str, layouts[index] or ())) if index < len(layouts) else "",
            )
        )
    return tuple(facts)


def dtype_of(name: str) -> str:
    """Return a dtype as NumPy calls it; the quantised ones keep their names."""
    return name if name.startswith("Quantized") else name.lower()


def workspace_bytes_of(workspaces: Sequence[RawVariable]) -> int | None:
    """Return the size of a workspace, which is a vector of bytes."""
    sizes = [var.mem_plan.layout.shape for var in workspaces if var.mem_plan]
    return sum(shape[0] if shape else 0 for shape in sizes) if sizes else None


def module_of(inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """Return the path of the layer: that of the weights, else that of the output's name."""
    weights = (name for name in inputs if name.endswith((".weight", ".bias")))
    for name in (*weights, *outputs):
        if found := MODULE_PATH.fullmatch(name):
            return found[1]
    return ""


def places_of(operators: Iterable[ProfiledOperator]) -> dict[str, int]:
    """Return the index of each operator by its id."""
    return {operator.id: index for index, operator in enumerate(operators)}


def threads_of(raw: RawProfile) -> dict[int, str]:
    """Return the threads: those of the host that dispatch, and one for each computing node."""
    return {number: name for number, name, _ in list_threads(raw)}


def list_threads(raw: RawProfile) -> list[tuple[int, str, list[str]]]:
    """List number, name and the engine's own names of each thread, in the order of their first
    operator. On some nodes the engine computes in the thread that dispatches."""
    sequence, times = raw.graph_exec.comp_seq, raw.profiler
    hosts = list(dict.fromkeys(name for key in sequence for name in times.host.get(key, ())))
    nodes = list(dict.fromkeys(name for key in sequence for name in times.device.get(key, ())))
    inplace = [name for name in nodes if node_of(name).startswith(CALLING_THREAD)]
    threads = [(HOST_THREAD, "host", hosts[:1] + inplace)]
    for name in nodes:
        if name not in inplace:
            threads.append((len(threads) + HOST_THREAD, node_of(name), [name]))
    for name in hosts[1:]:
        threads.append((len(threads) + HOST_THREAD, f"host {len(threads)}", [name]))
    return threads


def node_of(name: str) -> str:
    """Return `cpu0:0` of `CompNode("cpu0:0" from "cpu0:0")`."""
    found = COMP_NODE.match(name)
    return found[1] if found else name


def executions_of(
    raw: RawProfile,
    places: Mapping[str, int],
    *,
    step: int = 0,
    warmup: bool = False,
    host_offset_ns: int = 0,
    device_offset_ns: int = 0,
) -> tuple[Execution, ...]:
    """Return the executions on each computing node, in the order of time.

    `places` has the index of each operator (`places_of`); the offsets are added to the times, the
    host's to those of the dispatch. Of several dispatches of one operator the longest counts.
    """
    numbers = {own: number for number, _, names in list_threads(raw) for own in names}
    found = []
    for key in raw.graph_exec.comp_seq:
        begin = done = thread = None
        if dispatches := raw.profiler.host.get(key):
            name, longest = max(dispatches.items(), key=lambda item: item[1].end - item[1].start)
            begin = nanoseconds(longest.start) + host_offset_ns
            done = nanoseconds(longest.end) + host_offset_ns
            thread = numbers[name]
        for name, times in raw.profiler.device.get(key, {}).items():
            start = nanoseconds(times.start)
            found.append(
                Execution(
                    places[key],
                    step,
                    numbers[name],
                    start + device_offset_ns,
                    nanoseconds(times.end) + device_offset_ns,
                    nanoseconds(times.kern) - start,
                    begin,
                    done,
                    thread,
                    warmup,
                )
            )
    return tuple(sorted(found, key=lambda execution: execution.start_ns))


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def memory_plan_of(raw: RawProfile) -> MemoryPlan:
    """Return the static memory plan.

    A chunk is held from the operator that writes it to the last that reads a variable in it.
    Weights and inputs stay: they have neither, and are no part of `static_bytes`, which is what
    the others cover together.
    """
    graph = raw.graph_exec
    writers: dict[str, int] = {}
    users: dict[str, list[int]] = {}
    for index, key in enumerate(graph.comp_seq):
        operator = graph.operator[key]
        writers.update(dict.fromkeys(operator.output, index))
        for number in (*operator.input, *operator.output):
            plan = graph.var[number].mem_plan
            if plan:
                users.setdefault(plan.mem_chunk_id, []).append(index)
    chunks: list[MemoryChunk] = []
    planned: list[tuple[int, int]] = []
    for name, chunk in graph.mem_chunk.items():
        if not chunk.size:
            continue
        owner = graph.var[chunk.owner_var]
        stays = "PERSISTENT_DEVICE_VALUE" in owner.flag
        first = None if stays else writers.get(chunk.owner_var)
        last = None if stays else max(users.get(name, ()), default=None)
        chunks.append(MemoryChunk(chunk.dev_ptr, chunk.size, owner.name, first, last))
        if not stays:
            planned.append((chunk.dev_ptr, chunk.dev_ptr + chunk.size))
    return MemoryPlan(total_of(merge_intervals(planned)) if chunks else None, tuple(chunks))


def device_of(raw: RawProfile) -> str:
    """Return `cpu`, `cuda`, or what the first computing node is called."""
    nodes = [node_of(name) for times in raw.profiler.device.values() for name in times]
    kind = re.sub(r"\d*:.*", "", nodes[0]) if nodes else "cpu"
    return {"multithread": "cpu", "gpu": "cuda"}.get(kind, kind)


def profile_of_raw(data: bytes) -> Profile:
    """Return the profile of the one iteration that a file holds.

    Its step lasts from the first operator's start to the last one's end on the device's clock.

    Raises:
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    raw = decode_raw(data)
    operators = operators_of(raw)
    executions = executions_of(raw, places_of(operators))
    steps: tuple[Step, ...] = ()
    if executions:
        end = max(execution.end_ns for execution in executions)
        steps = (Step(0, executions[0].start_ns, end),)
    return Profile(
        facts=ProfileFacts(
            engine="megengine",
            device=device_of(raw),
            iterations=len(steps),
            dropped=("the host's times have another zero than the operators'",),
        ),
        operators=operators,
        steps=steps,
        executions=executions,
        memory_plan=memory_plan_of(raw),
        threads=threads_of(raw),
        engine_raw=data,
    )


Shape: TypeAlias = "tuple[int, ...] | None"

NUMBER = re.compile(r"\[\d+\]")  # of an operator or a variable, which another compilation changes

COPIES = frozenset({"Host2DeviceCopy", "Copy"})
RELAYOUTS = frozenset({"RelayoutFormat", "Dimshuffle", "Reshape", "Concat"})
# Those that read no more of their first input than they give, or its shape alone.
SELECTIONS = frozenset(
    {
        *("Subtensor", "GetVarShape", "IndexingOneHot", "IndexingMultiAxisVec"),
        *("MeshIndexing", "BatchedMeshIndexing"),
    }
)
# Those that may give a view of their input.
VIEWS = RELAYOUTS | {"AxisAddRemove", "Broadcast", "Copy", "Identity", "Split", "Subtensor"}
# Those that compute nothing, and those whose operations their shapes and modes say.
DERIVED_KINDS = frozenset(
    {
        *("elementwise", "reduction", "softmax", "normalisation", "batch normalisation"),
        "interpolation",
    }
)
MOVES = frozenset({"Host2DeviceCopy", "ImmutableTensor", "SharedDeviceTensor"}).union(
    name for name, kind in KINDS.items() if kind == "movement"
)
DERIVED = frozenset(name for name, kind in KINDS.items() if kind in DERIVED_KINDS) - {"Elemwise"}
CONVOLUTIONS = frozenset({"ConvolutionForward", "ConvBiasForward"})
# Their layouts on a CPU whose last axis is a block of channels.
BLOCKED = frozenset({"NCHW44", "NCHW44_DOT", "NCHW88"})
# Those that compute as much for each element that they give, with the same weights.
PROPORTIONAL = frozenset(
    {
        *("ConvolutionForward", "ConvBiasForward", "MatrixMul", "PoolingForward", "Elemwise"),
    }
)


class ProfiledGraphs:
    """The operators of all graphs, each once.

    One that was executed with other shapes is another operator. A graph that is compiled again has
    other ids: an operator with the same place, type, name and shapes is the same.
    """

    def __init__(self) -> None:
        self.operators: list[ProfiledOperator] = []
        self.moved_bytes: dict[int, int | None] = {}  # by operator, of those that move data
        self._known: dict[object, int] = {}
        # Of the graph that was compiled last: its operators, the shapes for which the engine has
        # counted, and for each set of shapes the places of its operators.
        self._sequence: tuple[str, ...] = ()
        self._counted: dict[str, Shape] = {}
        self._places: dict[object, dict[str, int]] = {}

    def places_in(self, raw: RawProfile) -> Mapping[str, int]:
        """Return the places in `operators` of an iteration's operators, by their ids, in the
        order of execution."""
        shapes = {number: shape_of(each) for number, each in raw.graph_exec.var.items()}
        if self._sequence != raw.graph_exec.comp_seq:
            self._sequence, self._counted = raw.graph_exec.comp_seq, shapes
            self._places.clear()
        key = tuple(shapes.values())
        if key not in self._places:
            self._places[key] = self._add(raw, shapes)
        return self._places[key]

    def _add(self, raw: RawProfile, shapes: Mapping[str, Shape]) -> dict[str, int]:
        changed = {
            number: shape
            for number, shape in shapes.items()
            if shape is not None and shape != self._counted.get(number)
        }
        places: dict[str, int] = {}
        for position, recorded in enumerate(operators_of(raw)):
            operator = operator_now(recorded, raw, changed)
            name = NUMBER.sub("", operator.name)
            key = position, operator.type, name, operator.inputs, operator.outputs
            place = self._known.setdefault(key, len(self.operators))
            if place == len(self.operators):
                self.operators.append(operator)
                if moves_data(raw, operator):
                    self.moved_bytes[place] = bytes_of(operator.outputs)
            places[operator.id] = place
        return places

    def operators_with(self, algorithms: Mapping[Kernel, str]) -> tuple[ProfiledOperator, ...]:
        """Return the operators with the algorithms that were chosen for them."""
        return tuple(
            msgspec.structs.replace(operator, algorithm=algorithms.get(kernel_of(operator)))
            for operator in self.operators
        )


def operator_now(
    operator: ProfiledOperator, raw: RawProfile, changed: Mapping[str, tuple[int, ...]]
) -> ProfiledOperator:
    """Return an operator in the shapes of an iteration; `changed` has those of the variables that
    are others than the engine has counted with.

    It counts when a graph is compiled, which other shapes do not always make it do again.
    """
    own, variables = raw.graph_exec.operator[operator.id], raw.graph_exec.var
    if changed.keys().isdisjoint((*own.input, *own.output)):
        return operator
    written = [each for each in own.output if not variables[each].name.endswith(":workspace")]
    inputs = facts_with(operator.inputs, own.input, changed)
    outputs = facts_with(operator.outputs, written, changed)
    flops = None
    if operator.type in MOVES:
        flops = operator.flops
    elif operator.type in DERIVED:
        known = RawFootprint(param=operator.parameters)
        flops = flops_of_operator(operator.type, inputs, outputs, known)
    elif operator.flops is not None and operator.type in PROPORTIONAL:
        made, before = element_count(outputs[0]), element_count(operator.outputs[0])
        flops = operator.flops * made // before if before else None
    return msgspec.structs.replace(
        operator,
        inputs=inputs,
        outputs=outputs,
        flops=flops,
        size_bytes=moved_bytes_of(
            raw.graph_exec, own, inputs, outputs, bytes_of((*inputs, *outputs))
        ),
        source="derived",
    )


def facts_with(
    facts: Sequence[TensorFact], numbers: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[TensorFact, ...]:
    """Return facts with the shapes that are known of the variables with these numbers."""
    return tuple(
        msgspec.structs.replace(fact, shape=shapes.get(number, fact.shape))
        for fact, number in zip(facts, numbers, strict=False)
    )


def shape_of(variable: RawVariable) -> Shape:
    return variable.mem_plan.layout.shape if variable.mem_plan else None


def element_count(tensor: TensorFact) -> int:
    return math.prod(tensor.shape)


def kernel_of(operator: ProfiledOperator) -> Kernel:
    """Return what the engine chooses an algorithm for."""
    tensors = (*operator.inputs, *operator.outputs[:1])
    return Kernel(operator.type, tuple(each.shape for each in tensors))


def placed_plan(plan: MemoryPlan, places: Sequence[int]) -> MemoryPlan:
    """Return a memory plan with the operators' places instead of their order in the graph."""
    chunks = tuple(
        msgspec.structs.replace(
            chunk,
            first_operator=None if chunk.first_operator is None else places[chunk.first_operator],
            last_operator=None if chunk.last_operator is None else places[chunk.last_operator],
        )
        for chunk in plan.chunks
    )
    return msgspec.structs.replace(plan, chunks=chunks)


def moves_data(raw: RawProfile, operator: ProfiledOperator) -> bool:
    """Return whether an operator copies its input because a view of it is not enough."""
    if operator.type not in COPIES | RELAYOUTS:
        return False
    graph = raw.graph_exec
    own = graph.operator[operator.id]
    given = {chunk_of(graph.var[number]) for number in own.input}
    made = [graph.var[number] for number in own.output]
    # A value of the host's that the computation reads where it is.
    in_place = any("PERSISTENT_DEVICE_VALUE" in variable.flag for variable in made)
    return not in_place and not given & {chunk_of(variable) for variable in made} - {None}


def chunk_of(variable: RawVariable) -> str | None:
    return variable.mem_plan.mem_chunk_id if variable.mem_plan else None


def flops_of_operator(
    type: str, inputs: Sequence[TensorFact], outputs: Sequence[TensorFact], known: RawFootprint
) -> int | None:
    """Return the operations of an operator (`lar.engines.flops`); None if they are not known.

    The engine counts one for each element of a copied input, and none of many types.
    """
    if type in MOVES:
        return 0
    if type in CONVOLUTIONS and is_in_blocks(inputs, outputs, known):
        return flops_in_blocks(inputs, outputs)
    if known.computation is not None or type not in DERIVED or not isinstance(known.param, dict):
        return known.computation
    kind = KINDS[type]
    return flops_of(
        Operation(
            type=type,
            kind=kind,
            inputs=tuple(fact.shape for fact in inputs),
            outputs=tuple(fact.shape for fact in outputs),
            taps=taps_of(type, kind, known.param),
        )
    )


def is_in_blocks(
    inputs: Sequence[TensorFact], outputs: Sequence[TensorFact], known: RawFootprint
) -> bool:
    """Return whether a convolution gives blocks of channels: N, C / block, H, W, block."""
    layout = known.param.get("format") if isinstance(known.param, dict) else None
    return layout in BLOCKED and len(inputs) > 1 and len(outputs[0].shape) == 5


def flops_in_blocks(inputs: Sequence[TensorFact], outputs: Sequence[TensorFact]) -> int:
    """Return the operations of a convolution that gives blocks of channels: what fills the last
    block counts, and so does each bias or sum.

    The engine takes a filter of channels that fit into one block for a depthwise one, and counts
    an eighth of its products.
    """
    made = outputs[0].shape
    products = math.prod(made[:1] + made[2:4]) * math.prod(inputs[1].shape)
    added = sum(element_count(each) > 0 for each in inputs[2:])
    return 2 * products + added * math.prod(made)


def moved_bytes_of(
    graph: RawGraph,
    operator: RawOperator,
    inputs: Sequence[TensorFact],
    outputs: Sequence[TensorFact],
    counted: int | None,
) -> int | None:
    """Return how many bytes an operator reads and writes; the engine has `counted` some, or is not
    known to have.

    It counts what a view shows and what a constant holds, a tensor as often as it is an input, a
    broadcast one in the shape that it is seen in, and all that an operator picks some of.
    """
    written = bytes_of((*outputs,))
    if moves_nothing(graph, operator):
        return 0
    if written is not None and operator.type in COPIES:
        return 2 * written
    if counted is None:
        return None
    seen: set[str] = set()
    for number, fact in zip(operator.input, inputs, strict=False):
        plan = graph.var[number].mem_plan
        size = bytes_of((fact,))
        if plan is None or size is None:
            continue
        own = 0 if number in seen else stored_bytes(fact, plan.layout) or 0
        if operator.type in SELECTIONS and written is not None and not seen:
            own = min(own, written)
        seen.add(number)
        counted -= max(0, size - own)
    return max(counted, 0)


def stored_bytes(fact: TensorFact, layout: RawLayout) -> int | None:
    """Return the size of a tensor in memory, in which a broadcast one repeats nothing."""
    if len(layout.stride) != len(fact.shape):
        return bytes_of((fact,))
    axes = zip(fact.shape, layout.stride, strict=True)
    shape = tuple(axis if step else 1 for axis, step in axes)
    return bytes_of((msgspec.structs.replace(fact, shape=shape),))


def moves_nothing(graph: RawGraph, operator: RawOperator) -> bool:
    """Return whether an operator gives what is there already: a constant, a value of the host's
    that the computation reads where it is, a view of its input."""
    made = [graph.var[number] for number in operator.output]
    made = [variable for variable in made if not variable.name.endswith(":workspace")]
    if made and all("PERSISTENT_DEVICE_VALUE" in variable.flag for variable in made):
        return True
    if operator.type not in VIEWS:
        return False
    given = {chunk_of(graph.var[number]) for number in operator.input} - {None}
    return bool(given) and {chunk_of(variable) for variable in made} <= given


def bytes_of(tensors: tuple[TensorFact, ...]) -> int | None:
    """Return the size of tensors, None where a type's is not known."""
    total = 0
    for tensor in tensors:
        # float32, QuantizedS8, Quantized8Asymm
        found = re.search(r"\d+", tensor.dtype.replace("bool", "bool8"))
        if found is None:
            return None
        total += -(-element_count(tensor) * int(found[0]) // 8)
    return total


PLAN = "static plan"


def move_spans(graphs: ProfiledGraphs, executions: Iterable[Execution], device: str) -> SpanColumns:
    """Return a span for each execution that copies a tensor or converts its layout."""
    on_host = device.startswith("cpu")
    spans = SpanColumns()
    for each in executions:
        if each.operator not in graphs.moved_bytes:
            continue
        operator = graphs.operators[each.operator]
        copies = operator.type in COPIES
        source = "host" if on_host or operator.type == "Host2DeviceCopy" else "device"
        target = "host" if on_host else "device"
        direction = f"{source[0].upper()}to{target[0].upper()}"
        spans.add(
            each.start_ns + (each.wait_ns or 0),
            each.end_ns,
            each.step,
            category="memcpy" if copies else "relayout",
            name=f"[{'CPU' if on_host else 'CUDA'} memcpy {direction}]" if copies else "[relayout]",
            thread=each.thread,
            warmup=each.warmup,
            operator=each.operator,
            size_bytes=graphs.moved_bytes[each.operator],
            tensor=operator.name,
            device=None if on_host else device,
            stream=None if on_host else each.thread,
            source_kind=source if copies else None,
            destination_kind=target if copies else None,
        )
    return spans


def kernel_spans(
    operators: Sequence[ProfiledOperator],
    graphs: ProfiledGraphs,
    executions: Iterable[Execution],
    device: str,
) -> list[Span]:
    """Return a span for each execution that computes on a device, by its algorithm's name."""
    return [
        Span(
            category="kernel",
            name=operators[each.operator].algorithm or operators[each.operator].type,
            start_ns=each.start_ns + (each.wait_ns or 0),
            end_ns=each.end_ns,
            thread=each.thread,
            step=each.step,
            warmup=each.warmup,
            operator=each.operator,
            device=device,
            stream=each.thread,
        )
        for each in executions
        if each.compute_ns > 0
        and not (each.operator in graphs.moved_bytes and operators[each.operator].type in COPIES)
    ]


def allocations_of(
    plan: MemoryPlan, executions: Iterable[Execution], device: str
) -> list[Allocation]:
    """Return when the plan's pieces come into use and go out of it, in one iteration.

    A piece is taken when the first of its operators begins, and given back when the last one ends;
    but when the last one begins, if that writes what it makes into the same place.
    """
    times = {each.operator: (each.start_ns, each.end_ns) for each in executions}
    planned = [
        (chunk, first, last)
        for chunk in plan.chunks
        if (first := chunk.first_operator) in times and (last := chunk.last_operator) in times
    ]
    made: dict[int, list[MemoryChunk]] = {}
    for chunk, first, _ in planned:
        made.setdefault(first, []).append(chunk)
    events: list[tuple[int, int, int, Allocation]] = []
    for chunk, first, last in planned:
        over = any(overlap(chunk, each) for each in made.get(last, ()) if each is not chunk)
        begin, end = times[first][0], times[last][0 if over else 1]
        # Of what happens at one time, an operator gives back before the next one takes.
        for at, operator, order, sign in ((begin, first, 1, 1), (end, last, 0 if over else 2, -1)):
            taken = Allocation(at, sign * chunk.size_bytes, operator, chunk.address, device, PLAN)
            events.append((at, operator, order, taken))
    return [taken for *_, taken in sorted(events, key=lambda event: event[:3])]


def overlap(chunk: MemoryChunk, other: MemoryChunk) -> bool:
    return (
        chunk.address < other.address + other.size_bytes
        and other.address < chunk.address + chunk.size_bytes
    )


def begin_profile(driver: LiteDriver | GraphDriver, _: object) -> None:
    """Begin to profile, before the model is loaded."""
    if driver.profiler is not None:
        return  # for another of the options
    driver.profiler = taken = MegEngineProfiler(driver)
    taken.listen()
    if driver.name == "graph":
        tools = driver.tools

        def attach(graph: Any) -> None:
            profiler = tools.GraphProfiler(graph)
            taken.read = lambda: profiler.get().encode()

        driver.graph_setup.append(attach)


def take_profile(driver: LiteDriver | GraphDriver, _: object) -> None:
    """Have a loaded network profile itself, and report when an iteration ends."""
    if driver.name == "lite" and driver.profile_clock is None:
        if not driver.runner:
            release_loaded("megengine")  # a third of the memory that a small model takes
        place = Path(driver.context.written[asked_profile(driver).key] + ".engine")
        driver.network.enable_profile_performance(str(place))
        assert isinstance(driver.profiler, MegEngineProfiler)
        driver.profiler.read = place.read_bytes
        driver.profile_clock = ProfileClock(driver)
        driver.own_seconds = driver.profile_clock.own_seconds


def asked_profile(driver: LiteDriver | GraphDriver) -> Option[str]:
    return next(each for each in PROFILE_FILES if each.key in driver.spec.settings)


class ProfileClock:
    """Measures how long a wait was the writing of the profile."""

    def __init__(self, driver: LiteDriver) -> None:
        from megenginelite.network import LiteFinishCallback

        self._now = driver.clock
        self._finished: float | None = None
        self._own_seconds = 0.0
        self.missed_count = 0  # waits in which the callback did not come
        # Not by LiteNetwork.set_finish_callback, which lets go of it when another one is set.
        self._callback = LiteFinishCallback(self._finish)
        driver.network._api.LITE_set_finish_callback(driver.network._network, self._callback)

    def _finish(self, inputs: Any, tensors: Any, count: int) -> int:
        self._finished = self._now()
        return 0

    def around(self, wait: Callable[[], int]) -> Callable[[], int]:
        """Return a wait whose end is looked at."""

        def wait_and_look() -> int:
            self._finished = None
            status = wait()
            returned = self._now()
            if self._finished is None:
                self.missed_count += 1
            self._own_seconds = returned - (self._finished or returned)
            return status

        return wait_and_look

    def own_seconds(self) -> float:
        """Return how long the last wait went on after the iteration had ended."""
        return self._own_seconds


class MegEngineProfiler:
    """Keeps what the engine reports of each iteration."""

    def __init__(self, driver: LiteDriver | GraphDriver) -> None:
        self.driver = driver
        self.read: Callable[[], bytes] = bytes
        self._graphs = ProfiledGraphs()
        self._iterations = Iterations()
        self._threads: dict[int, str] = {}
        self._plan = MemoryPlan()  # the largest
        # That of each iteration, where its memory is asked for; most have one and the same.
        self._plans: dict[int, MemoryPlan] = {}
        self._known_plans: dict[MemoryPlan, MemoryPlan] = {}
        self._last = b""
        self._choices: list[bytes] = []
        self._listener = ChoiceListener(self._choices.append)
        self._listened = False

    def listen(self) -> None:
        """Listen to the choices of algorithms until the first iteration has ended."""
        self._listened = self._listener.begin(asked_profile(self.driver).flag)

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Keep what the engine has reported of an iteration that has just ended."""
        self._listener.end()
        self._last = self.read()
        raw = decode_raw(self._last)
        if not raw.profiler.device:
            return  # nothing was computed: the first execution of --fake-first
        places = self._graphs.places_in(raw)
        self._threads |= threads_of(raw)
        own = executions_of(raw, places, step=step.number, warmup=step.warmup)
        self._iterations.add(step, forward_ns, dispatched_ns, waited_ns, own)
        plan = placed_plan(memory_plan_of(raw), [*places.values()])
        self._plan = max(self._plan, plan, key=lambda each: each.static_bytes or 0)
        if PROFILE_MEMORY.is_given(self.driver.spec.settings):
            self._plans[step.number] = self._known_plans.setdefault(plan, plan)

    def finish(self) -> EngineTrace:
        """Return all that was kept, on the recorder's clock."""
        hosts, devices = fit_clocks(self._iterations)
        executions = self._iterations.executions
        executions.rewrite(place_executions(self._iterations, hosts, devices))
        choices = b"\n".join(self._choices).decode(errors="replace")
        algorithms = algorithms_in(choices)
        operators = self._graphs.operators_with(algorithms)
        device = self.driver.spec.device
        spans = move_spans(self._graphs, executions, device)
        if not device.startswith("cpu"):
            spans.add_all(kernel_spans(operators, self._graphs, executions, device))
        allocations: list[Allocation] = []
        by_step = groupby(executions if self._plans else (), key=lambda each: each.step)
        for number, group in by_step:
            if plan := self._plans.get(number):
                allocations += allocations_of(plan, [*group], device)
        chosen = {kernel.type for kernel in algorithms}
        unknown = sum(each.type in chosen and each.algorithm is None for each in operators)
        return EngineTrace(
            operators=operators,
            executions=executions,
            spans=spans,
            allocations=tuple(allocations),
            memory_plan=self._plan,
            threads={
                number: name for number, name in self._threads.items() if number != HOST_THREAD
            },
            thread_count=self.driver.thread_count(),
            alignments=(
                *alignments_of("MegEngine's host clock", hosts, self._iterations),
                *alignments_of("MegEngine's device clock", devices, self._iterations),
            ),
            dropped=tuple(self._dropped(unknown, has_dispatches=bool(hosts))),
            engine_raw=self._last,
        )

    def _dropped(self, unknown_count: int, *, has_dispatches: bool) -> Iterator[str]:
        """Yield what the engine could not report, such as the algorithms of so many operators."""
        if self._iterations and not has_dispatches:
            yield "the dispatch of operators: the thread that dispatches computes them meanwhile"
        if not self._listened:
            yield "the algorithms of operators: this build of MegEngine does not report them"
        elif unknown_count:
            yield (
                f"the algorithms of {count_of(unknown_count, 'operator')}: reported in the first "
                "iteration alone, which had other shapes"
            )
        clock = getattr(self.driver, "profile_clock", None)
        if clock is not None and clock.missed_count:
            yield (
                f"the ends of {count_of(clock.missed_count, 'iteration')}: their times include the "
                "writing of MegEngine's profile"
            )
