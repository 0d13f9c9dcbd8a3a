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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.onnxruntime.blocked_layout import DOMAIN, block_size
from lar.engines.onnxruntime.cupti import DeviceRecorder, DeviceWork, open_recorder
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.profile_file import RawEvent, RawProfile, RawRun, ThreadUses
from lar.engines.onnxruntime.profiled_operators import VIEWS, OperatorTable, OptimizedGraph
from lar.engines.onnxruntime.providers import CPU, DEVICES
from lar.engines.onnxruntime.saving import release_memory, save_optimized
from lar.engines.operator_times import RELAYOUT, bytes_of, copy_span
from lar.errors import LarError, UsageError
from lar.options.table import PROFILE_MEMORY, PROFILES, one_of
from lar.profiles.intervals import merge_intervals, total_of
from lar.records import profile as types
from lar.records.columns import ExecutionColumns, RecordColumns, SpanColumns

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

HINT = "ONNX Runtime's file is what --profile-raw wrote, lar's what --profile wrote"
ROUNDING_NS = 1000  # the engine's times are whole microseconds, rounded down
# An estimate has no addresses: the number of an iteration and, in these bits, that of a tensor.
ADDRESS_BITS = 32

# Nodes that change a layout, or copy between the host and a device: the spans that they are.
SPANS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("ReorderInput", "ReorderOutput", "Transpose"), RELAYOUT),
    "MemcpyFromHost": copy_span("host", "device"),
    "MemcpyToHost": copy_span("device", "host"),
}
BY_NAME = {str(span["name"]): span for span in SPANS.values()}

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
NOT_IN_FILE = (
    "FLOPs and bytes: the file has neither the weights nor the attributes",
    "warm-up: the file does not record which runs were part of it",
)


class Call(NamedTuple):
    """The times at which an iteration called the engine and that call returned."""

    step: types.Step
    begin_ns: int
    end_ns: int


class RunEvents:
    """The contents of runs: executions of operators, and spans that belong to them.

    On the CPU an operator is executed where and when the engine reports. On a device it is
    executed while its kernels run, which `works` tell if the engine does not. It reports its
    dispatch, which stands for it where there are no kernels.
    """

    def __init__(
        self,
        raw: RawProfile,
        device: str,
        graph: OptimizedGraph | None = None,
        works: Sequence[DeviceWork] = (),
    ) -> None:
        has_kernels = any(run.works for run in raw.runs)
        on_cpu = device.startswith("cpu")
        self.raw, self.device, self.works = raw, device, () if has_kernels else works
        self.dispatch_only = not (on_cpu or has_kernels or self.works)
        self.on_device = not (on_cpu or self.dispatch_only)
        self.table = OperatorTable(raw.runs, graph)
        self.executions = ExecutionColumns()
        self.spans = SpanColumns()
        self.uses = ThreadUses()
        self._numbers: dict[str, int] = {}  # of threads, by their names

    def add(self, placed: Iterable[tuple[types.Step, int]], offset_ns: int = 0) -> None:
        """Add the events before the runs, with an offset, and the runs in the order of time, each
        with its iteration and with the offset of its times."""
        for event in self.raw.load:
            event.offset_ns = offset_ns
            named: dict[str, Any] = {"category": "runtime", "name": event.name}
            self.spans.add(event.start_ns, event.end_ns, thread=HOST_THREAD, **named)
        for (step, own_ns), raw in zip(placed, self.raw.all_runs(), strict=False):
            run = raw.moved(own_ns)
            for node, works in zip(run.nodes, self._works_of(run), strict=True):
                self._add_node(step, run.thread, node, works)
        self.executions.sort_by_start()
        for number, _ in enumerate(self.uses.busy_threads(), start=1):
            self._number_of(f"intra-op {number}")

    def _works_of(self, run: RawRun) -> list[list[DeviceWork]]:
        """Return the works that each node of a run had a device do: those that the host asked for
        while it was the last node to begin, and had not ended."""
        starts, asked = [node.start_ns for node in run.nodes], attrgetter("called_ns")
        first = bisect_left(self.works, run.start_ns, key=asked)
        last = bisect_right(self.works, run.end_ns, key=asked)
        own: list[list[DeviceWork]] = [[] for _ in starts]
        for work in (*self.works[first:last], *run.works):
            place = bisect_right(starts, work.called_ns) - 1
            if place >= 0 and work.called_ns <= run.nodes[place].end_ns + ROUNDING_NS:
                own[place].append(work)
        return own

    def trace(self) -> EngineTrace:
        """Return all that was added."""
        dropped = [] if self.on_device else [NO_PARTS]
        unknown: dict[str, Any] = {}
        if self.dispatch_only:
            dropped += [NO_KERNELS, NO_RATES]
            unknown = {"flops": None, "size_bytes": None, "source": "none"}
        return EngineTrace(
            operators=tuple(
                msgspec.structs.replace(each, threads=self.uses.by_operator.get(place), **unknown)
                for place, each in enumerate(self.table.operators)
            ),
            executions=self.executions,
            spans=self.spans,
            threads={number: name for name, number in self._numbers.items()},
            thread_count=1 + len(self.uses.busy_threads()),
            dropped=tuple(dropped),
            dispatch_only=self.dispatch_only,
        )

    def _number_of(self, name: str) -> int:
        return self._numbers.setdefault(name, HOST_THREAD + 1 + len(self._numbers))

    def _add_node(
        self, step: types.Step, caller: int, event: RawEvent, works: Sequence[DeviceWork]
    ) -> None:
        args, place, times = event.args, self.table.place_of(event), (event.start_ns, event.end_ns)
        self.uses.add(place, bytes(args.thread_scheduling_stats), timed=not step.warmup)
        same = event.tid == caller
        thread = HOST_THREAD if same else self._number_of(f"thread {event.tid}")
        here: dict[str, Any] = {"thread": thread, "warmup": step.warmup, "operator": place}
        if self.on_device and works:
            self._add_works(step, place, times, works)
        elif self.on_device and args.provider != CPU:  # it has nothing to do there, such as a view
            self.spans.add(*times, step.number, category="runtime", name=event.node, **here)
        else:
            ran = types.Execution(place, step.number, thread, *times, warmup=step.warmup)
            self.executions.append(ran)
        named = SPANS.get(args.op_name)
        if named and not (self.on_device and named is RELAYOUT):
            size_bytes = bytes_of(self.table.operators[place].outputs)
            self.spans.add(*times, step.number, size_bytes=size_bytes, **{**named, **here})

    def _add_works(
        self, step: types.Step, place: int, dispatch: types.Interval, works: Sequence[DeviceWork]
    ) -> None:
        """Add what a node had the device do, and the execution that this makes."""
        start, end = min(each.start_ns for each in works), max(each.end_ns for each in works)
        busy = total_of(merge_intervals((each.start_ns, each.end_ns) for each in works))
        streams = [self._number_of(f"stream {each.stream}") for each in works]
        self.executions.append(
            types.Execution(
                *(place, step.number, streams[0], start, end),
                wait_ns=end - start - busy,  # for the host to dispatch the next kernel
                dispatch_start_ns=dispatch[0],
                dispatch_end_ns=dispatch[1],
                dispatch_thread=HOST_THREAD,
                warmup=step.warmup,
            )
        )
        here: dict[str, Any] = {"operator": place, "warmup": step.warmup, "device": self.device}
        for each, thread in zip(works, streams, strict=True):
            facts = {**each.facts(), **BY_NAME.get(each.name, {})}
            self.spans.add(each.start_ns, each.end_ns, step.number, thread=thread, **here, **facts)


@dataclass
class Tensor:
    """A tensor of one iteration: the executions that give it and, so far, read it last."""

    size_bytes: int
    maker: types.Execution
    reader: types.Execution


def allocations_of(events: RunEvents, steps: Sequence[types.Step]) -> tuple[types.Allocation, ...]:
    """Return what the executions of each iteration take and give back, in the order of time.

    The model's outputs stay until the iteration has ended.
    """
    ends, outputs = {step.number: step.end_ns for step in steps}, events.table.graph.outputs
    found: list[types.Allocation] = []
    for number, executions in groupby(events.executions, key=attrgetter("step")):
        taken, held = tensors_of(executions, events.table.operators)
        kept = [held.get(name) for name in outputs]
        for place, it in enumerate(taken):
            address = (number << ADDRESS_BITS) + place
            at = ends[number] if any(it is each for each in kept) else it.reader.end_ns
            sides = (it.maker, it.maker.start_ns, it.size_bytes), (it.reader, at, -it.size_bytes)
            for user, time, size in sides:
                changed = types.Allocation(time, size, user.operator, address, source="estimate")
                found.append(changed)
    return tuple(sorted(found, key=attrgetter("at_ns")))


def tensors_of(
    executions: Iterable[types.Execution], operators: Sequence[types.ProfiledOperator]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return the tensors that the executions of one iteration give, and the last one of each name.
    A tensor in the body of a loop is taken each time."""
    taken: list[Tensor] = []
    held: dict[str, Tensor] = {}
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
                    taken.append(held[name])
    return taken, held


def profile_of_raw(data: bytes, name: str) -> types.Profile:
    """Return the profile of the runs that the engine's own file holds, which may all be timed.

    Raises:
        UsageError: it holds no run.
        msgspec.MsgspecError, ValueError: it is truncated, foreign or damaged.
    """
    raw = RawProfile.of(data)
    if not raw.runs:
        raise UsageError("no run of a model is in it", HINT, subject=name)
    providers = {event.args.provider for run in raw.runs for event in run.nodes}
    events = RunEvents(raw, "cuda" if providers & DEVICES.keys() else "cpu")
    steps = [types.Step(number, run.start_ns, run.end_ns) for number, run in enumerate(raw.runs)]
    events.add((step, 0) for step in steps)
    trace = events.trace()
    return types.Profile(
        facts=types.ProfileFacts(
            engine="onnxruntime",
            device=events.device,
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
        self._device = device
        self._calls = RecordColumns(lambda *it: Call(types.Step(*it[:5]), *it[5:]), "qqqBiqq")

    def take(self, step: types.Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self._calls.add(*msgspec.structs.astuple(step), forward_ns, dispatched_ns)

    @cached_property
    def graph(self) -> tuple[OptimizedGraph | None, tuple[str, ...]]:
        """The graph that the driver runs, or None and the reason; copies share that of the
        first."""
        first = self.driver.first.profiler
        if isinstance(first, SessionProfiler) and first is not self:
            return first.graph
        return graph_of(self.driver)

    def end(self) -> tuple[str, int]:
        """End the session; return its file, and when that began by the time of day.

        Raises:
            LarError: it could not be written whole.
        """
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
        calls, (graph, reason) = [*self._calls], self.graph
        raw = RawProfile.in_file(file)
        events = RunEvents(raw, device, graph, works)
        placed, alignment = place_runs(raw.runs, calls, began_ns - unix_ns)
        events.add(placed, alignment.offset_ns)
        with_memory = PROFILE_MEMORY.is_given(settings) and device.startswith("cpu")
        trace = events.trace()
        hint = WITH_CUPTI if driver.spec.runners == 1 else ONE_COPY
        return replace(
            trace,
            allocations=allocations_of(events, [it.step for it in calls]) if with_memory else (),
            # Short operators leave some of the threads without work.
            thread_count=driver.thread_count() or trace.thread_count,
            alignments=(alignment,),
            dropped=(*trace.dropped, *reason, *raw.cut_of(len(calls))),
            notes=(hint,) if trace.dispatch_only else (),
            raw_file=file,
        )


def graph_of(driver: SessionDriver) -> tuple[OptimizedGraph | None, tuple[str, ...]]:
    """Return the graph that a driver runs, or None and the reason."""
    try:
        content = driver.saved.content if driver.saved else save_graph(driver)
        is_blocked = DOMAIN.encode() in content
        plain = save_graph(driver, level="basic") if is_blocked else b""
    except Exception as error:  # the engine has no one kind for these
        why = one_line(str(error))
        return None, (f"FLOPs, bytes and memory: ONNX Runtime cannot save the graph: {why}",)
    block = block_size(driver.onnxruntime) if is_blocked else 1
    return OptimizedGraph(content, block, plain), ()


def save_graph(driver: SessionDriver, level: str = "") -> bytes:
    """Return the optimised model of a driver without the larger weights, at another `level`."""
    with tempfile.TemporaryDirectory(dir=folder_of(driver)) as folder:
        # The engine always writes the weights too, and only into the model's folder.
        os.symlink(os.devnull, os.path.join(folder, "weights"))
        path = Path(folder, "optimized.onnx")
        save_optimized(driver, path, "weights", level=level)
        return path.read_bytes()


def place_runs(
    runs: Sequence[RawRun], calls: Sequence[Call], guess_ns: int
) -> tuple[list[tuple[types.Step, int]], types.Alignment]:
    """Return the iteration of each run with the offset of the engine's times in it, and the offset
    of times outside runs.

    Each run lies within the call that made it, which bounds the offset from both sides. `guess_ns`
    is the offset by the time of day; it is used as far as it lies within the bounds. Then each run
    is moved into its own call.
    """
    pairs = [*zip(runs, calls, strict=False)]
    if not pairs:
        return [], types.Alignment("onnxruntime", guess_ns)
    bounds = [(call.begin_ns - run.start_ns, call.end_ns - run.end_ns) for run, call in pairs]
    least, most = max(low for low, _ in bounds) - ROUNDING_NS, min(high for _, high in bounds)
    # The time of day may have been set meanwhile: no one offset then fits all.
    offset = min(max(guess_ns, least), most) if least <= most else (least + most) // 2
    error = max(abs(offset - least), abs(most - offset))
    own = (min(max(offset, low), high) for low, high in bounds)
    placed = [(call.step, each) for (_, call), each in zip(pairs, own, strict=True)]
    return placed, types.Alignment("onnxruntime", offset, error)
