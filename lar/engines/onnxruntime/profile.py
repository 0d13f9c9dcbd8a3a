"""ONNX Runtime's profile, taken on the clock of the run's recorder, as lar's records.

ONNX Runtime reports no allocations: the memory that operators take is estimated from the sizes of
their outputs. A tensor is taken to be allocated when the operator that gives it begins, and given
back when the last operator that reads it has ended. What the engine reuses in place, or keeps for
later, is not seen; neither are scratch buffers.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.onnxruntime.cupti import DeviceRecorder, DeviceWork, open_recorder
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.profile_file import (
    MOST_EVENTS,
    NodeEvent,
    RawEvent,
    RawRun,
    decode_events,
    events_in,
    read_raw,
    runs_in,
)
from lar.engines.onnxruntime.profiled_operators import (
    VIEWS,
    OperatorTable,
    OptimizedGraph,
    bytes_of,
    read_graph,
)
from lar.engines.onnxruntime.providers import CPU, DEVICES
from lar.engines.onnxruntime.thread_use import ThreadUses
from lar.errors import LarError, UsageError
from lar.options.table import PROFILE_MEMORY, PROFILES, one_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.records.columns import ExecutionColumns, RecordColumns, SpanColumns, step_columns
from lar.records.profile import (
    Alignment,
    Allocation,
    Execution,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Span,
    Step,
)

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

HINT = "ONNX Runtime's file is what --profile-raw wrote, lar's what --profile wrote"
ROUNDING_NS = 1000  # the engine's times are whole microseconds, rounded down
# An estimate has no addresses: the number of an iteration and, in these bits, that of a tensor.
ADDRESS_BITS = 32

RELAYOUTS = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})

# Nodes that copy between the host and a device: from where, where to, what the span is called.
COPIES = {
    "MemcpyFromHost": ("host", "device", "[CUDA memcpy HtoD]"),
    "MemcpyToHost": ("device", "host", "[CUDA memcpy DtoH]"),
}

ENDS = {name: (source, destination) for source, destination, name in COPIES.values()}

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


class Call(NamedTuple):
    """The times at which an iteration called the engine and that call returned."""

    step: Step
    begin_ns: int
    end_ns: int


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
        self,
        runs: Iterable[TimedRun],
        nodes: Iterable[Sequence[NodeEvent]],
        works: Sequence[DeviceWork] = (),
    ) -> None:
        """Add what is in runs, in the order of time: the nodes of each, and what `works` tells of
        the device where the nodes do not."""
        for run, own in zip(runs, nodes, strict=False):
            for node in with_works(run, own, works) if works else own:
                self._add_node(run, node)
        self.executions.sort_by_start()
        for number, name in enumerate(self.uses.busy_threads(), start=1):
            self._number_of(f"pool {name}", f"intra-op {number}")

    def operators(self) -> tuple[ProfiledOperator, ...]:
        """Return the operators, with the use that each made of the engine's threads."""
        operators = self.uses.added_to(self.table.operators)
        if not self.dispatch_only:
            return operators
        nothing = {"flops": None, "size_bytes": None, "source": "none"}
        return tuple(msgspec.structs.replace(each, **nothing) for each in operators)

    def _number_of(self, key: str, name: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = number = HOST_THREAD + 1 + len(self._numbers)
            self.threads[number] = name
        return self._numbers[key]

    def _add_node(self, run: TimedRun, node: NodeEvent) -> None:
        event, step, args = node.event, run.step, node.event.args
        start, end = event.start_ns + run.offset_ns, event.end_ns + run.offset_ns
        place = self.table.place_of(event)
        self.uses.add(place, bytes(args.thread_scheduling_stats), timed=not step.warmup)
        same = event.tid == run.raw.thread
        thread = HOST_THREAD if same else self._number_of(f"{event.tid}", f"thread {event.tid}")
        here = {"thread": thread, "warmup": step.warmup, "operator": place}
        if not self.on_device or (args.provider == CPU and not node.kernels):
            self.executions.append(
                Execution(place, step.number, thread, start, end, warmup=step.warmup)
            )
        elif node.kernels:
            self._add_kernels(run, node, place)
        else:  # it has nothing to do there, as a view
            named: dict[str, Any] = {"category": "runtime", "name": event.node}
            self.spans.add(start, end, step.number, **named, **here)
        if args.op_name in RELAYOUTS and not self.on_device:
            named = {"category": "relayout", "name": "[relayout]"} | self.size_of(place)
            self.spans.add(start, end, step.number, **named, **here)
        elif args.op_name in COPIES:
            source, destination, name = COPIES[args.op_name]
            named = {"category": "memcpy", "name": name, "source_kind": source}
            named |= {"destination_kind": destination} | self.size_of(place)
            self.spans.add(start, end, step.number, **named, **here)

    def size_of(self, place: int) -> dict[str, Any]:
        return {"size_bytes": bytes_of(self.table.operators[place].outputs)}

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


def with_works(
    run: TimedRun, nodes: Sequence[NodeEvent], works: Sequence[DeviceWork]
) -> list[NodeEvent]:
    """Return nodes with what they had a device do: a work, of which the host asked for in the order
    given, is of the node that was last begun then and had not ended."""
    offset = run.offset_ns
    starts = [node.event.start_ns + offset for node in nodes]
    own: list[list[DeviceWork]] = [[] for _ in nodes]
    first = bisect_left(works, run.raw.start_ns + offset, key=called_at)
    for work in works[first : bisect_right(works, run.raw.end_ns + offset, key=called_at)]:
        place = bisect_right(starts, work.called_ns) - 1
        if place >= 0 and work.called_ns <= nodes[place].event.end_ns + offset + ROUNDING_NS:
            own[place].append(work.moved(-offset))
    return [NodeEvent(node.event, tuple(it)) for node, it in zip(nodes, own, strict=True)]


def called_at(work: DeviceWork) -> int:
    return work.called_ns


def has_kernels(runs: Iterable[RawRun]) -> bool:
    """Return whether it is known what a device did in some runs."""
    return any(node.kernels for run in runs for node in run.nodes)


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
        if node.message.op_type in VIEWS:
            roots.update({name: roots.get(node.inputs[0], node.inputs[0]) for name in node.outputs})
            continue
        made = table.operators[execution.operator].outputs
        for name, fact in zip(node.outputs, made, strict=False):
            if len(made) == len(node.outputs) and (size := bytes_of((fact,))):
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
            found.append(Allocation(time, signed, user.operator, address, source="estimate"))
    return found


def profile_of_raw(data: bytes, name: str) -> Profile:
    """Return the profile of the runs that the engine's own file holds, which may all be timed.

    Raises:
        UsageError: it holds no run.
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    read = decode_events(data)
    raw = read_raw(read)
    if not raw.runs:
        raise UsageError("no run of a model is in it", HINT, subject=name)
    providers = {node.event.args.provider for run in raw.runs for node in run.nodes}
    device = "cuda" if providers & DEVICES.keys() else "cpu"
    events = RunEvents(OperatorTable(raw, None), device, no_kernels=not has_kernels(raw.runs))
    runs = [
        TimedRun(run, Step(number, run.start_ns, run.end_ns), 0)
        for number, run in enumerate(raw.runs)
    ]
    events.add_runs(runs, (run.nodes for run in runs_in(read)))
    return Profile(
        facts=ProfileFacts(
            engine="onnxruntime",
            device=events.device,
            iterations=len(runs),
            threads=1 + len(events.uses.busy_threads()),
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
        self._graph = self._graph or graph_of(self.driver)
        return self._graph

    def end(self) -> tuple[str, int]:
        """End the session; return its file, and when that began by the time of day.

        Raises:
            LarError: it could not be written whole.
        """
        from lar.engines.onnxruntime.saving import release_memory

        began_ns = self.driver.session.get_profiling_start_time_ns()
        file = self.driver.session.end_profiling()
        self.driver.drop_session()  # it holds all its events until it goes
        release_memory()
        with open(file, "rb") as content:
            content.seek(max(0, os.path.getsize(file) - 100))
            if not content.read().rstrip().endswith(b"]"):  # it does not say so itself
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
        steps, graph = [*self._steps], self.read_graph()
        calls = [Call(step, *times) for step, times in zip(steps, self._times, strict=True)]
        raw = read_raw(events_in(file))
        offset, error = align_runs(raw.runs, calls, began_ns - unix_ns)
        table = OperatorTable(raw, graph[0])
        works = [] if has_kernels(raw.runs) else works
        no_kernels = not (works or has_kernels(raw.runs))
        events = RunEvents(table, device, no_kernels=no_kernels)
        runs = place_runs(raw.runs, calls, offset)
        events.add_runs(runs, (run.nodes for run in runs_in(events_in(file))), works)
        with_memory = PROFILE_MEMORY.is_given(settings) and device.startswith("cpu")
        events.spans.add_all(load_spans(raw.load, offset))
        hint = WITH_CUPTI if driver.spec.runners == 1 else ONE_COPY
        return EngineTrace(
            operators=events.operators(),
            executions=events.executions,
            spans=events.spans,
            allocations=allocations_of(events.executions, steps, table) if with_memory else (),
            threads=events.threads,
            # Short operators leave some of the threads without work.
            thread_count=driver.thread_count() or 1 + len(events.uses.busy_threads()),
            alignments=(Alignment("onnxruntime", offset, error),),
            dropped=(*events.dropped, *graph[1], *cut_of(len(raw.runs), len(calls))),
            dispatch_only=events.dispatch_only,
            notes=(hint,) if events.dispatch_only else (),
            raw_file=file,
        )


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


def cut_of(runs: int, calls: int) -> list[str]:
    """Say how many iterations are missing in the engine's profile, if some are."""
    if runs >= calls:
        return []
    missing = f"the operators of the last {calls - runs} of {calls} iterations"
    return [f"{missing}: ONNX Runtime keeps {MOST_EVENTS} events"]


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
