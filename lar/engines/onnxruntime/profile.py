"""Converts ONNX Runtime's profile to lar's records, in which times are on the recorder's clock.

ONNX Runtime reports no allocations, so memory is estimated from the sizes of outputs. A tensor is
assumed to be allocated when the operator that computes it begins, and to be freed when the last
operator that reads the tensor ends. The estimate of memory leaves out scratch buffers. The estimate
of memory also ignores that the engine computes in place and keeps freed memory.

The profile has the name of each node, and the shapes of the node's tensors in the run. The profile
has no attributes, and does not have the weights that were rearranged during the load. The
attributes and the rearranged weights are read from the optimised model, which ONNX Runtime saves.
If the profile and the optimised model list equal operators in equal order, nodes are matched by
their positions. Otherwise, nodes are matched by name. The profile uses `TYPE_INDEX` as the name of
a node without a name. Nodes without a name are matched in the order of their indices. The names of
reorder operators are ignored.
"""

from __future__ import annotations

import os
import re
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, takewhile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lar.engines import operator_times
from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.onnx_file.fields import Message
from lar.engines.onnxruntime import profile_file
from lar.engines.onnxruntime.kernels import BLOCKED_NAME, DOMAIN, VIEWS, OptimizedGraph, block_size
from lar.engines.onnxruntime.profile_file import (
    DeviceRecorder,
    DeviceWork,
    NodeKey,
    RawEvent,
    RawRun,
    ThreadUses,
    open_recorder,
)
from lar.engines.onnxruntime.providers import CPU, DEVICES, one_line
from lar.engines.onnxruntime.saving import release_memory, save_optimized
from lar.engines.operator_times import RELAYOUT, bytes_of, copy_span, layer_in
from lar.errors import LarError, UsageError
from lar.options.table import PROFILE_MEMORY, PROFILES, one_of
from lar.profiles.times import merge_intervals, total_of
from lar.records import profile as types
from lar.records.profile import (
    Allocation,
    Count,
    Execution,
    ExecutionColumns,
    ProfiledOperator,
    RecordColumns,
    SpanColumns,
    Step,
    TensorFact,
)

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

HINT = "ONNX Runtime's file is what --profile-raw wrote, lar's what --profile wrote"
ROUNDING_NS = 1000  # the engine's times are whole microseconds, rounded down
# An estimate has no real addresses. An address is made of the number of the iteration and, in these
# low bits, the number of the tensor.
ADDRESS_BITS = 32

# The spans of nodes that convert a layout, or copy between the host and a device.
SPANS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("ReorderInput", "ReorderOutput", "Transpose"), RELAYOUT),
    "MemcpyFromHost": copy_span("host", "device"),
    "MemcpyToHost": copy_span("device", "host"),
}
BY_NAME = {str(span["name"]): span for span in SPANS.values()}

# NumPy's names of element types, where the engine's names differ.
OTHER_NAMES = {"float": "float32", "double": "float64"}
TENSORS = msgspec.json.Decoder(list[dict[str, tuple[Count, ...]]])

# The path of a layer in a name by torch's exporter, such as `/layer1/conv/Conv`.
SCOPE = re.compile(r"/?(.+)/[^/]+")
# What ONNX Runtime adds to the name of a node that it made of several nodes, or changed.
MADE = re.compile(rf"^fused |{BLOCKED_NAME}$|(/\w+Fusion/?)+(_token_\d+)?$")
# Names of reorders, which each session gives to other nodes.
REORDER = re.compile(r"Reorder(Input|Output)(_token_\d+)?")

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
NO_RATES = "FLOPs and bytes: rates of a dispatch have no meaning"
NOT_IN_FILE = (
    "FLOPs and bytes: the file has neither the weights nor the attributes",
    "warm-up: the file does not record which runs were part of it",
)

# The contents of runs


class Call(NamedTuple):
    """A call of the engine in an iteration, with the times of the call and of its return."""

    step: Step
    begin_ns: int
    end_ns: int


class RunEvents:
    """What happened in all runs of the engine: executions of operators, and spans within them.

    For an operator on the CPU, the engine reports the thread and the time of each execution. For an
    operator on a device, the time of an execution is the time in which its kernels run. The times
    of kernels are in the engine's report or in `works`. If the kernels are unknown, the time in
    which the operator was dispatched is used, since the engine always reports this time.

    `runs` has the nodes of the first run only. `nodes` has the first event of each operator. At
    first, `executions` have times on the engine's clock and the numbers of runs. `trace` replaces
    these times by times on lar's clock, and these numbers by iterations. The first `warmups` runs
    are not timed.
    """

    def __init__(self, events: Iterable[RawEvent], warmups: int = 0) -> None:
        self.load: list[RawEvent] = []
        self.runs: list[RawRun] = []
        self.nodes: list[RawEvent] = []
        self.executions, self.spans = ExecutionColumns(), SpanColumns()
        self.uses = ThreadUses()
        self._numbers: dict[str, int] = {}  # of threads, by their names
        places: dict[object, int] = {}
        for number, run in enumerate(profile_file.runs_in(events, self.load)):
            for node in run.nodes:
                args = node.args
                shapes = bytes(args.input_type_shape), bytes(args.output_type_shape)
                place = places.setdefault((node.key, *shapes), len(places))
                if place == len(self.nodes):
                    self.nodes.append(node)
                self.uses.add(place, args.thread_scheduling_stats, timed=number >= warmups)
                same = node.tid == run.thread
                thread = HOST_THREAD if same else self._number_of(f"thread {node.tid}")
                self.executions.append(Execution(place, number, thread, *node.interval))
            self.runs.append(run._replace(nodes=()) if number else run)

    def _number_of(self, name: str) -> int:
        return self._numbers.setdefault(name, HOST_THREAD + 1 + len(self._numbers))

    def trace(
        self,
        device: str,
        graph: OptimizedGraph,
        placed: Sequence[tuple[Step, int]],
        offset_ns: int = 0,
        works: Sequence[DeviceWork] = (),
    ) -> EngineTrace:
        """Return the trace of all runs, with times of lar's clock.

        `placed` has the iteration of each run, and the offset to add to the times of the run.
        `offset_ns` is the offset to add to the times of events before the runs.
        """
        pairs = zip(self.runs, placed, strict=False)
        works = [each.moved(own_ns) for run, (_, own_ns) in pairs for each in run.works] or works
        on_cpu = device.startswith("cpu")
        on_device, dispatch_only = bool(works) and not on_cpu, not works and not on_cpu
        for event in self.load:
            times = [each + offset_ns for each in event.interval]
            self.spans.add(*times, category="runtime", name=event.name, thread=HOST_THREAD)
        self.executions.rewrite(self._placed(placed, on_device=on_device))
        self.executions.sort_by_start()
        if on_device:
            self.executions.rewrite(self._of_works(works, device))
        self.executions.sort_by_start()
        busy = self.uses.busy_threads()
        for number, _ in enumerate(busy, start=1):
            self._number_of(f"intra-op {number}")
        dropped = [] if on_device else [NO_PARTS]
        return EngineTrace(
            operators=tuple(self._operators(graph, dispatch_only=dispatch_only)),
            executions=self.executions,
            spans=self.spans,
            threads={number: name for name, number in self._numbers.items()},
            thread_count=1 + len(busy),
            dropped=(*dropped, *((NO_KERNELS, NO_RATES) if dispatch_only else ())),
            dispatch_only=dispatch_only,
        )

    def _operators(
        self, graph: OptimizedGraph, *, dispatch_only: bool
    ) -> Iterator[ProfiledOperator]:
        """Yield an operator for each node and each combination of its shapes."""
        matched, ids = match_nodes(self.runs, self.nodes, graph), Counter[str]()
        for place, event in enumerate(self.nodes):
            args, node = event.args, matched.get(event.key)
            again = ids[args.node_index] = ids[args.node_index] + 1
            known: dict[str, Any] = {"inputs": facts_in(args.input_type_shape)}
            known["outputs"] = facts_in(args.output_type_shape)
            if node is not None:
                known |= graph.known_of(node, **known)
            if dispatch_only:
                known |= {"flops": None, "size_bytes": None}
            yield operator_times.derived_operator(
                event.node,
                module=module_of(event.node, known, graph.mains.get(event.node)),
                id=args.node_index if again == 1 else f"{args.node_index}.{again}",
                type=args.op_name,
                provider=args.provider,
                threads=self.uses.by_operator.get(place),
                **known,
            )

    def _placed(
        self, placed: Sequence[tuple[Step, int]], *, on_device: bool
    ) -> Iterator[Execution]:
        """Yield the executions with times on lar's clock, and add spans for copies.

        Spans for conversions of a layout are added too.
        """
        for each in takewhile(lambda it: it.step < len(placed), self.executions):
            (step, own_ns), args = placed[each.step], self.nodes[each.operator].args
            times = each.start_ns + own_ns, each.end_ns + own_ns
            node = Execution(each.operator, step.number, each.thread, *times, warmup=step.warmup)
            yield node
            span = SPANS.get(args.op_name)
            if span and not (on_device and span is RELAYOUT):
                size_bytes = bytes_of(facts_in(args.output_type_shape))
                common = {"size_bytes": size_bytes, **span, **here_of(node)}
                self.spans.add(*times, step.number, thread=node.thread, **common)

    def _of_works(self, works: Iterable[DeviceWork], device: str) -> Iterator[Execution]:
        """Yield the executions on a device, and add the spans of the device's work.

        A piece of the device's work belongs to the last node that began before the host requested
        this work. If this node had already ended by then, the work belongs to no node.
        """
        starts = [each.start_ns for each in self.executions]
        owned: defaultdict[int, list[DeviceWork]] = defaultdict(list)
        for work in works:
            place = bisect_right(starts, work.called_ns) - 1
            if place >= 0 and work.called_ns <= self.executions[place].end_ns + ROUNDING_NS:
                owned[place].append(work)
        for place, node in enumerate(self.executions):
            event = self.nodes[node.operator]
            if own := owned.get(place):
                streams = [self._number_of(f"stream {each.stream}") for each in own]
                times = [(each.start_ns, each.end_ns) for each in own]
                for each, thread, lasting in zip(own, streams, times, strict=True):
                    facts = {**here_of(node), **each.facts(), **BY_NAME.get(each.name, {})}
                    self.spans.add(*lasting, node.step, thread=thread, device=device, **facts)
                start, end = min(times)[0], max(end for _, end in times)
                # Between kernels the device waits for the host to dispatch the next kernel.
                waited = end - start - total_of(merge_intervals(times))
                known = node.step, streams[0], start, end, waited, *node.interval, HOST_THREAD
                yield Execution(node.operator, *known, node.warmup)
            elif event.args.provider == CPU:
                yield node
            else:  # a node without work on the device, such as a view
                common = {"category": "runtime", "name": event.node, **here_of(node)}
                self.spans.add(*node.interval, node.step, thread=node.thread, **common)


def here_of(node: Execution) -> dict[str, Any]:
    """Return the fields that say to which execution a span belongs."""
    return {"operator": node.operator, "warmup": node.warmup}


def facts_in(raw: msgspec.Raw) -> tuple[TensorFact, ...]:
    """Return the shapes and types of the inputs or outputs that an event lists.

    The engine's list leaves out values that are not tensors, inputs that are not given, and weights
    that were rearranged during the load.

    Raises:
        msgspec.MsgspecError: the list has a format that lar cannot read.
    """
    pairs = (pair for each in TENSORS.decode(raw) for pair in each.items())
    return tuple(TensorFact(shape, OTHER_NAMES.get(name, name)) for name, shape in pairs)


def module_of(name: str, known: Mapping[str, Any], main: Message | None = None) -> str:
    """Return the path of a node's layer, from the names of the node, its weights and outputs.

    `main` is the convolution of which the engine made the node. The names of `main` are used first,
    since the engine names a node after the output of the last operator that it fused into the node.
    """
    if main and (path := module_of(main.name, {"weights": main.input[1:]})):
        return path
    own, weights = MADE.sub("", name), known.get("weights", ())
    path = layer_in((own, *weights), SCOPE) or layer_in((*weights, own), operator_times.DOTTED)
    return path or layer_in(known.get("writes", ()), SCOPE)


# The nodes of events


def match_nodes(
    runs: Sequence[RawRun], known: Iterable[RawEvent], graph: OptimizedGraph
) -> dict[NodeKey, Message]:
    """Return the node of the optimised model for each event, if this node is certain.

    The first element of `runs` must contain all nodes that the first run has executed.
    """
    first = [event for run in runs[:1] for event in run.nodes]
    names = {"" if REORDER.fullmatch(node.name) else node.name for node in graph.nodes}
    # Match by order, if types and stable names agree for all nodes.
    labels = [(node.op_type, node.name if node.name in names else "") for node in graph.nodes]
    if [label_of(event, names) for event in first] == labels:
        return {event.key: node for event, node in zip(first, graph.nodes, strict=True)}
    alike: dict[tuple[str, str], dict[NodeKey, RawEvent]] = defaultdict(dict)
    for event in known:
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
    """Return the type and the name of an event's node.

    The name is empty if the session has invented it.
    """
    made_up = f"{event.args.op_name}_{event.args.node_index}"
    is_own = event.node in names if event.node == made_up else not REORDER.fullmatch(event.node)
    return event.args.op_name, event.node if is_own else ""


# Memory


@dataclass
class Tensor:
    """A tensor of one iteration, the execution that computes it, and its last reader."""

    size_bytes: int
    maker: Execution
    reader: Execution


def allocations_of(
    trace: EngineTrace, outputs: Iterable[str], calls: Iterable[Call]
) -> tuple[Allocation, ...]:
    """Return the allocations and frees of memory in each iteration, in the order of time.

    The model's outputs stay allocated until the iteration has ended.
    """
    ends, found = {it.step.number: it.step.end_ns for it in calls}, list[Allocation]()
    for number, executions in groupby(trace.executions, key=attrgetter("step")):
        held: dict[str, Tensor] = {}
        taken = [*tensors_of(executions, trace.operators, held)]
        kept = [held.get(name) for name in outputs]
        for place, it in enumerate(taken):
            address = (number << ADDRESS_BITS) + place
            at = ends[number] if any(it is each for each in kept) else it.reader.end_ns
            sides = (it.maker, it.maker.start_ns, it.size_bytes), (it.reader, at, -it.size_bytes)
            for user, time, size in sides:
                found.append(Allocation(time, size, user.operator, address, source="estimate"))
    return tuple(sorted(found, key=attrgetter("at_ns")))


def tensors_of(
    executions: Iterable[Execution], operators: Sequence[ProfiledOperator], held: dict[str, Tensor]
) -> Iterator[Tensor]:
    """Yield the tensors that the executions of one iteration compute.

    `held` has the last tensor of each name. A tensor in a loop is yielded once for each time that
    the loop computes the tensor.
    """
    for execution in executions:
        operator = operators[execution.operator]
        for name in operator.reads:
            if name in held:
                held[name].reader = execution
        if operator.type in VIEWS:
            shown = [held[name] for name in operator.reads[:1] if name in held]
            held.update((name, it) for name in operator.writes for it in shown)
        elif len(operator.outputs) == len(operator.writes):
            for name, fact in zip(operator.writes, operator.outputs, strict=True):
                if size := bytes_of((fact,)):
                    held[name] = Tensor(size, execution, execution)
                    yield held[name]


# The driver's session


def profile_of_raw(data: bytes, name: str) -> types.Profile:
    """Return the profile in a file that ONNX Runtime wrote; all runs in the file count as timed.

    Raises:
        UsageError: the file contains no run.
        msgspec.MsgspecError, ValueError: the file is truncated or damaged, or is not a profile of
        ONNX Runtime.
    """
    events = RunEvents(profile_file.decode_events(data))
    if not events.runs:
        raise UsageError("the profile contains no run of a model", HINT, subject=name)
    device = "cuda" if any(it.args.provider in DEVICES for it in events.nodes) else "cpu"
    steps = [Step(number, it.start_ns, it.end_ns) for number, it in enumerate(events.runs)]
    trace = events.trace(device, OptimizedGraph(), [(step, 0) for step in steps])
    return types.Profile(
        facts=types.ProfileFacts(
            engine="onnxruntime",
            device=device,
            iterations=len(steps),
            threads=trace.thread_count,
            dropped=(*trace.dropped, *NOT_IN_FILE),
            dispatch_only=trace.dispatch_only,
        ),
        operators=trace.operators,
        steps=tuple(steps),
        executions=tuple(trace.executions),
        spans=tuple(trace.spans),
        threads={HOST_THREAD: "host", **trace.threads},
    )


def start_profiling(driver: SessionDriver, _: object) -> None:
    """Have the driver's session write its own profile, into the folder of lar's profile."""
    if driver.profiler is None:
        is_read = one_of(PROFILES, driver.spec.settings) is not None
        on_device = driver.asked_provider() in DEVICES and driver.spec.runners == 1
        device = open_recorder() if is_read and on_device else None
        driver.profiler = SessionProfiler(driver, device)
        driver.options.enable_profiling = True
        # The engine adds only the time in seconds to the name, so copies need different prefixes.
        prefix = os.path.join(folder_of(driver), f"onnxruntime_{driver.runner}")
        driver.options.profile_file_prefix = prefix


def folder_of(driver: SessionDriver) -> str:
    """Return the folder for the run's profile, which lar removes after the run."""
    written = driver.context.written
    return os.path.dirname(next(written[it] for it in ("profile", "profile_raw") if it in written))


class SessionProfiler:
    """Records the times of iterations, and reads the session's profile after the last iteration."""

    def __init__(self, driver: SessionDriver, device: DeviceRecorder | None = None) -> None:
        self.driver, self._device = driver, device
        self._calls = RecordColumns(lambda *it: Call(Step(*it[:5]), *it[5:]), "qqqBiqq")

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self._calls.add(*msgspec.structs.astuple(step), forward_ns, dispatched_ns)

    @cached_property
    def graph(self) -> tuple[OptimizedGraph, tuple[str, ...]]:
        """The graph that the driver runs, or an empty graph and the reason why it cannot be saved.

        Copies of the model share the graph of the first copy.
        """
        driver, first = self.driver, self.driver.first.profiler
        if isinstance(first, SessionProfiler) and first is not self:
            return first.graph
        try:
            content = driver.saved.content if driver.saved else save_graph(driver)
            is_blocked = DOMAIN.encode() in content
            plain = save_graph(driver, level="basic") if is_blocked else b""
        except Exception as error:  # the engine has no one kind for these
            why = f"ONNX Runtime cannot save the graph: {one_line(str(error))}"
            return OptimizedGraph(), (f"FLOPs, bytes and memory: {why}",)
        layout = f"NCHW{block_size(driver.onnxruntime)}c" if is_blocked else ""
        return OptimizedGraph(content, plain, layout), ()

    def end(self) -> tuple[str, int]:
        """End the session, and return its profile file and the time when the profile began.

        Raises:
            LarError: the engine could not write the whole file.
        """
        began_ns = self.driver.session.get_profiling_start_time_ns()
        file = self.driver.session.end_profiling()
        self.driver.drop_session()  # the session keeps all its events in memory
        release_memory()
        with open(file, "rb") as content:
            content.seek(max(0, os.path.getsize(file) - 100))
            if not content.read().rstrip().endswith(b"]"):  # the engine does not report this
                problem = "ONNX Runtime could not write the whole of its profile"
                raise LarError(problem, "make room on the disk")
        return file, began_ns

    def finish(self) -> EngineTrace:
        driver, settings = self.driver, self.driver.spec.settings
        unix_ns, device = driver.recorder.unix_ns, driver.facts().device
        works = [it.moved(-unix_ns) for it in (self._device.finish() if self._device else [])]
        file, began_ns = self.end()
        if one_of(PROFILES, settings) is None:
            return EngineTrace(raw_file=file)
        calls, (graph, reason) = [*self._calls], self.graph
        events = RunEvents(profile_file.events_in(file), sum(it.step.warmup for it in calls))
        placed, alignment = place_runs(events.runs, calls, began_ns - unix_ns)
        trace = events.trace(device, graph, placed, alignment.offset_ns, works)
        with_memory = PROFILE_MEMORY.is_given(settings) and device.startswith("cpu")
        hint = WITH_CUPTI if driver.spec.runners == 1 else ONE_COPY
        return replace(
            trace,
            allocations=allocations_of(trace, graph.outputs, calls) if with_memory else (),
            # The trace counts too few threads if short operators leave some of them without work.
            thread_count=driver.thread_count() or trace.thread_count,
            alignments=(alignment,),
            dropped=(*trace.dropped, *reason, *cut_of(len(events.runs), len(calls))),
            notes=(hint,) if trace.dispatch_only else (),
            raw_file=file,
        )


def save_graph(driver: SessionDriver, level: str = "") -> bytes:
    """Return the optimised model of a driver without its larger weights.

    `level` is the level of optimisation; if it is empty, the level of the driver is used.
    """
    with tempfile.TemporaryDirectory(dir=folder_of(driver)) as folder:
        # The engine always writes the weights, and only into the model's folder: discard them.
        os.symlink(os.devnull, os.path.join(folder, "weights"))
        path = Path(folder, "optimized.onnx")
        save_optimized(driver, path, "weights", level=level)
        return path.read_bytes()


def cut_of(runs: int, calls: int) -> list[str]:
    """Return a note on the iterations that are missing in the profile, or an empty list."""
    what = f"the operators of the last {calls - runs} of {calls} iterations"
    why = f"ONNX Runtime keeps {profile_file.MOST_EVENTS} events"
    return [f"{what}: {why}"] if calls > runs else []


def place_runs(
    runs: Sequence[RawRun], calls: Sequence[Call], guess_ns: int
) -> tuple[list[tuple[Step, int]], types.Alignment]:
    """Return the iteration and the clock offset of each run, and the offset for times outside runs.

    Each run lies within the call that started the run. So each call gives an upper and a lower
    bound for the offset of the engine's clock. `guess_ns` is a first guess of the offset, according
    to the time of day. If the guess is outside the bounds that the calls give, the nearest bound is
    used. In addition, each run gets an offset with which the run lies within the call that started
    the run.
    """
    pairs = [*zip(runs, calls, strict=False)]
    if not pairs:
        return [], types.Alignment("onnxruntime", guess_ns)
    bounds = [(call.begin_ns - run.start_ns, call.end_ns - run.end_ns) for run, call in pairs]
    least, most = max(low for low, _ in bounds) - ROUNDING_NS, min(high for _, high in bounds)
    # If the time of day was set during the run, no single offset fits all runs.
    offset = min(max(guess_ns, least), most) if least <= most else (least + most) // 2
    error = max(abs(offset - least), abs(most - offset))
    own = (min(max(offset, low), high) for low, high in bounds)
    placed = [(call.step, each) for (_, call), each in zip(pairs, own, strict=True)]
    return placed, types.Alignment("onnxruntime", offset, error)
